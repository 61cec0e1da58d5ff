#!/bin/bash
# Lints, warnings denied: the workspace and the fuzz targets' library.
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo clippy --manifest-path fuzz/Cargo.toml --all-targets --target-dir "$CI_TARGET/fuzz" -- -D warnings
