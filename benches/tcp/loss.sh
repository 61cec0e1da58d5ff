#!/usr/bin/env bash
# How much the kernel's sender gets through to our receiver, beside the kernel's own, at random loss: COUNT connections to each
# at once over the same path of 20 ms, at 1 and 5 % loss, with and without SACK. Prints megabits a second of what was acknowledged,
# and ours in parts of the kernel's.
#
#   benches/tcp/loss.sh [ROUNDS] [SECONDS] [COUNT]        3, 20 and 8 by default
#   PROFILE=dev benches/tcp/loss.sh                        without waiting for the release build
#
# Needs root, iproute2, ethtool and python3.
rounds=${1:-3} seconds=${2:-20} count=${3:-8}
source "$(dirname "$0")/path.sh"
sink
serve_ours tcp-discard --port 7001
for sack in 1 0; do
    ip netns exec $a sysctl -qw net.ipv4.tcp_sack=$sack
    for loss in 1 5; do
        for round in $(seq "$rounds"); do
            path_begin --delay 10 --jitter 1 --loss "$loss" --seed "$round"
            ip netns exec $a chrt -r 4 python3 benches/tcp/streams.py send "$seconds" 2 "$count" 10.9.0.2:7001 10.9.0.12:7001
            path_end
        done | python3 -c '
import json, sys
sack, loss, seconds = sys.argv[1:]
kernel = ours = 0
parts = []
for line in sys.stdin:
    d = json.loads(line)
    k, o = d["10.9.0.2:7001"], d["10.9.0.12:7001"]
    kernel, ours = kernel + k, ours + o
    parts.append(o / max(k, 1))
rate = lambda n: n * 8e-6 / (float(seconds) - 2) / len(parts)
print(f"loss {loss} %, SACK {sack}: kernel {rate(kernel):7.2f}, ours {rate(ours):7.2f} Mbit/s, "
      f"ours/kernel {ours / max(kernel, 1):.3f} ({min(parts):.2f} to {max(parts):.2f})", flush=True)' $sack "$loss" "$seconds"
    done
done
