#!/bin/bash
# The packages, in roots of their own: built, installed in a small Debian, used, and removed without a trace; rpm likewise; the command alone in an empty root.
#
# mmdebstrap makes the roots, from the packages that apt has here. The release build of the command takes most of the time, so this runs only by
# name: .ci/run install. CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 takes less. cargo-deb and cargo-generate-rpm are
# installed below the target directory.

is_root || skip "a root of its own takes root to enter"
have_packages mmdebstrap=mmdebstrap rpm=rpm || skip "there is no mmdebstrap or no rpm (Debian: mmdebstrap, rpm)"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
[ -n "$codename" ] || skip "this is no Debian whose packages could be had"
unshare --mount --pid --net --fork true 2>/dev/null || skip "no mount, process and network namespaces are to be had here"

tools=$CI_TARGET/tools
export PATH=$tools/bin:$PATH
for tool in cargo-deb@3.8.0 cargo-generate-rpm@0.21.1; do
    command -v "${tool%@*}" >/dev/null ||
        retry cargo install --quiet --locked --root "$tools" --target-dir "$tools/target" "$tool" ||
        skip "${tool%@*} is not to be had"
done

echo "== the command and its packages"
contrib/release/build x86_64 static
contrib/release/packages x86_64
dist=$CI_TARGET/dist

