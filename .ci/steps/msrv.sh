#!/bin/bash
# The crates that promise it compile, tests and all, with the oldest Rust they promise; where they differ by it, their tests run.
# In CI they do when these crates or what they depend on may have changed; at home always.
if [ "${CI-}" = true ] && [ -z "${FLOWLANE_CI_MSRV-}" ] && ! changed_lately crates/{sys,rss,stack,switch} Cargo.toml .ci &&
    ! depends_lately "${msrv_packages[@]}"; then
    skip "these crates and what they depend on have not changed lately (FLOWLANE_CI_MSRV=1 compiles them all the same)"
fi
use_msrv
cargo check "${msrv_packages[@]}" --lib --tests --locked --target-dir "$CI_TARGET/msrv"
# Hash and system calls have vector code that this Rust does not know (build.rs of flowlane-sys). The step `processor` runs more with it.
cargo test -p flowlane-sys -p flowlane-rss --lib --locked --target-dir "$CI_TARGET/msrv"
