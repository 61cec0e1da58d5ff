#!/bin/sh
# How often `load compare` finds a difference between equal programs, and between programs that differ by a twentieth.
#
# Real runs over the pair link, server and generator in one process, in turn: A, B, A, B, ... The B of the second part answers
# after 21 ms instead of 20 ms. Prints for each shape how many comparisons had a finding. At most one in twenty may in the
# first part, nine in ten must in the second.
#
#   benches/http/compare.sh [path to flowlane] [comparisons of a shape] [seconds of a run]
set -eu

flowlane=${1:-target/release/flowlane}
comparisons=${2:-200}
seconds=${3:-0.3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run PATH FILE: a machine with other work may not even begin in so short a time; then once more
run() {
    for _ in 1 2 3; do
        "$flowlane" load http "http://10.0.0.1$1" --link pair --workers 1 -c 8 -d "${seconds}s" --quiet --save "$2" >/dev/null && return
    done
    return 1
}

# found A... -- B...: 1 if any metric has a finding
found() {
    "$flowlane" load compare --json $metrics "$@" 2>/dev/null | grep -Eq '"finding": "(better|worse)"' && echo 1 || echo 0
}

# shape RUNS_A RUNS_B PATH_B LABEL
shape() {
    flagged=0
    for _ in $(seq "$comparisons"); do
        a= b=
        for i in $(seq 8); do
            [ "$i" -le "$1" ] && run /delay/20 "$scratch/a$i.json" && a="$a $scratch/a$i.json"
            [ "$i" -le "$2" ] && run "$3" "$scratch/b$i.json" && b="$b $scratch/b$i.json"
        done
        # shellcheck disable=SC2086
        flagged=$((flagged + $(found $a -- $b)))
    done
    echo "$4: $1 and $2 runs, $flagged of $comparisons with a finding"
}

metrics=
for sides in "2 2" "3 3" "5 5" "2 3" "1 3"; do
    # shellcheck disable=SC2086
    shape $sides /delay/20 "equal"
done
metrics='--metric p50'
shape 5 5 /delay/21 "a twentieth slower"
