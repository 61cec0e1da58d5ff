//! A wire with faults between the generator and an echo: what the generator says must be what the wire did.

use std::sync::Arc;
use std::time::Duration;

use flowlane::stack_stats::DropReason;
use flowlane::{
    Endpoint, Host, Interface, Key, PairConfig, Protocol, Quirk, Quirks, Rss, Runtime, UdpSocket,
};
use flowlane_load::Phase;
use flowlane_load::report::Part;
use flowlane_load::{
    ClientRange, Counts, FlowWish, Load, LoadConfig, Outcome, Pace, Sources, flows, timeline,
};

async fn echo() {
    let socket = UdpSocket::on_port(7).unwrap();
    let mut batch = Vec::new();
    while socket.recv_batch(&mut batch, 64).await.is_ok() {
        socket.reply_batch(&mut batch).await.unwrap();
    }
}

struct Run {
    total: Part,
    outcome: Outcome,
    report: flowlane::stats::Report,
    server: usize,
    client: usize,
}

impl Run {
    /// How often the wire did `quirk` to frames towards the generator.
    fn quirk(&self, quirk: Quirk) -> u64 {
        self.report.queues(self.server).filter_map(|q| q.quirks).map(|q| q.get(quirk)).sum()
    }
}

fn run(quirks: Quirks, pace: Pace, flow_count: usize) -> Run {
    run_for(quirks, pace, flow_count, vec![Phase::hold(Duration::from_millis(500))])
}

fn run_for(quirks: Quirks, pace: Pace, flow_count: usize, phases: Vec<Phase>) -> Run {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let target = Endpoint::new("10.0.0.1".parse().unwrap(), 7);
    let clients: ClientRange = "10.0.1.0/24".parse().unwrap();
    let wish = FlowWish {
        target,
        clients: &[clients],
        flows: flow_count,
        protocol: Protocol::UDP,
        rss: &rss,
        aim: None,
        start: 0,
    };
    let flows = flows::choose(&wish).unwrap();
    let load = Load::new(LoadConfig {
        target,
        sources: Sources::Flows(flows),
        flows: 0,
        pace,
        sizes: 200.into(),
        burst: 1,
        phases,
        timeout: Duration::from_millis(300),
        discard: false,
        exact: true,
        seed: 5,
        slots: None,
        bursts: None,
        snapshots: None,
    })
    .unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let server = builder.host(Host::new("server", rss.clone(), echo).interface(on("10.0.0.1/16")));
    let interface = Interface { claimed: clients.prefixes(), ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss, load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig { quirks, ..PairConfig::default() });
    let runtime = builder.start().unwrap();
    let mut outcome = load.wait(Duration::from_secs(1), |_| true);
    let report = runtime.stop();
    assert_eq!(outcome.failure, None);
    assert!(outcome.counts.sent > 1000, "{:?}", outcome.counts);
    let total = outcome.take_total();
    assert_agree(outcome.counts, &total);
    Run { total, outcome, report, server, client }
}

/// The report says what was counted.
fn assert_agree(c: Counts, total: &Part) {
    let (in_it, before) = (&total.counts, &total.unmeasured);
    assert_eq!(in_it.sent + before.sent, c.sent);
    assert_eq!(in_it.answered + before.answered, c.received);
    assert_eq!(in_it.failed + before.failed, c.lost + c.corrupt, "{c:?}");
    assert_eq!(in_it.unsent + before.unsent, c.unsent);
    assert_eq!((in_it.bytes_sent + before.bytes_sent) / 200, c.sent);
    for (name, count) in
        [("late", c.late), ("reordered", c.reordered), ("duplicates", c.duplicates), ("strays", c.strays)]
    {
        let of = |counts: &flowlane_load::report::Counts| counts.more.get(name).copied().unwrap_or(0);
        assert_eq!(of(in_it) + of(before), count, "{name}: {c:?}");
    }
    assert_eq!((total.latency.count(), total.service.count()), (in_it.answered, in_it.answered));
}

/// Both kinds of load: in the closed loop several datagrams are on their way together.
const PACES: [Pace; 2] = [Pace::Rate { per_second: 20_000, poisson: true }, Pace::Window(32)];

