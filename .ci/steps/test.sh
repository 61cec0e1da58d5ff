#!/bin/bash
# The README's test command. As root it includes the tests against the kernel in network namespaces.
have_packages ip=iproute2 ethtool=ethtool || true
# Witnesses: a router that tracks connections, captures that are read by others, the clients and servers of the world. A
# server that comes with its package is not to be started.
have_packages nft=nftables sysctl=procps tcpdump=tcpdump tshark=tshark curl=curl ping=iputils-ping radvd=radvd || true
have_packages chromium=chromium chromedriver=chromium-driver || true
RUNLEVEL=1 have_packages nginx=nginx haproxy=haproxy nfcapd=nfdump promtool=prometheus || true
# A reader of Parquet files that nobody here wrote, in a place of its own.
pyarrow=$CI_TARGET/tools/pyarrow
if [ "${CI-}" = true ] && ! "$pyarrow/bin/python" -c 'import pyarrow' 2>/dev/null; then
    have_packages python3=python3 /usr/share/doc/python3-venv=python3-venv || true
    { python3 -m venv "$pyarrow" && retry "$pyarrow/bin/pip" install --quiet --retries 1 --only-binary :all: pyarrow; } ||
        note "test: pyarrow could not be installed, so no other reader has read the Parquet files"
fi
if [ -x "$pyarrow/bin/python" ]; then export FLOWLANE_PYARROW=$pyarrow/bin/python; fi
log=$CI_TARGET/ci-test.log
# Every test runs, whatever fails before it. --show-output, so that a test that cannot run here can say why. Panics on
# purpose are many: a backtrace for each would hide the failures.
rc=0
RUST_BACKTRACE=0 cargo test --workspace --locked --no-fail-fast -- --show-output 2>&1 | tee "$log" |
    grep --line-buffered -E '^(error|warning| +(Running|Doc-tests) |test result|test .* FAILED)|has been running' || rc=${PIPESTATUS[0]}
if ! is_root; then note "test: not root, so nothing was tried against the kernel in network namespaces"; fi
{ grep -o 'skipped, because .*' "$log" || true; } | sort | uniq -c | while read -r count why; do
    note "test: $count tests $why"
done
[ "$rc" != 0 ] || exit 0

echo
echo "== what the tests that failed said (at most 60 lines each; all of it: $log)"
awk '/^failures:$/ { inside = 1; next } /^test result:/ { inside = 0 }
     inside && /^---- / { n = 0 } inside && n++ < 60' "$log"
mapfile -t names < <(sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$log" | sort -u)
mapfile -t targets < <(sed -nE 's/^    `(-p [^`]*)`$/\1/p' "$log" | sort -u)

# Two tests at most are run a second time, each alone: what fails again is broken. What passes is unsteady, and is named at the
# end of the run; a fault of the test or of the program is behind it either way.
if [ ${#targets[@]} -gt 0 ] && [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 2 ]; then
    broken=false
    again=$log.again
    for target in "${targets[@]}"; do
        # shellcheck disable=SC2086 # The target is several words.
        RUST_BACKTRACE=0 cargo test $target --locked -- --exact --test-threads 1 "${names[@]}" 2>&1 | tee "$again" |
            grep -E '^(error|test .* (ok|FAILED)|test result)' || broken=true
        # A program that ended before it named a test that failed has none of these to run.
        ! grep -q '^test result: ok. 0 passed' "$again" || broken=true
    done
    if ! $broken; then
        for name in "${names[@]}"; do note "test: UNSTEADY: $name failed beside the others and passed alone"; done
        exit 0
    fi
fi
grep -hE '^test .* FAILED$|^error: ' "$log" | while read -r line; do note "test: $line"; done
exit 1
