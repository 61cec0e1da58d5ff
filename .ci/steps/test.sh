#!/bin/bash
# The README's test command, on a copy whose guards can be broken. As root it includes the tests against the kernel in network namespaces.
# What is built is what the steps `guest` and `mutants` take, too: with no guard broken the copy does what the workspace does.
# Clients and servers of the world and witnesses: a router that tracks connections, captures that are read by others, a reader of Parquet files
# and questions about HTTP/2 that nobody here wrote, and a client of memcached. A server that comes with its package is not to be started.
pyarrow=$CI_TARGET/tools/pyarrow h2spec=$CI_TARGET/tools/h2spec gomemcache=$CI_TARGET/tools/gomemcache
witnesses() {
    have_packages ip=iproute2 ethtool=ethtool || true
    have_packages nft=nftables sysctl=procps tcpdump=tcpdump tshark=tshark curl=curl ping=iputils-ping radvd=radvd dnsmasq=dnsmasq-base || true
    # Compilers with their address sanitizer, and readers of man pages, for programs in C and Python on libflowlane.
    have_packages gcc=gcc clang=clang /usr/share/doc/libclang-rt-dev=libclang-rt-dev pkg-config=pkgconf nm=binutils mandoc=mandoc /usr/share/doc/python3-cffi=python3-cffi /usr/share/doc/python3-grpcio=python3-grpcio /usr/share/doc/python3-websockets=python3-websockets protoc=protobuf-compiler || true
    have_packages chromium=chromium chromedriver=chromium-driver || true
    RUNLEVEL=1 have_packages nginx=nginx haproxy=haproxy nfcapd=nfdump nats-server=nats-server promtool=prometheus memcached=memcached memccapable=libmemcached-tools tinyproxy=tinyproxy-bin microsocks=microsocks || true
    [ "${CI-}" = true ] || return 0
    if ! "$pyarrow/bin/python" -c 'import pyarrow' 2>/dev/null; then
        have_packages python3=python3 /usr/share/doc/python3-venv=python3-venv || true
        { python3 -m venv "$pyarrow" && retry "$pyarrow/bin/pip" install --quiet --retries 1 --only-binary :all: pyarrow; } ||
            note "test: pyarrow could not be installed, so no other reader has read the Parquet files"
    fi
    if [ ! -x "$h2spec/h2spec" ]; then
        have_packages go=golang-go || true
        { GOBIN=$h2spec GOPATH=$CI_TARGET/tools/go GOCACHE=$CI_TARGET/tools/go/cache GOFLAGS=-modcacherw retry go install github.com/summerwind/h2spec/cmd/h2spec@latest &&
            rm -rf "$CI_TARGET/tools/go"; } || note "test: h2spec could not be installed, so nobody else has asked the server about HTTP/2"
    fi
    local source=$PWD/crates/memcached/tests/gomemcache
    if [ ! "$gomemcache/gomemcache" -nt "$source/main.go" ]; then
        have_packages go=golang-go || true
        { (cd "$source" && GOPATH=$CI_TARGET/tools/go GOCACHE=$CI_TARGET/tools/go/cache GOFLAGS=-modcacherw retry go build -o "$gomemcache/gomemcache" .) &&
            rm -rf "$CI_TARGET/tools/go"; } || note "test: gomemcache could not be built, so the client of Go's programs has not been tried"
    fi
}
# They are fetched while the tests are compiled. What does not compile is said by the run below.
witnesses &
copy=$CI_TARGET/mutants
export FLOWLANE_SOURCE=$PWD
cargo run --locked --quiet -p flowlane-mutants -- "$copy" --copy
(cd "$copy" && cargo test --workspace --locked --no-run --quiet 2>"$CI_TARGET/ci-cargo.log") || true
wait $!
if [ -x "$pyarrow/bin/python" ]; then export FLOWLANE_PYARROW=$pyarrow/bin/python; fi
if [ -x "$h2spec/h2spec" ]; then export FLOWLANE_H2SPEC=$h2spec/h2spec; fi
if [ -x "$gomemcache/gomemcache" ]; then export FLOWLANE_GOMEMCACHE=$gomemcache/gomemcache; fi
log=$CI_TARGET/ci-test.log
triple=$(rustc -vV | sed -n 's/^host: //p')
triple=${triple//-/_}
export "CARGO_TARGET_${triple^^}_RUNNER=$PWD/.ci/timed"
# Every test runs, whatever fails before it. --show-output, so that a test that cannot run here can say why. Panics on
# purpose are many: a backtrace for each would hide the failures.
rc=0
(cd "$copy" && RUST_BACKTRACE=0 cargo test --workspace --locked --no-fail-fast -- --show-output) 2>&1 | tee "$log" |
    grep --line-buffered -E '^(error|warning| +(Running|Doc-tests) |test result|test .* FAILED)|has been running' || rc=${PIPESTATUS[0]}
# The times are for the list of the slowest tests; what is looked for below does without.
sed -nE 's/^ +Running (.*) \(.*/=\1/p; s/^test (.*) \.\.\. (ok|FAILED) <([0-9.]+)s>$/\3 s  \1/p' "$log" |
    awk '/^=/ { program = substr($0, 2); next } { print $0 "  (" program ")" }' >>"$CI_SLOWEST"
# What the shell says of the processor has a line of its own time before that of the tests: minutes and seconds of either kind.
awk '/^ +Running / { program = $2 " " $3; sub(/ \(.*/, "", program) }
     /^processor:$/ { getline; getline; print 60 * $1 + substr($1, index($1, "m") + 1) + 60 * $2 + substr($2, index($2, "m") + 1) " s  " program " of " at }
     { if (match($0, /deps\/[a-z_0-9]*-/)) at = substr($0, RSTART + 5, RLENGTH - 6) }' "$log" >>"$CI_BUSIEST"
long=$(.ci/long "$CI_SLOWEST" | paste -sd ,)
[ -z "$long" ] || note "test: over five seconds, and no '// Long: WHY' stands above: ${long//,/, }"
sed -i -E 's/^(test .* \.\.\. (ok|FAILED)) <[0-9.]+s>$/\1/' "$log"
.ci/skipped "$log" >"$CI_TARGET/ci-skipped"
if ! is_root; then note "test: not root, so nothing was tried against the kernel in network namespaces"; fi
while IFS= read -r line; do note "test: $line"; done <"$CI_TARGET/ci-skipped"
[ "$rc" != 0 ] || exit 0

echo
echo "== what the tests that failed said (the first 20 and the last 60 lines of each; all of it: $log)"
awk 'function rest(i) {
         if (n > 80) print "[... " n - 80 " lines ...]"
         for (i = n - 59 > 21 ? n - 59 : 21; i <= n; i++) print line[i % 60]
         n = 0
     }
     /^failures:$/ { inside = 1; next } /^test result:/ { if (inside) rest(); inside = 0 }
     inside && /^---- / { rest() }
     inside { line[++n % 60] = $0; if (n <= 20) print }' "$log"
