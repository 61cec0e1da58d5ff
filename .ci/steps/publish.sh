#!/bin/bash
# Every crate that is published: packed as it would be, and built from what was packed, without the workspace around it.
#
# Nothing is sent (--dry-run). What is packed is what git has, changes that are not committed included. Compiles everything anew without
# optimisation, so it runs only by name.
export CARGO_PROFILE_DEV_DEBUG=0
cargo publish --workspace --dry-run --locked --allow-dirty --target-dir "$CI_TARGET/publish" 2>&1 | grep -v '^warning: ignoring \(benchmark\|test\) '
# Each has its licences, and a page.
for packed in "$CI_TARGET"/publish/package/*.crate; do
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        tar -tzf "$packed" | grep -q "/$file\$" || { echo "${packed##*/} has no $file" >&2; exit 1; }
    done
    echo "${packed##*/}: $(stat -c %s "$packed") bytes"
done
