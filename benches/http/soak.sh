#!/bin/sh
# A soak: `load http` against `serve http` on kernel sockets and over a link of ours at the same time, for ten minutes or as
# long as is said, with a mix of clients. Fails when memory of any of the four processes goes on growing after the warm-up,
# when generator and server counted differently, or when anything failed.
#
# The generator keeps the run's seconds, for its plots: a slot each for every pool and lane, up to 1200 of them, then of
# twice the length (crates/load/src/report/series.rs). That much it may grow, and no more.
#
# Needs root (network namespaces, veth) and python3.
#
#   benches/http/soak.sh [seconds] [path to flowlane] [requests a second of each pair]
set -eu

seconds=${1:-600}
flowlane=${2:-target/release/flowlane}
rate=${3:-400}
scratch=$(mktemp -d)
near=flsoak$$a
far=flsoak$$b
port=18083

[ "$(id -u)" = 0 ] || { echo "skipped, because this needs root"; exit 0; }
for tool in ip python3; do
    command -v "$tool" >/dev/null || { echo "skipped, because $tool is not installed"; exit 0; }
done

pids=
cleanup() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    ip netns del $near 2>/dev/null || true
    ip netns del $far 2>/dev/null || true
    rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
ip netns add $near
ip netns add $far
ip link add va netns $near type veth peer name vb netns $far
ip -n $near link set va up
ip -n $far link set vb up

# A mix: kept connections, one for each request, HTTP/2, slow readers, bodies, chunks.
cat > "$scratch/mix.toml" <<MIX
name = "soak"
rate = "$rate"
timeout = "30s"
waiting = "30s"
phase = [{ name = "warm-up", duration = "10s", from = 0.1 }, { name = "hold", duration = "${seconds}s" }]

[[pool]]
name = "kept"
share = 4
poisson = true
connections = 40
target = [{ url = "http://TARGET/" }]
request = [
    { path = "/size/600", weight = 6 },
    { path = "/size/30000", weight = 1 },
    { path = "/size/5000?chunked", weight = 1 },
    { path = "/echo", method = "POST", body-size = "2k", weight = 1 },
]

[[pool]]
name = "one request each"
share = 2
connections = 100
keep-alive = false
target = [{ url = "http://TARGET/size/600" }]

[[pool]]
name = "http2"
share = 1
connections = 4
http2 = 8
target = [{ url = "http://TARGET/size/600" }]

[[pool]]
name = "a few each"
share = 1
connections = 20
keep-alive = 7
target = [{ url = "http://TARGET/size/1200" }]

[[pool]]
name = "slow readers"
connections = 5
read-rate = "4k"
think = { exponential = "500ms" }
target = [{ url = "http://TARGET/size/8192" }]
MIX
sed "s/TARGET/127.0.0.1:$port/" "$scratch/mix.toml" > "$scratch/kernel.toml"
sed "s/TARGET/10.11.2.1:$port/" "$scratch/mix.toml" > "$scratch/link.toml"

# Name, and how it is run.
start() {
    name=$1
    shift
    "$@" >"$scratch/$name.json" 2>"$scratch/$name.said" &
    pid=$!
    pids="$pids $pid"
    eval "${name}_pid=$pid"
}
ready() {
    until grep -q ' on ' "$scratch/$1.said"; do
        kill -0 "$2" 2>/dev/null || { cat "$scratch/$1.said"; exit 1; }
        sleep 0.1
    done
}
start kernel_server "$flowlane" serve http --addr 127.0.0.1/8 --port $port --no-pin --json
start link_server ip netns exec $far "$flowlane" serve http --link af-packet:vb --addr 10.11.2.1/24 --port $port --no-pin --json
ready kernel_server "$kernel_server_pid"
ready link_server "$link_server_pid"
# The schedule may be missed on a busy machine: that is not what is looked for here.
start kernel_load "$flowlane" load http --scenario "$scratch/kernel.toml" --no-pin --quiet --json
start link_load ip netns exec $near "$flowlane" load http --scenario "$scratch/link.toml" --link af-packet:va \
    --addr 10.11.2.2/24 --clients 10.11.2.64/26 --no-pin --quiet --json

