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
. "$(dirname "$0")/common.sh"

# The library itself comes compiled; the flags only concern the program around it. GCC takes the data of a fresh mbuf,
# which it sees allocated and initialised, for an object without size.
build_peer ip_frag.c -Wno-stringop-overflow
build_ours flowlane-stack reassembly_cells

round=0
while [ "$round" -lt "$rounds" ]; do
    taskset -c "$core" "$work/peer" --no-huge --no-pci -m 1000 --no-telemetry --no-shconf --log-level=3 -l "$core" |
        grep / | sed "s/^/$round dpdk /" >>"$work/raw"
    taskset -c "$core" "$ours" | sed "s/^/$round ours /" >>"$work/raw"
    round=$((round + 1))
done
versions "$rounds rounds"
compare 1
