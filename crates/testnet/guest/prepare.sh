#!/usr/bin/env bash
# Makes what does not change from run to run: a kernel from Debian's packages, unpacked and not installed, and an initramfs
# with busybox, iproute2, ethtool and the cards' modules. For the newer guest also a newer QEMU.
#
#   prepare.sh DIRECTORY older|newer     leaves vmlinuz and base.cpio there, and qemu/ for the newer guest, if they are not there already
#
# Where the packages are not to be had it says so and exits with 77.
set -euo pipefail
dir=$1 guest=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=(virtio_pci virtio_net vmxnet3 e1000e veth tun 8021q sch_ingress cls_bpf act_bpf)
[ "$guest" = older ] || modules+=(igb)

mkdir -p "$dir"
cd "$dir"
dir=$PWD
# Two guests of a kind may be booted at once.
exec 9>lock
flock 9
skip() {
    echo "skipped, because $*"
    exit 77
}

# Only what is needed of a kernel's 400 MB: itself and the modules of networks. From packages in a directory; newer ones have /usr/lib for /lib.
unpack() {
    local deb in=kernel/drivers wanted=()
    for part in kernel/lib kernel/crypto kernel/net $in/net $in/virtio $in/ptp $in/pps $in/i2c $in/dca; do
        wanted+=("*/lib/modules/*/$part/*")
    done
    for deb in "$1"/*.deb; do
        # A package that has none of one kind is no fault.
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C unpacked --transform 's,^\./usr/lib/,./lib/,' --wildcards '*/vmlinuz*' \
            '*/lib/modules/*/modules.*' "${wanted[@]}" 2>>apt.log || true
    done
}

if [ "$guest" = older ]; then
    image=${GUEST_KERNEL_PACKAGE:-$(apt-cache depends --important linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)}
    [ -n "$image" ] || skip "apt knows no package linux-image-amd64 (apt-get update)"
else
    . "$here/backports.sh"
    newer_lists
    image=$(newer_apt apt-cache depends --important linux-image-amd64 | sed -n 's/.*Depends: linux-image-/linux-image-/p' | head -1)
    [ -n "$image" ] || skip "$newer_release-backports has no package linux-image-amd64"
fi

if [ ! -e vmlinuz ] || [ "$(cat kernel 2>/dev/null)" != "$image" ]; then
    rm -rf packages unpacked kernel base.cpio
    mkdir packages unpacked
    if [ "$guest" = older ]; then
        (cd packages && apt-get -q -o APT::Sandbox::User= download "$image" >../apt.log 2>&1) ||
            { cat apt.log >&2 && skip "the package $image cannot be fetched"; }
    else
        # The image and the modules are packages of their own there.
        (cd packages && newer_apt apt-get download "${image/image/binary}" "${image/image/modules}" >../apt.log 2>&1) ||
            { cat apt.log >&2 && skip "the packages of $image cannot be fetched"; }
    fi
    unpack packages
    rm -rf packages
    mv "$(find unpacked -name 'vmlinuz*' -type f | head -1)" vmlinuz
    echo "$image" >kernel
fi
if [ "$guest" = newer ] && [ ! -x qemu/usr/bin/qemu-system-x86_64 ]; then newer_packages qemu qemu-system-x86; fi

# copy PROGRAM...: with the libraries it is linked to.
copy() {
    local path library
    for path in "$@"; do
        mkdir -p "root$(dirname "$path")"
        cp -L "$path" "root$path"
        for library in $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do
            [ -e "root$library" ] || { mkdir -p "root$(dirname "$library")" && cp -L "$library" "root$library"; }
        done
    done
}

if [ ! -e base.cpio ] || [ "$here/prepare.sh" -nt base.cpio ]; then
    rm -rf root
    mkdir -p root/{bin,sbin,dev,proc,sys,run,tmp,etc,lib}
    cp "$(command -v busybox)" root/bin/busybox
    copy "$(readlink -f "$(command -v ip)")" "$(readlink -f "$(command -v tc)")" "$(readlink -f "$(command -v ethtool)")"
    for program in ip tc ethtool; do
        there=$(readlink -f "$(command -v $program)")
        [ "$there" = "/sbin/$program" ] || ln -sf "$there" "root/sbin/$program"
    done
    version=$(ls unpacked/lib/modules)
    depmod -b unpacked "$version" 2>>apt.log
    for module in "${modules[@]}"; do
        # What has no file is built into this kernel.
        [ -n "$(find unpacked -name "$module.ko*" -print -quit)" ] || continue
        modprobe -d "$PWD/unpacked" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' >needed
    while read -r path; do
        # insmod of busybox takes modules as they are.
        case $path in
        *.xz) xz -dc "$path" >"root/lib/$(basename "$path" .xz)" ;;
        *) cp "$path" root/lib/ ;;
        esac
        echo "/lib/$(basename "$path" .xz)"
    done <needed >root/modules
    (cd root && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) >base.cpio.new
    mv base.cpio.new base.cpio
    rm -rf root needed
fi
