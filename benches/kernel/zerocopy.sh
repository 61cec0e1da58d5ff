#!/usr/bin/env bash
# A body of 1 MiB from memory: processor time of send_zc beside that of the copying send on the same stack, in turns, with the spread.
#
#   benches/kernel/zerocopy.sh [ROUNDS]
#
# Both ends are in one process and counted together. Over the link in memory with segments cut by the link nothing is copied on the way, and
# the reader copies nothing either; with segments cut by us each has a copy in its frame. The kernel's loopback copies whatever it is asked, and
# says so; a connection learns that after four sends.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec cargo bench --quiet -p flowlane-net --bench zerocopy -- "${1:-7}"
