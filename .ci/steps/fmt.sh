#!/bin/bash
# Is everything formatted?
cargo fmt --all --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
