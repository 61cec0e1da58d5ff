//! Counters of tunnels.

use super::counters;

counters! {
    /// What went through the host's tunnels, all kinds together. Bytes are those of inner frames or packets.
    TunnelStats {
        received: "received-packets", "packets taken out of tunnels";
        received_bytes: "received-bytes", "bytes taken out of tunnels";
        redirected: "redirected", "of them for another bucket";
        marked: "congestion-marked", "of them marked as their outer packets were";
        sent: "sent-packets", "packets put into tunnels";
        sent_bytes: "sent-bytes", "bytes put into tunnels";
        errors: "errors-received", "ICMP errors about packets of tunnels";
    }
}
