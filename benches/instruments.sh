#!/bin/bash
# Instructions that a worker takes for a packet with nothing to watch it, and how many more with each instrument and with all, by callgrind: all
# that the worker does, from link to task and back. Those of UDP hardly depend on what else the machine does; of TCP timers take part, and two runs
# differ by up to 3 % of all, 200 instructions a packet. Needs valgrind.
#
#     benches/instruments.sh [program, if it is built]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${1:-$(cargo bench --quiet -p flowlane-net --bench instruments --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/instruments-[^"]*\)".*/\1/p')}
# Instructions of the worker, and packets.
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*Worker::run' "$program" "$@" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p; s/^\([0-9]*\) packets$/\1/p' | sort -n | tr '\n' ' '
}
# Tenths of an instruction of a packet, behind the start.
each() {
    local packets few most many
    read -r packets few <<<"$(count "$1" "$2" "$3" $((12800 / $3 / 4)) "${@:4}")"
    read -r most many <<<"$(count "$1" "$2" "$3" $((12800 / $3)) "${@:4}")"
    echo $(((many - few) * 10 / (most - packets)))
}
# With its sign, if it is to have one.
tenths() {
    local sign=${2:-}
    [ "$1" -lt 0 ] && sign=-
    echo "$sign$((${1#-} / 10)).$((${1#-} % 10))"
}
all="budget watchdog perf records top capture"
for what in "udp v4 64" "udp v4 1" "udp v6 64" "tcp v4 64" "tcp v4 1" "tcp v6 64"; do
    off=$(each $what)
    line="$what at once: $(tenths "$off") instructions"
    for more in $all "records top" "$all"; do
        on=$(each $what $more)
        name=$more
        [ "$more" = "$all" ] && name=all
        line+=", $name $(tenths $((on - off)) +)"
    done
    echo "$line"
done
