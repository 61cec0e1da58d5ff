#!/bin/bash
# Links on virtio, vmxnet3, e1000e and igb cards: two guests in QEMU at once, with an older and a newer kernel; the newer with two NUMA nodes, too.
[ "$(uname -m)" = x86_64 ] || skip "the guest is made of Debian's packages for x86-64"
is_root || skip "network namespaces and TAP interfaces need root"
have_packages qemu-system-x86_64=qemu-system-x86 busybox=busybox-static ip=iproute2 ethtool=ethtool depmod=kmod \
    xz=xz-utils /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring ||
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
ahead demo cargo build --release --locked --quiet
# try_guest NAME ARGUMENT...: the tests of one guest, into its log. The exit code is that of the tests.
try_guest() {
    local log=$CI_TARGET/ci-guest-$1.log
    shift
    crates/testnet/guest/run "$@" --show-output >"$log" 2>&1
}

# report NAME CODE ARGUMENT...: what came of it. As in the step `test`, two tests at most run a second time, alone; what passes then is unsteady
# and is named at the end of the run.
report() {
    local guest=$1 code=$2 log=$CI_TARGET/ci-guest-$1.log names
    shift 2
    if [ "$code" = 77 ]; then
        note "guest: the $guest one: skipped, because $(sed -n 's/^skipped, because //p' "$log" | head -1)"
        return 0
    fi
    tried=true
    if [ "$code" = 0 ]; then
        echo "the $guest guest: $(grep '^test result:' "$log" | tail -n 1)"
    else
        echo "the $guest guest:"
        # What those said that failed is behind what those said that passed.
        if grep -q '^failures:$' "$log"; then sed -n '/^failures:$/,$p' "$log"; else tail -n 40 "$log"; fi
    fi
    sed -nE 's/^test (.*) \.\.\. (ok|FAILED) <([0-9.]+)s>$/\3 s  \1/p' "$log" | sed "s/$/  (the $guest guest)/" >>"$CI_SLOWEST"
    if grep -q '^guest: .* did not come up' "$log"; then note "guest: UNSTEADY: the $guest one did not come up at first"; fi
    [ "$code" != 0 ] || return 0
    # The last list: what runs inside a guest may have printed one, too.
    mapfile -t names < <(tac "$log" | sed '/^failures:$/q' | sed -nE 's/^    ([a-z0-9_]+(::[a-z0-9_]+)+)$/\1/p')
    if [ ${#names[@]} = 0 ] || [ ${#names[@]} -gt 2 ]; then return 1; fi
    GUEST_SECONDS=300 crates/testnet/guest/run "$@" --exact "${names[@]}" 2>&1 | tee "$log.again" | grep -E '^(error|test )' || return 1
    grep -q '^test result: ok. [1-9]' "$log.again" || return 1
    for name in "${names[@]}"; do note "guest: UNSTEADY: $name failed beside the others and passed alone"; done
}

# In CI all of them run when something that meets a driver may have changed, else one in turn. At home all do.
wanted=(older alignment newer numa)
if [ "${CI-}" = true ] && [ -z "${FLOWLANE_CI_GUEST-}" ] && ! changed_lately crates/sys crates/net/src/{link,card,runtime,kernel} crates/rss \
    crates/stack crates/switch crates/testnet crates/cli/src/{steering.rs,keeper.rs,keeper,commands/rss,commands/serve,commands/switch} \
    Cargo.toml .ci; then
    case $((CI_TURN % 3)) in
    0) wanted=(older) ;;
    1) wanted=(alignment numa) ;;
    *) wanted=(newer) ;;
    esac
    note "guest: only ${wanted[*]}: nothing that meets a driver has changed lately (FLOWLANE_CI_GUEST=1 runs all)"
fi
is_wanted() { [[ " ${wanted[*]} " == *" $1 "* ]]; }

# All at once, the older one twice: a guest often waits, for a link that its driver took down or for an interval that is measured, and what it is
# told it does one by one.
tried=false older=0 alignment=0 newer=0 numa=0
{ ! is_wanted older || try_guest older --skip alignment::; } &
first=$!
{ ! is_wanted alignment || try_guest alignment alignment::; } &
second=$!
if is_wanted newer; then try_guest newer --newer || newer=$?; fi
if is_wanted numa; then try_guest numa --numa || numa=$?; fi
wait "$first" || older=$?
wait "$second" || alignment=$?
rc=0
if is_wanted older; then report older "$older" || rc=1; fi
if is_wanted alignment; then report alignment "$alignment" || rc=1; fi
if is_wanted newer; then report newer "$newer" --newer || rc=1; fi
if is_wanted numa; then report numa "$numa" --numa || rc=1; fi
[ $rc = 0 ] || exit 1
$tried || exit 77
