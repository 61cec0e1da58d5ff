#!/usr/bin/env python3
"""What watching costs: a web server with everything on that watches it beside one with nothing, in interleaved pairs.

On: control socket, /metrics and the numbers of the web page each read once a second, watchdog, perf events, task budget. Off: none of them but
the control socket, which nobody asks. Both serve the same page on kernel sockets with one worker on processor 0; the generator on processor 1 asks one
after the other, in an order that changes, as fast as its connections allow.

With --link (root, iproute2) each server has a veth of its own and AF_PACKET, and on are also the largest flows (--top-flows, read as well) and records
of connections (--ipfix with an active timeout of a second, to a socket that takes them); metrics and the page's numbers are read over the control socket.
Printed: the ratio (on / off) of answers a second and of the server's processor time for an answer, the median of the pairs and the 95 % interval of
that median from 10,000 resamples of the pairs.

    benches/watch.py [--link] [path to flowlane] [pairs] [seconds of a run]

As root the servers and the generator run with real-time priority, so that other programs on the machine disturb less.
"""

import json, os, random, socket, subprocess, sys, tempfile, threading, time, urllib.request

link = "--link" in sys.argv
words = [word for word in sys.argv[1:] if word != "--link"]
flowlane = words[0] if words else "target/release/flowlane"
pairs = int(words[1]) if len(words) > 1 else 20
seconds = float(words[2]) if len(words) > 2 else 2.0
if link and os.geteuid() != 0:
    sys.exit("watch: --link needs root for network namespaces")
scratch = tempfile.mkdtemp()
real_time = ["chrt", "-f", "50"] if os.geteuid() == 0 else []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


namespaces, helpers = [], []


def ip(line):
    subprocess.run(["ip"] + line.split(), check=True)


def wire(name, net):
    """A veth between two new namespaces; the near end has a kernel's address. The word before commands of each end."""
    near, far = (f"flwatch{os.getpid()}{name}{end}" for end in "nf")
    for namespace in (near, far):
        ip(f"netns add {namespace}")
        namespaces.append(namespace)
        ip(f"-n {namespace} link set lo up")
    ip(f"link add name va netns {near} type veth peer name vb netns {far}")
    ip(f"-n {near} addr add 10.12.{net}.2/24 dev va")
    for namespace, end in ((near, "va"), (far, "vb")):
        ip(f"-n {namespace} link set {end} up")
    # Whoever takes the records: the kernel drops what nobody reads.
    sink = "import socket, time\ns = socket.socket(type=socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', 4739))\ntime.sleep(1e6)"
    helpers.append(subprocess.Popen(["ip", "netns", "exec", far, sys.executable, "-c", sink]))
    return f"ip netns exec {near} ", f"ip netns exec {far} "


def serve(name, net, more):
    port = free_port()
    inside, place, address, within = "", "--link kernel", "127.0.0.1", ""
    if link:
        within, inside = wire(name, net)
        place, address = f"--link af-packet:vb --addr 10.12.{net}.1/24", f"10.12.{net}.1"
    line = f"{inside}{flowlane} serve http {place} --workers 1 --cpus 0 --port {port} --control {scratch}/{name} {more}"
    server = subprocess.Popen(real_time + line.split(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    first = server.stderr.readline()
    if " port " not in first:
        sys.exit(f"'{line}' did not start: {first}")
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return server, f"http://{address}:{port}", within


def processor_time(server):
    """Seconds, of all threads: to the nanosecond, where ticks of the clock would be too coarse for a short run."""
    threads = f"/proc/{server.pid}/task"
    return sum(int(open(f"{threads}/{thread}/schedstat").read().split()[0]) for thread in os.listdir(threads)) / 1e9


def run(server, address, within):
    file = f"{scratch}/run.json"
    before = processor_time(server)
    load = f"{within}{flowlane} load http {address}/size/600 --workers 1 -c 20 -d {seconds}s --quiet --save {file} --cpus 1"
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
watched = f"--watchdog 1s --perf-events " + ("--top-flows --ipfix 127.0.0.1:4739,active=1s" if link else f"--metrics {metrics} --web {web}")
reading, on, off = threading.Event(), None, None


def ask_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        s.connect(f"{scratch}/on")
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while more := s.recv(1 << 16):
            answer += more
    if not answer.startswith(b"HTTP/1.1 200"):
        sys.exit(f"{path}: {answer[:100]}")


def read_each_second():
    while not reading.wait(1.0):
        if link:
            for path in ("/metrics", "/v1/live", "/v1/flows?n=20"):
                ask_socket(path)
        else:
            for address in (f"http://127.0.0.1:{metrics}/metrics", f"http://127.0.0.1:{web}/v1/live"):
                urllib.request.urlopen(address, timeout=5).read()


try:
    on, off = serve("on", 1, watched), serve("off", 2, "--task-budget 0s")
    threading.Thread(target=read_each_second, daemon=True).start()
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
    for server in filter(None, (on, off)):
        server[0].terminate()
        server[0].wait()
    for helper in helpers:
        helper.terminate()
        helper.wait()
    for namespace in namespaces:
        subprocess.run(["ip", "netns", "del", namespace])
