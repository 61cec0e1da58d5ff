//! Counters of tunnels.

use flowlane_sys::figures;

figures! {
    /// What went through the host's tunnels, all kinds together. Bytes are those of inner frames or packets.
    pub struct TunnelStats {
        received as "received-packets": count "packets taken out of tunnels";
        received_bytes: count "bytes taken out of tunnels";
        redirected: count "of them for another bucket";
        marked as "congestion-marked": count "of them marked as their outer packets were";
        sent as "sent-packets": count "packets put into tunnels";
        sent_bytes: count "bytes put into tunnels";
        errors as "errors-received": count "ICMP errors about packets of tunnels";
    }
}
