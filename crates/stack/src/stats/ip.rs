//! IP and ICMP counters, one set for each family.

use super::counters;

counters! {
    /// `netstat -s -p ip` and `-p ip6`.
    IpStats {
        received: "received-packets", "total packets received";
        bad_checksum: "dropped-bad-checksum", "bad header checksums";
        too_short: "dropped-below-minimum-size", "with size smaller than minimum";
        too_long: "dropped-too-long", "with ip length > max ip packet size";
        bad_length: "dropped-bad-length", "with data size < data length";
        bad_header_length: "dropped-bad-header-length", "with a bad header length";
        bad_options: "dropped-bad-options", "with bad options";
        bad_version: "dropped-bad-version", "with incorrect version number";
        fragments: "received-fragments", "fragments received";
        fragments_dropped: "dropped-fragments", "fragments dropped (dup or out of space)";
        fragments_timeout: "dropped-fragments-after-timeout", "fragments dropped after timeout";
        fragments_overflow: "dropped-fragments-overflow", "fragments that exceeded limit";
        atomic_fragments: "atomic-fragments", "atomic fragments";
        reassembled: "reassembled-packets", "packets reassembled ok";
        reassembled_elsewhere: "reassembled-redirected", "of them for another bucket";
        delivered: "received-local-packets", "packets for this host";
        unknown_protocol: "dropped-unknown-protocol", "packets for unknown/unsupported protocol";
        not_forwardable: "dropped-not-forwardable", "packets not forwardable";
        no_group: "dropped-no-group", "packets received for unknown multicast group";
        sent: "sent-packets", "packets sent from this host";
        no_buffers: "discarded-no-buffers", "output packets dropped due to no bufs, etc.";
        no_route: "discarded-no-route", "output packets discarded due to no route";
        fragmented: "fragmented-packets", "output datagrams fragmented";
        fragments_created: "fragments-created", "fragments created";
        cannot_fragment: "discarded-cannot-fragment", "datagrams that can't be fragmented";
        path_mtu: "path-mtu-reports", "reports of a way narrower than its link";
    }
}

counters! {
    /// `netstat -s -p icmp` and `-p icmp6`.
    IcmpStats {
        received: "received-messages", "messages received";
        bad_checksum: "dropped-bad-checksum", "messages with bad checksum";
        echo_requests: "echo-requests", "echo requests received";
        echo_replies_sent: "echo-replies-sent", "echo replies sent";
        echoes_limited: "echo-replies-limited", "echo requests not answered because of the rate limit";
        errors_received: "errors-received", "errors about our packets received";
        errors_sent: "errors-sent", "errors sent";
        errors_limited: "errors-limited", "errors not sent because of the rate limit";
        errors_suppressed: "errors-suppressed", "errors not sent because the packet must not cause one";
        group_queries: "group-queries", "queries for multicast groups received";
        group_reports_sent: "group-reports-sent", "reports of multicast groups sent";
        group_reports_limited: "group-reports-limited", "reports of multicast groups not sent because of the rate limit";
    }
}
