#!/usr/bin/env bash
# The HTTP generator on its own stack over AF_XDP beside wrk on kernel sockets, over the same veth against the same nginx.
#
#   processor 0: flowlane load http --link af-xdp:va, or wrk ── va ══ vb ── nginx, one worker, 600 bytes: processor 1
#
# Keep-alive and a connection for each request, closed loop, taking turns in every round; ours as it is by default, looking
# again for 50 us before it sleeps, and with '--idle sleep', which like wrk sleeps whenever there is nothing to do.
#
#   benches/http/xdp.sh [path to flowlane] [seconds of a run] [rounds] [connections]
#
# How processor time is counted, the same way for both. A veth delivers in the context of whoever sends: what the
# generator sends goes through nginx's end of the veth and nginx's TCP within the generator's own system calls, and what
# nginx sends goes through the generator's end (the XDP program, or the kernel's TCP for wrk) within nginx's. So there
# are two figures:
#
#   own    user and system time of the generator's process, softirq work in its context included
#   both   that and nginx's, and that of ksoftirqd on both processors: everything that a request costs on the machine
#
# With nginx doing the same for both, what "both" differs by is the generators' own difference, wherever it was spent.
# The time of a process is what the scheduler counted on its processor, to the nanosecond, interrupts on top of it included.
#
# Needs root, iproute2, ethtool, nginx and wrk (installed if apt is there), python3 and two processors.
set -euo pipefail
cd "$(dirname "$0")/../.."
flowlane=${1:-${CARGO_TARGET_DIR:-target}/release/flowlane} seconds=${2:-3} rounds=${3:-5} connections=${4:-100}
[ "$(id -u)" = 0 ] || { echo "http: needs root for network namespaces" >&2; exit 2; }
[ "$(nproc)" -ge 2 ] || { echo "http: needs two processors" >&2; exit 2; }
for tool in ip:iproute2 ethtool:ethtool nginx:nginx-light wrk:wrk; do
    command -v "${tool%:*}" >/dev/null || apt-get install -y -q "${tool#*:}" >/dev/null
done
a=flbench-http-a b=flbench-http-b
scratch=$(mktemp -d)
clean() {
    [ -f "$scratch/nginx.pid" ] && kill "$(cat "$scratch/nginx.pid")" 2>/dev/null || true
    ip netns del $a 2>/dev/null || true
    ip netns del $b 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean EXIT
ip netns del $a 2>/dev/null || true
ip netns del $b 2>/dev/null || true
ip netns add $a && ip netns add $b
ip link add va netns $a numtxqueues 1 numrxqueues 1 type veth peer name vb netns $b numtxqueues 1 numrxqueues 1
ip -n $a link set va up
ip -n $b link set vb up
ip -n $b addr add 10.11.2.2/24 dev vb
# AF_XDP sees packets as they are: the sums must be in them. For both, so that both stand for the same link.
for end in "$a va" "$b vb"; do
    read -r ns dev <<<"$end"
    for what in tx gso tso gro; do ip netns exec "$ns" ethtool -K "$dev" $what off >/dev/null 2>&1 || true; done
done
# A connection for each request leaves its ports in TIME-WAIT.
ip netns exec $a sysctl -qw net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1
mkdir -p "$scratch/html"
head -c 600 /dev/zero | tr '\0' x >"$scratch/html/b.txt"
chmod -R a+rX "$scratch"
cat >"$scratch/nginx.conf" <<CONF
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
    server { listen 10.11.2.2:80 backlog=65535; root $scratch/html; }
}
CONF
ulimit -n 20000 2>/dev/null || true
ip netns exec $b taskset -c 1 nginx -c "$scratch/nginx.conf"

cat >"$scratch/measure.py" <<'P'
"""Runs a command on processor 0: prints its processor seconds and those of everybody concerned."""
import os, resource, subprocess, sys

out, nginx, *command = sys.argv[1:]
ran = lambda pid: sum(int(open(f"/proc/{pid}/task/{t}/schedstat").read().split()[0]) for t in os.listdir(f"/proc/{pid}/task"))
children = open(f"/proc/{nginx}/task/{nginx}/children").read().split()
named = {open(f"/proc/{p}/comm").read().strip(): p for p in os.listdir("/proc") if p.isdigit() and os.path.exists(f"/proc/{p}/comm")}
others = children + [named[f"ksoftirqd/{n}"] for n in (0, 1)]
before = [ran(p) for p in others]
with open(out, "w") as f:
    subprocess.run(["taskset", "-c", "0"] + command, stdout=f, stderr=subprocess.DEVNULL)
u = resource.getrusage(resource.RUSAGE_CHILDREN)
own = u.ru_utime + u.ru_stime
print(own, own + sum(ran(p) - b for p, b in zip(others, before)) / 1e9)
P

url=http://10.11.2.2/b.txt
# Tool and kind; prints them, the requests, and the two times.
run() {
    local tool=$1 kind=$2 count
    set --
    if [ "$tool" = wrk ]; then
        ip -n $a addr replace 10.11.2.1/24 dev va
        [ "$kind" = short ] && set -- -H "Connection: close"
        set -- wrk -t1 -c"$connections" -d"${seconds}s" --timeout 10s "$@" $url
    else
        ip -n $a addr flush dev va
        [ "$kind" = short ] && set -- --no-keepalive
        [ "$tool" = flowlane-sleep ] && set -- "$@" --idle sleep
        set -- "$flowlane" load http $url -c "$connections" -d "${seconds}s" --json -q --no-pin --link af-xdp:va \
            --addr 10.11.2.1/24 --workers 1 "$@"
    fi
    local times
    times=$(ip netns exec $a python3 "$scratch/measure.py" "$scratch/out" "$(cat "$scratch/nginx.pid")" "$@")
    if [ "$tool" = wrk ]; then
        count=$(awk '/requests in/ {print $1}' "$scratch/out")
    else
        count=$(python3 -c 'import json,sys; print(json.JSONDecoder().raw_decode(open(sys.argv[1]).read())[0]["total"]["counts"]["answered"])' "$scratch/out")
    fi
    echo "$tool $kind ${count:-0} $times"
}

for ((r = 1; r <= rounds; r++)); do
    for kind in keep-alive short; do
        for tool in wrk flowlane flowlane-sleep; do run $tool $kind; done
    done
done | tee "$scratch/raw"
python3 - "$scratch/raw" <<'P'
import statistics, sys

rows = {}
for line in open(sys.argv[1]):
    tool, kind, count, own, both = line.split()
    if int(count):
        n = int(count)
        rows.setdefault((kind, tool), []).append((float(own) / n * 1e6, float(both) / n * 1e6, n))
middle = statistics.median
spread = lambda values: f"{middle(values):7.2f} ({min(values):.2f}-{max(values):.2f})"
print("\nkind        tool            own, us/request          both, us/request         requests (median)   times wrk: own, both")
for (kind, tool), runs in sorted(rows.items()):
    own, both, count = zip(*runs)
    wrk = list(zip(*rows.get((kind, "wrk"), [(float("nan"),) * 3])))
    print(f"{kind:10}  {tool:14}  {spread(own):24} {spread(both):24} {middle(count):12.0f}         "
          f"{middle(own) / middle(wrk[0]):.2f}  {middle(both) / middle(wrk[1]):.2f}")
P
