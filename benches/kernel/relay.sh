#!/usr/bin/env bash
# A relay of TCP, one core for the relay: ours beside HAProxy with splice, in turn in every round, between the same target and the same client,
# which share the other core.
#
#   benches/kernel/relay.sh [ROUNDS] [SECONDS] [loopback|veth]
#
# loopback: ours on kernel sockets, too. veth (as root): the relay in a namespace of its own behind a veth; ours is our stack over AF_XDP, which polls
# the veth itself, and HAProxy the kernel's, whose packets RPS hands to the relay's core. So the relay's core does the relay's network work for
# both, but only ours has it in the processor time of its process: compare the rates.
#
# Needs two processors, a C compiler and haproxy. Prints the rate and the relay's processor time for each unit, and the ratios of both with
# their spread: one stream (bytes), and connections of 64 bytes there and 600 back, 32 at once. With real-time priority (as root) other
# programs do not disturb it.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} seconds=${2:-2} over=${3:-loopback}
case $over in
loopback) ;;
veth) [ "$(id -u)" = 0 ] || { echo "kernel/relay: veth needs root" >&2; exit 2; } ;;
*) echo "kernel/relay: '$over' is neither loopback nor veth" >&2; exit 2 ;;
esac
[ "$(nproc)" -ge 2 ] || { echo "kernel/relay: needs two processors" >&2; exit 2; }
command -v haproxy >/dev/null || { echo "kernel/relay: needs haproxy" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-target}/release
[ -n "${FLOWLANE-}" ] || cargo build --quiet --release
flowlane=${FLOWLANE:-$target/flowlane}
work=$(mktemp -d)
relay= peer= ends=flbe$$ middle=flbm$$
clean() {
    for process in $relay $peer; do { kill -9 "$process" && wait "$process"; } 2>/dev/null || true; done
    [ "$over" = loopback ] || { ip netns del $ends; ip netns del $middle; } 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
cc -O2 -o "$work/peer" benches/kernel/relay_peer.c
real=()
chrt -f 50 true 2>/dev/null && real=(chrt -f 50)
port=$((20000 + RANDOM % 10000))
# Commands of the peer, and of the relay; the addresses at which these are reached.
at_peer=("${real[@]}" taskset -c 0) at_relay=("${real[@]}" taskset -c 1)
peer_address=127.0.0.1 relay_address=127.0.0.1
if [ "$over" = veth ]; then
    ip netns add $ends
    ip netns add $middle
    ip link add ve netns $ends type veth peer name vm netns $middle
    peer_address=10.11.3.1 relay_address=10.11.3.2
    ip -n $ends addr add $peer_address/24 dev ve
    ip -n $ends link set ve up
    ip -n $middle link set vm up
    # Checksums are left out between kernels alone.
    ip netns exec $ends ethtool -K ve tx off >/dev/null
    ip netns exec $middle sh -c 'echo 2 >/sys/class/net/vm/queues/rx-0/rps_cpus'
    at_peer=(ip netns exec $ends "${at_peer[@]}") at_relay=(ip netns exec $middle "${at_relay[@]}")
fi
"${at_peer[@]}" "$work/peer" target $peer_address:$port &
peer=$!

# Waits until somebody listens on a port, in the namespace of a process.
listening() {
    for _ in $(seq 200); do
        grep -qi ":$(printf %04X "$1") .* 0A " /proc/$2/net/tcp /proc/$2/net/tcp6 && return
        sleep 0.05
    done
    echo "kernel/relay: nobody listens on port $1" >&2
    exit 1
}
listening $port $peer

# One run: prints "a-second failed relay-nanoseconds-each".
run() {
    local kind=$1 how=$2 front=$((30000 + RANDOM % 2000)) before after rate failed
    if [ "$kind" = haproxy ]; then
        cat >"$work/haproxy.cfg" <<END
global
    nbthread 1
    maxconn 2000
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 600s
    timeout server 600s
listen l
    bind $relay_address:$front
    server s $peer_address:$port
END
        [ "$over" = loopback ] || ip -n $middle addr replace $relay_address/24 dev vm
        "${at_relay[@]}" haproxy -db -q -f "$work/haproxy.cfg" >"$work/said" 2>&1 &
    elif [ "$over" = loopback ]; then
        "${at_relay[@]}" "$flowlane" serve relay --to $peer_address:$port --addr $relay_address/8 --port $front \
            --workers 1 --no-pin >"$work/said" 2>&1 &
    else
        ip -n $middle addr flush dev vm
        "${at_relay[@]}" "$flowlane" serve relay --to $peer_address:$port --link af-xdp:vm --addr $relay_address/24 \
            --port $front --workers 1 --no-pin >"$work/said" 2>&1 &
    fi
    relay=$!
    if [ "$over" = veth ] && [ "$kind" = ours ]; then
        for _ in $(seq 200); do
            ! grep -q "port $front" "$work/said" || break
            kill -0 $relay 2>/dev/null || { cat "$work/said" >&2; exit 1; }
            sleep 0.05
        done
    else
        listening $front $relay
    fi
    # Ours first finds out whether the port is free, and binds it then.
    sleep 0.3
    spent() { cat /proc/$relay/task/*/schedstat | awk '{ n += $1 } END { print n }'; }
    before=$(spent)
    if [ "$how" = stream ]; then
        read -r rate failed < <("${at_peer[@]}" "$work/peer" bulk $relay_address:$front "$seconds")
    else
        read -r rate failed < <("${at_peer[@]}" "$work/peer" short $relay_address:$front "$seconds" 32)
    fi
    after=$(spent)
    kill -9 $relay
    wait $relay 2>/dev/null || true
    relay=
    # The first 0.3 seconds, which are not counted, are work, too.
    echo "$rate $failed $(awk "BEGIN { print ($after - $before) / ($rate * ($seconds + 0.3) + 1) }")"
}

for how in stream short; do
    : >"$work/runs"
    for ((r = 1; r <= rounds; r++)); do
        for kind in haproxy ours; do
            read -r rate failed cost < <(run $kind $how)
            if [ $how = stream ]; then
                printf 'one stream, round %d  %-8s %7.2f Gbit/s  relay %7.0f ns for 64 KiB\n' "$r" $kind \
                    "$(awk "BEGIN { print $rate * 8 / 1e9 }")" "$(awk "BEGIN { print $cost * 65536 }")"
            else
                printf 'short connections, round %d  %-8s %7.0f /s  relay %6.0f ns each  failed %d\n' "$r" $kind "$rate" "$cost" "$failed"
            fi
            echo "$kind $rate $cost" >>"$work/runs"
        done
    done
    awk -v what="$how" '
        { n = ++count[$1]; rate[$1, n] = $2; cost[$1, n] = $3 }
        function ratios(of, how,    i, j, v, list) {
            for (i = 1; i <= n; i++) {
                list[i] = how ? of["haproxy", i] / of["ours", i] : of["ours", i] / of["haproxy", i]
                for (j = i; j > 1 && list[j] < list[j - 1]; j--) { v = list[j]; list[j] = list[j - 1]; list[j - 1] = v }
            }
            return sprintf("%.2f (%.2f to %.2f)", list[int((n + 1) / 2)], list[1], list[n])
        }
        END { print what ": ours has " ratios(rate, 0) " times the rate of HAProxy, and does " ratios(cost, 1) " times as much in a processor second" }
    ' "$work/runs"
done
