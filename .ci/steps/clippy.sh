#!/bin/bash
# Lints, warnings denied: the workspace and the fuzz targets' library.
cargo clippy --workspace --all-targets --locked -- -D warnings
# Who wants sockets alone builds no HTTP.
cargo clippy -p flowlane --no-default-features --locked -- -D warnings
if cargo tree -p flowlane --no-default-features --edges normal --prefix none --locked | grep '^hyper'; then
    echo "flowlane without features needs hyper"
    exit 1
fi
# In the profile of the workspace: what both depend on is compiled once.
CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=false \
    cargo clippy --manifest-path fuzz/Cargo.toml --all-targets --target-dir "$CI_TARGET" -- -D warnings
