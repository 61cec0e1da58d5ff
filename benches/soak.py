#!/usr/bin/env python3
"""A soak of everything at once: six servers on links of ours, clients of ours and of the kernel, at rates that leave most of a
processor free. Memory of each process and our own gauges once a minute; at the end the drops, the errors, and how each grew.

    benches/soak.py [MINUTES [MINUTES OF WARM-UP]]        60, and a third of it but at most 21

    AF_XDP     serve http            a mix of ours: kept, a connection each, HTTP/2, a few each, slow readers, POST
    AF_PACKET  serve http --tls      the kernel's sockets: kept, a connection each, HTTP/2
    AF_PACKET  serve tcp-source      streams of ours through 1 % loss and 4 Mbit/s, every byte compared
    AF_XDP     serve udp-echo        datagrams of ours; of the kernel in fragments
    AF_PACKET  serve http            peers that die, stop reading, vanish, reset, speak no HTTP (bad_peers.py), SYNs without an end
    AF_PACKET  examples/moving       its lanes move twice a second under streams of ours (echo, compared) and datagrams of the kernel

Fails when a process goes on growing after the warm-up, when a stream or datagram is not what was sent, or when something failed that
should not. A generator keeps its run's seconds for plots, 1200 of them, so it may grow for twenty minutes.

Needs root, iproute2 and ethtool, and what `cargo build --release --workspace --examples --bins` makes; FLOWLANE, MOVING and BOTTLENECK
name programs that are elsewhere.
"""
import json, os, pathlib, signal, subprocess, sys, tempfile, time

here = pathlib.Path(__file__).resolve().parent
release = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", here.parent / "target")) / "release"
flowlane = os.environ.get("FLOWLANE", str(release / "flowlane"))
bottleneck = os.environ.get("BOTTLENECK", str(release / "examples/bottleneck"))
moving = os.environ.get("MOVING", str(release / "examples/moving"))
minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
warm_up = float(sys.argv[2]) if len(sys.argv) > 2 else min(21, minutes / 3)
seconds = int(minutes * 60)
if os.geteuid() != 0:
    sys.exit("soak: needs root for network namespaces")
near, middle, far = (f"flsoak{os.getpid()}{end}" for end in "amb")
scratch = pathlib.Path(tempfile.mkdtemp(prefix="flowlane-soak-"))
processes = {}

MIX = """
name = "soak"
rate = "60"
timeout = "30s"
waiting = "30s"
phase = [{ name = "warm-up", duration = "10s", from = 0.1 }, { name = "hold", duration = "SECONDSs" }]
[[pool]]
name = "kept"
share = 4
poisson = true
connections = 20
target = [{ url = "URL/" }]
request = [
    { path = "/size/600", weight = 6 }, { path = "/size/30000", weight = 1 }, { path = "/size/5000?chunked", weight = 1 },
    { path = "/echo", method = "POST", body-size = "2k", weight = 1 },
]
[[pool]]
name = "one request each"
share = 2
connections = 40
keep-alive = false
target = [{ url = "URL/size/600" }]
[[pool]]
name = "http2"
share = 1
connections = 4
http2 = 8
target = [{ url = "URL/size/600" }]
[[pool]]
name = "a few each"
share = 1
connections = 10
keep-alive = 7
target = [{ url = "URL/size/1200" }]
"""
SLOW = """
[[pool]]
name = "slow readers"
connections = 5
read-rate = "4k"
think = { exponential = "500ms" }
target = [{ url = "URL/size/8192" }]
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def wire(number, name):
    """A veth of two queues between the namespaces: NAME0 near, with the kernel's address .3, and NAME1 far."""
    queues = ["numrxqueues", "2", "numtxqueues", "2"]
    ip("link", "add", f"{name}0", *queues, "netns", near, "type", "veth", "peer", "name", f"{name}1", *queues, "netns", far)
    ip("-n", near, "link", "set", f"{name}0", "up")
    ip("-n", far, "link", "set", f"{name}1", "up")
    ip("-n", near, "addr", "add", f"10.31.{number}.3/24", "dev", f"{name}0")


