#!/bin/sh
# Flowlane's Toeplitz hash beside DPDK's rte_thash_gfni, both pinned to one core and run in turn.
#
# Usage: benches/dpdk/run.sh [ROUNDS] [CORE] [FORM]
#
# Prints, for each cell, the median nanoseconds per hash of both and the median of the rounds' ratios with the least
# and the greatest; below 1 Flowlane is quicker. Needs cargo, gcc and, on Debian, installs libdpdk-dev if run as root.
set -eu
rounds=${1:-15}
core=${2:-1}
form=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! pkg-config --exists libdpdk 2>/dev/null; then
    echo "installing libdpdk-dev" >&2
    apt-get install -y --no-install-recommends libdpdk-dev pkg-config >&2
fi

# Debian's flags contain -march=corei7. Placed after -march=native they take GFNI away again and rte_thash_gfni becomes
# a stub that answers 0, so native comes last; the program checks its answers as well.
# shellcheck disable=SC2046
gcc -O3 $(pkg-config --cflags libdpdk) -march=native -DALLOW_EXPERIMENTAL_API "$here/thash.c" \
    -o "$work/peer" $(pkg-config --libs libdpdk)
target=$(cd "$root" && cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
(cd "$root" && cargo build --release --quiet -p flowlane-rss --example toeplitz_cells)
ours="$target/release/examples/toeplitz_cells"

round=0
while [ "$round" -lt "$rounds" ]; do
    taskset -c "$core" "$work/peer" | sed "s/^/$round dpdk /" >>"$work/raw"
    # shellcheck disable=SC2086
    taskset -c "$core" "$ours" $form | sed "s/^/$round ours /" >>"$work/raw"
    round=$((round + 1))
done

grep -m1 'model name' /proc/cpuinfo || true
echo "DPDK $(pkg-config --modversion libdpdk), $(gcc --version | head -1), $(rustc --version), $rounds rounds, form ${form:-best}"
awk '
function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{ time[$2, $3, $1] = $4; if ($2 == "ours" && !($3 in seen)) { seen[$3] = 1; order[++cells] = $3 } if ($1 + 1 > rounds) rounds = $1 + 1 }
END {
    printf "%-16s %9s %9s %7s %s\n", "cell", "dpdk ns", "ours ns", "ratio", "(least-greatest)"
    for (c = 1; c <= cells; c++) {
        name = order[c]; peer = (("dpdk", name, 0) in time)
        for (r = 0; r < rounds; r++) {
            mine[r + 1] = time["ours", name, r]
            if (peer) { theirs[r + 1] = time["dpdk", name, r]; ratio[r + 1] = mine[r + 1] / theirs[r + 1] }
        }
        if (peer) {
            m = median(ratio, rounds)
            printf "%-16s %9.2f %9.2f %7.2f (%.2f-%.2f)\n", name, median(theirs, rounds), median(mine, rounds), m, ratio[1], ratio[rounds]
        } else {
            m = median(mine, rounds)
            printf "%-16s %9s %9.2f %7s (%.2f-%.2f ns)\n", name, "-", m, "-", mine[1], mine[rounds]
        }
    }
}' "$work/raw"
