# shellcheck shell=sh
# What the comparisons with DPDK share; read by the scripts beside it, after `set -eu`.

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The library; on Debian, and as root, it is installed.
if ! pkg-config --exists libdpdk 2>/dev/null; then
    echo "installing libdpdk-dev" >&2
    apt-get install -y --no-install-recommends libdpdk-dev pkg-config >&2
fi

# build_peer SOURCE [FLAG...]: the peer's program as $work/peer. Debian's flags contain -march=corei7; native comes after it,
# or GFNI would be gone again.
build_peer() {
    source=$1
    shift
    # shellcheck disable=SC2046
    gcc -O3 $(pkg-config --cflags libdpdk) -march=native "$@" -DALLOW_EXPERIMENTAL_API "$here/$source" \
        -o "$work/peer" $(pkg-config --libs libdpdk)
}

# build_ours PACKAGE EXAMPLE: our program as $ours.
build_ours() {
    target=$(cd "$root" && cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    (cd "$root" && cargo build --release --quiet -p "$1" --example "$2")
    # shellcheck disable=SC2034
    ours="$target/release/examples/$2"
}

# What was measured where.
versions() {
    grep -m1 'model name' /proc/cpuinfo || true
    echo "DPDK $(pkg-config --modversion libdpdk), $(gcc --version | head -1), $(rustc --version), $1"
}

# compare DIGITS: reads lines "ROUND dpdk|ours CELL NANOSECONDS" from $work/raw; prints, for each cell of ours, both medians
# and the median of the rounds' ratios with the least and the greatest. A cell without a peer shows its own spread.
compare() {
    awk -v digits="$1" '
    function median(list, n,    i, j, t) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    {
        time[$2, $3, $1] = $4
        if ($2 == "ours" && !($3 in seen)) { seen[$3] = 1; order[++cells] = $3 }
        if ($1 + 1 > rounds) rounds = $1 + 1
    }
    END {
        number = "%9." digits "f"
        printf "%-18s %9s %9s %7s %s\n", "cell", "dpdk ns", "ours ns", "ratio", "(least-greatest)"
        for (c = 1; c <= cells; c++) {
            name = order[c]; peer = (("dpdk", name, 0) in time)
            for (r = 0; r < rounds; r++) {
                mine[r + 1] = time["ours", name, r]
                if (peer) { theirs[r + 1] = time["dpdk", name, r]; ratio[r + 1] = mine[r + 1] / theirs[r + 1] }
            }
            if (peer) {
                m = median(ratio, rounds)
                printf "%-18s " number " " number " %7.2f (%.2f-%.2f)\n", name, median(theirs, rounds), median(mine, rounds), m, ratio[1], ratio[rounds]
            } else {
                m = median(mine, rounds)
                printf "%-18s %9s " number " %7s (%.2f-%.2f ns)\n", name, "-", m, "-", mine[1], mine[rounds]
            }
        }
    }' "$work/raw"
}
