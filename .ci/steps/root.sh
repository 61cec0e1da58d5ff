#!/bin/bash
# As readme, in a root of its own: Debian's smallest system, a C compiler and a Rust toolchain, and nothing else of this machine.
#
# mmdebstrap makes the root, from the packages that apt has here. Bound into it, to be read only: the toolchain of this machine. Copied into
# it: the files of the tree, and every crate, by cargo vendor. Then .ci/run readme runs there, chrooted, without a network. Beside what
# README.md asks for (Rust, a C compiler) there are the programs by which the step makes terminals and networks. Everything is compiled
# anew, release build and all, so this takes ten minutes and more on two cores and runs only by name: .ci/run root. CARGO_PROFILE_RELEASE_*
# is passed on, by which it takes less: CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1.
# FLOWLANE_CI_STEP_LIMIT is, too: on a machine with other work the step may take longer than the usual 1500 seconds.

is_root || skip "a root of its own takes root to enter"
have_packages mmdebstrap=mmdebstrap || skip "there is no mmdebstrap (Debian: mmdebstrap)"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
[ -n "$codename" ] || skip "this is no Debian whose packages could be had"
unshare --mount --pid --fork true 2>/dev/null || skip "no mount and process namespaces are to be had here"

root=$(mktemp -d "$CI_TARGET/root.XXXXXX")
# The mounts are gone with their namespace.
trap 'rm -rf "$root"' EXIT

echo "== Debian $codename"
sources=(/etc/apt/sources.list.d/*.sources /etc/apt/sources.list)
for file in "${sources[@]}"; do [ -s "$file" ] && break; done
retry mmdebstrap --quiet --mode=root --variant=minbase --include=gcc,libc6-dev,bsdutils,iproute2 "$codename" "$root/system.tar" "$file" \
    >"$CI_TARGET/ci-root.log" 2>&1 || { tail -20 "$CI_TARGET/ci-root.log"; skip "Debian's packages are not to be had"; }
mkdir "$root/system"
tar -xf "$root/system.tar" -C "$root/system" --exclude=./dev
rm "$root/system.tar"

echo "== the tree, and its crates"
home=$root/system/root
mkdir -p "$home/flowlane" "$home/.cargo" "$root/system/opt/rust" "$root/system/dev"
# As every installed system and every container has it.
printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/system/etc/hosts"
git ls-files -z | tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C "$home/flowlane"
retry cargo vendor --locked --quiet --versioned-dirs "$home/vendor" >"$CI_TARGET/ci-root.log" 2>&1 ||
    { tail -5 "$CI_TARGET/ci-root.log"; exit 1; }
cat >"$home/.cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/root/vendor"
END
echo "$(find "$home/vendor" -maxdepth 1 | wc -l) crates, $(du -sh "$root/system" | cut -f1) in all"

echo "== in there"
mapfile -t profile < <(env | grep '^CARGO_PROFILE_RELEASE_')
cat >"$root/enter" <<END
set -eu
mount --make-rprivate /
# A root that is no mount point could not be left for namespaces of its own.
mount --bind "$root/system" "$root/system"
mount --bind "$(rustc --print sysroot)" "$root/system/opt/rust"
mount -o remount,bind,ro "$root/system/opt/rust"
mount -t proc proc "$root/system/proc"
mount -t sysfs sysfs "$root/system/sys"
mount --rbind /dev "$root/system/dev"
exec chroot "$root/system" /usr/bin/env -i "\$@" HOME=/root PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    CARGO_NET_OFFLINE=true FLOWLANE_CI_STEP_LIMIT="${FLOWLANE_CI_STEP_LIMIT:-1500}" bash /root/flowlane/.ci/run readme
END
rc=0
unshare --mount --pid --fork --kill-child bash "$root/enter" ${profile[@]+"${profile[@]}"} || rc=$?
while read -r line; do note "in its root: $line"; done < <(cat "$home/flowlane/target/ci-notes" 2>/dev/null || true)
exit "$rc"
