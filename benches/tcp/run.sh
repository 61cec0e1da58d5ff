#!/usr/bin/env bash
# One TCP stream against the kernel, beside the kernel's own over a veth in the same setting:
#
#   TAP, checksum and segmentation offload     beside   kernel to kernel, offloads on   (iperf3)
#   AF_XDP on a veth without any offload       beside   kernel to kernel, offloads off  (iperf3)
#   AF_XDP and AF_PACKET, segmentation left    beside   the same: the veth cuts nothing, so the kernel does, just before it,
#   to the interface (",offload")                       as it does for its own TCP
#
# both ways, in turn in every round; prints Gbit/s of payload, and the ratios with their spread. Beside each rate stand the processor
# seconds for 10^9 bytes of the process on processor 0: ours, or iperf3's client. A worker that spins is never idle, so ours are of
# a run of their own, in which it sleeps when there is nothing to do. The kernel's work for the far end is in both, as far as
# it is done in the process's time.
#
#   benches/tcp/run.sh [ROUNDS] [SECONDS]
#
# Needs root, iproute2, ethtool and iperf3 (installed if apt is there), python3 and two processors: our side, or iperf3's
# client, is on one, the kernel's other end on the other.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} seconds=${2:-4}
[ "$(id -u)" = 0 ] || { echo "tcp: needs root for network namespaces" >&2; exit 2; }
[ "$(nproc)" -ge 2 ] || { echo "tcp: needs two processors" >&2; exit 2; }
for tool in ip:iproute2 ethtool:ethtool iperf3:iperf3; do
    command -v "${tool%:*}" >/dev/null || apt-get install -y "${tool#*:}" >/dev/null
done
cargo build --quiet --release
flowlane=${CARGO_TARGET_DIR:-target}/release/flowlane
peer=$PWD/benches/tcp/peer.py
a=flbench-tcp-a b=flbench-tcp-b
pids=()
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    ip netns del $a 2>/dev/null || true
    ip netns del $b 2>/dev/null || true
}
trap clean EXIT
ip netns del $a 2>/dev/null || true
ip netns del $b 2>/dev/null || true
ip netns add $a && ip netns add $b
ip link add va netns $a type veth peer name vb netns $b
ip -n $a link set va up
ip -n $b link set vb up
ip -n $b addr add 10.11.2.2/24 dev vb
ip -n $a tuntap add tap0 mode tap vnet_hdr
ip -n $a addr add 10.11.3.2/24 dev tap0
ip -n $a link set tap0 up

offloads() { # on or off
    for end in "$a va" "$b vb"; do
        read -r ns dev <<<"$end"
        for what in tx gso tso gro; do ip netns exec "$ns" ethtool -K "$dev" $what "$1" >/dev/null 2>&1 || true; done
    done
}

# The kernel's ends of our streams.
start() { ip netns exec "$@" & pids+=($!); }
start $b taskset -c 1 python3 "$peer" sink 10.11.2.2 7001
start $b taskset -c 1 python3 "$peer" source 10.11.2.2 7002
start $a taskset -c 1 python3 "$peer" sink 10.11.3.2 7001
start $a taskset -c 1 python3 "$peer" source 10.11.3.2 7002
sleep 1

# Kernel to kernel: prints Gbit/s and seconds for 10^9 bytes; "-R" is towards the client.
kernel() {
    ip netns exec $b taskset -c 1 iperf3 -s -1 -p 7101 >/dev/null 2>&1 &
    local server=$!
    sleep 0.3
    ip netns exec $a taskset -c 0 iperf3 -c 10.11.2.2 -p 7101 -t "$seconds" -J ${1:+$1} | python3 -c '
import json, sys
end = json.load(sys.stdin)["end"]
rate = end["sum_received"]["bits_per_second"] / 8e9
print(rate * 8, end["cpu_utilization_percent"]["host_total"] / 100 / rate)'
    wait $server 2>/dev/null || true
}

# Ours: mode, target, link, our address. Prints Gbit/s, spinning, and seconds for 10^9 bytes, not spinning.
ours() {
    local spinning sleeping
    spinning=$(once spin "$@")
    sleeping=$(once adaptive "$@")
    echo "${spinning% *} ${sleeping#* }"
}
once() { # idle, and as above; prints both for this run
    local port=7001 field=bytes-sent
    [ "$2" = read ] && port=7002 field=bytes-received
    python3 - "$field" "$seconds" ip netns exec $a taskset -c 0 "$flowlane" load tcp "$3:$port" --mode "$2" \
        --connections 1 --size 64Ki --link "$4" --addr "$5" --duration "${seconds}s" --idle "$1" --quiet --json <<'P'
import json, resource, subprocess, sys
field, seconds, *command = sys.argv[1:]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
rate = json.loads(run.stdout)["total"]["rates"][field] / 1e9
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(rate * 8, (used.ru_utime + used.ru_stime) / (rate * float(seconds)))
P
}

declare -A got cost
note() { # what, round, "rate cost"
    local rate=${3% *} seconds=${3#* }
    got[$1]+="$rate "
    cost[$1]+="$seconds "
    printf 'round %d  %-44s %7.2f Gbit/s %7.3f s/GB\n' "$2" "$1" "$rate" "$seconds"
}
for ((r = 1; r <= rounds; r++)); do
    offloads on
    ip -n $a addr replace 10.11.2.1/24 dev va
    note "kernel, offloads on, sending" $r "$(kernel)"
    note "TAP with offload, sending" $r "$(ours write 10.11.3.2 tap:tap0 10.11.3.1/24)"
    note "kernel, offloads on, receiving" $r "$(kernel -R)"
    note "TAP with offload, receiving" $r "$(ours read 10.11.3.2 tap:tap0 10.11.3.1/24)"
    offloads off
    note "kernel, offloads off, sending" $r "$(kernel)"
    note "kernel, offloads off, receiving" $r "$(kernel -R)"
    ip -n $a addr flush dev va
    note "AF_XDP without offload, sending" $r "$(ours write 10.11.2.2 af-xdp:va 10.11.2.1/24)"
    note "AF_XDP without offload, receiving" $r "$(ours read 10.11.2.2 af-xdp:va 10.11.2.1/24)"
    note "AF_XDP with offload, sending" $r "$(ours write 10.11.2.2 af-xdp:va,offload 10.11.2.1/24)"
    note "AF_PACKET with offload, sending" $r "$(ours write 10.11.2.2 af-packet:va,offload 10.11.2.1/24)"
done
for way in sending receiving; do
    for pair in "TAP with offload:kernel, offloads on" "AF_XDP without offload:kernel, offloads off" \
        "AF_XDP with offload:kernel, offloads off" "AF_PACKET with offload:kernel, offloads off"; do
        ours=${pair%%:*} theirs=${pair#*:}
        [ -n "${got[$ours, $way]:-}" ] || continue
        python3 - "$ours, $way" "${got[$ours, $way]}" "${got[$theirs, $way]}" "${cost[$ours, $way]}" \
            "${cost[$theirs, $way]}" <<'P'
import sys
name, ours, theirs, cost, their_cost = sys.argv[1], *([float(x) for x in a.split()] for a in sys.argv[2:])
ratios = sorted(o / t for o, t in zip(ours, theirs) if t)
middle = lambda l: sorted(l)[len(l) // 2]
print(f"{name}: {middle(ours):.2f} Gbit/s, {middle(ratios):.2f} times the kernel's {middle(theirs):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
      f"{middle(cost):.3f} s/GB, the kernel {middle(their_cost):.3f}")
P
    done
done
