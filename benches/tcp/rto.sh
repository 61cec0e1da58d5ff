#!/usr/bin/env bash
# How long senders fall silent where a fifth of all segments is lost: COUNT connections of ours and as many of the kernel's (CUBIC), at
# once over the same path of 20 ms, to the kernel's receiver with and without SACK; segments are lost, and in a second row
# acknowledgements too. Who has data to send and says nothing waits for its retransmission timeout, so the witness is the wire: the time
# between a segment that is sent again and what its connection sent before it, where that is 150 ms or more.
# For each sender it prints how many timeouts a connection had in a minute, their median, the ninetieth and the ninety-ninth hundredth
# and the longest, and the bytes that were acknowledged; for the kernel also the greatest `rto` and `backoff` that `ss -ti` showed.
#
#   benches/tcp/rto.sh [SECONDS] [COUNT] [PERCENT]        60, 16 and 20 by default
#   PROFILE=dev benches/tcp/rto.sh                        without waiting for the release build
#
# Needs root, iproute2, ethtool, util-linux and python3.
seconds=${1:-60} count=${2:-16} percent=${3:-20}
source "$(dirname "$0")/path.sh"
sink
for sack in 0 1; do
    # The receiver decides for both.
    ip netns exec $b sysctl -qw net.ipv4.tcp_sack=$sack
    for back in 0 "$percent"; do
        path_begin --delay 10 --jitter 1 --loss "$percent" --loss-back "$back" --seed "$((sack + 1))"
        ip netns exec $middle chrt -r 4 python3 benches/tcp/silence.py a1 b1 10.9.0.1 10.9.0.11 >"$scratch/silence" &
        watch=$!
        pids+=($watch)
        until grep -q watching "$scratch/silence"; do kill -0 $watch; sleep 0.05; done
        ip netns exec $a chrt -r 4 "$flowlane" load tcp 10.9.0.2:7001 --link af-packet:a0 --addr 10.9.0.11/24 --workers 1 --mode write \
            --connections "$count" --duration "${seconds}s" --timeout 20s --quiet --json >/dev/null 2>"$scratch/load" &
        load=$!
        ip netns exec $a chrt -r 4 python3 benches/tcp/streams.py send "$seconds" 0 "$count" 10.9.0.2:7001 >/dev/null &
        kernel=$!
        pids+=($load $kernel)
        : >"$scratch/ss"
        while kill -0 $kernel 2>/dev/null; do
            ip netns exec $a ss -Htin 'dport = 7001' | grep -oE '(rto|backoff):[0-9.]+' >>"$scratch/ss" || true
            sleep 0.25
        done
        # Our connections may take long to end on such a path; what counts is over.
        kill $load 2>/dev/null || true
        wait $load $kernel 2>/dev/null || true
        kill $watch
        wait $watch || true
        path_end
        echo "SACK $sack, $percent % of segments and $back % of acknowledgements lost:"
        sed 1d "$scratch/silence"
        sort -t: -k1,1 -k2,2g "$scratch/ss" | awk -F: '{ most[$1] = $2 }
            END { printf "  ss -ti of the kernel: greatest rto %.0f ms, backoff %d\n", most["rto"], most["backoff"] }'
    done
done
