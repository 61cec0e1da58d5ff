#!/usr/bin/env bash
# Interrupts that wait while workers are busy (serve --suspend-irqs): how often the kernel's softirq takes packets in, and how often the server sleeps.
#
#   benches/kernel/suspend.sh FLOWLANE [ROUNDS [REQUESTS]]      as root
#
# A server with one worker on processor 0 behind a veth with a NAPI, its load on processor 1; ways in turns. A veth has no interrupts: its sender's
# processor runs the softirq in their place, so NET_RX of processor 1 is what a card's interrupts would be. Other work on the machine counts with it.
set -euo pipefail
flowlane=$(realpath "$1") rounds=${2:-5} requests=${3:-20000} id=$$
near=fl-bench-near-$id far=fl-bench-far-$id out=$(mktemp -d) server=
trap 'kill -INT $server 2>/dev/null || :; ip netns del $near 2>/dev/null; ip netns del $far 2>/dev/null; rm -rf "$out"' EXIT
ip netns add $near
ip netns add $far
ip link add near0 netns $near numtxqueues 1 numrxqueues 1 type veth peer name far0 netns $far numtxqueues 1 numrxqueues 1
ip -n $near addr add 10.11.2.9/24 dev near0
ip -n $far addr add 10.11.2.1/24 dev far0
ip -n $near link set near0 up
ip -n $far link set far0 up
# The near end has a NAPI, and packets that nobody has merged go by it.
ip netns exec $near ethtool -K near0 gro on
ip netns exec $far ethtool -K far0 tso off

softirqs() { awk '/NET_RX/ { print $3 }' /proc/softirqs; }
sleeps() { awk '/^voluntary/ { n += $2 } END { print n }' /proc/"$server"/task/*/status; }

once() {
    local way=$1
    shift
    ip netns exec $near taskset -c 0 "$flowlane" serve http --link kernel:near0 --port 8080 --workers 1 --no-pin --steer none "$@" \
        >"$out/said" 2>&1 &
    server=$!
    until grep -q 'http on' "$out/said"; do kill -0 $server || { cat "$out/said" >&2; exit 1; }; done
    local softirqs=$(softirqs) sleeps=$(sleeps)
    ip netns exec $far taskset -c 1 "$flowlane" load http http://10.11.2.9:8080/size/600 -c 32 -n "$requests" --workers 1 --no-pin -d 120s --json \
        >"$out/run" 2>"$out/late" || [ $? -eq 3 ] || { cat "$out/late" >&2; exit 1; }
    echo "$way $(($(softirqs) - softirqs)) $(($(sleeps) - sleeps))" >>"$out/all"
    kill -INT $server
    wait $server || :
}

for _ in $(seq "$rounds"); do
    once none
    once poll --busy-poll 50us
    once suspend --suspend-irqs
    once both --busy-poll 50us --suspend-irqs
done
echo "$requests requests, $rounds rounds: median (least to greatest)"
for way in none poll suspend both; do
    for column in 2 3; do
        awk -v way=$way -v column=$column '$1 == way { print $column }' "$out/all" | sort -n |
            awk -v way=$way -v name="$([ $column = 2 ] && echo 'softirqs of the card' || echo 'sleeps of the server')" \
                '{ n[NR] = $1 } END { printf "%-8s %-21s %6d (%d to %d)\n", way, name, n[int((NR + 1) / 2)], n[1], n[NR] }'
    done
done