#[test]
fn a_good_wire_loses_nothing() {
    for pace in PACES {
        let c = run(Quirks::default(), pace, 16).outcome.counts;
        assert_eq!((c.received, c.lost, c.late), (c.sent, 0, 0), "{c:?}");
        assert_eq!((c.reordered, c.duplicates, c.corrupt, c.strays), (0, 0, 0, 0), "{c:?}");
    }
}

#[test]
fn an_even_rate_is_kept_to_the_datagram() {
    let run = run(Quirks::default(), Pace::Rate { per_second: 20_001, poisson: false }, 16);
    let c = run.outcome.counts;
    assert_eq!(c.sent + c.unsent, 10_001, "{c:?}");
    let total = run.total;
    assert_eq!(total.slip.count(), c.sent + c.unsent);
    assert_eq!((total.latency.count(), total.first_byte.count()), (c.received, 0));
}

/// A ramp is half as much as its end, and neither it nor the warm-up is in the figures.
#[test]
fn a_ramp_grows_and_is_not_measured() {
    let ms = Duration::from_millis;
    let phases = timeline::usual(Some(ms(400)), Some(ms(100)), ms(200));
    let pace = Pace::Rate { per_second: 20_000, poisson: false };
    let run = run_for(Quirks::new(1).with(Quirk::Drop, 100), pace, 16, phases);
    let (c, total) = (run.outcome.counts, run.total);
    assert_eq!(c.sent + c.unsent, 4000 + 2000 + 4000, "{c:?}");
    assert_eq!(total.counts.sent + total.counts.unsent, 4000, "{c:?}");
    let lost = |counts: &flowlane_load::report::Counts| counts.errors.get("lost").map_or(0, |e| e.count);
    assert_eq!(total.counts.sent - total.counts.answered, lost(&total.counts));
    assert_eq!(total.unmeasured.sent - total.unmeasured.answered, lost(&total.unmeasured));
    assert!(lost(&total.counts) > 0 && lost(&total.unmeasured) > 0, "{total:?}");
    assert_eq!(run.outcome.measured, ms(200));
}

#[test]
fn losses_are_counted_exactly() {
    for pace in PACES {
        let run = run(Quirks::new(1).with(Quirk::Drop, 100), pace, 16);
        let c = run.outcome.counts;
        // The first frames, ARP among them, pass: the wire's dice come from a seed.
        let before = c.probes - c.probes_answered;
        assert_eq!(c.lost + before, run.quirk(Quirk::Drop), "{c:?}");
        assert!(c.lost > 0);
        assert_eq!((c.reordered, c.duplicates, c.corrupt), (0, 0, 0), "{c:?}");
    }
}

#[test]
fn duplicates_are_counted_exactly() {
    for pace in PACES {
        let run = run(Quirks::new(2).with(Quirk::Duplicate, 100), pace, 16);
        let c = run.outcome.counts;
        let before = c.probes_answered.saturating_sub(c.probes);
        assert_eq!(c.duplicates + before, run.quirk(Quirk::Duplicate), "{c:?}");
        assert_eq!((c.lost, c.reordered, c.corrupt), (0, 0, 0), "{c:?}");
    }
}

#[test]
fn overtaken_datagrams_are_counted() {
    // One flow in each lane: whoever is overtaken is overtaken by its own kin.
    let run = run(Quirks::new(3).with(Quirk::Reorder, 100), Pace::Window(32), 2);
    let c = run.outcome.counts;
    assert_eq!((c.lost, c.duplicates, c.corrupt), (0, 0, 0), "{c:?}");
    assert!(c.reordered > 0, "{c:?}");
    assert!(c.reordered <= run.quirk(Quirk::Reorder), "{c:?}");
}

#[test]
fn damage_is_dropped_by_the_checksum() {
    for pace in PACES {
        let run = run(Quirks::new(4).with(Quirk::Corrupt, 100), pace, 16);
        let c = run.outcome.counts;
        let dropped = run.report.total(run.client).drops.get(DropReason::UdpChecksum);
        assert_eq!(dropped, run.quirk(Quirk::Corrupt));
        let before = c.probes - c.probes_answered;
        assert_eq!(c.lost + before, dropped, "{c:?}");
        assert_eq!((c.reordered, c.duplicates, c.corrupt), (0, 0, 0), "{c:?}");
    }
}