# Seconds and resident kilobytes of each, until both generators are done.
began=$(date +%s)
while kill -0 "$kernel_load_pid" 2>/dev/null || kill -0 "$link_load_pid" 2>/dev/null; do
    for name in kernel_server link_server kernel_load link_load; do
        eval "pid=\$${name}_pid"
        rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null || true)
        [ -z "$rss" ] || echo "$name $(($(date +%s) - began)) $rss" >> "$scratch/memory"
    done
    sleep 1
done
wait "$kernel_load_pid" || true
wait "$link_load_pid" || true
kill -INT "$kernel_server_pid" "$link_server_pid"
wait "$kernel_server_pid" "$link_server_pid" || true

python3 - "$scratch" "$seconds" <<'PY'
import json, sys
scratch, seconds = sys.argv[1], float(sys.argv[2])
bad = []
# Bytes of a slot: two packed histograms of a second, and counts.
SLOT, SLOTS = 600, 1200


def slots(name, begin, end):
    """What the series of a generator may take between two seconds of its run, kilobytes."""
    if not name.endswith("_load"):
        return 0
    try:
        run = json.load(open(f"{scratch}/{name}.json"))
    except (OSError, ValueError):
        return 0
    seconds = max(0, min(end, SLOTS) - min(begin, SLOTS))
    return SLOT * seconds * len(run["pools"]) * len(run["lanes"]) / 1024


# Memory: a line through what comes after the warm-up, the first third at least.
samples = {}
for line in open(f"{scratch}/memory"):
    name, at, rss = line.split()
    samples.setdefault(name, []).append((float(at), float(rss)))
for name, points in samples.items():
    end = points[-1][0]
    # While the last answers are waited for, and when a process ends, memory goes.
    steady = [p for p in points if max(20, end / 3) <= p[0] <= 10 + seconds]
    if len(steady) < 10:
        bad.append(f"{name}: too few samples to tell ({len(steady)}): run it for longer")
        continue
    n = len(steady)
    mt, mr = sum(t for t, _ in steady) / n, sum(r for _, r in steady) / n
    slope = sum((t - mt) * (r - mr) for t, r in steady) / sum((t - mt) ** 2 for t, _ in steady)
    noise = (sum((r - mr - slope * (t - mt)) ** 2 for t, r in steady) / n) ** 0.5
    grown = slope * (steady[-1][0] - steady[0][0])
    series = slots(name, steady[0][0], steady[-1][0])
    # Half a megabyte is not what a leak comes to in ten minutes.
    verdict = "GROWS" if grown - series > max(512, 3 * noise) else "steady"
    print(f"{name:14} {steady[0][1]/1024:7.1f} MB after the warm-up, {steady[-1][1]/1024:7.1f} MB at the end, "
          f"{grown:+7.0f} kB by the line through {n} samples, noise {noise:5.0f} kB, "
          f"series at most {series:.0f} kB: {verdict}")
    if verdict == "GROWS":
        bad.append(f"{name}: memory grows")

# Counts: what was sent was heard, what was answered was sent, connections are connections.
for pair in "kernel", "link":
    try:
        run = json.load(open(f"{scratch}/{pair}_load.json"))
        said = [json.loads(line) for line in open(f"{scratch}/{pair}_server.json")]
    except (OSError, ValueError) as e:
        bad.append(f"{pair}: no report: {e}; " + open(f"{scratch}/{pair}_load.said").read().strip())
        continue
    server = [d for d in said if d["kind"] == "http-summary"][-1]
    total = lambda name: run["total"]["counts"][name] + run["total"]["unmeasured"][name]
    print(f"{pair:14} sent {total('sent')}, answered {total('answered')}, failed {total('failed')}, connections "
          f"{total('connections-opened')}; the server heard {server['requests']} requests on {server['connections']} "
          f"connections, errors {server['errors']}; slip p99.9 {run['slip']['p99.9-ns'] / 1e3:.0f} us")
    for what, ours, theirs in (
        ("requests", total("sent"), server["requests"]),
        ("answers", total("answered"), server["answers-2xx"]),
        ("answers to what was sent", total("answered"), total("sent")),
        ("connections", total("connections-opened"), server["connections"]),
        ("failures", total("failed"), 0),
        ("connections that failed", total("connections-failed"), 0),
    ):
        if ours != theirs:
            bad.append(f"{pair}: {what}: {ours} and {theirs}")
    if run["ended"] != "done":
        bad.append(f"{pair}: the run ended {run['ended']}: {run['failed']}")
for line in bad:
    print("FAILED:", line)
sys.exit(bool(bad))
PY
