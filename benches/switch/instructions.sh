#!/bin/bash
# Instructions that the switch takes for a forwarded frame of 64 bytes, by callgrind: of Switch::forward and all that it calls.
# They do not depend on what else the machine does. Needs valgrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
cargo build --quiet --release -p flowlane-benches --bin forward
program=${CARGO_TARGET_DIR:-target}/release/forward
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*one_burst*' \
        "$program" "$1" "$2" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
tags="config vlan_mode dot1q vlangroup 1 members none vlangroup 10 members 0,1,2,3 port 0 pvid 10 port 1 pvid 10 port 2 pvid 10 port 3 pvid 10"
for kind in "plain|" "VLANs|$tags" "a tag put on or taken off|${tags/0,1,/0,1t,}"; do
    few=$(count 1000 "${kind#*|}")
    many=$(count 3000 "${kind#*|}")
    echo "${kind%%|*}: $(((many - few) / 64000)) instructions a frame"
done
