# The oldest supported Rust from Debian 12's packages, unpacked side by side into the target directory: a compiler for
# this machine and libraries for others. apt is used with lists and a cache of its own, so the system's packages,
# architectures and indices stay as they are, and root is not needed. Sourced by lib.sh.

debian_rust_version=1.85.0+dfsg3-1~deb12u3

# debian_rust TARGET: leaves the compiler's path in RUSTC, or fails.
debian_rust() {
    local target=$1 dir=$CI_TARGET/debian-rust arch=""
    [ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || return 1
    command -v apt-get >/dev/null || return 1
    case $target in
    s390x-unknown-linux-gnu) arch=s390x ;;
    powerpc64le-unknown-linux-gnu) arch=ppc64el ;;
    aarch64-unknown-linux-gnu) arch=arm64 ;;
    esac
    mkdir -p "$dir"/{lists/partial,cache/archives/partial,root}
    local apt=(-q -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1
        -o APT::Sandbox::User= -o APT::Architectures::=amd64 -o "Acquire::Languages=none")
    local packages=() v=$debian_rust_version
    [ -e "$dir/have-amd64" ] ||
        packages+=("rustc-web=$v" "libstd-rust-web-1.85=$v" "libstd-rust-web-dev=$v" libllvm19)
    if [ -n "$arch" ]; then
        apt+=(-o "APT::Architectures::=$arch")
        [ -e "$dir/have-$arch" ] || packages+=("libstd-rust-web-dev:$arch=$v")
    fi
    if [ ${#packages[@]} -gt 0 ]; then
        # Some repositories lack indices of the other architecture; apt complains, and the packages are found all the same.
        apt-get "${apt[@]}" update >"$dir/log" 2>&1 || true
        rm -f "$dir"/*.deb
        (cd "$dir" && retry apt-get "${apt[@]}" download "${packages[@]}" >>log 2>&1) ||
            { tail -20 "$dir/log"; return 1; }
        local deb
        for deb in "$dir"/*.deb; do dpkg -x "$deb" "$dir/root" || return 1; done
        rm -f "$dir"/*.deb
        touch "$dir/have-amd64" ${arch:+"$dir/have-$arch"}
    fi
    cat >"$dir/rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH=$dir/root/usr/lib/x86_64-linux-gnu:$dir/root/usr/lib/llvm-19/lib
export LD_LIBRARY_PATH
exec "$dir/root/usr/bin/rustc-web" --sysroot "$dir/root/usr" "\$@"
END
    chmod +x "$dir/rustc"
    [ -x "$dir/root/usr/bin/rustc-web" ] || sed -i 's/rustc-web"/rustc"/' "$dir/rustc"
    export RUSTC=$dir/rustc
}
