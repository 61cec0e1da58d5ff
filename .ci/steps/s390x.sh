#!/bin/bash
# The same tests on a big-endian processor, emulated.
target=s390x-unknown-linux-gnu
have_packages s390x-linux-gnu-gcc=gcc-s390x-linux-gnu /usr/s390x-linux-gnu/include/stdio.h=libc6-dev-s390x-cross \
    qemu-s390x-static=qemu-user-static || skip "the cross compiler or the emulator is missing"
use_msrv "$target"
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER=s390x-linux-gnu-gcc
export CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER="qemu-s390x-static -L /usr/s390x-linux-gnu"
# The emulator is slow and a property is checked as well by fewer cases here.
export PROPTEST_CASES=${PROPTEST_CASES:-32}
cargo test -p flowlane-rss -p flowlane-stack --lib --tests --locked --target "$target" --target-dir "$CI_TARGET/msrv"
