#!/bin/bash
# The crates that promise it build and pass their tests with the oldest Rust they promise.
use_msrv
cargo test "${msrv_packages[@]}" --lib --tests --locked --target-dir "$CI_TARGET/msrv"
