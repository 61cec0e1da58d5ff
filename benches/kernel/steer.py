#!/usr/bin/env python3
"""Whether alignment pays on kernel sockets: `--steer cpu` beside `--steer none`, in turns by `flowlane compare`.

    benches/kernel/steer.py FLOWLANE [--pairs 8] [--seconds 2] [--only NAME]

FLOWLANE is the program, such as target/release/flowlane. Server and load share processors 0 and 1, a worker of each bound to either. A is `none`:
the kernel chooses the listener, so a connection's task runs where it arrives in half of the cases; B is `cpu`. For each kind of work compare prints
the ratio of what is done in a second and its interval. Needs two processors; real-time priority (`chrt -f 10`) keeps other work away.

    benches/kernel/steer.py FLOWLANE --run WORK none|cpu    one run, of which the last number is the figure
"""

import argparse
import json
import shlex
import socket
import subprocess
import sys

HTTP = ["load", "http", "http://127.0.0.1:{port}{path}", "-d", "{seconds}s"]
UDP = ["load", "udp", "127.0.0.1:{port}", "--window", "256", "--flows", "16", "--duration", "{seconds}s"]

# Service, load, path, further words of the load, what is counted.
WORKS = {
    "datagrams": ("udp-echo", UDP, "", [], "answered"),
    "short": ("http", HTTP, "/size/600", ["-c", "64", "--no-keepalive"], "answered"),
    "keep-alive": ("http", HTTP, "/size/600", ["-c", "64"], "answered"),
    "bulk": ("http", HTTP, "/size/1048576", ["-c", "8"], "answered"),
}
OURS = ["--workers", "2", "--cpus", "0,1"]


def free_port(kind):
    with socket.socket(type=kind) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(given, work, steer):
    """What is done in a second."""
    service, load, path, more, counted = WORKS[work]
    port = free_port(socket.SOCK_DGRAM if service == "udp-echo" else socket.SOCK_STREAM)
    words = [given.flowlane, "serve", service, "--link", "kernel", "--addr", "127.0.0.1", "--port", str(port), "--steer", steer] + OURS
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        # The line that it serves, or why not.
        said = server.stderr.readline()
        words = [word.format(port=port, path=path, seconds=given.seconds) for word in load]
        words = [given.flowlane] + words + more + OURS + ["--json", "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True)
        if not done.stdout:
            raise SystemExit(f"{said}{shlex.join(words)}: {done.stderr}")
        return json.loads(done.stdout)["total"]["counts"][counted] / given.seconds
    finally:
        server.terminate()
        server.wait()


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("flowlane")
    parse.add_argument("--pairs", type=int, default=8)
    parse.add_argument("--seconds", type=int, default=2)
    parse.add_argument("--only", default="")
    parse.add_argument("--run", nargs=2, metavar=("WORK", "STEER"))
    given = parse.parse_args()
    if given.run:
        print(run(given, *given.run))
        return
    for work in WORKS:
        if given.only not in work:
            continue
        one = [sys.executable, __file__, given.flowlane, "--seconds", str(given.seconds), "--run", work]
        print(f"== {work}: A --steer none, B --steer cpu", flush=True)
        subprocess.run([given.flowlane, "compare", "--pairs", str(given.pairs), "--a", shlex.join(one + ["none"]), "--b", shlex.join(one + ["cpu"])])


if __name__ == "__main__":
    main()
