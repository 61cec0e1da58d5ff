#!/bin/bash
# The README's test command. As root it includes the tests against the kernel in network namespaces.
have_packages ip=iproute2 ethtool=ethtool || true
# Witnesses: a router that tracks connections, captures that are read by others, the clients and servers of the world. A
# server that comes with its package is not to be started.
have_packages nft=nftables sysctl=procps tcpdump=tcpdump tshark=tshark curl=curl ping=iputils-ping || true
RUNLEVEL=1 have_packages nginx=nginx || true
log=$CI_TARGET/ci-test.log
# --show-output, so that a test that cannot run here can say why.
cargo test --workspace --locked -- --show-output 2>&1 | tee "$log" | grep -v '\.\.\. ok$'
if ! is_root; then note "test: not root, so nothing was tried against the kernel in network namespaces"; fi
{ grep -o 'skipped, because .*' "$log" || true; } | sort | uniq -c | while read -r count why; do
    note "test: $count tests $why"
done
