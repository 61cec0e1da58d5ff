#!/bin/bash
# Links on virtio, vmxnet3, e1000e and igb cards: guests in QEMU with an older and a newer kernel; the newer with two NUMA nodes, too.
[ "$(uname -m)" = x86_64 ] || skip "the guest is made of Debian's packages for x86-64"
is_root || skip "network namespaces and TAP interfaces need root"
have_packages qemu-system-x86_64=qemu-system-x86 busybox=busybox-static ip=iproute2 ethtool=ethtool depmod=kmod \
    xz=xz-utils /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring ||
    skip "QEMU or what the guest is made of is missing"
# The kernel is a package as well, which apt finds in its index only.
if [ "${CI-}" = true ] && [ -z "$(apt-cache depends --important linux-image-amd64 2>/dev/null)" ]; then
    retry apt-get -q -o DPkg::Lock::Timeout=300 update >"$CI_TARGET/ci-apt.log" 2>&1 || true
fi
# What the step `test` builds, so that nothing is compiled twice.
cargo run --locked --quiet -p flowlane-mutants -- "$CI_TARGET/mutants" --copy
while IFS== read -r name path; do
    case $name in
    guest) export GUEST_TESTS=$path ;;
    links) export GUEST_LINKS=$path ;;
    esac
done < <(cd "$CI_TARGET/mutants" && cargo test --workspace --locked --no-run --message-format=json 2>"$CI_TARGET/ci-cargo.log" |
    sed -nE 's/.*"name":"(guest|links)".*"executable":"([^"]*)".*/\1=\2/p')
[ -n "${GUEST_TESTS-}" ] && [ -n "${GUEST_LINKS-}" ] || { cat "$CI_TARGET/ci-cargo.log" >&2; exit 1; }
export GUEST_BINARY=$CI_TARGET/debug/flowlane
ahead demo cargo build --release --locked --quiet -p flowlane -p flowlane-benches --bins
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

# What each part proves: name, guest, the paths whose change it meets first, and its tests. Either half of a pair takes what the other skips.
aligned_first=(alignment::moved_lanes alignment::the_)
newer_first=(metal::killed metal::plain metal::services metal::others)
parts=(virtio others check aligned aligned-rest newer newer-rest)
declare -A guest_of=([newer]=--newer [newer-rest]=--newer [numa]=--numa)
declare -A paths_of=(
    [virtio]="crates/net/src/link crates/sys"
    [others]="crates/net/src/link crates/sys"
    [check]="crates/cli/src/commands/rss crates/cli/src/commands/doctor crates/net/src/kernel"
    [aligned]="crates/rss crates/net/src/card crates/cli/src/steering.rs"
    [aligned-rest]="crates/rss crates/net/src/card crates/cli/src/steering.rs"
    [newer]="crates/net/src/link crates/net/src/card crates/sys crates/cli/src/keeper.rs crates/cli/src/keeper"
    [newer-rest]="crates/net/src/link crates/net/src/card crates/sys crates/cli/src/keeper.rs crates/cli/src/keeper"
)
declare -A tests_of=(
    [virtio]="cases::virtio older::"
    [others]="--skip cases::virtio --skip older:: --skip check:: --skip card:: --skip alignment::"
    [check]="check:: card::"
    [aligned]="${aligned_first[*]}"
    [aligned-rest]="alignment:: ${aligned_first[*]/#/--skip }"
    [newer]="${newer_first[*]}"
    [newer-rest]="${newer_first[*]/#/--skip }"
    [numa]=""
)

# At home all of them run. In CI two at most, and the one with NUMA nodes beside a newer kernel: those that the last changes concern, and in turn; without any, one.
wanted=("${parts[@]}" numa)
if [ "${CI-}" = true ] && [ -z "${FLOWLANE_CI_GUEST-}" ]; then
    touched=() others=()
    for ((i = 0; i < ${#parts[@]}; i++)); do
        part=${parts[$(((CI_TURN + i) % ${#parts[@]}))]}
        # shellcheck disable=SC2086 # The paths are words.
        if changed_lately ${paths_of[$part]} crates/testnet .ci/steps/guest.sh; then touched+=("$part"); else others+=("$part"); fi
    done
    wanted=("${touched[@]:0:2}")
    [ ${#wanted[@]} -gt 0 ] || wanted=("${others[0]}")
    if [[ " ${wanted[*]} " == *" newer"* ]]; then wanted+=(numa); fi
    note "guest: only ${wanted[*]} (FLOWLANE_CI_GUEST=1 runs all)"
fi

# All at once, three at a time: a guest often waits, for a link that its driver took down or for an interval that is measured, and what it is told it
# does one by one.
codes=$(mktemp -d)
one_part() {
    local code=0
    # shellcheck disable=SC2086 # The tests are words.
    try_guest "$1" ${guest_of[$1]-} ${tests_of[$1]} || code=$?
    echo "$code" >"$codes/$1"
}
# (`ahead` is a job of this shell, too, and is not waited for.)
begun=()
for part in "${wanted[@]}"; do
    [ ${#begun[@]} -lt 3 ] || { wait "${begun[0]}" && begun=("${begun[@]:1}"); }
    one_part "$part" &
    begun+=($!)
done
wait "${begun[@]}"
tried=false rc=0
for part in "${wanted[@]}"; do
    # shellcheck disable=SC2086
    report "$part" "$(cat "$codes/$part")" ${guest_of[$part]-} || rc=1
done
rm -r "$codes"
[ $rc = 0 ] || exit 1
$tried || exit 77
