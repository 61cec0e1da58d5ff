# What the steps share. Sourced by .ci/run before each of them.

# The oldest Rust that flowlane-sys, flowlane-rss and flowlane-stack build with.
msrv=1.85.0
msrv_packages=(-p flowlane-sys -p flowlane-rss -p flowlane-stack -p flowlane-switch)

# Says what this run does not cover; shown again at the end.
note() {
    printf '%s\n' "$*"
    printf '%s\n' "$*" >>"$CI_NOTES"
}

skip() {
    note "$(basename "$0" .sh): skipped, because $*"
    exit 77
}

is_root() { [ "$(id -u)" = 0 ]; }

# have_packages PROGRAM=PACKAGE...: installs the packages whose program (or file) is missing, if that is allowed here.
have_packages() {
    local missing=() pair what
    for pair in "$@"; do
        what=${pair%%=*}
        if ! command -v "$what" >/dev/null && [ ! -e "$what" ]; then missing+=("${pair#*=}"); fi
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "${CI-}" != true ] || ! is_root || ! command -v apt-get >/dev/null; then
        echo "missing: ${missing[*]} (Debian names); with CI=true and as root they are installed" >&2
        return 1
    fi
    local log=$CI_TARGET/ci-apt.log
    # An index is fetched once a day; another program may hold apt's lock for a while.
    if [ -z "$(find "$CI_TARGET/ci-apt.stamp" -mtime -1 2>/dev/null)" ]; then
        retry apt-get -q -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || { tail -20 "$log"; return 1; }
        touch "$CI_TARGET/ci-apt.stamp"
    fi
    DEBIAN_FRONTEND=noninteractive retry apt-get -q -y -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends "${missing[@]}" >"$log" 2>&1 || { tail -20 "$log"; return 1; }
    echo "installed: ${missing[*]}"
}

# Networks fail now and then: three tries.
retry() {
    local try
    for try in 1 2 3; do
        if "$@"; then return 0; fi
        if [ "$try" != 3 ]; then sleep $((try * 5)); fi
    done
    return 1
}

# use_msrv [TARGET]: makes cargo use the oldest supported Rust: rustup's if it is installed, else Debian's packages
# unpacked into the target directory, else, in CI, what rustup can download.
use_msrv() {
    local target=${1:-x86_64-unknown-linux-gnu}
    . .ci/debian-rust.sh
    if ! rustup_msrv "$target" && ! debian_rust "$target"; then
        if [ "${CI-}" = true ]; then
            timeout 300 rustup --quiet toolchain install "$msrv" --profile minimal --target "$target" --no-self-update || true
        fi
        rustup_msrv "$target" ||
            skip "Rust $msrv for $target is neither in rustup nor in Debian's packages (rustup toolchain install $msrv --target $target)"
    fi
    unset RUSTC_WRAPPER RUSTDOC
    echo "with $("$RUSTC" --version)"
    "$RUSTC" --version | grep -q "rustc ${msrv%.*}"
}

rustup_msrv() {
    local root
    root=$(rustup run "$msrv" rustc --print sysroot 2>/dev/null) || return 1
    [ -d "$root/lib/rustlib/$1/lib" ] || return 1
    export RUSTC=$root/bin/rustc
}
