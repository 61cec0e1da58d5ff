#!/bin/bash
# Every guard broken, one by one: a test has to notice each.
cargo run --locked --quiet -p flowlane-mutants -- "$CI_TARGET/mutants"