def bad_path(name):
    """NAME0 near and NAME1 far with a program between them that limits and loses. The cards cut and merge nothing, so a segment is lost."""
    for ns, end in (near, "0"), (far, "1"):
        ip("link", "add", f"{name}{end}", "netns", ns, "type", "veth", "peer", "name", f"{name}{end}", "netns", middle)
        for inside in ns, middle:
            ip("-n", inside, "link", "set", f"{name}{end}", "up")
            features = [word for feature in ("tso", "gso", "gro", "tx", "rx") for word in (feature, "off")]
            subprocess.run(["ip", "netns", "exec", inside, "ethtool", "-K", f"{name}{end}", *features], check=True, stdout=subprocess.DEVNULL)
    ways = [f"{name}1", f"{name}0", "--rate", "4", "--queue", "50", "--delay", "5", "--loss", "1", "--loss-back", "1"]
    start("path", middle, bottleneck, *ways, "--seconds", str(seconds + 20), ready="forwarding", listens="json")


def start(name, ns, *command, ready=None, listens="said", **more):
    out, said = open(scratch / f"{name}.json", "w"), open(scratch / f"{name}.said", "w")
    # Namespaces are entered by a program that is replaced, so the process id is that of the program itself.
    p = subprocess.Popen(["ip", "netns", "exec", ns, *command], stdout=out, stderr=said, **more)
    processes[name] = p
    while ready and ready not in (scratch / f"{name}.{listens}").read_text():
        if p.poll() is not None:
            sys.exit(f"soak: {name} ended: " + (scratch / f"{name}.said").read_text())
        time.sleep(0.1)
    return p


def serve(name, number, link, what, *more):
    start(name, far, flowlane, "serve", what, "--link", link, "--addr", f"10.31.{number}.1/24", "--workers", "2", "--no-pin", "--json",
          "--control", str(scratch / f"{name}.sock"), *more, ready=" on ")


def load(name, *words, ours=None):
    """OURS: link and number of the wire; without it the kernel's sockets."""
    more = ["--link", ours[0], "--addr", f"10.31.{ours[1]}.2/24"] if ours else ["--link", "kernel"]
    start(name, near, flowlane, "load", *words, *more, "--no-pin", "--quiet", "--json")


def begin():
    for ns in near, middle, far:
        ip("netns", "add", ns)
    for number, name in (1, "x"), (2, "t"), (4, "u"), (5, "b"), (6, "m"):
        wire(number, name)
    bad_path("l")
    serve("http", 1, "af-xdp:x1", "http", "--port", "80")
    serve("https", 2, "af-packet:t1", "http", "--tls", "--port", "443")
    serve("source", 3, "af-packet:l1", "tcp-source", "--port", "7")
    serve("udp", 4, "af-xdp:u1", "udp-echo", "--port", "7")
    serve("strangers", 5, "af-packet:b1", "http", "--port", "80")
    start("moving", far, moving, "af-packet:m1", "10.31.6.1/24", "500", ready=" move", stdin=subprocess.PIPE)
    scenarios = {"http-load": ("http://10.31.1.1:80", MIX + SLOW), "https-load": ("https://10.31.2.1:443", MIX)}
    for name, (url, text) in scenarios.items():
        rate = "60" if name == "http-load" else "15"
        text = text.replace("[[pool]]", "[[pool]]\ninsecure = true") if name == "https-load" else text
        text = text.replace("URL", url).replace("SECONDS", str(seconds)).replace('rate = "60"', f'rate = "{rate}"')
        (scratch / f"{name}.toml").write_text(text)
    last = ["-d", f"{seconds}s", "--timeout", "30s"]
    load("http-load", "http", "--scenario", str(scratch / "http-load.toml"), "--clients", "10.31.1.64/26", ours=("af-xdp:x0", 1))
    load("https-load", "http", "--scenario", str(scratch / "https-load.toml"))
    load("source-load", "tcp", "10.31.3.1:7", "--mode", "read", "--verify", "-c", "4", *last, ours=("af-packet:l0", 3))
    load("udp-load", "udp", "10.31.4.1:7", "-r", "200", "--flows", "64", *last, ours=("af-xdp:u0", 4))
    load("fragments-load", "udp", "10.31.4.1:7", "-r", "20", "--size", "4000", "--flows", "16", *last)
    start("bad-peers", near, sys.executable, str(here / "bad_peers.py"), "10.31.5.1", "80", "b0", "10.31.5")
    load("half-open-load", "tcp", "10.31.5.1:80", "--mode", "half-open", "-r", "5", *last, ours=("af-packet:b0", 5))
    load("moving-load", "tcp", "10.31.6.1:7", "-c", "8", "-r", "40", "--size", "8Ki", *last, ours=("af-packet:m0", 6))
    load("moving-udp-load", "udp", "10.31.6.1:7", "-r", "40", "--flows", "16", *last)


