#!/bin/sh
# What `load http --find-rate` finds of a server whose limit is known: nginx that takes 5,000 requests a second by a token bucket (`limit_req`) and refuses
# the others with 503. Prints the rate of each search, and how many came within 5 and 10 % of it.
#
#   benches/http/find_rate.sh [searches] [busy loops beside] [directory of flowlane]
#
#   cargo build --release && benches/http/find_rate.sh 20 && benches/http/find_rate.sh 20 2
set -eu

searches=${1:-20}
loops=${2:-0}
built=${3:-target/release}
limit=5000
port=18086
scratch=$(mktemp -d)
pids=
# shellcheck disable=SC2086 # Several processes.
trap 'kill $pids 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
cat >"$scratch/nginx.conf" <<CONF
daemon off;
worker_processes 1;
pid $scratch/pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
    access_log off;
    limit_req_zone \$server_port zone=all:1m rate=${limit}r/s;
    server {
        listen 127.0.0.1:$port;
        keepalive_requests 1000000000;
        location / { limit_req zone=all burst=50 nodelay; limit_req_status 503; empty_gif; }
    }
}
CONF
nginx -p "$scratch" -c "$scratch/nginx.conf" 2>"$scratch/said" &
pids=$!
until curl -s -o "$scratch/answer" "http://127.0.0.1:$port/"; do
    kill -0 $pids 2>/dev/null || { cat "$scratch/said"; exit 1; }
    sleep 0.1
done
for _ in $(seq "$loops"); do
    sh -c 'while :; do :; done' &
    pids="$pids $!"
done
for _ in $(seq "$searches"); do
    # A search that finds nothing has no rate.
    "$built/flowlane" load http "http://127.0.0.1:$port/" -c 50 --no-pin --quiet --json --find-rate 'errors <= 0.1%' \
        --between 500..50k -d 1s --within 2% >"$scratch/found" 2>>"$scratch/said" || true
    sed -n 's/^  "rate": \([0-9.]*\),\{0,1\}$/\1/p' "$scratch/found" | grep . >>"$scratch/rates" || echo 0 >>"$scratch/rates"
done
sort -n "$scratch/rates" | awk -v limit=$limit -v loops="$loops" '
    { all[NR] = $1; off = ($1 - limit) / limit; off = off < 0 ? -off : off; near += (off <= 0.05); nearer += (off <= 0.10) }
    END {
        for (i = 1; i <= NR; i++) printf "%s%d", (i > 1 ? " " : ""), all[i]
        printf "\n%d searches beside %d busy loops: %d within 5 %% of %d/s, %d within 10 %%\n", NR, loops, near, limit, nearer
    }'