root=$(mktemp -d "$CI_TARGET/root.XXXXXX")
# The mounts are gone with their namespace.
trap 'rm -rf "$root"' EXIT
sources=(/etc/apt/sources.list.d/*.sources /etc/apt/sources.list)
for file in "${sources[@]}"; do [ -s "$file" ] && break; done

retry mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,dbus,iproute2 "$codename" "$root/system.tar" "$file" \
    >"$CI_TARGET/ci-install.log" 2>&1 || { tail -20 "$CI_TARGET/ci-install.log"; skip "Debian's packages are not to be had"; }

# make NAME: a root of its own.
make() {
    mkdir "$root/$1"
    tar -xf "$root/system.tar" -C "$root/$1" --exclude=./dev
    mkdir -p "$root/$1/dev"
}

# enter NAME SCRIPT: runs a script in it, without a network.
enter() {
    cat >"$root/enter" <<END
set -eu
mount --make-rprivate /
mount --bind "$root/$1" "$root/$1"
mkdir -p "$root/$1/proc" "$root/$1/sys" "$root/$1/dev" "$root/$1/tmp"
mount -t proc proc "$root/$1/proc"
mount -t sysfs sysfs "$root/$1/sys"
mount --rbind /dev "$root/$1/dev"
mount -t tmpfs none "$root/$1/tmp"
# Loopback is what a container has at least.
ip link set lo up
cp -r "$root/given/." "$root/$1/tmp/"
exec chroot "$root/$1" $2
END
    unshare --mount --pid --net --fork --kill-child env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash "$root/enter"
}

# boot NAME: runs systemd in it until /root/units has ended and taken it down; false where systemd does not start.
boot() {
    cat >"$root/boot" <<END
set -eu
mount --make-rprivate /
cd "$root/$1"
mount --bind . .
cd "$root/$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for place in run tmp dev; do mount -t tmpfs none \$place; done
mkdir -p dev/net dev/pts dev/shm dev/mqueue
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty dev/
cp -a /dev/net/tun dev/net/
# As udev has it.
chmod 666 dev/net/tun
ln -s /proc/self/fd dev/fd
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666,mode=620
ln -s pts/ptmx dev/ptmx
exec chroot . /usr/bin/env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console --show-status=false
END
    timeout --kill-after=5 180 unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child bash "$root/boot" >"$CI_TARGET/ci-boot.log" 2>&1 || true
    [ -s "$root/$1/root/out" ]
}

mkdir "$root/given"
cp "$dist/flowlane_amd64.deb" "$dist/flowlane.x86_64.rpm" "$root/given/"
# What both roots have done with the command once it is installed.
cat >"$root/given/use" <<'END'
set -eu
flowlane --version
test -s /usr/share/man/man1/flowlane-serve-http.1.gz
gzip -dc /usr/share/man/man1/flowlane.1.gz | grep -q '^\.SH NAME'
bash -n /usr/share/bash-completion/completions/flowlane
test -s /usr/lib/systemd/system/flowlane-serve@.service
flowlane demo >/dev/null
flowlane doctor serve http load http
flowlane doctor >/dev/null
mkdir -p /etc/flowlane/serve
printf 'service = "http"\nport = 8080\n' >/etc/flowlane/serve/web.toml
flowlane serve --config /etc/flowlane/serve/web.toml --workers 1 2>/tmp/said &
server=$!
# It says that it is ready.
for i in $(seq 600); do grep -q ' workers ' /tmp/said && break; kill -0 $server; sleep 0.1; done
flowlane load http http://localhost:8080/size/600 -c 4 -r 200 -d 1s --fail 'errors > 0' >/tmp/report
grep -q requests /tmp/report
kill $server
wait $server
rm /etc/flowlane/serve/web.toml
if flowlane serve --config /nowhere.toml 2>/tmp/said; then exit 1; fi
grep -q '/nowhere.toml' /tmp/said
END
# Files of a root but those that any installation changes: lists and caches of the package managers themselves.
cat >"$root/given/files" <<'END'
cd /
find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp \) -prune -o -print |
    grep -vE '^\./var/(lib/(dpkg|rpm)|log|cache)(/|$)|^\./etc/(\.pwd\.lock|(passwd|group|shadow|gshadow)-)$|^\./(root|usr/lib/sysimage)/?\.rpmdb' | sort
test ! -f /etc/passwd || md5sum /etc/passwd /etc/group
END
cat >"$root/given/deb" <<'END'
set -eu
sh /tmp/files >/tmp/before
dpkg -i /tmp/flowlane_amd64.deb
systemd-sysusers --version >/dev/null 2>&1 && grep -q ^flowlane: /etc/passwd
sh /tmp/use
dpkg --purge flowlane
sh /tmp/files >/tmp/after
diff /tmp/before /tmp/after
! dpkg -s flowlane 2>/dev/null
END
echo "== Debian $codename: dpkg"
make debian
enter debian "bash /tmp/deb"
rm -rf "$root/debian"

echo "== its units, by systemd"
make booted
enter booted "dpkg -i /tmp/flowlane_amd64.deb" >/dev/null
inside=$root/booted
printf 'service = "http"\nport = 80\nworkers = 1\ncontrol = true\n' >"$inside/etc/flowlane/serve/web.toml"
printf 'service = "udp-echo"\nlink = "af-xdp:v0"\naddr = ["10.9.9.1/24"]\nworkers = 1\n' >"$inside/etc/flowlane/serve/xdp.toml"
printf '[[port]]\nname = "p1"\nlink = "tap:swt0"\n[[port]]\nname = "p2"\nlink = "plug"\n' >"$inside/etc/flowlane/switch/office.toml"
cat >"$inside/root/units" <<'END'
#!/bin/bash
exec >/root/out 2>&1
trap 'systemctl poweroff --no-block' EXIT
set -eux
ip link set lo up
systemctl start flowlane-serve@web
# It was ready when it was started.
flowlane load http http://127.0.0.1/size/10 -c 2 -n 20 -q
[ "$(systemctl show flowlane-serve@web -p User --value)" = flowlane ]
runuser -u flowlane -- env XDG_RUNTIME_DIR=/run/flowlane/web flowlane stat -ss | grep 'connection accepts'
systemctl stop flowlane-serve@web
[ "$(systemctl show flowlane-serve@web -p Result --value)" = success ]
systemctl start flowlane-switch@office
ip link show swt0
systemctl stop flowlane-switch@office
[ "$(systemctl show flowlane-switch@office -p Result --value)" = success ]
# A link of Flowlane takes the drop-in.
ip link add v0 type veth peer name v1
ip link set v0 up
ip link set v1 up
if systemctl start flowlane-serve@xdp; then exit 1; fi
systemctl stop flowlane-serve@xdp
mkdir -p /etc/systemd/system/flowlane-serve@xdp.service.d
cp /usr/share/doc/flowlane/flowlane-links.conf /etc/systemd/system/flowlane-serve@xdp.service.d/
systemctl daemon-reload
systemctl start flowlane-serve@xdp
systemctl stop flowlane-serve@xdp
[ "$(systemctl show flowlane-serve@xdp -p Result --value)" = success ]
for unit in serve switch; do systemd-analyze security --offline=true /usr/lib/systemd/system/flowlane-$unit@.service | tail -1; done
# Removing the package ends what runs of it.
systemctl start flowlane-serve@web
dpkg --remove flowlane
[ "$(systemctl show flowlane-serve@web -p ActiveState --value)" = inactive ]
echo units ok
END
chmod +x "$inside/root/units"
cat >"$inside/etc/systemd/system/units.service" <<'END'
[Service]
Type=oneshot
ExecStart=/root/units
END
mkdir -p "$inside/etc/systemd/system/multi-user.target.wants"
ln -s ../units.service "$inside/etc/systemd/system/multi-user.target.wants/"
if boot booted; then
    grep -q '^units ok$' "$inside/root/out" || { tail -30 "$inside/root/out"; exit 1; }
    grep 'exposure level' "$inside/root/out"
else
    tail -3 "$CI_TARGET/ci-boot.log"
    note "install: the units were not run: systemd does not start in a namespace here"
fi
rm -rf "$root/booted"

echo "== rpm"
make rpm
rpm=(rpm --root "$root/rpm")
# What a distribution with packages of rpm has of its own.
mkdir -p "$root/rpm/usr/share/"{zsh/site-functions,fish/vendor_completions.d,bash-completion/completions,man/man1}
"${rpm[@]}" --initdb
enter rpm "sh /tmp/files" >"$root/before"
# The shell of this root is in no database of rpm.
"${rpm[@]}" -i --nodeps "$dist/flowlane.x86_64.rpm"
"${rpm[@]}" -q flowlane
enter rpm "bash /tmp/use"
"${rpm[@]}" -e flowlane
enter rpm "sh /tmp/files" >"$root/after"
diff "$root/before" "$root/after"
if "${rpm[@]}" -q flowlane; then exit 1; fi
rm -rf "$root/rpm"

echo "== the command alone, as in a container from scratch"
mkdir -p "$root/empty/usr/bin"
cp "$CI_TARGET/x86_64-unknown-linux-gnu/release/package/flowlane" "$root/empty/usr/bin/"
enter empty "/usr/bin/flowlane --version"
enter empty "/usr/bin/flowlane demo" >/dev/null
enter empty "/usr/bin/flowlane doctor serve http"
echo "removed without a trace"
