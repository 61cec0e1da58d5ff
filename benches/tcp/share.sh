#!/usr/bin/env bash
# How a bottleneck is shared by our senders and as many of the kernel's (CUBIC): 1 and 4 of each at once over 30 Mbit/s, 20 ms of round
# trip and a drop-tail queue of 20 and 100 ms, all to the kernel's receiver. Prints ours in parts of the kernel's, for the whole of
# each run and for sixths of it, and the same of the kernel's beside the kernel's: that is how far chance goes.
#
#   benches/tcp/share.sh [ROUNDS] [SECONDS]        2 and 45 by default
#   PROFILE=dev benches/tcp/share.sh               without waiting for the release build
#   FLOWLANE=another/flowlane benches/tcp/share.sh
#
# Programs run with real-time priority, so that other work on the machine does not decide. Needs root, iproute2, ethtool, util-linux and
# python3.
rounds=${1:-2} seconds=${2:-45}
source "$(dirname "$0")/path.sh"
ip -n $a addr add 10.9.0.3/24 dev a0
sink
# Flows of each, milliseconds of queue, whose.
share() {
    local flows=$1 queue=$2 whose=$3 other=10.9.0.11 first second
    : >"$scratch/sink"
    path_begin --rate 30 --queue "$queue" --delay 10 --jitter 2 --seed "$round"
    streams="ip netns exec $a chrt -r 4 python3 benches/tcp/streams.py"
    FROM=10.9.0.1 $streams send "$seconds" 1 "$flows" 10.9.0.2:7001 >/dev/null &
    first=$!
    if [ "$whose" = kernel ]; then
        other=10.9.0.3
        FROM=$other $streams send "$seconds" 1 "$flows" 10.9.0.2:7001 >/dev/null &
    else
        ip netns exec $a chrt -r 4 "$flowlane" load tcp 10.9.0.2:7001 --link af-packet:a0 --addr $other/24 --workers 1 \
            --mode write --connections "$flows" --duration "${seconds}s" --timeout 20s --quiet --json >/dev/null &
    fi
    second=$!
    pids+=("$first" "$second")
    wait "$first" "$second" || true
    path_end
    python3 - "$scratch/sink" 10.9.0.1 $other "$whose $flows+$flows queue $queue ms" <<'P'
import json, sys
name, kernel, other, label = sys.argv[1:]
rows = [json.loads(line.strip("\0")) for line in open(name) if line.strip("\0").startswith("{")]
rows = [r for r in rows if kernel in r and other in r]
while len(rows) > 1 and rows[-1] == {**rows[-2], "at": rows[-1]["at"]}:
    rows.pop()
part = lambda a, b: (b[other] - a[other]) / max(b[kernel] - a[kernel], 1)
marks = [rows[i * (len(rows) - 3) // 6] for i in range(7)]
total = sum(marks[6][x] - marks[0][x] for x in (kernel, other)) * 8e-6 / (marks[6]["at"] - marks[0]["at"])
print(f"{label:24} beside the kernel's {part(marks[0], marks[6]):.2f}  by sixths "
      + " ".join(f"{part(a, b):.2f}" for a, b in zip(marks, marks[1:])) + f"  in all {total:.1f} Mbit/s", flush=True)
P
}
for round in $(seq "$rounds"); do
    for flows in 1 4; do
        for queue in 20 100; do
            for whose in ours kernel; do share $flows $queue $whose; done
        done
    done
done
