#!/usr/bin/env python3
"""A soak of zero copy: Intel's driver igb in the newer guest (crates/testnet/guest), datagrams for the first half and HTTP for the second,
at rates that take a small part of a processor. Once a minute memory and frames; at the end whether anything was lost or kept.

    benches/zero_copy.py [MINUTES]        60

    serve udp-echo   datagrams of the kernel's sockets, of 1200 bytes over IPv4 and of 4000, so in fragments, over IPv6
    serve http       the kernel's sockets: kept connections, a connection each, POST

Fails when an answer is missing or late, when the server dropped anything but repeated segments, when a frame is neither free nor with the driver once all is still,
when memory goes on growing after the first third, or when the card is not left as it was found.

Needs root and what the guest needs. GUEST_PROFILE, GUEST_BINARY, GUEST_TESTS and GUEST_LINKS as for crates/testnet/guest/run.
"""
import json, os, pathlib, socket, subprocess, sys, tempfile, time

if len(sys.argv) > 1 and not sys.argv[1].replace(".", "", 1).isdigit():
    sys.exit(__doc__)
minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
if "FLOWLANE_GUEST" not in os.environ:
    run = pathlib.Path(__file__).resolve().parent.parent / "crates/testnet/guest/run"
    os.environ["GUEST_SECONDS"] = str(int(minutes * 60) + 600)
    os.execv(run, [str(run), "--newer", "--program", sys.executable, os.path.abspath(__file__), str(minutes)])

flowlane = os.environ["FLOWLANE_GUEST_BINARY"]
seconds = int(minutes * 30)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="flowlane-zero-copy-"))
V4, V6 = "10.9.4.2", "fd00:9:4::2"
# An emulated processor is slow enough that TCP repeats segments now and then; a connection that is over gets some, too.
ORDINARY = {"tcp-duplicate", "tcp-time-wait"}
HTTP = f"""
name = "zero copy"
rate = "10"
timeout = "30s"
waiting = "30s"
phase = [{{ name = "hold", duration = "{seconds}s" }}]
[[pool]]
name = "kept"
share = 3
poisson = true
connections = 10
target = [{{ url = "http://{V4}/" }}, {{ url = "http://[{V6}]/" }}]
request = [
    {{ path = "/size/600", weight = 6 }}, {{ path = "/size/30000", weight = 1 }},
    {{ path = "/echo", method = "POST", body-size = "8k", weight = 1 }},
]
[[pool]]
name = "one request each"
share = 1
connections = 10
keep-alive = false
target = [{{ url = "http://{V4}/size/3000" }}]
"""


class Guest:
    """The guest's shell (crates/testnet/guest/init)."""

    def __init__(self):
        self.wire = socket.socket(socket.AF_UNIX)
        self.wire.connect(os.environ["FLOWLANE_GUEST"])
        self.wire.settimeout(120)
        self.lines, self.number = self.wire.makefile("r", errors="replace"), 0

    def run(self, command):
        self.number += 1
        self.wire.sendall(f"{self.number} {command}\n".encode())
        said = []
        for line in self.lines:
            if line.startswith(f"@done {self.number} "):
                return int(line.split()[2]), "".join(said).strip()
            said.append(line)
        sys.exit("zero_copy: the guest has ended: " + "".join(said))

    def must(self, command):
        code, said = self.run(command)
        if code:
            sys.exit(f"zero_copy: in the guest: {command}: {said}")
        return said


def held(guest):
    """Kilobytes of the server's memory; its frames: all, free, and with driver and kernel."""
    memory = int(guest.must("awk '/^VmRSS:/ { print $2 }' /proc/$(cat /run/flowlane.pid)/status"))
    workers = json.loads(guest.must("flowlane stat --control /run/control --json"))["workers"]["workers"]
    queues = [queue["outstanding"] for worker in workers for queue in worker["queues"]]
    total = lambda name: sum(worker[name] for worker in workers)
    return memory, total("frames"), total("frames-free"), sum(sum(queue.values()) for queue in queues)


def rises(samples):
    """Kilobytes that a line through the samples after the first third rises."""
    points = [(at, memory) for at, memory in samples if at >= seconds / 3]
    if len(points) < 3:
        return None
    mt, mm = sum(t for t, _ in points) / len(points), sum(m for _, m in points) / len(points)
    slope = sum((t - mt) * (m - mm) for t, m in points) / sum((t - mt) ** 2 for t, _ in points)
    return slope * (points[-1][0] - points[0][0])


