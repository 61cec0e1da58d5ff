#!/bin/bash
# Each fuzz target over its kept inputs, then over 10000 inputs from one seed, with coverage.
# FLOWLANE_FUZZ_SECONDS: so long for each target instead, with inputs that are new each time.
fuzz/run test
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    note "fuzz: only the kept inputs ran, because there is no nightly Rust in rustup (coverage and sanitizer need it)"
    exit 0
fi
have_packages g++=g++ || { note "fuzz: only the kept inputs ran, because there is no C++ compiler"; exit 0; }
fuzz/run build
for target in $(fuzz/run list); do
    if [ -n "${FLOWLANE_FUZZ_SECONDS-}" ]; then
        fuzz/run "$target" "$FLOWLANE_FUZZ_SECONDS"
    else
        fuzz/run again "$target"
    fi
done
