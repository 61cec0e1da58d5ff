#!/usr/bin/env bash
# Our congestion controls beside the kernel's of the same name, over 30 Mbit/s, 20 ms of round trip and a drop-tail queue of 50 ms, to
# the kernel's receiver:
#
#   alone   one flow at random loss of 0, 1 and 5 %: ours and the kernel's in turns, megabits a second, and ours in parts of the kernel's
#   beside  one flow beside one of the kernel's CUBIC, without random loss: the flow's part of what both get, ours and the kernel's in turns
#
#   benches/tcp/congestion.sh [ROUNDS] [SECONDS] [NAME...]        3, 20 and bbr by default; names: bbr cubic newreno
#   LOSSES="1" benches/tcp/congestion.sh                           only these
#   PROFILE=dev benches/tcp/congestion.sh                          without waiting for the release build
#
# Needs root, iproute2, ethtool, util-linux and python3; bbr needs a kernel that has it.
rounds=${1:-3} seconds=${2:-20}
shift $(($# < 2 ? $# : 2))
names=("${@:-bbr}")
source "$(dirname "$0")/path.sh"
ip -n $a addr add 10.9.0.3/24 dev a0
sink
streams="ip netns exec $a chrt -r 4 python3 benches/tcp/streams.py"
# one WHOSE NAME: a flow for the time of a run, in the background. The kernel's comes from 10.9.0.3, ours from 10.9.0.11.
one() {
    if [ "$1" = kernel ]; then
        FROM=10.9.0.3 CONGESTION=${2/newreno/reno} $streams send "$seconds" 1 1 10.9.0.2:7001 >/dev/null &
    else
        ip netns exec $a chrt -r 4 "$flowlane" load tcp 10.9.0.2:7001 --link af-packet:a0 --addr 10.9.0.11/24 --workers 1 --congestion "$2" \
            --mode write --connections 1 --duration "${seconds}s" --timeout 20s --quiet --json >"$scratch/load" 2>&1 &
    fi
    flows+=($!)
    pids+=($!)
}
# measure WHOSE NAME BESIDE OPTION...: one flow, with one of CUBIC beside it if BESIDE is not empty: bytes a second of each that came in
# behind the first five seconds.
measure() {
    local whose=$1 name=$2 beside=$3
    shift 3
    : >"$scratch/sink"
    path_begin --rate 30 --queue 50 --delay 10 --jitter 1 "$@"
    flows=()
    one "$whose" "$name"
    if [ -n "$beside" ]; then
        FROM=10.9.0.1 $streams send "$seconds" 1 1 10.9.0.2:7001 >/dev/null &
        flows+=($!)
        pids+=($!)
    fi
    wait "${flows[@]}" || true
    path_end
    python3 - "$scratch/sink" "$([ "$whose" = kernel ] && echo 10.9.0.3 || echo 10.9.0.11)" "$seconds" <<'P'
import json, sys
name, flow, seconds = sys.argv[1:]
rows = [json.loads(line.strip("\0")) for line in open(name) if line.strip("\0").startswith("{")]
rows = [r for r in rows if flow in r]
end = rows[0]["at"] + float(seconds) - 1
rows = [r for r in rows if r["at"] <= end]
begin = next(r for r in rows if r["at"] >= rows[0]["at"] + 5)
time = rows[-1]["at"] - begin["at"]
rate = lambda who: (rows[-1].get(who, 0) - begin.get(who, 0)) / time
print(rate(flow), rate("10.9.0.1"))
P
}
for name in "${names[@]}"; do
    for loss in ${LOSSES:-0 1 5}; do
        for round in $(seq "$rounds"); do
            for whose in ours kernel; do
                echo $whose $(measure $whose "$name" "" --loss $loss --seed "$round")
            done
        done | python3 -c '
import sys
name, loss = sys.argv[1:]
got = {"ours": [], "kernel": []}
for line in sys.stdin:
    whose, rate, _ = line.split()
    got[whose].append(float(rate))
mean = lambda list: sum(list) / len(list)
parts = [o / max(k, 1) for o, k in zip(got["ours"], got["kernel"])]
ours, kernel = mean(got["ours"]), mean(got["kernel"])
print(f"{name} alone, loss {loss} %: kernel {kernel * 8e-6:6.2f}, ours {ours * 8e-6:6.2f} Mbit/s, "
      f"ours/kernel {ours / max(kernel, 1):.3f} ({min(parts):.2f} to {max(parts):.2f})", flush=True)' "$name" $loss
    done
    for whose in ours kernel; do
        for round in $(seq "$rounds"); do measure $whose "$name" beside --seed "$round"; done | python3 -c '
import sys
name, whose = sys.argv[1:]
rates = [tuple(map(float, line.split())) for line in sys.stdin]
parts = [flow / max(flow + cubic, 1) for flow, cubic in rates]
total = sum(map(sum, rates)) / len(rates) * 8e-6
print(f"{name} beside the kernel'"'"'s cubic, {whose:6}: {sum(parts) / len(parts):.2f} of both ({min(parts):.2f} to {max(parts):.2f}), "
      f"in all {total:.1f} Mbit/s", flush=True)' "$name" $whose
    done
done
