#!/bin/bash
# What a datagram, a segment, a connection and others cost in instructions, against benches/budget/numbers.
have_packages valgrind=valgrind || skip "valgrind is missing"
[ "$(uname -m)" = x86_64 ] || skip "the numbers are of x86-64"
benches/budget/run
