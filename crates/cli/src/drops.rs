//! Every packet that was dropped on purpose or for want of something, by host and reason, out of a runtime's report.

use std::collections::BTreeMap;

use flowlane::TcpDropReason;
use flowlane::stack_stats::Counters;
use flowlane::stats::Report;

/// Dropped packets by `host:reason`; reasons without any are left out.
pub(crate) fn by_reason(counted: &Report, hosts: &[(&str, usize)]) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    let mut note = |name: String, n: u64| {
        if n > 0 {
            *drops.entry(name).or_default() += n;
        }
    };
    for (name, host) in hosts {
        let total = counted.total(*host);
        total.drops.each(&mut |c| note(format!("{name}:{}", c.name), c.value));
        for reason in TcpDropReason::ALL {
            note(format!("{name}:tcp-{}", reason.name().replace('_', "-")), total.tcp.dropped(*reason));
        }
        for q in counted.queues(*host) {
            note(format!("{name}:link-queue-full"), q.stats.tx_far_full);
            note(format!("{name}:link-no-frame"), q.stats.rx_no_frame);
            note(format!("{name}:link-ring-full"), q.stats.rx_ring_full);
            note(format!("{name}:link-bad"), q.stats.rx_bad);
            note(format!("{name}:link-refused"), q.stats.tx_failed);
        }
    }
    for worker in &counted.workers {
        note("netisr:ring-full".into(), worker.netisr.dropped);
        note("move:too-many-waited".into(), worker.move_overflow);
    }
    drops
}
