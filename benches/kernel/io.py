#!/usr/bin/env python3
"""Kernel sockets by io_uring beside the same by epoll: pairs of runs in alternating order.

    benches/kernel/io.py FLOWLANE [--pairs 10] [--seconds 2] [--only NAME]

FLOWLANE is the program, such as target/release/flowlane. What is measured has processor 1, its peer (by epoll) processor 0. For each kind of work:
how much of it is done in a second of processor time of what is measured (user and system), and in a second; of each the geometric mean of the
ratios io_uring / epoll, its 95 % bootstrap interval, and the median by epoll. Needs two processors.
"""

import argparse
import json
import math
import os
import random
import socket
import statistics
import subprocess
import time

TICK = os.sysconf("SC_CLK_TCK")
HTTP = ["load", "http", "http://127.0.0.1:{port}{path}", "-c", "{connections}", "-d", "{seconds}s"]
WRITE = ["load", "tcp", "127.0.0.1:{port}", "--mode", "write", "--connections", "{connections}", "--duration", "{seconds}s"]

# Name, service, path or mode of its load, connections, further words of the load, what is counted, whether the load is what is measured.
WORKS = [
    ("http, keep-alive, 600 bytes", "http", HTTP, "/size/600", 100, [], "requests", False),
    ("http, a connection each, 600 bytes", "http", HTTP, "/size/600", 100, ["--no-keepalive"], "requests", False),
    ("bulk sent, 1 MiB bodies", "http", HTTP, "/size/1048576", 4, [], "requests", False),
    ("bulk received", "tcp-discard", WRITE, "", 4, [], "bytes", False),
    ("load, keep-alive, 600 bytes", "http", HTTP, "/size/600", 100, [], "requests", True),
    ("load, a connection each, 600 bytes", "http", HTTP, "/size/600", 100, ["--no-keepalive"], "requests", True),
]


def processor_seconds(pid):
    """User and system time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start_server(given, service, io):
    """A server that accepts, and its port."""
    port = free_port()
    words = ["taskset", "-c", "1", given.flowlane, "serve", service, "--link", "kernel", "--addr", "127.0.0.1", "--port", str(port),
             "--workers", "1", "--no-pin", "--io", io]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return server, port
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.02)


def run(given, work, io):
    """How much was done in a second of processor time, and in a second."""
    _, service, load, path, connections, more, counted, of_load = work
    server, port = start_server(given, service, "epoll" if of_load else io)
    try:
        words = [word.format(port=port, path=path, connections=connections, seconds=given.seconds) for word in load] + more
        words = ["taskset", "-c", "1" if of_load else "0", given.flowlane] + words
        words += ["--workers", "1", "--no-pin", "--json", "--quiet", "--io", io if of_load else "epoll"]
        if of_load:
            # The load takes the processor of what is measured.
            os.sched_setaffinity(server.pid, {0})
            for thread in os.listdir(f"/proc/{server.pid}/task"):
                os.sched_setaffinity(int(thread), {0})
        before = processor_seconds(server.pid)
        began = os.times()
        said = subprocess.run(words, capture_output=True, text=True)
        ended = os.times()
        spent = processor_seconds(server.pid) - before
        if of_load:
            spent = ended.children_user + ended.children_system - began.children_user - began.children_system
        if not said.stdout:
            raise SystemExit(f"{' '.join(words)}: {said.stderr}")
        report = json.loads(said.stdout)
        done = amount(report, counted)
        return done / max(spent, 1 / TICK), done / given.seconds
    finally:
        server.terminate()
        server.wait()


def amount(report, counted):
    total = report["total"]["counts"]
    return total["answered"] if counted == "requests" else total["bytes-sent"]


def interval(ratios):
    """Geometric mean of ratios, and the 95 % bootstrap interval of it."""
    logs = [math.log(ratio) for ratio in ratios]
    chance = random.Random(1)
    means = sorted(statistics.fmean(chance.choices(logs, k=len(logs))) for _ in range(5000))
    return [math.exp(one) for one in (statistics.fmean(logs), means[124], means[4874])]


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("flowlane")
    parse.add_argument("--pairs", type=int, default=10)
    parse.add_argument("--seconds", type=int, default=2)
    parse.add_argument("--only", default="")
    given = parse.parse_args()
    for work in WORKS:
        if given.only not in work[0]:
            continue
        got = {"epoll": [], "uring": []}
        for number in range(given.pairs):
            for io in ("epoll", "uring")[:: 1 if number % 2 == 0 else -1]:
                got[io].append(run(given, work, io))
        print(f"{work[0]}:")
        for at, unit in ((0, "a processor second"), (1, "a second")):
            ours, other = ([one[at] for one in got[io]] for io in ("uring", "epoll"))
            mean, low, high = interval([a / b for a, b in zip(ours, other)])
            print(f"    {work[6]} {unit}: io_uring / epoll {mean:.2f} ({low:.2f} to {high:.2f}), epoll {statistics.median(other):,.0f}", flush=True)


if __name__ == "__main__":
    main()
