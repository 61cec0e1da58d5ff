#!/bin/bash
# The tests of the crates with the unsafe lines that need no kernel, under Miri: pointers, borrows and data races.
# Both models of borrowing are asked; tests with threads run under several seeds. What calls the kernel Miri cannot run: there
# the tests look at the pointers that the kernel would be given.
if ! rustup run nightly cargo miri --version >/dev/null 2>&1; then
    if [ "${CI-}" = true ]; then
        timeout 300 rustup --quiet component add miri rust-src --toolchain nightly || true
    fi
    rustup run nightly cargo miri --version >/dev/null 2>&1 ||
        skip "Miri is not installed (rustup component add miri rust-src --toolchain nightly)"
fi
miri() {
    local flags=$1
    shift
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-strict-provenance $flags" CARGO_TARGET_DIR=$CI_TARGET \
        rustup run nightly cargo miri test --quiet --locked -p flowlane-sys -p flowlane-c --lib -- "$@" 2>&1 |
        grep -v -e 'does not support optimizations' -e '^$'
}
# What Miri can run, by name. `absurd` asks for memory that Miri takes seriously, `uring` for a kernel.
without_threads=(block:: frame:: ring:: held:: vnet:: every_pointer control_messages the_last_word shapes_satisfy tag::)
with_threads=(on_another frees_the_memory come_home outlives random_traffic wherever_they_end between_threads producers_order)
miri "" "${without_threads[@]}" --skip absurd --skip sharing:: --skip uring::
miri "-Zmiri-tree-borrows" "${without_threads[@]}" --skip absurd --skip sharing:: --skip uring::
miri "-Zmiri-many-seeds=0..8" "${with_threads[@]}"
