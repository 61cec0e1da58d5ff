#!/bin/bash
# Each fuzz target over its kept inputs, then for some seconds with coverage.
# FLOWLANE_FUZZ_SECONDS (default 20) is the time for each target.
fuzz/run test
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    note "fuzz: only the kept inputs ran, because there is no nightly Rust in rustup (coverage and sanitizer need it)"
    exit 0
fi
have_packages g++=g++ || { note "fuzz: only the kept inputs ran, because there is no C++ compiler"; exit 0; }
fuzz/run build
for target in $(fuzz/run list); do
    fuzz/run "$target" "${FLOWLANE_FUZZ_SECONDS:-20}"
done
