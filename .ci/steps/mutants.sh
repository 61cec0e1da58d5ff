#!/bin/bash
# Guards broken one by one, a test has to notice each: those of files that changed lately, and a tenth of the others in turn.
lately=()
if base=$(recent_base); then
    git diff --name-only "$base" >"$CI_TARGET/ci-changed"
    lately=(--changed "$CI_TARGET/ci-changed")
else
    note "mutants: history does not reach back $recent_commits commits, so only the tenth was broken"
fi
cargo run --locked --quiet -p flowlane-mutants -- "$CI_TARGET/mutants" "${lately[@]}" --tenth "$CI_TURN"
