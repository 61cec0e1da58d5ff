#!/bin/sh
# Processor time of `load http --http3` for a request, beside that of others' clients against the same server (`serve http --http3`, one worker), each
# with one thread, in turns:
#
#   h3_client    the crates quinn and h3 (crates/cli/examples/h3_client.rs), built as ours is
#   h2load       if $H2LOAD names one that speaks HTTP/3 (Debian's does not), built as whoever built it did
#
# User and system time of the whole client are counted, handshakes with them, and not how long it took: other work on the machine does less harm to it.
# Prints requests for each second of processor time, the median of the turns and their range, and ours in those of the others.
#
#   benches/http/http3.sh [requests] [connections] [streams of each] [turns] [path of what is asked] [directory of flowlane and h3_client]
#
#   cargo build --release -p flowlane && cargo build --release -p flowlane --example h3_client
#   H2LOAD=/opt/nghttp2/bin/h2load benches/http/http3.sh 100000
set -eu

requests=${1:-50000}
connections=${2:-10}
streams=${3:-10}
turns=${4:-5}
path=${5:-/size/100}
built=${6:-target/release}
port=18085
scratch=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
"$built/flowlane" serve http --port $port --tls --http3 --no-pin --workers 1 >/dev/null 2>"$scratch/said" &
server=$!
until grep -q 'UDP port' "$scratch/said"; do
    kill -0 $server 2>/dev/null || { cat "$scratch/said"; exit 1; }
    sleep 0.1
done

# spent NAME COMMAND...: a line of NAME's requests a second of processor time
spent() {
    name=$1
    shift
    bash -c 'TIMEFORMAT="%U %S"; time "$@" >"$0" 2>&1' "$scratch/printed" "$@" 2>"$scratch/time" ||
        { cat "$scratch/printed"; echo "$name failed" >&2; exit 1; }
    awk -v n="$requests" '{ printf "%.0f\n", n / ($1 + $2) }' "$scratch/time" >>"$scratch/$name"
}

for _ in $(seq "$turns"); do
    spent flowlane "$built/flowlane" load http "https://127.0.0.1:$port$path" -k --http3 "$streams" -c "$connections" \
        -n "$requests" --workers 1 --no-pin --quiet
    if [ -x "$built/examples/h3_client" ]; then
        spent h3_client "$built/examples/h3_client" "127.0.0.1:$port" "$path" "$requests" "$connections" "$streams"
        [ "$(cat "$scratch/printed")" = "$requests" ] || { echo "h3_client had too few answers" >&2; exit 1; }
    fi
    if [ -n "${H2LOAD:-}" ]; then
        # shellcheck disable=SC2086
        spent h2load $H2LOAD --alpn-list=h3 -t 1 -c "$connections" -m "$streams" -n "$requests" "https://127.0.0.1:$port$path"
        grep -q "$requests succeeded" "$scratch/printed" || { cat "$scratch/printed"; exit 1; }
    fi
done

# median FILE
median() { sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
ours=$(median "$scratch/flowlane")
echo "$requests requests of $path, $connections connections, $streams streams, $turns turns"
for name in flowlane h3_client h2load; do
    [ -e "$scratch/$name" ] || continue
    sort -n "$scratch/$name" | awk -v name=$name -v median="$(median "$scratch/$name")" -v ours="$ours" '
        { all[NR] = $1 }
        END { printf "%-10s %8d requests a second of processor time (%d to %d); ours %.2f times\n", name, median, all[1], all[NR], ours / median }'
done
