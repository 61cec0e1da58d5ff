#!/usr/bin/env bash
# What a request of an open loop costs the generator, and how late it is, beside oha: both ask the same server in turns.
#
# Usage: benches/http/open_loop.sh [rounds] [seconds]      (3 rounds of 4 s for each rate by default)
#
# Prints a line for each run: rate, program, processor time for each request, and the latency from the moment a request was to
# be sent (of oha by --latency-correction), whose median is mostly lateness, since the server is on this machine and answers in
# tens of microseconds. `flowlane` sends each request at its moment; `flowlane-1ms` and `flowlane-2ms` may send several at once up to a
# millisecond or two late (--slack). oha's figure is by its own schedule, which asks for a millisecond's requests at once: on_the_wire.py
# says how late they are. oha: cargo install oha --locked. OHA, RATES and
# FLOWLANE (a command that is built already) may be set in the environment.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} seconds=${2:-4}
oha=${OHA:-oha}
read -ra rates <<<"${RATES:-1000 10000 20000}"
command -v "$oha" >/dev/null || { echo "open_loop: $oha is not there: cargo install oha --locked, or OHA=PATH" >&2; exit 2; }
command -v python3 >/dev/null || { echo "open_loop: python3 is needed to read the reports" >&2; exit 2; }
flowlane=${FLOWLANE:-target/release/flowlane}
[ -n "${FLOWLANE-}" ] || cargo build --release --locked -q -p flowlane
work=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$flowlane" serve http --port "$port" --no-pin >"$work/server" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -r "$work"' EXIT
for _ in $(seq 100); do
    grep -q " port $port" "$work/server" && break
    kill -0 "$server" 2>/dev/null || { cat "$work/server" >&2; exit 1; }
    read -rt 0.1 <> <(:) || true
done
url="http://127.0.0.1:$port/"
echo "$(nproc) processors, $(uname -r); $("$oha" --version); $("$flowlane" --version)"
printf '%6s %-13s %10s %9s %9s %9s %9s\n' rate program 'us/request' p50 p90 p99 answers

# Prints what a run came to. Arguments: rate, program, file with its JSON, processor seconds.
line() {
    python3 - "$@" <<'PY'
import json, sys
rate, program, path, cpu = sys.argv[1:]
report = json.load(open(path))
if program == "oha":
    answers = sum(report["statusCodeDistribution"].values())
    times = [report["latencyPercentiles"][p] * 1e6 for p in ("p50", "p90", "p99")]
else:
    answers = report["total"]["counts"]["answered"]
    times = [report["total"]["latency"][p] / 1e3 for p in ("p50", "p90", "p99")]
print(f"{rate:>6} {program:<13} {float(cpu) / max(answers, 1) * 1e6:>10.1f}", *(f"{t:>8.0f}u" for t in times), f"{answers:>9}")
PY
}

# Runs a command and prints a line of it. Arguments: rate, program, command.
run() {
    local rate=$1 program=$2
    shift 2
    local TIMEFORMAT='%U %S' cpu
    # A schedule that was not kept is in the figures, and ends nothing.
    cpu=$({ time "$@" >"$work/json" 2>"$work/said" || true; } 2>&1)
    [ -s "$work/json" ] || { echo "open_loop: $program has no report: $(cat "$work/said")" >&2; return 1; }
    line "$rate" "$program" "$work/json" "$(awk '{ print $1 + $2 }' <<<"$cpu")"
}

for round in $(seq "$rounds"); do
    echo "round $round"
    for rate in "${rates[@]}"; do
        common=(load http "$url" -c 100 -r "$rate" -d "${seconds}s" --no-pin --json -q)
        run "$rate" flowlane "$flowlane" "${common[@]}"
        run "$rate" flowlane-1ms "$flowlane" "${common[@]}" --slack 1ms
        run "$rate" flowlane-2ms "$flowlane" "${common[@]}" --slack 2ms
        run "$rate" oha "$oha" --no-tui --output-format json --latency-correction \
            -c 100 -q "$rate" -z "${seconds}s" "$url"
    done
done
