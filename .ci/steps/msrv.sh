#!/bin/bash
# The crates that promise it compile, tests and all, with the oldest Rust they promise; where they differ by it, their tests run.
use_msrv
cargo check "${msrv_packages[@]}" --lib --tests --locked --target-dir "$CI_TARGET/msrv"
# Hash and system calls have vector code that this Rust does not know (build.rs of flowlane-sys). The step `processor` runs more with it.
cargo test -p flowlane-sys -p flowlane-rss --lib --locked --target-dir "$CI_TARGET/msrv"
