#!/bin/bash
# The unit tests of every crate on other processors, emulated, with the newest Rust that Debian's packages have of each. Their result stands in docs/processors.md.
# FLOWLANE_PROCESSORS="aarch64 s390x" takes only these. What needs a card, rights or another program is no unit test. (The step `processor` takes hash and
# stack with the oldest Rust, and their long tests.)
#
# What the emulator has not is left out: BPF, ethtool's requests, TCP_INFO, sockets' error queues and counts of the kernel, stacks of threads that are
# interrupted, a program that starts itself again. So is what is the same arithmetic everywhere and takes it an hour: statistics by simulation, and learning of
# keys, which the step `processor` has.
left_out=(bpf:: card:: netdev:: kernel::depart:: kernel::flows:: kernel::tests:: watchdog::tests:: trace:: report::compare:: report::periods:: learn::
    tests::what_is_skipped_is_seen)
read -ra wanted <<<"${FLOWLANE_PROCESSORS-aarch64 powerpc64le s390x}"
row() { printf '| %s | %s | %s | %s | %s | %s |\n' "$@"; }
rows=() rc=0
for processor in "${wanted[@]}"; do
    case $processor in
    aarch64) cross=libc6-dev-arm64-cross emulator=qemu-aarch64 ;;
    powerpc64le) cross=libc6-dev-ppc64el-cross emulator=qemu-ppc64le ;;
    s390x) cross=libc6-dev-s390x-cross emulator=qemu-s390x ;;
    *) echo "processors: '$processor': aarch64, powerpc64le or s390x" >&2 && exit 2 ;;
    esac
    triple=$processor-linux-gnu target=$processor-unknown-linux-gnu
    have_packages "$triple-gcc=gcc-$triple" "/usr/$triple/include/stdio.h=$cross" || skip "the cross compiler of $processor is missing"
    rustc=$(contrib/release/rust "$processor")
    emulator=${rustc%/*}/$emulator
    name=${target//-/_} log=$CI_TARGET/ci-processors-$processor.log
    export "CARGO_TARGET_${name^^}_LINKER=$triple-gcc" "CC_$name=$triple-gcc" "CARGO_TARGET_${name^^}_RUNNER=$emulator -L /usr/$triple"
    # The emulator is slow, and a property is checked as well by fewer cases here.
    code=0
    PROPTEST_CASES=${PROPTEST_CASES:-32} RUSTC=$rustc cargo test --workspace --lib --locked --target "$target" --target-dir "$CI_TARGET/processors" \
        --no-fail-fast -- --show-output "${left_out[@]/#/--skip=}" >"$log" 2>&1 || code=$?
    awk '/^test .* FAILED$/ || /^error/' "$log"
    passed=$(sed -nE 's/^test result: .* ([0-9]+) passed;.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    failed=$(sed -nE 's/^test result: .* ([0-9]+) failed;.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    skipped=$(grep -c 'skipped, because ' "$log" || true)
    if [ "$code" != 0 ]; then rc=1; fi
    rows+=("$(row "$processor" "$((passed - skipped))" "$skipped" "$failed" "$("$rustc" --version | cut -d ' ' -f 2)" "$("$emulator" --version | sed -nE '1s/.*version ([0-9.]+).*/\1/p')")")
    echo "${rows[-1]}"
done
row processor passed skipped failed Rust QEMU
printf '%s\n' "${rows[@]}"
exit $rc