def leg(guest, name, service, loads):
    """One service under its loads; what was wrong."""
    said = guest.must(f"start flowlane flowlane serve {service} --link af-xdp:igb --addr {V4}/24,{V6}/64 --no-pin --json --rss set "
                      "--control /run/control")
    print(f"{name}: {said.splitlines()[-1]}", flush=True)
    bad = [] if "native, zero-copy" in said else [f"{name}: it is not zero copy: {said}"]
    running = {}
    for load, words in loads.items():
        out, complaints = open(scratch / f"{name}-{load}.json", "w"), open(scratch / f"{name}-{load}.said", "w")
        running[load] = subprocess.Popen([flowlane, "load", *words, "--link", "kernel", "--no-pin", "--quiet", "--json"],
                                         stdout=out, stderr=complaints)
    began, samples = time.time(), []
    while any(p.poll() is None for p in running.values()) and time.time() < began + seconds + 120:
        if time.time() >= began + 60 * len(samples):
            memory, frames, free, outside = held(guest)
            at = time.time() - began
            samples.append((at, memory))
            print(f"{name}: {at / 60:5.1f} min, {memory / 1024:.1f} MB; frames {frames}: free {free}, driver and kernel {outside}, "
                  f"program {frames - free - outside}", flush=True)
        time.sleep(0.5)
    for load, p in running.items():
        if p.poll() is None:
            p.kill()
        p.wait()
        try:
            text = (scratch / f"{name}-{load}.json").read_text().strip()
            run = json.JSONDecoder().raw_decode(text)[0]
        except ValueError:
            bad.append(f"{name} {load}: no report: " + (scratch / f"{name}-{load}.said").read_text()[-300:])
            continue
        count = lambda what: run["total"]["counts"][what] + run["total"]["unmeasured"][what]
        print(f"{name} {load}: sent {count('sent')}, answered {count('answered')}, failed {count('failed')}, errors "
              f"{run['total']['counts']['errors']}, drops {run['drops']}", flush=True)
        if run["ended"] != "done" or not count("sent") or count("answered") != count("sent") or run["total"]["counts"]["errors"]:
            bad.append(f"{name} {load}: ended {run['ended']}, sent {count('sent')}, answered {count('answered')}, "
                       f"{run['total']['counts']['errors']}")
    # What is on its way has come once the last connection is closed.
    for _ in range(60):
        memory, frames, free, outside = held(guest)
        if frames == free + outside:
            break
        time.sleep(1)
    print(f"{name}: still: {memory / 1024:.1f} MB; frames {frames}: free {free}, driver and kernel {outside}")
    if frames != free + outside:
        bad.append(f"{name}: {frames - free - outside} frames are nowhere")
    rise = rises(samples)
    if rise is not None:
        print(f"{name}: memory rises by {rise:+.0f} kB after the first third")
        if rise > 512:
            bad.append(f"{name}: memory grows")
    code, said = guest.run("finish flowlane")
    summary = next((json.loads(line) for line in said.splitlines() if '"kind":"summary"' in line), {})
    print(f"{name}: exit code {code}, alignment {summary.get('alignment')}, received {summary.get('received')}, drops {summary.get('drops')}")
    if code or set(summary.get("drops", {"no summary": 1})) - ORDINARY:
        bad.append(f"{name}: exit code {code}: {said[-600:]}")
    return bad


def main():
    guest = Guest()
    guest.must("ethtool -L igb combined 4; ethtool -X igb default; settle igb")
    before = guest.must("card igb")
    last = ["-d", f"{seconds}s", "--timeout", "10s"]
    bad = leg(guest, "udp", "udp-echo --port 7", {
        "datagrams": ["udp", f"{V4}:7", "-r", "50", "--flows", "64", "--size", "1200", *last],
        "fragments": ["udp", f"[{V6}]:7", "-r", "10", "--flows", "16", "--size", "4000", *last],
    })
    (scratch / "http.toml").write_text(HTTP)
    bad += leg(guest, "http", "http --port 80", {"requests": ["http", "--scenario", str(scratch / "http.toml")]})
    if guest.must("settle igb; card igb") != before:
        bad.append("the card is not as it was found")
    for line in bad:
        print("FAILED:", line)
    print(f"what they said: {scratch}")
    return bool(bad)


sys.exit(main())
