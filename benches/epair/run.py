#!/usr/bin/env python3
"""epair beside the kernel's veth, in turn in every round: one TCP stream with offloads, and round trips of small datagrams.

    benches/epair/run.py FLOWLANE [--rounds 5] [--seconds 2] [--small 20000]
    benches/epair/run.py FLOWLANE --stalls 600

FLOWLANE is the program, such as target/release/flowlane. Needs root, iproute2 and two processors. With --stalls it exchanges datagrams for so
many seconds, idle for a while before each, and lists the waits over 33 ms: those that the kernel's accounts of time spent waiting for a
processor (/proc/PID/task/*/schedstat of everybody on the way) explain, and those that they do not. A wake-up that is lost shows as one of
the latter.
"""

import argparse
import ctypes
import multiprocessing
import os
import random
import socket
import statistics
import subprocess
import threading
import time

A, B = "flep-a", "flep-b"
TO = "10.11.8.2"


def ip(words):
    subprocess.run(["ip"] + words.split(), check=True, capture_output=True)


def clean():
    for space in (A, B):
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def enter(space):
    with open(f"/run/netns/{space}") as file:
        # `os.setns` is younger than some Pythons.
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), space)


class Link:
    """A pair of either kind between two fresh namespaces."""

    def __init__(self, kind, flowlane):
        clean()
        ip(f"netns add {A}")
        ip(f"netns add {B}")
        self.process = None
        if kind == "veth":
            ip(f"link add name x0 netns {A} type veth peer name x1 netns {B}")
            ip(f"-n {A} link set dev x0 up")
            ip(f"-n {B} link set dev x1 up")
        else:
            words = f"epair up x0 x1 --netns-a {A} --netns-b {B}"
            self.process = subprocess.Popen(
                [flowlane] + words.split(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            line = self.process.stderr.readline()
            assert line.startswith("flowlane: epair"), line
        ip(f"-n {A} addr add 10.11.8.1/24 dev x0")
        ip(f"-n {B} addr add {TO}/24 dev x1")
        for _ in range(50):
            done = subprocess.run(
                ["ip", "netns", "exec", A, "ping", "-c", "1", "-W", "1", TO], capture_output=True)
            if done.returncode == 0:
                break

    def processes(self):
        return [self.process.pid] if self.process else []

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
        clean()


def sink(port, ready, seconds, result):
    enter(B)
    with socket.create_server((TO, port)) as listener:
        ready.set()
        connection, _ = listener.accept()
        buffer, got, began = bytearray(1 << 20), 0, time.monotonic()
        while True:
            n = connection.recv_into(buffer)
            if n == 0:
                break
            got += n
        result.put(got * 8 / (time.monotonic() - began) / 1e9)


def stream(seconds):
    """Gbit/s of one connection."""
    ready, result = multiprocessing.Event(), multiprocessing.Queue()
    receiver = multiprocessing.Process(target=sink, args=(7000, ready, seconds, result))
    receiver.start()
    ready.wait()

    def send():
        enter(A)
        with socket.create_connection((TO, 7000)) as connection:
            data, until = bytes(1 << 18), time.monotonic() + seconds
            while time.monotonic() < until:
                connection.sendall(data)

    sender = multiprocessing.Process(target=send)
    sender.start()
    gigabits = result.get()
    sender.join()
    receiver.join()
    return gigabits


def echo(ready):
    enter(B)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind((TO, 7001))
        ready.set()
        while True:
            data, to = here.recvfrom(2048)
            here.sendto(data, to)


def waited(pids):
    """Nanoseconds that these processes' threads have waited for a processor."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[1])
    return total


def round_trips(link, count, seconds=None):
    """Microseconds of each round trip; with seconds: (us, us for a processor) of those over 33 ms, and how many there were."""
    ready, result = multiprocessing.Event(), multiprocessing.Queue()
    peer = multiprocessing.Process(target=echo, args=(ready,), daemon=True)
    peer.start()
    ready.wait()

    def ask():
        enter(A)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.connect((TO, 7001))
            here.settimeout(30)
            times, long, rng = [], [], random.Random(1)
            until = None if seconds is None else time.monotonic() + seconds
            everybody = [os.getpid(), peer.pid] + link.processes()
            while len(times) < count if until is None else time.monotonic() < until:
                if until is not None:
                    threading.Event().wait(rng.random() * 0.004)
                    before = waited(everybody)
                began = time.perf_counter_ns()
                here.send(bytes(64))
                here.recv(2048)
                took = (time.perf_counter_ns() - began) / 1000
                times.append(took)
                if until is not None and took > 33_000:
                    long.append((took, (waited(everybody) - before) / 1000))
            result.put((long, len(times)) if until is not None else times)

    asker = multiprocessing.Process(target=ask)
    asker.start()
    times = result.get()
    asker.join()
    peer.terminate()
    return times


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("flowlane")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=float, default=2)
    parse.add_argument("--small", type=int, default=20_000)
    parse.add_argument("--stalls", type=float)
    given = parse.parse_args()
    try:
        if given.stalls:
            for kind in ("epair", "veth"):
                link = Link(kind, given.flowlane)
                long, count = round_trips(link, 0, given.stalls)
                bad = [one for one in long if one[0] - one[1] > 33_000]
                print(f"{kind}: {count} round trips in {given.stalls:.0f} s, {len(long)} over 33 ms, "
                      f"{len(bad)} of them not explained by waiting for a processor {bad[:5]}", flush=True)
                link.end()
            return
        rates, small = {"veth": [], "epair": []}, {"veth": [], "epair": []}
        for number in range(given.rounds):
            for kind in ("veth", "epair") if number % 2 == 0 else ("epair", "veth"):
                link = Link(kind, given.flowlane)
                rates[kind].append(stream(given.seconds))
                times = sorted(round_trips(link, given.small))
                small[kind].append((times[len(times) // 2], times[int(len(times) * 0.999)]))
                link.end()
                print(f"round {number} {kind}: {rates[kind][-1]:.1f} Gbit/s, "
                      f"p50 {small[kind][-1][0]:.1f} us, p99.9 {small[kind][-1][1]:.0f} us", flush=True)
        ratios = [e / v for e, v in zip(rates["epair"], rates["veth"])]
        print(f"one TCP stream, epair over veth: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        for what, at in (("p50", 0), ("p99.9", 1)):
            ratios = [e[at] / v[at] for e, v in zip(small["epair"], small["veth"])]
            print(f"round trip {what}, epair over veth: {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})")
    finally:
        clean()


if __name__ == "__main__":
    main()
