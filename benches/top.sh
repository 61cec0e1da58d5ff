#!/bin/bash
# Instructions that a packet costs a lane more while its largest flows are watched, by callgrind: one flow, many that are all in the table, and
# new flows only, as in a flood. They do not depend on what else the machine does. Needs valgrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(cargo bench --quiet -p flowlane-stack --bench top --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\/top-[^"]*\)".*/\1/p')
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
# Of the packets between the two counts: behind the start, and when tables are full.
each() {
    local few many
    few=$(count "$1" "$2" 40000)
    many=$(count "$1" "$2" 140000)
    echo $(((many - few) / 1000))
}
while read -r flows largest what; do
    off=$(each "$flows" 0)
    on=$(each "$flows" "$largest")
    echo "$what: $((off / 100)) instructions, $((on / 100)) watched, $(((on - off) / 100)) more"
done <<'END'
1 256 one flow, 256 largest watched
1000 8192 1000 flows in turn, 8192 largest watched
1000 256 1000 flows in turn, 256 largest watched
0 256 each packet of a new flow, 256 largest watched
END
