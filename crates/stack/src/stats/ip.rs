//! IP and ICMP counters, one set for each family.

use flowlane_sys::figures;

figures! {
    /// `netstat -s -p ip` and `-p ip6`.
    pub struct IpStats {
        received as "received-packets": count "total packets received";
        bad_checksum as "dropped-bad-checksum": count "bad header checksums";
        too_short as "dropped-below-minimum-size": count "with size smaller than minimum";
        too_long as "dropped-too-long": count "with ip length > max ip packet size";
        bad_length as "dropped-bad-length": count "with data size < data length";
        bad_header_length as "dropped-bad-header-length": count "with a bad header length";
        bad_options as "dropped-bad-options": count "with bad options";
        bad_version as "dropped-bad-version": count "with incorrect version number";
        fragments as "received-fragments": count "fragments received";
        fragments_dropped as "dropped-fragments": count "fragments dropped (dup or out of space)";
        fragments_timeout as "dropped-fragments-after-timeout": count "fragments dropped after timeout";
        fragments_overflow as "dropped-fragments-overflow": count "fragments that exceeded limit";
        atomic_fragments: count "atomic fragments";
        reassembled as "reassembled-packets": count "packets reassembled ok";
        reassembled_elsewhere as "reassembled-redirected": count "of them for another bucket";
        delivered as "received-local-packets": count "packets for this host";
        unknown_protocol as "dropped-unknown-protocol": count "packets for unknown/unsupported protocol";
        not_forwardable as "dropped-not-forwardable": count "packets not forwardable";
        no_group as "dropped-no-group": count "packets received for unknown multicast group";
        sent as "sent-packets": count "packets sent from this host";
        no_buffers as "discarded-no-buffers": count "output packets dropped due to no bufs, etc.";
        no_route as "discarded-no-route": count "output packets discarded due to no route";
        fragmented as "fragmented-packets": count "output datagrams fragmented";
        fragments_created: count "fragments created";
        cannot_fragment as "discarded-cannot-fragment": count "datagrams that can't be fragmented";
        path_mtu as "path-mtu-reports": count "reports of a way narrower than its link";
    }
}

figures! {
    /// `netstat -s -p icmp` and `-p icmp6`.
    pub struct IcmpStats {
        received as "received-messages": count "messages received";
        bad_checksum as "dropped-bad-checksum": count "messages with bad checksum";
        echo_requests: count "echo requests received";
        echo_replies_sent: count "echo replies sent";
        echoes_limited as "echo-replies-limited": count "echo requests not answered because of the rate limit";
        errors_received: count "errors about our packets received";
        errors_sent: count "errors sent";
        errors_limited: count "errors not sent because of the rate limit";
        errors_suppressed: count "errors not sent because the packet must not cause one";
        group_queries: count "queries for multicast groups received";
        group_reports_sent: count "reports of multicast groups sent";
        group_reports_limited: count "reports of multicast groups not sent because of the rate limit";
    }
}
