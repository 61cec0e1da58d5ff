#!/usr/bin/env bash
# UDP echo over a veth, one core for the server: Flowlane on AF_XDP and AF_PACKET beside the kernel's
# recvmmsg/sendmmsg, the three in turn in every round, all loaded by the same generator on the other core.
#
#   benches/links/run.sh [ROUNDS] [SECONDS] [SIZE] [WINDOW]
#
# WINDOW is how many datagrams may be on their way at once: 512 for rates, 1 for round-trip times.
#
# Needs root, iproute2 (installed if apt is there) and two processors. Prints datagrams a second, the server's processor time
# for a datagram, and the ratios of both. The generator does the softirq work of what it sends, so its core may be full before
# the server's is: then the rates say what the generator can do, and the processor time what the server needs. For that, ours
# sleeps when there is nothing to do, as the kernel's echo does; with a WINDOW of 1 it spins, for the shortest round trip.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} seconds=${2:-4} size=${3:-64} window=${4:-512}
[ "$(id -u)" = 0 ] || { echo "links: needs root for network namespaces" >&2; exit 2; }
[ "$(nproc)" -ge 2 ] || { echo "links: needs two processors" >&2; exit 2; }
command -v ip >/dev/null || apt-get install -y iproute2 >/dev/null
command -v ethtool >/dev/null || apt-get install -y ethtool >/dev/null
cargo build --quiet --release
cargo build --quiet --release -p flowlane-testnet --example kernel_echo
target=${CARGO_TARGET_DIR:-target}/release
flowlane=$target/flowlane echo=$target/examples/kernel_echo
a=flbench-a b=flbench-b
clean() { ip netns del $a 2>/dev/null || true; ip netns del $b 2>/dev/null || true; }
trap clean EXIT
clean
ip netns add $a && ip netns add $b
ip link add va netns $a type veth peer name vb netns $b
ip -n $a link set va up
ip -n $b link set vb up
ip netns exec $a ethtool -K va tx off gro off >/dev/null 2>&1 || true
ip netns exec $b ethtool -K vb tx off gro off >/dev/null 2>&1 || true

# One run: prints "datagrams-a-second server-cpu-seconds p50-us p99.9-us".
run() {
    local kind=$1 server idle=adaptive
    [ "$window" = 1 ] && idle=spin
    ip -n $b addr flush dev vb
    if [ "$kind" = kernel ]; then
        ip -n $b addr add 10.11.2.2/24 dev vb
        # The generator's clients are many addresses of one host: answers to them go by it.
        ip -n $b route replace 10.11.4.0/24 via 10.11.2.1 2>/dev/null || true
        ip netns exec $b taskset -c 1 "$echo" 10.11.2.2:7000 $((seconds + 3)) >/dev/null &
        server=$!
    else
        ip netns exec $b taskset -c 1 "$flowlane" serve udp-echo --link "$kind:vb" --addr 10.11.2.2/24 \
            --gateway 10.11.2.1 --port 7000 --workers 1 --idle $idle >/dev/null 2>&1 &
        server=$!
    fi
    # The server is up when it answers the generator's probe; it retries until then.
    local json=""
    for _ in 1 2 3; do
        json=$(ip netns exec $a taskset -c 0 "$flowlane" load udp 10.11.2.2:7000 --link af-xdp:va \
            --addr 10.11.2.1/24 --clients 10.11.4.0/24 --routed --window "$window" --size "$size" --flows $((window < 16 ? window : 16)) \
            --duration "${seconds}s" --workers 1 --idle spin --quiet --json --key microsoft 2>/dev/null) || true
        [ -n "$json" ] && break
    done
    local cpu
    # What the scheduler counted for every thread, nanoseconds.
    cpu=$(cat /proc/$server/task/*/schedstat 2>/dev/null | awk '{ n += $1 } END { print n / 1e9 }')
    kill -INT $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    printf '%s' "$json" | python3 -c '
import json, sys
t = json.load(sys.stdin)["total"]
l = t["latency"]
print(t["rates"]["answered"], sys.argv[2], l["p50"] / 1000, l["p99.9"] / 1000)' "$seconds" "$cpu"
}

declare -A rates costs
for ((r = 1; r <= rounds; r++)); do
    for kind in kernel af-xdp af-packet; do
        read -r rate cpu p50 p999 < <(run $kind)
        cost=$(awk "BEGIN { print $cpu / ($rate * $seconds) * 1e9 }")
        rates[$kind]+="$rate "
        costs[$kind]+="$cost "
        printf 'round %d  %-10s %9.0f datagrams/s  server %6.0f ns of processor time each  p50 %6.1f us  p99.9 %8.1f us\n' \
            "$r" $kind "$rate" "$cost" "$p50" "$p999"
    done
done
python3 - "${rates[kernel]}" "${rates[af-xdp]}" "${rates[af-packet]}" "${costs[kernel]}" "${costs[af-xdp]}" "${costs[af-packet]}" <<'P'
import sys
runs = [[float(x) for x in a.split()] for a in sys.argv[1:]]
for at, name in ((1, "af-xdp"), (2, "af-packet")):
    for what, ours, kernel in (("the kernel's rate", runs[at], runs[0]), ("its processor time", runs[3 + at], runs[3])):
        ratios = sorted(o / k for o, k in zip(ours, kernel) if k)
        if ratios:
            print(f"{name}: {ratios[len(ratios)//2]:.2f} times {what} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
P
