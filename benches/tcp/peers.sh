#!/usr/bin/env bash
# Streams with the kernel as the peer, the long form of crates/cli/tests/cli/load_tcp.rs: over TAP, AF_PACKET and AF_XDP, IPv4
# and IPv6, with the kernel as the server and then as the client: SIZE bytes each way (echoed ones compared byte by byte) and
# ten thousand short connections; and curl downloading from the hyper example. Every line says what came of it; the exit code
# is that of the worst.
#
#   benches/tcp/peers.sh [SIZE]        1Gi by default
#
# Needs root, iproute2, python3 and curl.
set -euo pipefail
cd "$(dirname "$0")/../.."
size=${1:-1Gi}
[ "$(id -u)" = 0 ] || { echo "peers: needs root for network namespaces" >&2; exit 2; }
cargo build --quiet --release
cargo build --quiet --release -p flowlane-net --example http
target=${CARGO_TARGET_DIR:-target}/release
flowlane=$target/flowlane
ns=flpeers
pids=()
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    "$flowlane" lab down --name $ns >/dev/null 2>&1 || true
    ip netns del $ns-tap 2>/dev/null || true
}
trap clean EXIT
clean
"$flowlane" lab up --name $ns >/dev/null
ip netns add $ns-tap
ip -n $ns-tap link set lo up
ip -n $ns-tap tuntap add tap0 mode tap multi_queue vnet_hdr
ip -n $ns-tap addr add 10.11.2.2/24 dev tap0
ip -n $ns-tap addr add fd00:11:2::2/64 dev tap0 nodad
ip -n $ns-tap link set tap0 up
worst=0
report=$(mktemp)

# The kernel's echo, sink and source in a namespace, both families. Its ports last for the short connections of two links: with
# most of the customary ones in TIME-WAIT, finding a free one takes the kernel so long that the rate is not reached.
for where in $ns $ns-tap; do
    ip netns exec $where sh -c 'echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range'
    for role in echo:7000 sink:7001 source:7002; do
        ip netns exec $where python3 benches/tcp/peer.py "${role%:*}" :: "${role#*:}" &
        pids+=($!)
    done
done
for where in $ns $ns-tap; do
    until [ "$(ip netns exec $where ss -Hltn 'sport >= 7000 and sport <= 7002' | wc -l)" -ge 3 ]; do sleep 0.2; done
done

# What the report says, for: link, who asks, target.
say() {
    python3 - "$report" "$@" <<'P'
import json, sys
d = json.load(open(sys.argv[1]))
t, mode = d["total"], d["setup"]["more"]["mode"]
link, client, target = sys.argv[2:]
begin = f"{link:10} {client:6} asks {target:22}"
c, more = t["counts"], t["counts"]["more"]
if mode == "connect":
    print(f"{begin} short  {more['completed']} of {more['begun']} connections completed")
    sys.exit(more["completed"] < 10000 or more["completed"] < more["begun"])
else:
    rate = max(t["rates"]["bytes-sent"], t["rates"]["bytes-received"]) * 8 / 1e9
    # Connections are being opened before it is measured.
    both = lambda name: c[name] + t["unmeasured"][name]
    print(f"{begin} {mode:6} {both('bytes-sent'):>12} written {both('bytes-received'):>12} read "
          f"{rate:6.2f} Gbit/s {more.get('resent', 0):>6} resent")
P
}

# A run: link, who asks, in which namespace, target, mode, then options; it fails unless all was answered.
ask() {
    local link=$1 client=$2 inside=$3 target=$4 mode=$5
    shift 5
    set -- "$@" --mode "$mode"
    if [ "$mode" = connect ]; then
        set -- "$@" --rate 1k --connections 5k --duration 10s --timeout 20s
    else
        set -- "$@" --connections 1 --total "$size" --duration 10m --timeout 60s \
            --fail 'errors > 0' --fail 'unfinished > 0' --fail 'completed < 1'
    fi
    # Whether the schedule was kept on a busy machine is not asked here.
    if { $inside "$flowlane" load tcp "$target" "$@" --workers 2 --quiet --json >"$report" || [ "$mode" = connect ]; } &&
        say "$link" "$client" "$target"; then
        :
    else
        echo "$link $client $target $mode: FAILED"
        worst=1
    fi
}

# Name of the link, namespace of our end, of the kernel's, how the link is named.
check() {
    local link=$1 inside=$2 outside=$3 v role mode server
    local ours=(--link "$4" --addr 10.11.2.1/24,fd00:11:2::1/64 --key microsoft)
    for v in 10.11.2.2 '[fd00:11:2::2]'; do
        ask "$link" we "$inside" "$v:7000" echo "${ours[@]}"
        ask "$link" we "$inside" "$v:7001" write "${ours[@]}"
        ask "$link" we "$inside" "$v:7002" read "${ours[@]}"
        ask "$link" we "$inside" "$v:7000" connect "${ours[@]}"
    done
    for role in "echo echo connect" "discard write" "source read"; do
        read -r role modes <<<"$role"
        $inside "$flowlane" serve "tcp-$role" "${ours[@]}" --port 7 --workers 2 >"$report.serve" 2>&1 &
        server=$!
        pids+=($server)
        until grep -q ' on ' "$report.serve"; do kill -0 $server; done
        for mode in $modes; do
            for v in 10.11.2.1 '[fd00:11:2::1]'; do ask "$link" kernel "$outside" "$v:7" "$mode"; done
        done
        kill $server
        wait $server || true
    done
}

check tap "ip netns exec $ns-tap" "ip netns exec $ns-tap" tap:tap0
check af-packet "" "ip netns exec $ns" af-packet:${ns}0
check af-xdp "" "ip netns exec $ns" af-xdp:${ns}0

# curl from the hyper example over a TAP of its own.
ip netns exec $ns-tap "$target/examples/http" web0 10.11.9.1/24 2>/dev/null &
pids+=($!)
for _ in $(seq 50); do ip -n $ns-tap link show web0 >/dev/null 2>&1 && break; sleep 0.1; done
ip -n $ns-tap addr add 10.11.9.2/24 dev web0
ip -n $ns-tap link set web0 up
got=$(ip netns exec $ns-tap curl -s --max-time 20 http://10.11.9.1/hello)
case $got in
    "/hello from bucket "*) echo "curl        $got" ;;
    *) echo "curl: FAILED: $got"; worst=1 ;;
esac
rm -f "$report" "$report.serve"
exit $worst
