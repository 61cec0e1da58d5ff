#!/usr/bin/env python3
"""`serve http` on kernel sockets beside nginx with one worker: the same file of 600 bytes, asked for by wrk, in turns.

    benches/kernel/serve_http.py FLOWLANE [--rounds 5] [--seconds 3] [--connections 100]

FLOWLANE is the program, such as target/release/flowlane. The server has processor 1 and wrk processor 0. Two loads: connections that stay
(keep-alive), and a connection for each request. Printed for each: requests a second as wrk counts them, and requests for a second of the server's
processor time (user and system, by /proc), with the ratio to nginx's of the same round: median, least and greatest. Needs nginx, wrk (installed by
apt-get as root) and two processors.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request

PORTS = {"nginx": 18081, "flowlane": 18082}
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(pids):
    """User and system time of these processes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def wait_for(url):
    until = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                body = answer.read()
            assert len(body) == 600, f"{url}: {len(body)} bytes"
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def start_nginx(scratch):
    temp = "; ".join(f"{kind}_temp_path {scratch}/{kind}" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(f"{scratch}/nginx.conf", "w") as file:
        file.write(f"""daemon off;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log {scratch}/error.log;
events {{ worker_connections 4096; multi_accept on; }}
http {{
    access_log off; sendfile on; tcp_nopush on;
    open_file_cache max=100; keepalive_requests 100000000; keepalive_timeout 600s;
    {temp};
    server {{ listen 127.0.0.1:{PORTS["nginx"]} backlog=4096; root {scratch}/html; }}
}}
""")
    return subprocess.Popen(["taskset", "-c", "1", "nginx", "-c", f"{scratch}/nginx.conf"])


def start_flowlane(program, scratch):
    words = [program, "serve", "http", "--link", "kernel", "--addr", "127.0.0.1", "--port", str(PORTS["flowlane"]),
             "--workers", "1", "--dir", f"{scratch}/html"]
    return subprocess.Popen(["taskset", "-c", "1"] + words, stdout=subprocess.DEVNULL)


def with_children(pid):
    """The process and its children: nginx works in one."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid] + [int(word) for word in file.read().split()]


def load(url, pids, given, close):
    """Requests a second, and requests for a processor second of the server."""
    words = ["taskset", "-c", "0", "wrk", "-t", "1", "-c", str(given.connections), "-d", f"{given.seconds}s"]
    words += ["-H", "Connection: close"] if close else []
    before = processor_seconds(pids)
    said = subprocess.run(words + [url], check=True, capture_output=True, text=True).stdout
    spent = processor_seconds(pids) - before
    requests, seconds = re.search(r"(\d+) requests in ([\d.]+)s", said).groups()
    wrong = re.search(r"Non-2xx.*|Socket errors: .*", said)
    if wrong and not re.fullmatch(r"Socket errors: connect 0, read \d+, write 0, timeout 0", wrong.group()):
        print(f"    {url}: {wrong.group()}")
    return int(requests) / float(seconds), int(requests) / max(spent, 1 / TICK)


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("flowlane")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=int, default=3)
    parse.add_argument("--connections", type=int, default=100)
    given = parse.parse_args()
    if not (shutil.which("nginx") and shutil.which("wrk")) and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "nginx-light", "wrk"], stdout=subprocess.DEVNULL, check=False)
    for tool in ("nginx", "wrk", "taskset"):
        if not shutil.which(tool):
            print(f"skipped, because {tool} is not installed")
            return
    scratch = tempfile.mkdtemp()
    os.chmod(scratch, 0o755)
    os.mkdir(f"{scratch}/html")
    with open(f"{scratch}/html/b.txt", "w") as file:
        file.write("x" * 600)
    servers = {"nginx": start_nginx(scratch), "flowlane": start_flowlane(given.flowlane, scratch)}
    try:
        for name in servers:
            wait_for(f"http://127.0.0.1:{PORTS[name]}/b.txt")
        for what, close in (("keep-alive", False), ("a connection each", True)):
            rates = {name: [] for name in servers}
            for number in range(given.rounds):
                for name in list(servers)[:: 1 if number % 2 == 0 else -1]:
                    pids = with_children(servers[name].pid)
                    rates[name].append(load(f"http://127.0.0.1:{PORTS[name]}/b.txt", pids, given, close))
            print(f"{what}:")
            for at, unit in ((0, "requests a second"), (1, "requests a processor second")):
                ours, theirs = ([one[at] for one in rates[name]] for name in ("flowlane", "nginx"))
                ratios = [a / b for a, b in zip(ours, theirs)]
                print(f"    {unit}: flowlane {spread(ours, ',.0f')}, nginx {spread(theirs, ',.0f')}, "
                      f"ratio {spread(ratios, '.2f')}", flush=True)
    finally:
        for server in servers.values():
            server.terminate()
        for server in servers.values():
            server.wait()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
