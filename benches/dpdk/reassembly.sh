#!/bin/sh
# Flowlane's reassembly beside DPDK's ip_frag library, both pinned to one core and run in turn.
#
# Usage: benches/dpdk/reassembly.sh [ROUNDS] [CORE]
#
# Prints, for each cell, the median nanoseconds per fragment of both and the median of the rounds' ratios with the least
# and the greatest; below 1 Flowlane is quicker. A cell's name ends with the number of datagrams pending meanwhile.
# Needs cargo and gcc and, on Debian, installs libdpdk-dev if run as root. Needs no huge pages.
set -eu
rounds=${1:-9}
core=${2:-1}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! pkg-config --exists libdpdk 2>/dev/null; then
    echo "installing libdpdk-dev" >&2
    apt-get install -y --no-install-recommends libdpdk-dev pkg-config >&2
fi

# The library itself comes compiled; the flags only concern the program around it. GCC takes the data of a fresh mbuf,
# which it sees allocated and initialised, for an object without size.
# shellcheck disable=SC2046
gcc -O3 $(pkg-config --cflags libdpdk) -march=native -Wno-stringop-overflow -DALLOW_EXPERIMENTAL_API \
    "$here/ip_frag.c" -o "$work/peer" $(pkg-config --libs libdpdk)
target=$(cd "$root" && cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
(cd "$root" && cargo build --release --quiet -p flowlane-stack --example reassembly_cells)
ours="$target/release/examples/reassembly_cells"

round=0
while [ "$round" -lt "$rounds" ]; do
    taskset -c "$core" "$work/peer" --no-huge --no-pci -m 1000 --no-telemetry --no-shconf --log-level=3 -l "$core" |
        grep / | sed "s/^/$round dpdk /" >>"$work/raw"
    taskset -c "$core" "$ours" | sed "s/^/$round ours /" >>"$work/raw"
    round=$((round + 1))
done

grep -m1 'model name' /proc/cpuinfo || true
echo "DPDK $(pkg-config --modversion libdpdk), $(gcc --version | head -1), $(rustc --version), $rounds rounds"
awk '
function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{ time[$2, $3, $1] = $4; if ($2 == "ours" && !($3 in seen)) { seen[$3] = 1; order[++cells] = $3 } if ($1 + 1 > rounds) rounds = $1 + 1 }
END {
    printf "%-18s %9s %9s %7s %s\n", "cell", "dpdk ns", "ours ns", "ratio", "(least-greatest)"
    for (c = 1; c <= cells; c++) {
        name = order[c]
        for (r = 0; r < rounds; r++) {
            mine[r + 1] = time["ours", name, r]; theirs[r + 1] = time["dpdk", name, r]
            ratio[r + 1] = mine[r + 1] / theirs[r + 1]
        }
        m = median(ratio, rounds)
        printf "%-18s %9.1f %9.1f %7.2f (%.2f-%.2f)\n", name, median(theirs, rounds), median(mine, rounds), m, ratio[1], ratio[rounds]
    }
}' "$work/raw"
