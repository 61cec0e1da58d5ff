#!/bin/bash
# Instructions that a packet costs a lane more while its largest flows are watched, or records of flows are made, by callgrind: one flow, many that
# are all in the table, and new flows only, as in a flood. They do not depend on what else the machine does. Needs valgrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(cargo bench --quiet -p flowlane-stack --bench top --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\/top-[^"]*\)".*/\1/p')
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
# Of the packets between two counts, hundredths; by default behind the start, and when tables are full.
each() {
    local few many
    few=$(count "$1" "$2" "$3" "$4")
    many=$(count "$1" "$2" "$3" "$5")
    echo $(((many - few) * 100 / ($5 - $4)))
}
while read -r flows largest records first last what; do
    off=$(each "$flows" 0 0 "$first" "$last")
    on=$(each "$flows" "$largest" "$records" "$first" "$last")
    echo "$what: $((off / 100)) instructions, $((on / 100)) watched, $(((on - off) / 100)) more"
done <<'END'
1 256 0 40000 140000 one flow, 256 largest watched
1000 8192 0 40000 140000 1000 flows in turn, 8192 largest watched
1000 256 0 40000 140000 1000 flows in turn, 256 largest watched
0 256 0 40000 140000 each packet of a new flow, 256 largest watched
1 0 256 40000 140000 one flow, records
1000 0 256 40000 140000 1000 flows in turn, records
0 0 256 500 4000 each packet of a new flow, records, room for 4096
0 0 256 10000 60000 each packet of a new flow, records, no room: behind 10000
0 0 256 200000 400000 each packet of a new flow, records, no room: behind 200000
END
