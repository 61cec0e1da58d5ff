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
note "deny: security advisories were not checked, because their database is on a git host that CI does not reach; run 'cargo deny check advisories' where it is"
