//! The list of metrics of a running runtime: complete, and as the formats want it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowlane::link::QueueStats;
use flowlane::metrics::{Instance, Kind, Metric, Snapshot, drops};
use flowlane::stack_stats::DropReason;
use flowlane::wire::Malformed;
use flowlane::{Host, Interface, KernelStats, Key, PairConfig, Quirk, Quirks, Rss, Runtime, TcpDropReason};

/// Two workers, two hosts of one name on a pair link with faults, and one of kernel sockets.
fn snapshot() -> Snapshot {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let one = builder.host(Host::new("host", rss.clone(), || async {}).interface(on("10.0.0.1/24")));
    let two = builder.host(Host::new("host", rss.clone(), || async {}).interface(on("10.0.0.2/24")));
    builder.host(Host::kernel("kernel", rss, || async {}));
    let quirks = Quirks::new(1).with(Quirk::Delay, 1000);
    builder.pair((one, 0), (two, 0), PairConfig { quirks, ..PairConfig::default() });
    let runtime = builder.start().unwrap();
    Snapshot::take(&runtime.handle(), &Instance::new("test"))
}

fn of<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
    metrics.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Every reason of the stack, of TCP, of links, of kernel sockets, of the hand-over and of moves, for each host, with its number.
#[test]
fn every_drop_reason_has_a_sample() {
    let mut now = snapshot();
    let mut expected: BTreeMap<(String, String), f64> = BTreeMap::new();
    let mut count = 0;
    let mut next = |layer: &str, reason: &str| {
        count += 1;
        expected.insert((layer.to_owned(), reason.replace('_', "-")), f64::from(count));
        count
    };
    let worker = &mut now.report.workers[0];
    let lane = worker.lanes.iter_mut().find(|lane| lane.host == 0).unwrap();
    for reason in DropReason::ALL {
        (0..next("stack", reason.name())).for_each(|_| lane.stats.drops.count(*reason));
    }
    for reason in Malformed::ALL {
        (0..next("malformed", reason.name())).for_each(|_| lane.stats.drops.count_malformed(*reason));
    }
    for reason in TcpDropReason::ALL {
        lane.stats.tcp.drops.0[*reason as usize] = next("tcp", reason.name()) as u64;
    }
    lane.kernel = Some(KernelStats {
        datagrams_overflown: next("kernel", "socket-full") as u64,
        datagrams_dropped: next("kernel", "unsendable") as u64,
        datagrams_cut: next("kernel", "no-frame") as u64,
        no_descriptor: next("kernel", "no-descriptor") as u64,
        ..KernelStats::default()
    });
    let queue = worker.queues.iter_mut().find(|queue| queue.host == 0).unwrap();
    queue.stats = QueueStats {
        rx_no_frame: next("link", "no-frame") as u64,
        rx_ring_full: next("link", "ring-full") as u64,
        rx_bad: next("link", "bad") as u64,
        tx_failed: next("link", "refused") as u64,
        tx_far_full: next("link", "queue-full") as u64,
        ..QueueStats::default()
    };
    worker.netisr.dropped = next("netisr", "ring-full") as u64;
    worker.netisr.no_lane = next("netisr", "no-lane") as u64;
    worker.pool.move_overflow = next("move", "too-many-waited") as u64;

    let metrics = now.metrics();
    let shown = &of(&metrics, "flowlane_drops").samples;
    for ((layer, reason), count) in &expected {
        let is = |host: &str, s: &&flowlane::metrics::Sample| {
            s.label("layer") == layer && s.label("reason") == reason && s.label("host") == host
        };
        if layer == "netisr" || layer == "move" {
            let sample = shown.iter().find(|s| is("", s)).unwrap_or_else(|| panic!("{layer} {reason}"));
            assert_eq!(sample.value, *count, "{layer} {reason}");
            continue;
        }
        for (host, count) in [("host", *count), ("host#1", 0.0), ("kernel", 0.0)] {
            let sample = shown.iter().find(|s| is(host, s)).unwrap_or_else(|| panic!("{layer} {reason}"));
            assert_eq!(sample.value, count, "{host}: {layer} {reason}");
        }
    }
    // And nothing else: what the views show in sum is what they show by reason.
    let total: f64 = shown.iter().map(|s| s.value).sum();
    assert_eq!(total, expected.values().sum::<f64>());
    assert_eq!(total, now.report.workers.iter().map(drops::of_worker).sum::<u64>() as f64);
    let lanes: f64 = of(&metrics, "flowlane_lane_dropped").samples.iter().map(|s| s.value).sum();
    let of_lanes = |layer: &str| ["stack", "malformed", "tcp", "kernel"].contains(&layer);
    assert_eq!(lanes, expected.iter().filter(|((layer, _), _)| of_lanes(layer)).map(|(_, n)| n).sum::<f64>());
}

/// OpenMetrics section "Metric Name", "Label", "Unit" and "Counter"; no series is there twice.
#[test]
fn the_list_is_as_the_format_wants_it() {
    let now = snapshot();
    let metrics = now.metrics();
    let names: BTreeSet<&str> = metrics.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names.len(), metrics.len(), "each name once");
    let word = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    for m in &metrics {
        assert!(word(&m.name) && m.name.starts_with("flowlane_"), "{}", m.name);
        assert!(!m.name.ends_with("_total") && !m.name.ends_with("_info"), "{}", m.name);
        assert!(m.unit.is_empty() || m.name.ends_with(&format!("_{}", m.unit)), "{}", m.name);
        assert!(
            m.help.len() > 5 && m.help.ends_with('.') && !m.help.contains('\n'),
            "{}: {}",
            m.name,
            m.help
        );
        // The names under which samples are shown are nobody else's.
        for suffix in ["_total", "_created", "_info", "_bucket", "_count", "_sum"] {
            let used = names.contains(format!("{}{suffix}", m.name).as_str());
            assert!(!used || (m.kind == Kind::Gauge && suffix == "_created"), "{}{suffix}", m.name);
        }
        let series: BTreeSet<_> = m.samples.iter().map(|s| &s.labels).collect();
        assert_eq!(series.len(), m.samples.len(), "{}: a series twice", m.name);
        for s in &m.samples {
            assert!(s.labels.keys().all(|name| word(name)), "{}: {:?}", m.name, s.labels);
            assert!(s.value >= 0.0 && s.value.is_finite(), "{}", m.name);
            assert!(m.kind != Kind::Info || s.value == 1.0, "{}", m.name);
        }
    }
    for (name, value) in
        [("flowlane_workers", 2.0), ("flowlane_workers_answering", 2.0), ("flowlane_instance", 1.0)]
    {
        assert_eq!(of(&metrics, name).samples.iter().map(|s| s.value).sum::<f64>(), value, "{name}");
    }
    let lanes = now.report.workers.iter().map(|w| w.lanes.len()).sum::<usize>();
    assert_eq!(of(&metrics, "flowlane_lane_busy_seconds").samples.len(), lanes);
    assert_eq!(of(&metrics, "flowlane_lane_busy_seconds").unit, "seconds");
}
