//! Servers that do wrong: what is said of them is what they did, and no run hangs.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use flowlane_load::Phase;
use flowlane_load::memcached::{MemcachedLoadConfig, Mix, Protocol};

use super::kit::{Far, Ran, config, run};

/// On one connection, so that each has all items; the run is short.
fn one(far: Far, change: impl FnOnce(&mut MemcachedLoadConfig)) -> Ran {
    let mut config = MemcachedLoadConfig {
        connections: 1,
        depth: 4,
        phases: vec![Phase::hold(Duration::from_millis(150))],
        timeout: Duration::from_millis(300),
        ..config(300)
    };
    change(&mut config);
    let begun = Instant::now();
    let ran = run(far, config);
    assert!(begun.elapsed() < Duration::from_secs(20), "{far:?} took {:?}", begun.elapsed());
    ran
}

#[test]
fn a_value_that_is_not_the_keys_is_found() {
    for far in [Far::Corrupts, Far::Cuts] {
        let ran = one(far, |_| {});
        let (c, did) = (ran.counts(), ran.did.wrong.load(Relaxed));
        assert!(did > 0, "{far:?}: {c:?}");
        assert_eq!((c.wrong, ran.errors("content")), (did, did), "{far:?}: {c:?}");
        assert!(
            ran.example("content").contains("another value than the one of key 0"),
            "{}",
            ran.example("content")
        );
        assert!(!ran.report.ok);
        // Nobody looks.
        let ran = one(far, |config| config.mix = Mix { verify: false, ..config.mix.clone() });
        assert_eq!((ran.counts().wrong, ran.counts().failed()), (0, 0), "{far:?}");
        assert!(ran.did.wrong.load(Relaxed) > 0);
    }
}

/// A value under a key that was not asked for ends the connection: nothing behind it can be believed.
#[test]
fn answers_to_something_else_are_found() {
    for far in [Far::Mixes, Far::Stranger] {
        let ran = one(far, |config| config.fill = far == Far::Mixes);
        let c = ran.counts();
        assert!(ran.errors("malformed") > 0 && c.broken > 0 && c.connected > 1, "{far:?}: {c:?}");
        assert!(
            ran.example("malformed").contains("not asked for") || far == Far::Stranger,
            "{}",
            ran.example("malformed")
        );
    }
}

/// More values than keys were asked for, even if nobody looks at them.
#[test]
fn more_values_than_keys_are_found() {
    let ran = one(Far::Stutters, |config| config.mix = Mix { verify: false, ..config.mix.clone() });
    let c = ran.counts();
    assert!(ran.errors("malformed") > 0 && c.broken > 0, "{c:?}");
    assert!(ran.example("malformed").contains("no answer to a get"), "{}", ran.example("malformed"));
}

#[test]
fn a_server_that_closes_loses_what_was_in_flight_and_is_asked_again() {
    let ran = one(Far::Closes(50), |config| config.fill = false);
    let c = ran.counts();
    assert!(c.connected > 2 && c.broken > 1, "{c:?}");
    assert!(c.lost > 0 && ran.errors("closed") + ran.errors("reset") == c.lost, "{c:?}");
    assert!(c.answered > c.lost, "{c:?}");
}

#[test]
fn silence_is_a_timeout() {
    for far in [Far::Silent, Far::HalfAndSilent] {
        for rate in [None, Some(200)] {
            // So long that connections, with four requests each, are given up while it lasts, and opened again.
            let phases = vec![Phase::hold(Duration::from_secs(1))];
            let ran =
                one(far, |config| (config.fill, config.rate, config.phases) = (false, rate, phases.clone()));
            let c = ran.counts();
            assert!(c.timed_out > 4 && c.answered == 0, "{far:?} {rate:?}: {c:?}");
            assert_eq!(
                (ran.errors("timeout"), ran.errors("closed")),
                (c.timed_out, c.lost),
                "{far:?} {rate:?}: {c:?}"
            );
            assert!(ran.report.total.latency.max() >= 290_000_000, "a wait is a latency, too");
        }
    }
}

/// What waits for the one connection when the run ends is not sent any more, though the connection is free soon after.
#[test]
fn nothing_that_waits_is_sent_after_the_end() {
    let ran = one(Far::Slow(700), |config| {
        (config.fill, config.depth, config.rate) = (false, 1, Some(100));
        (config.phases, config.timeout) =
            (vec![Phase::hold(Duration::from_millis(300))], Duration::from_secs(5));
    });
    let c = ran.counts();
    assert_eq!((c.requests, c.answered, c.unsent), (1, 1, 29), "{c:?}");
}

#[test]
fn half_an_answer_is_none() {
    let ran = one(Far::Half, |config| config.fill = false);
    let c = ran.counts();
    assert!(c.answered == 0 && c.lost > 0 && ran.errors("closed") + ran.errors("reset") == c.lost, "{c:?}");
}

#[test]
fn another_protocol_is_malformed() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        let ran = one(Far::Garbage, |config| {
            (config.fill, config.mix) = (false, Mix { protocol, ..config.mix.clone() });
        });
        let c = ran.counts();
        assert!(c.answered == 0 && c.lost > 0 && ran.errors("malformed") == c.lost, "{c:?}");
        assert!(ran.example("malformed").contains("no answer of memcached"));
    }
}

#[test]
fn an_error_is_an_answer_and_a_failure() {
    let ran = one(Far::Full, |config| config.fill = false);
    let c = ran.counts();
    assert!(c.refused == c.sets && c.refused > 0 && c.stored == 0, "{c:?}");
    assert_eq!((ran.errors("status"), c.lost, c.requests), (c.refused, 0, c.answered), "{c:?}");
    assert_eq!(ran.example("status"), "SERVER_ERROR out of memory storing object");
}

#[test]
fn what_cannot_be_filled_is_no_run() {
    for (far, words) in [
        (Far::Full, "out of memory storing object"),
        (Far::Silent, "no answer within the timeout"),
        (Far::Half, "closed"),
        (Far::Garbage, "no answer of memcached"),
    ] {
        let ran = one(far, |_| {});
        let failure = ran.failure.clone().unwrap_or_default();
        assert!(
            failure.starts_with("--fill: items cannot be stored") && failure.contains(words),
            "{far:?}: {failure}"
        );
        assert_eq!(ran.counts().requests, 0, "{far:?}");
    }
}

#[test]
fn too_many_connections_are_said_in_the_servers_words() {
    let ran = one(Far::Crowded, |config| config.fill = false);
    let c = ran.counts();
    assert!(ran.errors("status") > 0, "{c:?}");
    assert_eq!(ran.example("status"), "ERROR Too many open connections");
}

#[test]
fn nobody_there_is_said_at_once() {
    let begun = Instant::now();
    let ran = one(Far::Good, |config| {
        config.target.port = 9;
        config.phases = vec![Phase::hold(Duration::from_secs(600))];
    });
    assert!(ran.failure.clone().unwrap().contains("nothing listens at 10.0.0.1:9"), "{:?}", ran.failure);
    assert_eq!((ran.counts().connections_refused, ran.errors("refused")), (1, 1));
    assert!(begun.elapsed() < Duration::from_secs(15));
}
