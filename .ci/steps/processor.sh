#!/bin/bash
# The tests of hash and stack on another processor, emulated: one in turn, and a quarter of them. FLOWLANE_CI_TURN chooses, 0 to 7; the step `processors` runs all.
# In CI they run when what they prove may have changed: these crates, what they depend on, or this step.
if [ "${CI-}" = true ] && [ -z "${FLOWLANE_CI_PROCESSOR-}" ] && ! changed_lately crates/rss crates/stack crates/sys Cargo.toml .ci &&
    ! depends_lately -p flowlane-rss -p flowlane-stack; then
    skip "hash and stack have not changed lately (FLOWLANE_CI_PROCESSOR=1 runs them all the same)"
fi
case $((CI_TURN % 2)) in
0) triple=s390x-linux-gnu ;;
*) triple=aarch64-linux-gnu ;;
esac
# The emulator is slow: all of them take six minutes, most of which are bounds of memory under floods and the learning of keys.
quarters=(units tests learning bounds)
quarter=${quarters[$((CI_TURN / 2 % 4))]}
processor=${triple%%-*} target=${triple/-/-unknown-}
echo "$processor, $quarter"
cross=libc6-dev-s390x-cross
[ "$processor" = s390x ] || cross=libc6-dev-arm64-cross
have_packages "$triple-gcc=gcc-$triple" "/usr/$triple/include/stdio.h=$cross" \
    "qemu-$processor-static=qemu-user-static" || skip "the cross compiler or the emulator of $processor is missing"
use_msrv "$target"
name=${target//-/_}
export "CARGO_TARGET_${name^^}_LINKER=$triple-gcc" "CARGO_TARGET_${name^^}_RUNNER=$PWD/.ci/timed qemu-$processor-static -L /usr/$triple"
# The emulator is slow and a property is checked as well by fewer cases here.
export PROPTEST_CASES=${PROPTEST_CASES:-32}
emulated() { cargo test --locked --target "$target" --target-dir "$CI_TARGET/msrv" "$@"; }
targets=()
# (A property that fails, as those of a broken guard do, leaves a directory of its cases among them.)
for test in crates/stack/tests/*.rs crates/stack/tests/*/main.rs; do
    name=${test#crates/stack/tests/} name=${name%/main.rs} name=${name%.rs}
    if [ -e "$test" ] && [ "$name" != bounds ]; then targets+=(--test "$name"); fi
done
case $quarter in
units)
    emulated -p flowlane-rss --lib -- --skip learn::
    emulated -p flowlane-stack --lib
    ;;
tests) emulated -p flowlane-stack "${targets[@]}" ;;
learning) emulated -p flowlane-rss --lib -- learn:: ;;
bounds) emulated -p flowlane-stack --test bounds ;;
esac
