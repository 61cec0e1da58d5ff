//! Counters below IP.

use super::counters;

counters! {
    /// Ethernet frames.
    EthernetStats {
        received: "received-frames", "frames received";
        received_bytes: "received-bytes", "bytes received";
        sent: "sent-frames", "frames sent";
        sent_bytes: "sent-bytes", "bytes sent";
        unknown_type: "dropped-unknown-type", "frames of an unknown type";
        other_host: "dropped-other-host", "frames for another host";
    }
}

counters! {
    /// ARP for IPv4, neighbour discovery for IPv6.
    ArpStats {
        requests_received: "received-requests", "requests or solicitations received";
        replies_received: "received-replies", "replies or advertisements received";
        requests_sent: "sent-requests", "requests or solicitations sent";
        replies_sent: "sent-replies", "replies or advertisements sent";
        requests_limited: "requests-limited", "requests or solicitations not sent: the rate limit";
        replies_limited: "replies-limited", "requests or solicitations not answered: the rate limit";
        probes_sent: "sent-probes", "probes for duplicates of our addresses sent";
        announcements_sent: "sent-announcements", "announcements of our addresses sent";
        learned: "entries-learned", "entries learned";
        changed: "entries-changed", "entries whose Ethernet address changed";
        evicted: "entries-evicted", "entries evicted to make room";
        timed_out: "entries-timed-out", "entries that did not answer";
        conflicts: "address-conflicts", "neighbours claiming one of our addresses";
    }
}
