#!/bin/bash
# Everything public in the crates that promise to stay (docs/releases.md), beside the listings in contrib/release/api; and beside the last release's, if there is a tag.
#
# rustdoc describes a crate in JSON only if it is told that this may change; cargo-public-api reads the form that this Rust writes. A change of
# the interface that is meant: FLOWLANE_API=write .ci/run api. Runs only by name.
version=0.52.0
tools=$CI_TARGET/tools
listing=$tools/bin/cargo-public-api
if ! "$listing" --version 2>/dev/null | grep -qF "$version"; then
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 retry cargo install cargo-public-api --quiet --locked \
        --version "$version" --debug --root "$tools" --target-dir "$tools/build" || skip "cargo-public-api is not to be had"
    rm -rf "$tools/build"
fi
failed=false
for crate in rss stack switch net; do
    file=contrib/release/api/flowlane-$crate.txt
    name=flowlane_$crate
    [ "$crate" = net ] && name=flowlane
    RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --locked -p "flowlane-$crate" --lib --all-features --target-dir "$CI_TARGET/api" -- \
        -Z unstable-options --output-format json --cap-lints allow
    # What is derived or automatic says nothing more than the type does, and makes half of the lines.
    "$listing" -sss --rustdoc-json "$CI_TARGET/api/doc/$name.json" >"$CI_TARGET/api/flowlane-$crate.txt"
    [ "$(wc -l <"$CI_TARGET/api/flowlane-$crate.txt")" -gt 20 ] || { echo "flowlane-$crate: the listing is empty" >&2; exit 1; }
    if [ "${FLOWLANE_API-}" = write ]; then
        cp "$CI_TARGET/api/flowlane-$crate.txt" "$file"
    fi
    if diff -u "$file" "$CI_TARGET/api/flowlane-$crate.txt" >"$CI_TARGET/api/diff"; then
        echo "flowlane-$crate: $(wc -l <"$file") lines, as listed"
    else
        failed=true
        sed -n '3,60p' "$CI_TARGET/api/diff"
        echo "flowlane-$crate: its interface is not as listed in $file: $(grep -c '^-[^-]' "$CI_TARGET/api/diff") lines gone, $(grep -c '^+[^+]' "$CI_TARGET/api/diff") new" >&2
    fi
done
! $failed || exit 1

tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { note "api: not compared with a release, because none is tagged"; exit 0; }
command -v cargo-semver-checks >/dev/null || retry cargo install cargo-semver-checks --quiet --locked --version 0.51.0 --root "$tools" --target-dir "$tools/build" ||
    skip "cargo-semver-checks is not to be had"
PATH=$tools/bin:$PATH cargo semver-checks --baseline-rev "$tag" -p flowlane-rss -p flowlane-stack -p flowlane-switch -p flowlane-net
