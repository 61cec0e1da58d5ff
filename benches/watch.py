#!/usr/bin/env python3
"""What watching costs: a web server with everything on that watches it beside one with nothing, in interleaved pairs.

On: control socket, /metrics and the numbers of the web page each read once a second, watchdog, perf events, task budget. Off: none of them but
the control socket, which nobody asks. Records of connections (--ipfix) need a link of ours and are not among them. Both serve the same page on kernel sockets with
one worker on processor 0; the generator on processor 1 asks one after the other, in an order that changes, as fast as its connections allow.
Printed: the ratio (on / off) of answers a second and of the server's processor time for an answer, the median of the pairs and the 95 % interval of
that median from 10,000 resamples of the pairs.

    benches/watch.py [path to flowlane] [pairs] [seconds of a run]

As root the servers and the generator run with real-time priority, so that other programs on the machine disturb less.
"""

import json, os, random, socket, subprocess, sys, tempfile, threading, time, urllib.request

flowlane = sys.argv[1] if len(sys.argv) > 1 else "target/release/flowlane"
pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
scratch = tempfile.mkdtemp()
real_time = ["chrt", "-f", "50"] if os.geteuid() == 0 else []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve(name, more):
    port = free_port()
    line = f"{flowlane} serve http --link kernel --workers 1 --cpus 0 --port {port} --control {scratch}/{name} {more}"
    server = subprocess.Popen(real_time + line.split(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    first = server.stderr.readline()
    if " port " not in first:
        sys.exit(f"'{line}' did not start: {first}")
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return server, port


def processor_time(server):
    words = open(f"/proc/{server.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def run(server, port):
    file = f"{scratch}/run.json"
    before = processor_time(server)
    load = f"{flowlane} load http http://127.0.0.1:{port}/size/600 --workers 1 -c 20 -d {seconds}s --quiet --save {file} --cpus 1"
    subprocess.run(real_time + load.split(), check=True, stdout=subprocess.DEVNULL)
    used = processor_time(server) - before
    total = json.load(open(file))["total"]
    return total["rates"]["answered"], used / total["counts"]["answered"]


def interval(ratios):
    def median(values):
        ordered = sorted(values)
        n = len(ordered)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    generator = random.Random(1)
    medians = sorted(median(generator.choices(ratios, k=len(ratios))) for _ in range(10_000))
    return median(ratios), medians[250], medians[9750]


metrics, web = free_port(), free_port()
watched = f"--metrics {metrics} --web {web} --watchdog 1s --perf-events"
on, off = serve("on", watched), serve("off", "--task-budget 0s")
reading = threading.Event()


def read_each_second():
    while not reading.wait(1.0):
        for address in (f"http://127.0.0.1:{metrics}/metrics", f"http://127.0.0.1:{web}/v1/live"):
            urllib.request.urlopen(address, timeout=5).read()


threading.Thread(target=read_each_second, daemon=True).start()
try:
    run(*on), run(*off)
    rates, times, plain = [], [], []
    for pair in range(pairs):
        first, second = (on, off) if pair % 2 == 0 else (off, on)
        a, b = run(*first), run(*second)
        with_it, without = (a, b) if pair % 2 == 0 else (b, a)
        rates.append(with_it[0] / without[0])
        times.append(with_it[1] / without[1])
        plain.append(without[0])
    print(f"{pairs} pairs of {seconds:g} s, {min(plain):.0f} to {max(plain):.0f} answers a second without watching")
    for what, ratios in (("answers a second", rates), ("processor time for an answer", times)):
        middle, low, high = interval(ratios)
        print(f"{what}, watched / not: {middle:.4f} [{low:.4f}, {high:.4f}], pairs from {min(ratios):.3f} to {max(ratios):.3f}")
finally:
    reading.set()
    for server, _ in (on, off):
        server.terminate()
        server.wait()
