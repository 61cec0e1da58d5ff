#!/bin/bash
# Every interleaving of small programs over rings, sleeping and moving lanes (loom).
# Crates that have such tests say so by depending on loom.
packages=()
for manifest in crates/*/Cargo.toml; do
    if grep -q '^loom' "$manifest"; then packages+=(-p "$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -1)"); fi
done
echo "crates: ${packages[*]}"
# The release profile is for the binary; here the whole-program optimisation only costs time.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
log=$CI_TARGET/ci-loom.log
RUSTFLAGS="--cfg loom" cargo test --release "${packages[@]}" --lib --locked --target-dir "$CI_TARGET/loom" loom 2>&1 | tee "$log"
# A filter that matches nothing passes too.
if ! grep -q -E '^running [1-9]' "$log"; then
    echo "no loom test ran" >&2
    exit 1
fi
