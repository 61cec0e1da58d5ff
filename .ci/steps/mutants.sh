#!/bin/bash
# Guards broken one by one, a test has to notice each: those of files that changed lately, and a tenth of the others in turn.
lately=()
if base=$(recent_base); then
    # A file in which only comments changed breaks as before. A mark that is new above an old line is tried by who adds it, and in its turn.
    git diff --name-only "$base" -- crates | while IFS= read -r file; do
        [ -e "$file" ] || continue
        cmp -s <(git show "$base:$file" 2>/dev/null | sed '/^ *\/\//d') <(sed '/^ *\/\//d' "$file") || echo "$file"
    done >"$CI_TARGET/ci-changed"
    lately=(--changed "$CI_TARGET/ci-changed")
else
    note "mutants: history does not reach back $recent_commits commits, so only the tenth was broken"
fi
cargo run --locked --quiet -p flowlane-mutants -- "$CI_TARGET/mutants" "${lately[@]}" --tenth "$CI_TURN"
