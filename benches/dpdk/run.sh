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
. "$(dirname "$0")/common.sh"

# Without GFNI rte_thash_gfni is a stub that answers 0; the program checks its answers as well.
build_peer thash.c
build_ours flowlane-rss toeplitz_cells

round=0
while [ "$round" -lt "$rounds" ]; do
    taskset -c "$core" "$work/peer" | sed "s/^/$round dpdk /" >>"$work/raw"
    # shellcheck disable=SC2086
    taskset -c "$core" "$ours" $form | sed "s/^/$round ours /" >>"$work/raw"
    round=$((round + 1))
done
versions "$rounds rounds, form ${form:-best}"
compare 2
