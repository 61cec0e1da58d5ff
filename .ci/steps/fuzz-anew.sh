#!/bin/bash
# Each fuzz target over 10000 inputs from one seed, with coverage.
# FLOWLANE_FUZZ_SECONDS: so long for each target instead, with inputs that are new each time.
rustup run nightly rustc --version >/dev/null 2>&1 || skip "there is no nightly Rust in rustup (coverage and sanitizer need it)"
have_packages g++=g++ || skip "there is no C++ compiler"
fuzz/run build
for target in $(fuzz/run list); do
    if [ -n "${FLOWLANE_FUZZ_SECONDS-}" ]; then
        fuzz/run "$target" "$FLOWLANE_FUZZ_SECONDS"
    else
        fuzz/run again "$target"
    fi
done
