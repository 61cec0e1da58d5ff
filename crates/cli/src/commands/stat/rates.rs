//! Rates per second between two reports: `--interval`.

use flowlane::control::ReportView;
use flowlane::metrics::steering::QueueSteering;
use flowlane::stats::{Figures, Kind, PerfReport};

/// The later report with each counter replaced by its change per second. `None` if the reports are from different processes.
pub(super) fn per_second(before: &ReportView, after: &ReportView) -> Option<ReportView> {
    let (was, is) = (&before.instance, &after.instance);
    let passed = is.uptime_ms.checked_sub(was.uptime_ms).filter(|ms| *ms > 0)?;
    if was.pid != is.pid || was.started != is.started {
        return None;
    }
    let rate = |after: &mut u64, before: u64| {
        let change = u128::from(after.saturating_sub(before)) * 1000 + u128::from(passed) / 2;
        *after = u64::try_from(change / u128::from(passed)).unwrap_or(u64::MAX);
    };
    let mut rates = after.clone();
    for (host, old) in rates.stats.hosts.iter_mut().zip(&before.stats.hosts) {
        for (group, counters) in &mut host.protocols {
            for (name, value) in counters {
                rate(value, old.protocols.get(group).and_then(|c| c.get(name)).copied().unwrap_or(0));
            }
        }
    }
    for (stream, old) in rates.netisr.workstreams.iter_mut().zip(&before.netisr.workstreams) {
        rate(&mut stream.dispatched, old.dispatched);
        rate(&mut stream.hybrid_dispatched, old.hybrid_dispatched);
        rate(&mut stream.queue_drops, old.queue_drops);
        rate(&mut stream.no_lane, old.no_lane);
        rate(&mut stream.queued, old.queued);
        rate(&mut stream.handled, old.handled);
        rate(&mut stream.sent, old.sent);
        rise(&mut stream.meeting, &old.meeting, rate);
    }
    for (host, old) in rates.rss.hosts.iter_mut().zip(&before.rss.hosts) {
        rise(&mut host.steering, &old.steering, rate);
        arrivals(&mut host.arrivals, &old.arrivals, rate);
        if let (Some(card), Some(old)) = (&mut host.card, &old.card) {
            rise(&mut card.counts, &old.counts, rate);
        }
    }
    for (worker, old) in rates.workers.workers.iter_mut().zip(&before.workers.workers) {
        rise(&mut worker.turns, &old.turns, rate);
        rise(&mut worker.time, &old.time, rate);
        rise(&mut worker.pool, &old.pool, rate);
        for (queue, old) in worker.queues.iter_mut().zip(&old.queues) {
            for (name, value) in &mut queue.counters {
                rate(value, old.counters.get(name).copied().unwrap_or(0));
            }
        }
        if let (Some(perf), Some(old)) = (&mut worker.perf, &old.perf) {
            events(perf, old, rate);
        }
    }
    // A lane may have moved to another worker, so it is matched by host and bucket.
    let lanes = || before.workers.workers.iter().flat_map(|w| &w.hosts);
    for host in rates.workers.workers.iter_mut().flat_map(|w| &mut w.hosts) {
        for lane in &mut host.lanes {
            let mut same = lanes().filter(|h| h.host == host.host).flat_map(|h| &h.lanes);
            let Some(old) = same.find(|l| l.bucket == lane.bucket) else { continue };
            rate(&mut lane.delivered, old.delivered);
            rate(&mut lane.sent, old.sent);
            rise(&mut lane.counts, &old.counts, rate);
            rate(&mut lane.dropped, old.dropped);
        }
    }
    Some(rates)
}

/// Each counter of a group; what is no counter stays as it is now.
fn rise<G: Figures>(now: &mut G, then: &G, rate: impl Fn(&mut u64, u64)) {
    now.each_with(then, &mut |kind, now, then| {
        if kind == Kind::Count {
            rate(now, then);
        }
    });
}

/// How frames arrived on each queue.
fn arrivals(now: &mut [QueueSteering], then: &[QueueSteering], rate: impl Fn(&mut u64, u64)) {
    for queue in now {
        let same = |q: &&QueueSteering| (q.interface, q.queue) == (queue.interface, queue.queue);
        let Some(old) = then.iter().find(same) else { continue };
        rate(&mut queue.received, old.received);
        rate(&mut queue.aligned, old.aligned);
        rate(&mut queue.redirected, old.redirected);
        rate(&mut queue.misdirected, old.misdirected);
        rate(&mut queue.foreign_hash, old.foreign_hash);
        for cause in &mut queue.causes {
            let same = old.causes.iter().find(|c| (c.what, &c.why) == (cause.what, &cause.why));
            rate(&mut cause.frames, same.map_or(0, |c| c.frames));
        }
    }
}

/// Events of processor and kernel; those that are not counted stay so.
fn events(now: &mut PerfReport, then: &PerfReport, rate: impl Fn(&mut u64, u64)) {
    let both = [
        (&mut now.task_clock_nanos, then.task_clock_nanos),
        (&mut now.context_switches, then.context_switches),
        (&mut now.migrations, then.migrations),
        (&mut now.page_faults, then.page_faults),
        (&mut now.cycles, then.cycles),
        (&mut now.instructions, then.instructions),
        (&mut now.stalled_cycles, then.stalled_cycles),
        (&mut now.cache_misses, then.cache_misses),
    ];
    for (now, then) in both {
        match (now.as_mut(), then) {
            (Some(now), Some(then)) => rate(now, then),
            _ => *now = None,
        }
    }
}
