#!/usr/bin/env python3
"""How late the requests of an open loop are on the wire, ours and oha's in turns, as tcpdump sees them on the loopback: a generator's own
figure is by its own schedule, and one that asks for what was due in the last millisecond all at once may call that in time.

    benches/http/on_the_wire.py [ROUNDS [SECONDS]]        2 rounds of 3 s for each rate

Of the middle half of a run: how far each request is behind an even schedule of the rate, in stretches of 200 ms, each from its earliest
percent on (a drift of the schedule is not lateness); and the gaps between requests. Needs root, tcpdump, oha, and
`cargo build --release -p flowlane`; OHA, FLOWLANE and RATES name others. `chrt -f 50` in front of it makes other work of the machine
matter less.
"""
import os, pathlib, shutil, signal, socket, subprocess, sys, tempfile

here = pathlib.Path(__file__).resolve().parent
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", here.parent.parent / "target"))
flowlane = os.environ.get("FLOWLANE", str(target / "release/flowlane"))
oha = os.environ.get("OHA", "oha")
rates = [int(rate) for rate in os.environ.get("RATES", "1000 10000 20000").split()]
for program in [flowlane, oha, "tcpdump"]:
    if shutil.which(program) is None:
        sys.exit(f"on_the_wire: {program} is not there")
if os.geteuid() != 0:
    sys.exit("on_the_wire: needs root to capture")
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
url = f"http://127.0.0.1:{port}/"
scratch = pathlib.Path(tempfile.mkdtemp(prefix="flowlane-wire-"))


def captured(command):
    """The moments of the requests that a command sends, in seconds."""
    capture = scratch / "requests.pcap"
    words = ["tcpdump", "-i", "lo", "-s", "80", "-B", "65536", "-w", capture, f"tcp dst port {port} and tcp[tcpflags] & tcp-push != 0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as tcpdump:
        while "listening on" not in tcpdump.stderr.readline():
            if tcpdump.poll() is not None:
                sys.exit("on_the_wire: tcpdump ended")
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        tcpdump.send_signal(signal.SIGTERM)
        tcpdump.stderr.read()
    read = subprocess.run(["tcpdump", "-tt", "-nn", "-r", capture], capture_output=True, text=True, check=True)
    return sorted(float(line.split()[0]) for line in read.stdout.splitlines() if line)


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] * 1e6


def say(name, rate, moments):
    moments = moments[len(moments) // 4 : 3 * len(moments) // 4]
    behind = [at - i / rate for i, at in enumerate(moments)]
    late, stretch = [], max(rate // 5, 100)
    for begin in range(0, len(behind) - stretch + 1, stretch):
        part = behind[begin : begin + stretch]
        earliest = sorted(part)[len(part) // 100]
        late += [max(0.0, value - earliest) for value in part]
    gaps = [b - a for a, b in zip(moments, moments[1:])]
    figures = [quantile(late, share) for share in (0.5, 0.9, 0.99)] + [quantile(gaps, share) for share in (0.1, 0.5, 0.9)]
    print(f"{rate:6} {name:14} {len(moments):8}", *(f"{figure:8.0f}" for figure in figures), flush=True)


server = subprocess.Popen([flowlane, "serve", "http", "--port", str(port), "--no-pin"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    server.stderr.readline()
    print(f"{'rate':>6} {'program':14} {'requests':>8} {'late p50':>8} {'p90':>8} {'p99':>8} {'gap p10':>8} {'p50':>8} {'p90':>8}   us")
    for _ in range(rounds):
        for rate in rates:
            ours = [flowlane, "load", "http", url, "-c", "100", "-r", str(rate), "-d", f"{seconds}s", "--no-pin", "-q"]
            theirs = [oha, "--no-tui", "--latency-correction", "-c", "100", "-q", str(rate), "-z", f"{seconds}s", url]
            runs = {"flowlane": ours, "flowlane-1ms": [*ours, "--slack", "1ms"], "flowlane-2ms": [*ours, "--slack", "2ms"], "oha": theirs}
            for name, command in runs.items():
                say(name, rate, captured(command))
finally:
    server.terminate()
    server.wait()
    shutil.rmtree(scratch)
