//! Load for a memcached against our own, whose counts must be the generator's, and against servers that do wrong.

pub(super) mod kit;
mod wrong;

use std::sync::Arc;
use std::time::Duration;

use flowlane_load::Phase;
use flowlane_load::memcached::{Items, MemcachedLoadConfig, Mix, Popularity, Protocol, Workload};

use kit::{Far, Ran, config, run};

/// What the generator counted is what the server did.
fn assert_is_what_the_server_did(ran: &Ran) {
    let c = ran.counts();
    assert_eq!(c.failed(), 0, "{c:?} {:?}", ran.report.failed);
    assert_eq!((c.requests, c.sets), (c.answered, c.stored), "{c:?}");
    assert_eq!(ran.figure("cmd-get"), c.keys, "{c:?}");
    assert_eq!((ran.figure("get-hits"), ran.figure("get-misses")), (c.hits, c.misses), "{c:?}");
    assert_eq!(ran.figure("cmd-set"), c.sets + c.filled, "{c:?}");
    assert!(c.requests > 200, "{c:?}");
    assert!(ran.report.ok, "{:?}", ran.report.failed);
}

#[test]
fn the_figures_are_those_of_the_server() {
    let ran = run(Far::Good, config(1000));
    assert_is_what_the_server_did(&ran);
    let c = ran.counts();
    assert_eq!((c.filled, c.misses, c.connected, c.not_connected, c.broken), (1000, 0, 4, 0, 0), "{c:?}");
    // Every value was compared: none was wrong.
    let requests = &ran.report.pools[0].requests;
    let sent: Vec<(&str, u64, u64)> =
        requests.iter().map(|r| (r.name.as_str(), r.figures.sent, r.figures.latency.count())).collect();
    assert_eq!(sent, [("get", c.gets, c.gets), ("set", c.sets, c.sets)]);
    let share = c.sets as f64 / c.requests as f64;
    assert!((share - 0.1).abs() < 0.05, "{c:?}");
}

#[test]
fn without_a_fill_what_was_never_stored_is_missed() {
    let mix = Mix { update: 0.02, ..config(100_000).mix };
    let ran = run(Far::Good, MemcachedLoadConfig { fill: false, mix, ..config(100_000) });
    assert_is_what_the_server_did(&ran);
    let c = ran.counts();
    assert!(c.filled == 0 && c.misses > c.hits, "{c:?}");
}

#[test]
fn several_keys_and_several_requests_at_a_time() {
    for (protocol, multiget, depth) in
        [(Protocol::Text, 7, 1), (Protocol::Text, 3, 16), (Protocol::Meta, 1, 8), (Protocol::Meta, 5, 8)]
    {
        let mix =
            Mix { protocol, multiget, update: 0.05, popularity: Popularity::Uniform, ..config(3000).mix };
        let fill = run(Far::Good, MemcachedLoadConfig { mix: mix.clone(), depth, ..config(3000) });
        assert_is_what_the_server_did(&fill);
        let c = fill.counts();
        assert_eq!((c.keys, c.misses), (c.gets * u64::from(multiget), 0), "{c:?}");
        let ran = run(Far::Good, MemcachedLoadConfig { mix, depth, fill: false, ..config(3000) });
        assert_is_what_the_server_did(&ran);
        let c = ran.counts();
        assert!(c.misses > 0 && c.hits > 0, "{protocol:?} {multiget} {depth}: {c:?}");
    }
}

#[test]
fn a_schedule_is_kept_and_latencies_count_from_it() {
    for (poisson, depth) in [(false, 1), (true, 4)] {
        let phases = vec![
            Phase { measured: false, name: "warm-up".into(), ..Phase::hold(Duration::from_millis(100)) },
            Phase::hold(Duration::from_millis(400)),
        ];
        let ran =
            run(Far::Good, MemcachedLoadConfig { rate: Some(2000), poisson, depth, phases, ..config(1000) });
        assert_is_what_the_server_did(&ran);
        let c = ran.counts();
        assert_eq!(c.unsent, 0, "{c:?}");
        let due = if poisson { 850..1150 } else { 1000..1001 };
        assert!(due.contains(&c.requests), "{c:?}");
        let total = &ran.report.total;
        assert_eq!(total.latency.count(), total.counts.answered);
        assert_eq!(total.slip.count(), total.counts.sent);
        assert!(poisson || total.counts.sent == 800, "{:?}", total.counts);
    }
}

/// A rate that the one connection cannot carry: what waited is held up, and what was never sent is unsent.
#[test]
fn what_is_due_and_finds_no_connection_waits_and_is_counted() {
    let rate = Some(5_000_000);
    let phases = vec![Phase::hold(Duration::from_millis(100))];
    let ran = run(Far::Good, MemcachedLoadConfig { rate, connections: 1, phases, ..config(1000) });
    let c = ran.counts();
    assert!(c.held_up > 0 && c.unsent > 0 && c.requests > 0, "{c:?}");
    assert_eq!(c.requests + c.unsent, 500_000, "{c:?}");
    let latency = &ran.report.total.latency;
    assert!(
        latency.at(0.9) > latency.at(0.1) + 10_000_000,
        "a request waits longer the later it is due: {latency:?}"
    );
}

#[test]
fn published_workloads_run() {
    for workload in [Workload::Etc, Workload::Usr] {
        let items = Items::new(5000, "", workload.key_sizes(), workload.value_sizes()).unwrap();
        let mix = Mix {
            items: Arc::new(items),
            popularity: workload.popularity(),
            update: workload.update(),
            ..config(1).mix
        };
        let ran = run(Far::Good, MemcachedLoadConfig { mix, depth: 8, ..config(1) });
        assert_is_what_the_server_did(&ran);
        let c = ran.counts();
        let share = c.sets as f64 / c.requests as f64;
        assert!((share - workload.update()).abs() < 0.02, "{workload:?}: {c:?}");
    }
}

#[test]
fn large_values_come_whole() {
    let items = Items::new(20, "", "30".parse().unwrap(), "200Ki..900Ki".parse().unwrap()).unwrap();
    let mix = Mix { items: Arc::new(items), update: 0.3, ..config(1).mix };
    let ran = run(
        Far::Good,
        MemcachedLoadConfig {
            mix,
            connections: 2,
            phases: vec![Phase::hold(Duration::from_secs(1))],
            ..config(1)
        },
    );
    let c = ran.counts();
    assert_eq!((c.failed(), c.misses), (0, 0), "{c:?} {:?}", ran.report.failed);
    assert!(c.hits > 5 && c.stored > 1, "{c:?}");
    assert_eq!(ran.figure("get-hits"), c.hits, "{c:?}");
}
