//! Counters below IP.

use flowlane_sys::figures;

figures! {
    /// Ethernet frames.
    pub struct EthernetStats {
        received as "received-frames": count "frames received";
        received_bytes: count "bytes received";
        sent as "sent-frames": count "frames sent";
        sent_bytes: count "bytes sent";
        unknown_type as "dropped-unknown-type": count "frames of an unknown type";
        other_host as "dropped-other-host": count "frames for another host";
    }
}

figures! {
    /// ARP for IPv4, neighbour discovery for IPv6.
    pub struct ArpStats {
        requests_received as "received-requests": count "requests or solicitations received";
        replies_received as "received-replies": count "replies or advertisements received";
        requests_sent as "sent-requests": count "requests or solicitations sent";
        replies_sent as "sent-replies": count "replies or advertisements sent";
        requests_limited: count "requests or solicitations not sent: the rate limit";
        replies_limited: count "requests or solicitations not answered: the rate limit";
        probes_sent as "sent-probes": count "probes for duplicates of our addresses sent";
        announcements_sent as "sent-announcements": count "announcements of our addresses sent";
        learned as "entries-learned": count "entries learned";
        changed as "entries-changed": count "entries whose Ethernet address changed";
        evicted as "entries-evicted": count "entries evicted to make room";
        timed_out as "entries-timed-out": count "entries that did not answer";
        conflicts as "address-conflicts": count "neighbours claiming one of our addresses";
    }
}