def rss(p):
    try:
        for line in open(f"/proc/{p.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def processor(p):
    """Seconds of a processor that a process has had."""
    try:
        fields = open(f"/proc/{p.pid}/stat").read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


GAUGES = ("connections", "frames-free", "frames-exhausted", "memory", "memory-waits", "dropped-lane-memory")


def gauges(name):
    """What a server itself says that it holds, and what it could not for lack of memory."""
    got = subprocess.run([flowlane, "stat", "--control", str(scratch / f"{name}.sock"), "--json"],
                         capture_output=True, text=True, timeout=60)
    found = {}

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in GAUGES and isinstance(inner, (int, float)):
                    found[key] = found.get(key, 0) + int(inner)
                else:
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    for line in got.stdout.splitlines():
        walk(json.loads(line))
    return found


def sample(began, samples):
    row = {name: rss(p) for name, p in processes.items() if p.poll() is None}
    row = {name: kb for name, kb in row.items() if kb}
    used = sum(processor(p) for p in processes.values())
    held = {n: gauges(n) for n in ("http", "https", "source", "udp", "strangers") if processes[n].poll() is None}
    at = time.time() - began
    samples.append((at, row))
    if len(samples) == 1:
        print("minute  processor s  RSS in MB: " + " ".join(processes), flush=True)
    print(f"{at / 60:6.1f} {used:12.1f}  " + " ".join(f"{row[n] / 1024:.1f}" if n in row else "-" for n in processes))
    print("        held: " + "; ".join(f"{n} " + ", ".join(f"{k} {v}" for k, v in h.items()) for n, h in held.items()), flush=True)


def line(points):
    """Kilobytes that a line through the points rises from the first to the last, and how far they lie beside it."""
    n = len(points)
    mt, mr = sum(t for t, _ in points) / n, sum(r for _, r in points) / n
    slope = sum((t - mt) * (r - mr) for t, r in points) / sum((t - mt) ** 2 for t, _ in points)
    noise = (sum((r - mr - slope * (t - mt)) ** 2 for t, r in points) / n) ** 0.5
    return slope * (points[-1][0] - points[0][0]), noise


def growth(samples, lanes_and_pools):
    """What goes on growing: a line through what comes after the warm-up rises, and one through its last half, too. A step, as after a
    stall of the machine that made much wait, is none. Half a megabyte is not what a leak comes to in an hour."""
    bad = []
    for name in processes:
        points = [(at, row[name]) for at, row in samples if name in row and warm_up * 60 <= at <= seconds]
        if len(points) < 5:
            bad.append(f"{name}: too few samples to tell ({len(points)})")
            continue
        grown, noise = line(points)
        late, late_noise = line(points[len(points) // 2 :])
        # Two packed histograms and counts for each second that the series still takes.
        series = 600 * max(0, min(points[-1][0], 1200) - min(points[0][0], 1200)) * lanes_and_pools.get(name, 0) / 1024
        grows = grown - series > max(512, 3 * noise) and late - series > max(512, 3 * late_noise)
        print(f"{name:16} {points[0][1] / 1024:7.1f} MB after the warm-up, {points[-1][1] / 1024:7.1f} MB at the end, {grown:+7.0f} kB "
              f"by the line through {len(points)} samples, {late:+6.0f} kB in their last half: {'GROWS' if grows else 'steady'}")
        if grows:
            bad.append(f"{name}: memory grows")
    return bad


def documents(name):
    """Those of its output: a line each, or one over many lines."""
    text, found = (scratch / f"{name}.json").read_text().strip(), []
    while text:
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    return found


def judge():
    """What each said at its end. SYNs without an end and bad peers leave failures where they belong and nowhere else."""
    bad, lanes_and_pools = [], {}
    for name in processes:
        said = (scratch / f"{name}.said").read_text().strip().replace("\n", "; ")
        if name == "path":
            print(f"{name:16} " + (scratch / f"{name}.json").read_text().strip().replace("\n", "; "))
            continue
        try:
            found = documents(name)
            found[0]
        except (ValueError, IndexError):
            bad.append(f"{name}: no report: {said[-300:]}")
            continue
        if name.endswith("-load"):
            run = found[-1]
            total = lambda what: run["total"]["counts"][what] + run["total"]["unmeasured"][what]
            more = run["total"]["counts"].get("more", {})
            lanes_and_pools[name] = len(run["pools"]) * len(run["lanes"])
            print(f"{name:16} sent {total('sent')}, answered {total('answered')}, failed {total('failed')}, received "
                  f"{total('bytes-received')} bytes, connections {total('connections-opened')}, failed {total('connections-failed')}, "
                  f"errors {run['total']['counts']['errors']}, drops {run['drops']}, more {more}")
            if run["ended"] != "done":
                bad.append(f"{name}: ended {run['ended']}: {run['failed']}")
            if name != "half-open-load" and (total("failed") or run["total"]["counts"]["errors"] or total("connections-failed")):
                bad.append(f"{name}: {total('failed')} failed, {run['total']['counts']['errors']}")
        elif name == "bad-peers":
            print(f"{name:16} {found[-1]}")
            bad += [f"{name}: {k} {v}: {said[-200:]}" for k, v in found[-1].items() if "failed" in k]
        elif name == "moving":
            print(f"{name:16} {found[-1]}")
            # A machine that stalls for five seconds makes a move late.
            if found[-1]["not-moved"] > found[-1]["moved"] // 100 or found[-1]["netisr-dropped"]:
                bad.append(f"{name}: {found[-1]}")
        else:
            for d in found:
                what = {k: d[k] for k in ("kind", "received", "dropped", "drops", "connections", "requests", "errors", "misdirected") if k in d}
                print(f"{name:16} {what}")
    return bad, lanes_and_pools


def main():
    begin()
    began, samples = time.time(), []
    loads = [p for name, p in processes.items() if name.endswith("-load")]
    last = began + seconds + 90
    while any(p.poll() is None for p in loads + [processes["path"]]) and time.time() < last:
        if time.time() >= began + 60 * len(samples):
            sample(began, samples)
        time.sleep(1)
    ended = {name: p.poll() for name, p in processes.items() if p.poll() is not None and not name.endswith("-load") and name != "path"}
    processes["bad-peers"].send_signal(signal.SIGTERM)
    processes["moving"].stdin.close()
    for name, p in processes.items():
        if name not in ("bad-peers", "moving") and p.poll() is None:
            p.send_signal(signal.SIGINT)
    for p in processes.values():
        p.wait(timeout=60)
    bad, lanes_and_pools = judge()
    bad += growth(samples, lanes_and_pools)
    bad += [f"{name}: ended by itself with {code}" for name, code in ended.items()]
    for line in bad:
        print("FAILED:", line)
    return bool(bad)


try:
    code = main()
finally:
    for p in processes.values():
        if p.poll() is None:
            p.kill()
            p.wait()
    for ns in near, middle, far:
        subprocess.run(["ip", "netns", "del", ns], stderr=subprocess.DEVNULL)
print(f"what they said: {scratch}")
sys.exit(code)
