#!/bin/bash
# Lints, warnings denied.
cargo clippy --workspace --all-targets --locked -- -D warnings
# Who wants sockets alone builds no HTTP.
cargo clippy -p flowlane-net --no-default-features --locked -- -D warnings
if cargo tree -p flowlane-net --no-default-features --edges normal --prefix none --locked | grep '^hyper'; then
    echo "flowlane without features needs hyper"
    exit 1
fi
