//! TCP's counters in the words, order and indentation of `netstat -s -p tcp`, followed by counters that `netstat` does not have. A line
//! names its counters in braces, as in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

const LINES: &[&str] = &[
    "{packets-sent} packets sent",
    "\t{data-packets-sent} data packets ({data-bytes-sent} bytes)",
    "\t{packets-retransmitted} data packets ({bytes-retransmitted} bytes) retransmitted",
    "\t{unnecessary-retransmits} data packets unnecessarily retransmitted",
    "\t{mtu-resends} resends initiated by MTU discovery",
    "\t{ack-only-sent} ack-only packets ({delayed-acks-sent} delayed)",
    "\t{window-probes-sent} window probe packets",
    "\t{window-updates-sent} window update packets",
    "\t{control-sent} control packets",
    "{packets-received} packets received",
    "\t{acks-received} acks (for {bytes-acked} bytes)",
    "\t{duplicate-acks} duplicate acks",
    "\t{acks-for-unsent} acks for unsent data",
    "\t{in-sequence-packets} packets ({in-sequence-bytes} bytes) received in-sequence",
    "\t{duplicate-packets} completely duplicate packets ({duplicate-bytes} bytes)",
    "\t{dropped-paws} old duplicate packets",
    "\t{partly-duplicate-packets} packets with some dup. data ({partly-duplicate-bytes} bytes duped)",
    "\t{out-of-order-packets} out-of-order packets ({out-of-order-bytes} bytes)",
    "\t{after-window-packets} packets ({after-window-bytes} bytes) of data after window",
    "\t{window-probes-received} window probes",
    "\t{window-updates-received} window update packets",
    "\t{after-close-packets} packets received after close",
    "\t{dropped-bad-checksum} discarded for bad checksums",
    "\t{dropped-bad-header-length} discarded for bad header offset fields",
    "\t{dropped-short} discarded because packet too short",
    "\t{dropped-reassembly-full} discarded due to full reassembly queue",
    "{connection-requests} connection requests",
    "{connection-accepts} connection accepts",
    "{bad-attempts} bad connection attempts",
    "{listen-overflows} listen queue overflows",
    "{dropped-reset-not-exact} ignored RSTs in the windows",
    "{established} connections established (including accepts)",
    "{closed} connections closed (including drops)",
    "\t{embryonic-dropped} embryonic connections dropped",
    "{rtt-samples} segments updated rtt",
    "{retransmit-timeouts} retransmit timeouts",
    "\t{retransmit-drops} connections dropped by rexmit timeout",
    "{persist-timeouts} persist timeouts",
    "\t{persist-drops} connections dropped by persist timeout",
    "{fin-wait-2-drops} Connections (fin_wait_2) dropped because of timeout",
    "{keepalive-timeouts} keepalive timeouts",
    "\t{keepalive-probes-sent} keepalive probes sent",
    "\t{keepalive-drops} connections dropped by keepalive",
    "{syncache-added} syncache entries added",
    "\t{syncache-retransmitted} retransmitted",
    "\t{syncache-dupsyn} dupsyn",
    "\t{dropped-syn-backlog-full} dropped",
    "\t{syncache-completed} completed",
    "\t{syncache-reset} reset",
    "\t{syncache-stale} stale",
    "\t{cookies-bad} badack",
    "{cookies-sent} cookies sent",
    "{cookies-received} cookies received",
    "{sack-recovery-episodes} SACK recovery episodes",
    "{sack-rexmits} segment rexmits in SACK recovery episodes",
    "{sack-rexmit-bytes} byte rexmits in SACK recovery episodes",
    "{sack-options-received} SACK options (SACK blocks) received",
    "{sack-options-sent} SACK options (SACK blocks) sent",
    "{ecn-ce} packets with ECN CE bit set",
    "{ecn-ect0} packets with ECN ECT(0) bit set",
    "{ecn-ect1} packets with ECN ECT(1) bit set",
    "{ecn-handshakes} successful ECN handshakes",
    "{ecn-reductions} times ECN reduced the congestion window",
    "{accecn-handshakes} successful handshakes of accurate ECN",
    "{accecn-marks} packets that peers with accurate ECN received with CE bit set",
    "{accecn-options-sent} options of accurate ECN sent",
    "{accecn-options-received} options of accurate ECN received",
    "{accecn-stopped} connections that stopped sending ECN-capable packets",
    "{prague-without} connections with CUBIC, as Prague has no accurate ECN",
    "{prague-deep} rounds of Prague with marks while much waited",
    "{black-hole-activations} Path MTU discovery black hole detection activation events",
];

/// Prints the lines, then the counters that are in no line, by `words`.
pub(super) fn print(
    out: &mut impl Write,
    values: &BTreeMap<String, u64>,
    words: &[(&str, &str)],
    hide_zeros: bool,
) -> io::Result<()> {
    let mut told = BTreeSet::new();
    for line in LINES {
        let Some((text, first)) = fill(line, values, &mut told) else { continue };
        if first > 0 || !hide_zeros {
            writeln!(out, "\t{text}")?;
        }
    }
    for (name, value) in
        values.iter().filter(|(name, value)| !told.contains(*name) && (!hide_zeros || **value > 0))
    {
        let text = words.iter().find(|(known, _)| known == name).map_or(name.as_str(), |(_, text)| text);
        writeln!(out, "\t{value} {text}")?;
    }
    Ok(())
}

/// A line with its numbers filled in, and the first of them; `None` if the instance does not report that counter.
fn fill(line: &str, values: &BTreeMap<String, u64>, told: &mut BTreeSet<String>) -> Option<(String, u64)> {
    let (mut text, mut rest, mut first) = (String::new(), line, None);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        let value = *values.get(name)?;
        told.insert(name.to_owned());
        first = first.or(Some(value));
        text += before;
        text += &value.to_string();
        rest = after;
    }
    Some((text + rest, first?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::stack_stats::{Figures, TcpStats};

    fn values() -> BTreeMap<String, u64> {
        let mut values = BTreeMap::new();
        Figures::each(&TcpStats::default(), &mut |c| {
            values.insert(c.name.to_owned(), 0);
        });
        values
    }

    /// With numbers of five digits, where there are several of them, and of seven.
    #[test]
    fn lines_fit_a_terminal() {
        for line in LINES {
            let number = if line.matches('{').count() > 1 { 12_345 } else { 1_234_567 };
            let values = values().into_keys().map(|name| (name, number)).collect();
            let (text, _) = fill(line, &values, &mut BTreeSet::new()).unwrap();
            assert!(format!("\t{text}").replace('\t', "        ").len() <= 80, "{text}");
        }
    }

    #[test]
    fn every_name_in_a_line_is_a_counter() {
        let values = values();
        for line in LINES {
            assert!(fill(line, &values, &mut BTreeSet::new()).is_some(), "{line}");
        }
    }

    #[test]
    fn every_counter_is_shown_once() {
        let values = values();
        let mut out = Vec::new();
        print(&mut out, &values, &[("tail-loss-probes", "tail loss probes sent")], false).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('0').count() - 1, values.len(), "ECT(0) has a zero of its own: {text}");
        assert!(text.contains("\t0 packets sent\n\t\t0 data packets (0 bytes)\n"));
        assert!(text.contains("\t0 tail loss probes sent\n"));
    }
}
