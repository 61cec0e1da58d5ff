#!/usr/bin/env bash
# What a flood of SYNs that nobody follows takes from established clients: the rate of their answers with the flood and
# without, in turn in every round, for our stack and for the kernel's.
#
#   processor 0: clients' namespace ═╗
#                flood's namespace ══╬═ bridge ═══ server: processor 1
#
#   paced   1000 connections ask 20 000 times a second in all: the server's processor has time to spare
#   full    64 connections ask as fast as they are answered: every SYN takes from them
#
#   benches/tcp/flood.sh [ROUNDS] [SECONDS] [SYNS A SECOND]
#
# Needs root, iproute2 (installed if apt is there), python3 and two processors. The flood comes from 65 000 addresses and has
# its processor in common with the clients, so "full" also holds what they lose to each other; a veth does part of the receiver's
# work there, too. How many SYNs were sent is printed: a slow far side holds the flood back, so compare these before the rest.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} seconds=${2:-4} syns=${3:-100k}
[ "$(id -u)" = 0 ] || { echo "flood: needs root for network namespaces" >&2; exit 2; }
[ "$(nproc)" -ge 2 ] || { echo "flood: needs two processors" >&2; exit 2; }
command -v ip >/dev/null || apt-get install -y iproute2 >/dev/null
command -v ethtool >/dev/null || apt-get install -y ethtool >/dev/null
cargo build --quiet --release
flowlane=${CARGO_TARGET_DIR:-target}/release/flowlane
spaces=(flbench-flood-bridge flbench-flood-server flbench-flood-clients flbench-flood-syns)
scratch=$(mktemp -d)
pids=()
clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for ns in "${spaces[@]}"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap clean EXIT
for ns in "${spaces[@]}"; do
    ip netns del "$ns" 2>/dev/null || true
    ip netns add "$ns"
done
bridge=${spaces[0]} server=${spaces[1]} clients=${spaces[2]} flood=${spaces[3]}
ip -n "$bridge" link add br0 type bridge
ip -n "$bridge" link set br0 up
for ns in "$server" "$clients" "$flood"; do
    port=p${ns##*-}
    ip link add eth0 netns "$ns" type veth peer name "$port" netns "$bridge"
    ip -n "$bridge" link set "$port" master br0 up
    ip -n "$ns" link set lo up
    ip -n "$ns" link set eth0 up
    ip netns exec "$ns" ethtool -K eth0 tx off gro off >/dev/null 2>&1 || true
done

# Who serves: prints nothing; its process is the last of pids.
serve() {
    ip -n "$server" addr flush dev eth0
    if [ "$1" = kernel ]; then
        ip -n "$server" addr add 10.11.2.2/24 dev eth0
        ip -n "$server" route replace default via 10.11.2.3
        ip netns exec "$server" sysctl -qw net.ipv4.tcp_syncookies=1
        set -- --link kernel --addr 10.11.2.2/24
    else
        set -- --link "$1:eth0" --addr 10.11.2.2/24 --gateway 10.11.2.3
    fi
    ip netns exec "$server" taskset -c 1 "$flowlane" serve tcp-echo "$@" --port 7 --workers 1 >"$scratch/serve" 2>&1 &
    pids+=($!)
    # It says when it serves.
    until grep -q ' on ' "$scratch/serve"; do kill -0 "${pids[-1]}"; done
}

# Answers a second of the established clients, and the SYNs and answers of the flood, if there is one.
run() {
    local who=$1 kind=$2 with=$3 flooder=
    serve "$who"
    if [ "$with" = flood ]; then
        ip netns exec "$flood" taskset -c 0 "$flowlane" load tcp 10.11.2.2:7 --link af-packet:eth0 --addr 10.11.2.3/24 \
            --clients 10.64.0.0-10.64.253.255 --routed --mode half-open --rate "$syns" --duration "$((seconds + 4))s" --workers 1 \
            --no-pin --json --quiet >"$scratch/flood" 2>/dev/null &
        flooder=$!
    fi
    set -- --mode hold --connections 1000 --opening 1k --rate 20k
    [ "$kind" = full ] && set -- --mode echo --connections 64 --size 64
    ip netns exec "$clients" taskset -c 0 "$flowlane" load tcp 10.11.2.2:7 --link af-packet:eth0 --addr 10.11.2.4/24 "$@" \
        --duration "${seconds}s" --workers 1 --no-pin --json --quiet >"$scratch/load" 2>/dev/null || true
    [ -z "$flooder" ] || { kill -INT "$flooder"; wait "$flooder" || true; }
    kill -INT "${pids[-1]}"
    wait "${pids[-1]}" || true
    unset "pids[-1]"
    python3 - "$scratch/load" "$scratch/flood" "$with" <<'P'
import json, sys
part = lambda path: json.JSONDecoder().raw_decode(open(path).read())[0]["total"]
us = part(sys.argv[1])
flood = part(sys.argv[2]) if sys.argv[3] == "flood" else None
syns = f'{flood["counts"]["sent"]} {flood["counts"]["answered"]}' if flood else "0 0"
print(us["rates"]["answered"], us["latency"]["p99"] / 1e6, us["counts"]["failed"], syns)
P
}

for ((r = 1; r <= rounds; r++)); do
    for who in af-packet kernel; do
        for kind in paced full; do
            for with in alone flood; do
                read -r rate p99 failed sent answered < <(run $who $kind $with)
                echo "$r $who $kind $with $rate $p99 $failed $sent $answered"
            done
        done
    done
done | tee "$scratch/raw"
python3 - "$scratch/raw" <<'P'
import sys
rows = {}
for line in open(sys.argv[1]):
    r, who, kind, how, rate, p99, failed, sent, answered = line.split()
    rows.setdefault((who, kind), {}).setdefault(r, {})[how] = (float(rate), float(p99), int(failed), int(sent), int(answered))
print("\nserver     load    answers a second kept in the flood   p99 ms alone, flooded   failed   SYNs answered")
for (who, kind), runs in rows.items():
    both = [x for x in runs.values() if len(x) == 2 and x["alone"][0]]
    kept = sorted(x["flood"][0] / x["alone"][0] for x in both)
    middle = lambda values: sorted(values)[len(values) // 2]
    sent, answered = (sum(x["flood"][i] for x in both) for i in (3, 4))
    print(f"{who:10} {kind:6} {middle(kept):8.3f} ({kept[0]:.3f} to {kept[-1]:.3f})            "
          f"{middle([x['alone'][1] for x in both]):8.2f} {middle([x['flood'][1] for x in both]):8.2f}      "
          f"{sum(x['flood'][2] for x in both):6}   {answered} of {sent}")
P