mapfile -t names < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log" | sort -u)
mapfile -t targets < <(sed -nE 's/^    `(-p [^`]*)`$/\1/p' "$log" | sort -u)

# Two tests at most are run a second time, each alone: what fails again is broken. What passes is unsteady, and is named at the
# end of the run; a fault of the test or of the program is behind it either way.
if [ ${#targets[@]} -gt 0 ] && [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 2 ]; then
    broken=false
    again=$log.again
    for target in "${targets[@]}"; do
        # Of the whole workspace, as above: for one package features differ, and all would be compiled again.
        # shellcheck disable=SC2086 # The target is several words.
        (cd "$copy" && RUST_BACKTRACE=0 cargo test --workspace ${target#-p * } --locked -- --exact --test-threads 1 "${names[@]}") 2>&1 | tee "$again" |
            grep -E '^(error|test .* (ok|FAILED))' || broken=true
        ! grep -q '^test .* FAILED' "$again" || broken=true
        # A program that ended before it named a test that failed has none of these to run.
        grep -q '^test result: ok. [1-9]' "$again" || broken=true
    done
    if ! $broken; then
        for name in "${names[@]}"; do note "test: UNSTEADY: $name failed beside the others and passed alone"; done
        exit 0
    fi
fi
# The n-th program in which a test failed is the n-th that cargo names at the end.
mapfile -t targets < <(sed -nE 's/^    `(-p [^`]*)`$/\1/p' "$log")
awk '/^ +(Running|Doc-tests) / { fresh = 1 }
     /^test .* FAILED$/ { n += fresh; fresh = 0; sub(/^test /, ""); sub(/ \.\.\. FAILED$/, ""); print n - 1, $0 }' "$log" |
    while read -r at name; do
        note "test: FAILED: $name; again with: cargo test ${targets[at]-} -- --exact '${name%% - should panic}'"
    done
{ grep -hE '^error: ' "$log" || true; } | while read -r line; do note "test: $line"; done
exit 1
