#!/bin/bash
# Licences, banned crates and sources of everything we depend on (cargo-deny).
# They depend on the files that name what we depend on alone. CI looks again when these have changed, at home it always does.
if [ "${CI-}" = true ] && [ -z "${FLOWLANE_CI_DENY-}" ] && ! changed_lately deny.toml Cargo.lock fuzz/Cargo.toml Cargo.toml 'crates/*/Cargo.toml' benches/Cargo.toml; then
    skip "what we depend on has not changed lately (FLOWLANE_CI_DENY=1 looks all the same)"
fi
version=0.20.2
tools=$CI_TARGET/tools
deny=$tools/bin/cargo-deny
if ! "$deny" --version 2>/dev/null | grep -qF "$version"; then
    if command -v cargo-deny >/dev/null; then
        deny=$(command -v cargo-deny)
    else
        # Built without optimisation: it runs for a second.
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 retry cargo install cargo-deny --quiet --locked \
            --version "$version" --debug --root "$tools" --target-dir "$tools/build"
        rm -rf "$tools/build"
    fi
fi
"$deny" --version
"$deny" --locked --all-features check --hide-inclusion-graph licenses bans sources
# Security advisories, from a clone of https://github.com/rustsec/advisory-db on this machine.
if [ -n "${FLOWLANE_ADVISORIES-}" ]; then
    [ -d "$FLOWLANE_ADVISORIES" ] || { echo "FLOWLANE_ADVISORIES: there is no $FLOWLANE_ADVISORIES" >&2; exit 1; }
    # Git finds the clone where the database would be.
    sed "/^\[advisories\]/a db-path = \"$CI_TARGET/advisories\"\ngit-fetch-with-cli = true" deny.toml >"$CI_TARGET/deny.toml"
    rm -rf "$CI_TARGET/advisories"
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$(realpath "$FLOWLANE_ADVISORIES").insteadOf GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db \
        "$deny" --locked --all-features --config "$CI_TARGET/deny.toml" check --hide-inclusion-graph advisories
    echo "advisories of $(git -C "$FLOWLANE_ADVISORIES" log -1 --format=%cs)"
else
    note "deny: security advisories were not checked, because their database is on a git host that CI does not reach; FLOWLANE_ADVISORIES=CLONE names a clone of it"
fi
