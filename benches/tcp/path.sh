# Sourced by the benches of a bad path: two namespaces and the program between them that is the path.
#
#   fl-path-a  a0 10.9.0.1, ours 10.9.0.11 ──▶ bottleneck ──▶ b0 10.9.0.2, ours 10.9.0.12  fl-path-b
#
# The cards cut, merge and check nothing, so that what is lost is a segment. The kernel forgets what it learnt of a path.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "$(basename "$0"): needs root for network namespaces" >&2; exit 2; }
for tool in ip:iproute2 ethtool:ethtool python3:python3 chrt:util-linux; do
    command -v "${tool%:*}" >/dev/null || apt-get install -y "${tool#*:}" >/dev/null
done
profile=${PROFILE:-release}
flag=--profile=$profile
dir=$profile
[ "$profile" = dev ] && dir=debug
[ -n "${FLOWLANE:-}" ] || cargo build --quiet "$flag"
[ -n "${BOTTLENECK:-}" ] || cargo build --quiet "$flag" -p flowlane-testnet --example bottleneck
target=${CARGO_TARGET_DIR:-target}/$dir
flowlane=${FLOWLANE:-$target/flowlane}
a=fl-path-a b=fl-path-b middle=fl-path-m
pids=()
scratch=$(mktemp -d)
forget() {
    for ns in $a $b $middle; do ip netns del $ns 2>/dev/null || true; done
}
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    forget
    rm -rf "$scratch"
}
trap clean EXIT
forget
for ns in $a $b $middle; do
    ip netns add $ns
    ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1
done
for end in a:1 b:2; do
    ns=fl-path-${end%:*} card=${end%:*}0
    ip link add "$card" netns "$ns" type veth peer name "${end%:*}1" netns $middle
    ip -n "$ns" addr add "10.9.0.${end#*:}/24" dev "$card"
    ip -n "$ns" link set "$card" txqueuelen 10000 up
    ip -n "$ns" link set lo up
    ip -n $middle link set "${end%:*}1" up
    ip netns exec "$ns" ethtool -K "$card" tso off gso off gro off tx off rx off >/dev/null 2>&1
    ip netns exec $middle ethtool -K "${end%:*}1" tso off gso off gro off tx off rx off >/dev/null 2>&1
    ip netns exec "$ns" sysctl -qw net.ipv4.tcp_no_metrics_save=1
done

# The path, with these options, until `path_end`.
path_begin() {
    ip netns exec $middle chrt -r 5 "${BOTTLENECK:-$target/examples/bottleneck}" a1 b1 "$@" >"$scratch/path" &
    path=$!
    pids+=($path)
    until grep -q forwarding "$scratch/path"; do kill -0 $path; sleep 0.05; done
}
path_end() {
    kill $path 2>/dev/null || true
    wait $path 2>/dev/null || true
}

# Our server in b (`serve` and what follows), until the script ends.
serve_ours() {
    ip netns exec $b chrt -r 4 "$flowlane" serve "$@" --link af-packet:b0 --addr 10.9.0.12/24 --workers 1 >"$scratch/serve" 2>&1 &
    ours=$!
    pids+=($ours)
    until grep -q ' on ' "$scratch/serve"; do kill -0 $ours; sleep 0.05; done
}

# The kernel's sink in b; its lines go to $scratch/sink.
sink() {
    ip netns exec $b chrt -r 4 python3 benches/tcp/streams.py sink 10.9.0.2 7001 >>"$scratch/sink" &
    pids+=($!)
    until ip netns exec $b ss -Hltn 'sport = 7001' | grep -q 7001; do sleep 0.05; done
}
