//! The documents and the metrics of figures that are all different, byte for byte as files of `golden/` have them: what others read keeps
//! its names, its order and its words.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Key, Rss};
use flowlane_stack::stats::LaneStats;
use flowlane_stack::time::Time;

use super::*;
use crate::kernel::KernelStats;
use crate::link::pair::QuirkCounts;
use crate::metrics::{Snapshot, text};
use crate::runtime::handle::HostInfo;
use crate::stats::*;

/// Another number each time.
struct Next(u64);

impl Next {
    fn n(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// A group of figures, each with a number of its own.
    fn group<G: Figures + Default>(&mut self) -> G {
        let mut group = G::default();
        group.each_with(&G::default(), &mut |_, value, _| *value = self.n());
        group
    }

    /// As [`group`](Self::group), of milliseconds in nanoseconds.
    fn times<G: Figures + Default>(&mut self) -> G {
        let mut group: G = self.group();
        group.each_with(&G::default(), &mut |_, value, _| *value *= 1_000_000);
        group
    }
}

fn lane(next: &mut Next, host: usize, bucket: u16, worker: usize) -> LaneReport {
    let mut stats = LaneStats::default();
    let mut lane = LaneReport {
        host,
        bucket,
        worker,
        counts: next.group(),
        kernel: None,
        relay: None,
        services: Vec::new(),
        failure: None,
        sockets: Vec::new(),
        tcp: Default::default(),
        kernel_sockets: Default::default(),
        stats: stats.clone(),
    };
    lane.counts.busy_nanos *= 1_000_000;
    lane.tcp.listeners = next.n() as usize;
    lane.tcp.states.iter_mut().for_each(|state| *state = next.n() as usize);
    lane.tcp.rtts.count(17);
    lane.tcp.rtts.count_all(80_000, 3);
    stats.ethernet.received = next.n();
    stats.ip.bad_checksum = next.n();
    stats.ip6.bad_checksum = next.n();
    stats.icmp.echo_requests = next.n();
    stats.udp.delivered = next.n();
    stats.udp.sent = next.n();
    stats.tcp.packets_sent = next.n();
    stats.tcp.ecn_ce = next.n();
    stats.tcp.drops.0.iter_mut().for_each(|drops| *drops = next.n());
    for reason in flowlane_stack::stats::DropReason::ALL {
        stats.drops.count(*reason);
    }
    lane.stats = stats;
    lane
}

fn worker(next: &mut Next, worker: usize, lanes: Vec<LaneReport>) -> WorkerReport {
    let task =
        |n: u64| LongTask { task: format!("src/main.rs:{n}:5"), times: n, longest_nanos: n * 1000, lane: 7 };
    let queue = |host, queue: Option<u16>, next: &mut Next| QueueReport {
        host,
        interface: 0,
        queue,
        stats: next.group(),
        outstanding: None,
        quirks: queue.and_then(|_| QuirkCounts::of(&std::array::from_fn::<u64, 8, _>(|_| next.n()))),
    };
    WorkerReport {
        worker,
        lanes,
        queues: vec![queue(0, Some(worker as u16), next), queue(0, None, next)],
        netisr: next.group(),
        steering: vec![next.group(), next.group()],
        arrivals: vec![QueueArrivals {
            host: 0,
            interface: 0,
            queue: worker as u16,
            by_card: true,
            stats: next.group(),
        }],
        misdirected: vec![Misdirected {
            flow: "192.0.2.1:7".into(),
            hash: 0xabc,
            expected_queue: 1,
            queue: 0,
        }],
        turns: next.group(),
        time: next.times(),
        needed_by: next.n(),
        long_tasks: LongTasks {
            budget_nanos: next.n(),
            tasks: vec![task(next.n()), task(next.n())],
            unnamed: next.n(),
        },
        perf: (worker == 90).then(|| {
            Box::new(PerfReport {
                task_clock_nanos: Some(next.n() * 1_000_000),
                context_switches: Some(next.n()),
                migrations: Some(next.n()),
                page_faults: Some(next.n()),
                cycles: Some(next.n()),
                instructions: Some(next.n()),
                stalled_cycles: None,
                cache_misses: Some(next.n()),
                shared: true,
                without_kernel: false,
                missing: vec!["no such counter".into()],
            })
        }),
        meeting: next.group(),
        pool: next.group(),
    }
}

/// Two workers with numbers that no thread here has, a host on a link of ours and one on kernel sockets that is a relay.
fn snapshot() -> Snapshot {
    let mut next = Next(100);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let host = |name: &str, kernel| HostInfo::for_tests(name, rss.clone(), kernel);
    let lanes = |worker: usize, next: &mut Next| {
        let mut relay = lane(next, 1, worker as u16 - 90, worker);
        relay.kernel = Some(KernelStats {
            accepted: next.n(),
            read_bytes: next.n(),
            written_bytes: next.n(),
            datagrams_overflown: next.n(),
            datagrams_dropped: next.n(),
            datagrams_cut: next.n(),
            no_descriptor: next.n(),
            ..KernelStats::default()
        });
        relay.relay = Some(Box::new(RelayCounts {
            relay: RelayStats {
                accepted: next.n(),
                open: next.n(),
                no_target: next.n(),
                ..RelayStats::default()
            },
            targets: vec![(
                "a".into(),
                TargetStats { up: 1, connections: next.n(), lost: next.n(), ..Default::default() },
            )],
        }));
        vec![lane(next, 0, worker as u16 - 90, worker), relay]
    };
    let workers = [90, 91].map(|number| {
        let lanes = lanes(number, &mut next);
        worker(&mut next, number, lanes)
    });
    let mut stalls: [StallCounts; 2] = [next.group(), next.group()];
    stalls.iter_mut().for_each(|stalls| stalls.longest_nanos *= 1_000_000);
    let watchdog = WatchdogReport {
        limit: Duration::from_millis(1500),
        workers: stalls.into(),
        last: vec![Stall {
            worker: 0,
            began: Time::ZERO,
            lasted: Duration::from_millis(1700),
            is_over: true,
            step: "tasks",
            lane: Some(("server".into(), 1)),
            task: None,
            thread: "it sleeps".into(),
            trace: vec!["main".into()],
            no_trace: None,
        }],
    };
    let card = CardReport { host: 0, counts: next.group(), strayed: Some(Strayed::Key) };
    let rebalance = next.group();
    Snapshot {
        addresses: Vec::new(),
        instance: Instance::for_tests("test", 4711, 1_700_000_000, 12_345),
        workers: 3,
        hosts: vec![host("server", false), host("relay", true)],
        owners: vec![vec![Some(90), Some(91)], vec![Some(90), None]],
        report: Report {
            workers: workers.into(),
            cards: vec![card],
            changed: Vec::new(),
            rebalance: Box::new(rebalance),
            watchdog: Some(Box::new(watchdog)),
        },
    }
}

/// A reading after so many milliseconds, of an instance that has received so many packets.
pub(super) fn live(millis: u64, packets: u64) -> LiveView {
    let mut live = LiveView::of(&snapshot(), Additions::default());
    live.instance.uptime_ms = millis;
    live.workers[0].queues[0].counters.insert("rx-frames".to_owned(), packets);
    live
}

/// Compares with the file; with `FLOWLANE_GOLDEN=write` writes it instead, to be looked at by a person.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control/golden").join(name);
    if std::env::var("FLOWLANE_GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (shown, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(shown, expected, "{name}");
    }
    assert!(text == expected, "{name}: one is longer");
}

/// A document as it is sent, in lines: an object, or a list of them, in each.
fn lines<T: serde::Serialize>(document: &T) -> String {
    let sent = serde_json::to_string(document).unwrap();
    assert!(!sent.contains('\n'));
    sent.replace("},", "},\n").replace(":{", ":\n{") + "\n"
}

#[test]
fn documents_keep_their_names_order_and_words() {
    let now = snapshot();
    let (report, live) = (ReportView::of(&now), LiveView::of(&now, Additions::default()));
    golden("report.json", &lines(&report));
    golden("live.json", &lines(&live));
    flowlane_schema::check("control-v1", &serde_json::to_value(&report).unwrap());
    flowlane_schema::check_part("control-v1", "/$defs/LiveView", &serde_json::to_value(&live).unwrap());
}

/// Every metric, with its first sample; how the formats are written is tested where they are.
#[test]
fn metrics_keep_their_names_order_and_words() {
    let mut metrics = snapshot().metrics();
    metrics.iter_mut().for_each(|metric| metric.samples.truncate(1));
    let shown = text::write(&metrics, text::Format::OpenMetrics);
    golden("metrics.txt", &shown.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}
