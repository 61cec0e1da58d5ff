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

# What the last changes touched is looked at wholly, the rest in turn: since the last release, or in so many commits if that is nearer.
recent_commits=10

# The commit that "lately" counts from; fails if history does not reach so far.
recent_base() {
    local tag
    if tag=$(git describe --tags --abbrev=0 2>/dev/null) && [ "$(git rev-list --count "$tag..HEAD")" -lt "$recent_commits" ]; then
        git rev-parse "$tag^{commit}"
    else
        git rev-parse --verify --quiet "HEAD~$recent_commits^{commit}"
    fi
}

# changed_lately PATH...: whether any of them has changed, or nobody can tell.
changed_lately() {
    local base
    base=$(recent_base) || return 0
    ! git diff --quiet "$base" -- "$@"
}

# depends_lately PACKAGE...: whether what these packages (as cargo's options name them) depend on has another version than before, or nobody can tell.
depends_lately() {
    local base now
    base=$(recent_base) || return 0
    now=$(cargo tree "$@" --locked --prefix none --edges normal,build,dev | sed -nE 's/^([^ ]+) v([^ ]+).*/\1 \2/p' | sort -u) || return 0
    comm -23 <(printf '%s\n' "$now") <(git show "$base:Cargo.lock" | tr -d '"' | awk '$1 == "name" { name = $3 } $1 == "version" { print name, $3 }' | sort -u) |
        grep -q .
}

# ahead NAME COMMAND...: compiles for the step of this name, if this run has it, while a step before it waits for time to pass: in the
# background, on what nobody else wants of the processors. The step runs the same command and finds it done, or waits for cargo's lock. What
# fails here fails again there. (Not beside the tests: threads that yield give the processor to it, and took thirty times as long.)
ahead() {
    local name=$1 log=$CI_TARGET/ci-ahead-$1.log
    shift
    [[ " $CI_CHOSEN " == *" $name "* ]] || return 0
    # A session of its own, whose number is known: .ci/run ends all of it. (What cargo starts has its priority.)
    setsid chrt --idle 0 bash -euo pipefail -c 'time "$@"' - "$@" >"$log" 2>&1 </dev/null &
    echo $! >>"$CI_AHEAD"
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
