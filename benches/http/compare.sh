#!/bin/sh
# How often `load compare` finds a difference between equal programs, and between programs that differ by a twentieth.
#
# Real runs against a server of ours on the kernel's loopback, in turn: A, B, C, A, B, C, ... A and B are equal and answer after 20 ms; C
# answers after 21 ms. Prints for each shape how many comparisons had a finding, every twenty. At most one in twenty of equals
# may, nine in ten must of A and C.
#
# On a machine with other work, `chrt -f 50` before it keeps that work from what is measured.
#
#   benches/http/compare.sh [path to flowlane] [comparisons of a shape] [seconds of a run]
set -eu

flowlane=${1:-target/release/flowlane}
comparisons=${2:-200}
seconds=${3:-0.3}
scratch=$(mktemp -d)
port=18084
server=
trap 'kill $server 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
"$flowlane" serve http --addr 127.0.0.1/8 --port $port --no-pin >/dev/null 2>"$scratch/said" &
server=$!
until grep -q ' on ' "$scratch/said"; do
    kill -0 $server 2>/dev/null || { cat "$scratch/said"; exit 1; }
    sleep 0.1
done

# run PATH FILE: a machine with other work may not even begin in so short a time; then once more
run() {
    for _ in 1 2 3; do
        "$flowlane" load http "http://127.0.0.1:$port$1" --no-pin --workers 1 -c 8 -d "${seconds}s" --quiet --save "$2" >/dev/null && return
    done
    return 1
}

# found A... -- B...: 1 if any metric has a finding
found() {
    "$flowlane" load compare --json $metrics "$@" 2>/dev/null | grep -Eq '"finding": "(better|worse)"' && echo 1 || echo 0
}

# The first so many runs of a letter.
files() {
    for i in $(seq "$2"); do echo "$scratch/$1$i.json"; done
}

# Each round makes five runs of A, of its equal B and of the slower C, in turn. The shapes take what they need of them, so that comparisons
# of one shape have no run in common.
shapes="2-2 3-3 5-5 2-3"
for shape in $shapes slower; do eval "flagged_$(echo "$shape" | tr - _)=0"; done
for round in $(seq "$comparisons"); do
    for i in 1 2 3 4 5; do
        run /delay/20 "$scratch/a$i.json"
        run /delay/20 "$scratch/b$i.json"
        run /delay/21 "$scratch/c$i.json"
    done
    metrics=
    for shape in $shapes; do
        name=flagged_$(echo "$shape" | tr - _)
        # shellcheck disable=SC2046
        eval "$name=\$(($name + $(found $(files a "${shape%-*}") -- $(files b "${shape#*-}"))))"
    done
    metrics='--metric p50'
    # shellcheck disable=SC2046
    flagged_slower=$((flagged_slower + $(found $(files a 5) -- $(files c 5))))
    if [ $((round % 20)) = 0 ] || [ "$round" = "$comparisons" ]; then
        echo "of $round comparisons with a finding:"
        for shape in $shapes; do eval "echo \"  equal, ${shape%-*} and ${shape#*-} runs: \$flagged_$(echo "$shape" | tr - _)\""; done
        echo "  a twentieth slower, 5 and 5 runs: $flagged_slower"
    fi
done
