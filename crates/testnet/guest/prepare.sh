#!/usr/bin/env bash
# Makes what does not change from run to run: a kernel from Debian's packages, unpacked and not installed, and an initramfs
# with busybox, iproute2, ethtool and the cards' modules.
#
#   prepare.sh DIRECTORY     leaves vmlinuz and base.cpio there, if they are not there already
#
# Where the kernel is not to be had it says so and exits with 77.
set -euo pipefail
dir=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=(virtio_pci virtio_net vmxnet3 e1000e veth tun 8021q sch_ingress cls_bpf act_bpf)

mkdir -p "$dir"
cd "$dir"
image=${GUEST_KERNEL_PACKAGE:-$(apt-cache depends --important linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)}
skip() {
    echo "skipped, because $*"
    exit 77
}
[ -n "$image" ] || skip "apt knows no package linux-image-amd64 (apt-get update)"
if [ ! -e vmlinuz ] || [ "$(cat kernel 2>/dev/null)" != "$image" ]; then
    rm -rf unpacked kernel base.cpio
    mkdir unpacked
    (cd unpacked && apt-get -q -o APT::Sandbox::User= download "$image" >../apt.log 2>&1) ||
        { cat apt.log >&2 && skip "the package $image cannot be fetched"; }
    # Only what is needed of 400 MB: the kernel and the modules of networks.
    dpkg-deb --fsys-tarfile unpacked/*.deb | tar -x -C unpacked --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel/drivers/net/*' \
        './lib/modules/*/kernel/drivers/virtio/*' './lib/modules/*/kernel/net/*' './lib/modules/*/kernel/drivers/ptp/*' \
        './lib/modules/*/kernel/drivers/pps/*' './lib/modules/*/kernel/lib/*' './lib/modules/*/kernel/crypto/*' './lib/modules/*/modules.*'
    rm -f unpacked/*.deb
    mv unpacked/boot/vmlinuz-* vmlinuz
    echo "$image" >kernel
fi

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
    depmod -b unpacked "$version"
    for module in "${modules[@]}"; do
        modprobe -d "$PWD/unpacked" -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
    done | awk '!seen[$0]++' >needed
    while read -r path; do
        cp "$path" root/lib/
        echo "/lib/$(basename "$path")"
    done <needed >root/modules
    (cd root && find . | busybox cpio -o -H newc -R 0:0 2>/dev/null) >base.cpio.new
    mv base.cpio.new base.cpio
    rm -rf root needed
fi
