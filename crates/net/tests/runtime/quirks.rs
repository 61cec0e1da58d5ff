//! Each fault of the wire shows up in the counter that names it, and nowhere else.

use std::time::Duration;

use flowlane::link::pair::QuirkCounts;
use flowlane::stack_stats::DropReason;
use flowlane::{PairConfig, Quirk, Quirks};

use crate::traffic::{CLIENT, Flow, Plan, SERVER};

struct Outcome {
    flows: Vec<Flow>,
    report: flowlane::stats::Report,
    quirks: QuirkCounts,
}

/// Runs with one fault on the way from client to server.
fn with(quirk: Quirk) -> Outcome {
    on(2, quirk)
}

/// As [`with`], on so many workers.
fn on(workers: usize, quirk: Quirk) -> Outcome {
    let plan = Plan {
        workers,
        // Small enough a window that no queue overflows: only the fault itself may lose anything.
        datagrams: 100,
        pair: PairConfig { quirks: Quirks::new(11).with(quirk, 50), ..PairConfig::default() },
        // Lost datagrams are never answered: a flow that waits for them ends by silence.
        // Longer than a busy machine keeps a worker from its processor.
        silence: Duration::from_secs(2),
        window: 16,
        flows: 32,
        ..Plan::default()
    };
    let net = plan.start();
    let flows = net.finish().into_values().collect();
    let report = net.runtime.stop();
    let mut quirks = QuirkCounts::default();
    for q in report.queues(CLIENT).filter_map(|q| q.quirks) {
        quirks.add(&q);
    }
    assert!(quirks.get(quirk) > 50, "{quirk:?} happened {} times", quirks.get(quirk));
    Outcome { flows, report, quirks }
}

impl Outcome {
    fn sum(&self, f: impl Fn(&Flow) -> u32) -> u64 {
        self.flows.iter().map(|flow| u64::from(f(flow))).sum()
    }
}

const ALL: u64 = 4 * 32 * 100;

#[test]
fn wrong_queue_is_misdirected_and_redirected_and_nothing_is_lost() {
    let o = with(Quirk::WrongQueue);
    let steering = o.report.steering(SERVER);
    assert_eq!(steering.misdirected, o.quirks.get(Quirk::WrongQueue));
    assert_eq!(steering.redirected, o.quirks.get(Quirk::WrongQueue));
    assert_eq!(o.sum(|f| f.received), ALL);
    let example = o.report.workers.iter().flat_map(|w| &w.misdirected).next().unwrap();
    assert_ne!(example.queue, example.expected_queue);
    assert!(example.flow.contains("10.0.0.1"), "{example:?}");
    let handed: u64 = o.report.workers.iter().map(|w| w.netisr.queued).sum();
    assert_eq!(handed, steering.redirected);
}

/// Frames that other workers have given back are free, also those that their home did not need yet.
#[test]
fn frames_that_came_home_are_free() {
    let pair = PairConfig { quirks: Quirks::new(11).with(Quirk::WrongQueue, 50), ..PairConfig::default() };
    // More are on their way than the rings have room for, so some are lost, and nobody waits long for these.
    let silence = Duration::from_millis(500);
    let net =
        Plan { workers: 2, datagrams: 100, pair, window: 16, flows: 32, silence, ..Plan::default() }.start();
    let handle = net.runtime.handle();
    net.finish();
    flowlane_testnet::eventually("some frames are neither free nor anywhere", || {
        let report = handle.counters();
        let away: u64 = report.workers.iter().map(|w| w.pool.frames - w.pool.frames_free).sum();
        let came: u64 = report.workers.iter().map(|w| w.meeting.frames_came_home).sum();
        came > 0 && away == 0
    });
}

#[test]
fn no_hash_is_computed() {
    let o = with(Quirk::NoHash);
    let steering = o.report.steering(SERVER);
    assert_eq!(steering.hash_computed, o.quirks.get(Quirk::NoHash));
    assert_eq!((steering.misdirected, steering.redirected), (0, 0));
    assert_eq!(o.sum(|f| f.received), ALL);
    assert_eq!(o.sum(|f| f.reordered), 0);
}

/// A hash of the right type but another key is noticed, and from then on none is believed: every frame is where it belongs.
#[test]
fn a_foreign_key_is_noticed() {
    let o = with(Quirk::ForeignKey);
    let steering = o.report.steering(SERVER);
    // Each of two workers notices one, and believes none after that; a few that named the right queue may have been before.
    assert!((1..=2).contains(&steering.foreign_hash), "{steering:?}");
    assert_eq!((steering.misdirected, steering.redirected), (0, 0));
    assert!(steering.hash_computed > steering.hash_delivered, "{steering:?}");
    assert_eq!((o.sum(|f| f.received), o.sum(|f| f.reordered)), (ALL, 0));
}

/// With one queue every hash names the right one: what notices is that some are compared.
#[test]
fn a_foreign_key_on_one_queue_is_noticed() {
    let o = on(1, Quirk::ForeignKey);
    let steering = o.report.steering(SERVER);
    assert_eq!((steering.foreign_hash, steering.misdirected), (1, 0));
    assert!(steering.hash_computed > steering.hash_delivered, "{steering:?}");
    assert_eq!(o.sum(|f| f.received), ALL);
}

#[test]
fn dropped_frames_are_missing() {
    let o = with(Quirk::Drop);
    assert_eq!(o.sum(|f| f.sent) - o.sum(|f| f.received), o.quirks.get(Quirk::Drop));
    assert_eq!(o.report.total(SERVER).drops.total(), 0);
}

#[test]
fn duplicated_frames_come_twice() {
    let o = with(Quirk::Duplicate);
    let extra = o.report.total(SERVER).udp.received - o.sum(|f| f.sent);
    assert_eq!(extra, o.quirks.get(Quirk::Duplicate));
    assert_eq!(o.report.total(SERVER).drops.total(), 0);
}

#[test]
fn reordered_and_delayed_frames_come_late() {
    for quirk in [Quirk::Reorder, Quirk::Delay] {
        let o = with(quirk);
        assert!(o.sum(|f| f.reordered) > 0, "{quirk:?}");
        assert_eq!(o.report.total(SERVER).drops.total(), 0);
        assert_eq!(o.sum(|f| f.received), ALL, "{quirk:?} loses nothing");
    }
}

#[test]
fn corrupted_frames_fail_their_checksum() {
    let o = with(Quirk::Corrupt);
    let drops = o.report.total(SERVER).drops;
    assert_eq!(drops.get(DropReason::UdpChecksum), o.quirks.get(Quirk::Corrupt));
    assert_eq!(drops.total(), o.quirks.get(Quirk::Corrupt));
    assert_eq!(o.sum(|f| f.damaged), 0, "nothing damaged was delivered");
}
