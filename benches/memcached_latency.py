#!/usr/bin/env python3
"""The latency of serve memcached beside Debian's memcached, at a share of the rate that memcached reaches.

    benches/memcached_latency.py [--program target/release/flowlane] [--rounds 7] [--seconds 3] [--share 0.7]

    processor 0: flowlane load memcached, kernel sockets ── va ══ vb ── the server, one worker: processor 1

The rate is the share of what a closed loop over the same connections gets from memcached: the median of three runs before the rounds. In each round
all servers take their turn, in an order that changes, each started anew: memcached -t 1, ours on kernel sockets, ours on its own stack over AF_XDP,
which looks again for a while before it sleeps (--idle of serve). Intended times are what latency is counted from. memcached has threads of its own
beside its worker; with --free servers may run on either processor. Needs root, iproute2, ethtool and memcached.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time

NEAR, FAR = "fl-memlat-a", "fl-memlat-b"
KERNEL, STACK = "10.11.4.2", "10.11.4.3"
QUANTILES = ("p50", "p99", "p99.9")


def run(*words, **more):
    subprocess.run(words, check=True, **more)


def network():
    for name in (NEAR, FAR):
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
        run("ip", "netns", "add", name)
    run("ip", "link", "add", "va", "netns", NEAR, "numtxqueues", "1", "numrxqueues", "1", "type", "veth",
        "peer", "name", "vb", "netns", FAR, "numtxqueues", "1", "numrxqueues", "1")
    for name, device, address in ((NEAR, "va", "10.11.4.1"), (FAR, "vb", KERNEL)):
        run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
        run("ip", "-n", name, "link", "set", device, "up")
        # AF_XDP sees packets as they are: the sums are in them, for all servers.
        run("ip", "netns", "exec", name, "ethtool", "-K", device, "tx", "off", "gso", "off", "tso", "off", "gro", "off",
            stdout=subprocess.DEVNULL)


def servers(program):
    """Each server's words and address."""
    ours = [program, "serve", "memcached", "-m", "256", "-U", "0", "--no-pin"]
    return {
        "memcached": (["memcached", "-u", "root", "-m", "256", "-U", "0", "-t", "1", "-l", KERNEL], KERNEL),
        "ours": ([*ours, "-t", "1", "-l", KERNEL], KERNEL),
        "ours, AF_XDP": ([*ours, "--workers", "1", "--link", "af-xdp:vb", "--addr", f"{STACK}/24"], STACK),
    }


def load(program, address, connections, seconds, rate):
    """A run of the generator: its report."""
    words = [program, "load", "memcached", f"{address}:11211", "--workers", "1", "-c", str(connections), "--fill", "--keys", "100k",
             "-K", "32", "-V", "100", "-d", f"{seconds}s", "--json", "-q", "--no-pin"]
    if rate:
        words += ["-r", str(int(rate))]
    done = subprocess.run(["ip", "netns", "exec", NEAR, "taskset", "-c", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measure(options, server, rate):
    """A server is started, loaded and ended: the report."""
    words, address = server
    running = subprocess.Popen(["ip", "netns", "exec", FAR, "taskset", "-c", "0,1" if options.free else "1", *words],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(address)
        return load(options.program, address, options.connections, options.seconds, rate)
    finally:
        running.terminate()
        running.wait()


def wait_for(address):
    """Until somebody accepts there."""
    ask = ["ip", "netns", "exec", NEAR, "python3", "-c",
           f"import socket; socket.create_connection(('{address}', 11211), 0.2).close()"]
    end = time.monotonic() + 10
    while subprocess.run(ask, stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > end:
            raise SystemExit(f"nobody listens at {address}")
        time.sleep(0.05)


def rounds(options, rate):
    """What each server's runs were, in microseconds by quantile."""
    kinds = servers(options.program)
    seen = {name: {q: [] for q in QUANTILES} for name in kinds}
    for number in range(options.rounds):
        for name in (list(kinds) if number % 2 else reversed(list(kinds))):
            report = measure(options, kinds[name], rate)
            total = report["total"]
            latency = total["latency"]
            for q in QUANTILES:
                seen[name][q].append(latency[q] / 1000)
            answered = total["counts"]["answered"] / report["seconds"]
            print(f"{name:13} {answered:8.0f}/s  " + "  ".join(f"{q} {latency[q] / 1000:8.1f} us" for q in QUANTILES) +
                  f"   load {os.getloadavg()[0]:.1f}", flush=True)
    return seen


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default="target/release/flowlane")
    parse.add_argument("--rounds", type=int, default=7)
    parse.add_argument("--seconds", type=int, default=3)
    parse.add_argument("--connections", type=int, default=32)
    parse.add_argument("--share", type=float, default=0.7)
    parse.add_argument("--free", action="store_true", help="servers on either processor")
    options = parse.parse_args()
    if os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2 or not shutil.which("memcached"):
        raise SystemExit("root, two processors and memcached are needed")
    network()
    try:
        peer = servers(options.program)["memcached"]
        most = []
        for _ in range(3):
            report = measure(options, peer, None)
            most.append(report["total"]["counts"]["answered"] / report["seconds"])
        rate = statistics.median(most) * options.share
        print(f"memcached answers {statistics.median(most):.0f}/s in a closed loop of {options.connections}; asked for {rate:.0f}/s")
        seen = rounds(options, rate)
    finally:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "netns", "del", name], check=False)
    for name, of in seen.items():
        figures = "  ".join(f"{q} {statistics.median(of[q]):.1f} us ({min(of[q]):.1f} to {max(of[q]):.1f})" for q in QUANTILES)
        ratios = [mine / theirs for mine, theirs in zip(of["p99.9"], seen["memcached"]["p99.9"], strict=True)]
        print(f"{name}: {figures}; p99.9 {statistics.median(ratios):.2f} of memcached's")


if __name__ == "__main__":
    main()
