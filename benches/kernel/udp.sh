#!/usr/bin/env bash
# UDP echo on kernel sockets over the loopback, one core for the server: ours beside a C program with recvmmsg and sendmmsg, in turn in
# every round, loaded by the same generator on the other core.
#
#   benches/kernel/udp.sh [ROUNDS] [SECONDS]
#
# Needs two processors and a C compiler. Prints the answers a second, the server's processor time for each, and the ratios of both with
# their spread, for datagrams sent one by one (64 and 1200 bytes) and merged by the generator (1200 bytes, UDP_SEGMENT). With real-time
# priority (as root) other programs do not disturb it.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} seconds=${2:-2}
[ "$(nproc)" -ge 2 ] || { echo "kernel/udp: needs two processors" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-target}/release
[ -n "${FLOWLANE-}" ] || cargo build --quiet --release
flowlane=${FLOWLANE:-$target/flowlane}
work=$(mktemp -d)
server=
clean() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
cc -O2 -o "$work/peer" benches/kernel/udp_peer.c
real=()
chrt -f 50 true 2>/dev/null && real=(chrt -f 50)

# One run: prints "answers-a-second lost server-nanoseconds-each".
run() {
    local kind=$1 size=$2 mode=$3 port=$((20000 + RANDOM % 10000)) before after rate lost
    if [ "$kind" = c ]; then
        "${real[@]}" taskset -c 1 "$work/peer" echo $port &
    else
        "${real[@]}" taskset -c 1 "$flowlane" serve udp-echo --link kernel --port $port --workers 1 --no-pin >/dev/null 2>&1 &
    fi
    server=$!
    for _ in $(seq 100); do
        grep -qi ":$(printf %04X $port) " /proc/net/udp6 && break
        sleep 0.05
    done
    # Ours first finds out whether the port is free, and binds it then.
    sleep 0.2
    spent() { cat /proc/$server/task/*/schedstat | awk '{ n += $1 } END { print n }'; }
    before=$(spent)
    read -r rate lost < <("${real[@]}" taskset -c 0 "$work/peer" load 127.0.0.1 $port "$seconds" "$size" 256 4 "$mode")
    after=$(spent)
    kill -9 $server
    wait $server 2>/dev/null || true
    server=
    # The generator's first half second is load, too.
    echo "$rate $lost $(awk "BEGIN { print ($after - $before) / ($rate * ($seconds + 0.5) + 1) }")"
}

for shape in "64 plain" "1200 plain" "1200 merged"; do
    read -r size mode <<<"$shape"
    : >"$work/runs"
    for ((r = 1; r <= rounds; r++)); do
        for kind in c ours; do
            read -r rate lost cost < <(run $kind "$size" "$mode")
            printf '%4d bytes, %-6s round %d  %-4s %9.0f answers/s  server %6.0f ns each  lost %d\n' \
                "$size" "$mode" "$r" $kind "$rate" "$cost" "$lost"
            echo "$kind $rate $cost" >>"$work/runs"
        done
    done
    awk -v what="$size bytes, $mode" '
        { n = ++count[$1]; rate[$1, n] = $2; cost[$1, n] = $3 }
        function ratios(of, how,    i, j, v, list) {
            for (i = 1; i <= n; i++) {
                list[i] = how ? of["c", i] / of["ours", i] : of["ours", i] / of["c", i]
                for (j = i; j > 1 && list[j] < list[j - 1]; j--) { v = list[j]; list[j] = list[j - 1]; list[j - 1] = v }
            }
            return sprintf("%.2f (%.2f to %.2f)", list[int((n + 1) / 2)], list[1], list[n])
        }
        END { print what ": ours has " ratios(rate, 0) " times the rate of C, and " ratios(cost, 1) " times the datagrams a processor second" }
    ' "$work/runs"
done
