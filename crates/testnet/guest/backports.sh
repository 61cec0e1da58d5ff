# Sourced by prepare.sh, which has made $dir: Debian packages of a newer release than this machine's, fetched and unpacked, not installed.
#
# apt keeps state of its own below the guest's directory: its lists of packages, what it has fetched, and a machine on which nothing is installed,
# so that a package comes with every library that it needs. The machine's own sources say where Debian's packages are to be had.

# The release whose backports have the newest kernel and QEMU.
newer_release=${GUEST_RELEASE:-trixie}

# Where this machine gets Debian's packages from.
debian_uri() {
    { cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true; } |
        sed -nE 's#^(URIs:|deb( \[[^]]*\])?) *([a-z+]+:[^ ]*/debian/?)( .*)?$#\3#p' | sed 1q
}

# newer_apt COMMAND...: apt-get or apt-cache with that state.
newer_apt() {
    local command=$1
    shift
    "$command" -q -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State=$dir/apt/state" \
        -o "Dir::State::status=$dir/apt/status" -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User= \
        -o "APT::Default-Release=$newer_release-backports" "$@"
}

# Fetches the lists of packages, once a day.
newer_lists() {
    local uri suite
    uri=$(debian_uri)
    [ -n "$uri" ] || skip "no source of Debian's packages is configured here"
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || skip "Debian's keys are missing (Debian's package debian-archive-keyring)"
    mkdir -p apt/state/lists/partial apt/cache/archives/partial
    : >>apt/status
    for suite in "$newer_release" "$newer_release-backports"; do
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main"
    done >apt/sources.list
    if [ -z "$(find apt/fetched -mtime -1 2>/dev/null)" ]; then
        if newer_apt apt-get -o APT::Update::Error-Mode=any update >apt.log 2>&1; then
            touch apt/fetched
        elif [ ! -e apt/fetched ]; then
            cat apt.log >&2
            skip "the lists of $newer_release-backports cannot be fetched"
        fi
    fi
}

# newer_packages DIRECTORY WHAT...: apt-get's words, then what it fetched is unpacked there.
newer_packages() {
    local into=$1
    shift
    rm -rf apt/cache/archives/*.deb "$into" "$into.new"
    newer_apt apt-get -y --no-install-recommends --download-only install "$@" >apt.log 2>&1 ||
        { cat apt.log >&2; skip "packages of $newer_release-backports cannot be fetched: $*"; }
    mkdir "$into.new"
    local deb
    for deb in apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$into.new"; done
    rm -f apt/cache/archives/*.deb
    mv "$into.new" "$into"
}
