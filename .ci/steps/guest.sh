#!/bin/bash
# Links on a virtio, a vmxnet3 and an e1000e card: a guest in QEMU with an older kernel.
[ "$(uname -m)" = x86_64 ] || skip "the guest is made of Debian's packages for x86-64"
is_root || skip "network namespaces and TAP interfaces need root"
have_packages qemu-system-x86_64=qemu-system-x86 busybox=busybox-static ip=iproute2 ethtool=ethtool depmod=kmod ||
    skip "QEMU or what the guest is made of is missing"
# The kernel is a package as well, which apt finds in its index only.
if [ "${CI-}" = true ] && [ -z "$(apt-cache depends --important linux-image-amd64 2>/dev/null)" ]; then
    retry apt-get -q -o DPkg::Lock::Timeout=300 update >"$CI_TARGET/ci-apt.log" 2>&1 || true
fi
# With the features that the step `test` builds them with, so that nothing is compiled twice.
while IFS== read -r name path; do
    case $name in
    guest) export GUEST_TESTS=$path ;;
    links) export GUEST_LINKS=$path ;;
    esac
done < <(cargo test --workspace --locked --no-run --message-format=json 2>"$CI_TARGET/ci-cargo.log" |
    sed -nE 's/.*"name":"(guest|links)".*"executable":"([^"]*)".*/\1=\2/p')
[ -n "${GUEST_TESTS-}" ] && [ -n "${GUEST_LINKS-}" ] || { cat "$CI_TARGET/ci-cargo.log" >&2; exit 1; }
export GUEST_BINARY=$CI_TARGET/debug/flowlane
log=$CI_TARGET/ci-guest.log
rc=0
crates/testnet/guest/run --show-output 2>&1 | tee "$log" | grep -v '\.\.\. ok$' || rc=${PIPESTATUS[0]}
[ "$rc" != 77 ] || skip "$(sed -n 's/^skipped, because //p' "$log" | head -1)"
[ "$rc" != 0 ] || exit 0

# As in the step `test`: two tests at most run a second time, alone. What passes then is unsteady and is named at the end of the run.
mapfile -t names < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log" | sort -u)
if [ ${#names[@]} = 0 ] || [ ${#names[@]} -gt 2 ]; then exit 1; fi
GUEST_SECONDS=300 crates/testnet/guest/run --exact "${names[@]}" 2>&1 | tee "$log.again" | grep -E '^(error|test )' || exit 1
grep -q '^test result: ok. [1-9]' "$log.again" || exit 1
for name in "${names[@]}"; do note "guest: UNSTEADY: $name failed beside the others and passed alone"; done
