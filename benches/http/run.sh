#!/bin/sh
# Compares the HTTP generator with wrk against the same nginx: processor time for each request, memory, rates.
#
# nginx has one worker on processor 1, the generators take turns on processor 0, so that each pair of figures comes from
# the same minute. Needs nginx and wrk, which are installed from the distribution when we are root; h2load and oha are asked
# too if they are there.
#
#   benches/http/run.sh [path to flowlane] [seconds of a run] [rounds]
set -eu

flowlane=${1:-target/release/flowlane}
seconds=${2:-3}
rounds=${3:-5}
scratch=$(mktemp -d)
port=18080
url=http://127.0.0.1:$port/b.txt

if ! { command -v nginx && command -v wrk; } >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y -q nginx-light wrk nghttp2-client >/dev/null
fi
for tool in nginx wrk taskset python3; do
    command -v "$tool" >/dev/null || { echo "skipped, because $tool is not installed"; exit 0; }
done

cleanup() {
    [ -f "$scratch/nginx.pid" ] && kill "$(cat "$scratch/nginx.pid")" 2>/dev/null || true
    [ -n "${stall:-}" ] && kill "$stall" 2>/dev/null || true
    rm -rf "$scratch"
}
trap cleanup EXIT
mkdir -p "$scratch/html"
head -c 600 /dev/zero | tr '\0' x > "$scratch/html/b.txt"
chmod -R a+rX "$scratch"
cat > "$scratch/nginx.conf" <<CONF
worker_processes 1;
worker_rlimit_nofile 20000;
pid $scratch/nginx.pid;
error_log $scratch/error.log;
events { worker_connections 19000; multi_accept on; }
http {
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 600s;
    client_body_temp_path $scratch/body; proxy_temp_path $scratch/proxy;
    fastcgi_temp_path $scratch/fastcgi; uwsgi_temp_path $scratch/uwsgi; scgi_temp_path $scratch/scgi;
    server { listen 127.0.0.1:$port backlog=65535; root $scratch/html; }
}
CONF
ulimit -n 20000 2>/dev/null || true
taskset -c 1 nginx -c "$scratch/nginx.conf"

# Runs a command on processor 0; prints processor seconds (user and system) and peak memory in MB.
cat > "$scratch/measure.py" <<'PY'
import os, resource, subprocess, sys
out = open(sys.argv[1], "w")
subprocess.run(["taskset", "-c", "0"] + sys.argv[2:], stdout=out, stderr=subprocess.STDOUT)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)
PY

# Requests that a tool's output tells of.
requests() {
    case $1 in
        flowlane*) python3 -c 'import json,sys; c=json.JSONDecoder().raw_decode(open(sys.argv[1]).read())[0]["total"]["counts"]; print(c["answered"])' "$2" ;;
        wrk) awk '/requests in/ {print $1}' "$2" ;;
        h2load) awk -F'[ ,]+' '/^requests:/ {print $8}' "$2" ;;
        oha) awk '/\[200\]/ {print $2}' "$2" ;;
    esac
}

# Rate at which the open loop runs: most of what nginx can do, so that the schedule is what limits.
run() {
    tool=$1 n=$2
    case $tool in
        flowlane) set -- "$flowlane" load http "$url" -c "$n" -d "${seconds}s" --json -q --no-pin ;;
        flowlane-open) set -- "$flowlane" load http "$url" -c "$n" -d "${seconds}s" -r "$3" --json -q --no-pin ;;
        wrk) set -- wrk -t1 -c"$n" -d"${seconds}s" --latency --timeout 10s "$url" ;;
        h2load) set -- h2load --h1 -t1 -c"$n" -D "$seconds" "$url" ;;
        oha) set -- oha --no-tui -c "$n" -z "${seconds}s" "$url" ;;
    esac
    figures=$(python3 "$scratch/measure.py" "$scratch/out" "$@")
    count=$(requests "$tool" "$scratch/out" || echo 0)
    echo "$tool $n ${count:-0} $figures"
}

tools="wrk flowlane"
command -v h2load >/dev/null && tools="$tools h2load"
command -v oha >/dev/null && tools="$tools oha"
for n in 100 1000 10000; do
    round=0
    while [ "$round" -lt "$rounds" ]; do
        for tool in $tools; do run "$tool" "$n"; done
        run flowlane-open "$n" 20000
        round=$((round + 1))
    done
done | tee "$scratch/raw"
python3 - "$scratch/raw" <<'PY'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    tool, n, count, cpu, memory = line.split()
    if int(count):
        rows.setdefault((int(n), tool), []).append((float(cpu) / int(count) * 1e6, float(memory), int(count)))
print("\nconnections  tool            CPU us/request (least-most)     memory MB   requests (median)   times wrk's CPU")
for (n, tool), runs in sorted(rows.items()):
    cpu = [r[0] for r in runs]
    wrk = statistics.median(r[0] for r in rows.get((n, "wrk"), [(float("nan"),)]))
    print(f"{n:11}  {tool:14}  {statistics.median(cpu):8.2f} ({min(cpu):.2f}-{max(cpu):.2f})        "
          f"{max(r[1] for r in runs):8.1f}   {statistics.median(r[2] for r in runs):12.0f}        {statistics.median(cpu) / wrk:6.2f}")
PY

# What each says of a server that stands still for the second half of every two seconds.
cat > "$scratch/stall.py" <<'PY'
import asyncio, sys, time
async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            phase = time.monotonic() % 2
            if phase > 1:
                await asyncio.sleep(2 - phase)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    except Exception:
        writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1000) as server:
        await server.serve_forever()
asyncio.run(main())
PY
taskset -c 1 python3 "$scratch/stall.py" $((port + 1)) & stall=$!
until (exec 3<>/dev/tcp/127.0.0.1/$((port + 1))) 2>/dev/null || python3 -c "import socket; socket.create_connection(('127.0.0.1', $((port + 1))))" 2>/dev/null; do :; done
stalling=http://127.0.0.1:$((port + 1))/
echo
echo "A server that stands still for one second of every two: of requests at even moments half wait, evenly from a second"
echo "down to nothing. Arithmetic says: p50 0, p75 500 ms, p90 800 ms, p99 980 ms."
echo "-- flowlane, 500 a second"; "$flowlane" load http "$stalling" -c 200 -r 500 -d 10s --waiting 3s -q --no-pin || true
echo "-- wrk"; wrk -t1 -c50 -d10s --latency --timeout 10s "$stalling" | sed -n '/Latency/,/99%/p'
command -v h2load >/dev/null && { echo "-- h2load"; h2load --h1 -t1 -c50 -D 10 "$stalling" | grep -E "time for request" || true; }
command -v oha >/dev/null && { echo "-- oha"; oha --no-tui -c 50 -z 10s "$stalling" | grep -E "p?(50|75|90|99)" || true; }
exit 0
