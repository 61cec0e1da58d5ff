#!/bin/bash
# Documentation, warnings denied: broken links above all.
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
