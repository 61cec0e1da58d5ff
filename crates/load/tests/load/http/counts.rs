//! What the generator says it did is what the server saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flowlane_load::Phase;
use flowlane_load::http::{Pace, Pool, Think, Version};

use super::kit::{Heard, good, hello, ms, plan, pool, rate, run, run_on, run_until, run_with, serve};

#[test]
fn closed_loop_counts_agree_with_the_server() {
    for workers in [1, 2] {
        let heard = Arc::new(Heard::default());
        let ran = run_on(workers, plan(Pool { connections: 10, ..pool() }, ms(300)), &hello(&heard));
        let c = ran.counts();
        assert_eq!(ran.outcome.failure, None);
        assert_eq!((c.sent, c.failed), (heard.requests(), 0), "{c:?}");
        assert_eq!(c.answered, c.sent);
        assert_eq!((c.connections_opened, c.connections_closed), (10, 10), "{c:?}");
        assert_eq!(heard.connections(), 10);
        assert_eq!(c.codes["200"], c.answered);
        assert_eq!(
            c.bytes_received,
            c.answered * "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".len() as u64
        );
        assert_eq!(ran.run.total.latency.count(), c.answered);
        assert_eq!(ran.run.total.connect.count(), 10);
        assert!(c.sent > 100, "{c:?}");
    }
}

#[test]
fn an_open_loop_sends_what_is_due_to_the_request() {
    for poisson in [false, true] {
        let heard = Arc::new(Heard::default());
        let pace = Pace::Rate { per_second: 4000.0, poisson };
        let ran = run(plan(Pool { connections: 20, pace, ..pool() }, ms(500)), &hello(&heard));
        let c = ran.counts();
        assert_eq!(c.sent, heard.requests());
        assert_eq!((c.answered, c.failed), (c.sent, 0), "{c:?}");
        let due = c.sent + c.unsent;
        assert!(if poisson { (1700..2300).contains(&due) } else { due == 2000 }, "{c:?}");
        assert!((c.sent..=due).contains(&ran.run.total.slip.count()), "{c:?}");
        assert_eq!(c.connections_opened, 20, "all of them are used");
    }
}

/// Requests that may be late go together: so late, and where there is nothing to go together with, not late at all.
#[test]
fn slack_sends_several_at_once() {
    let slip = |per_second: f64, slack: u64| {
        let heard = Arc::new(Heard::default());
        let plan = plan(Pool { connections: 40, pace: rate(per_second), ..pool() }, ms(600));
        let ran = run_with(plan, &hello(&heard), ms(slack));
        let due = (per_second * 0.6) as u64;
        assert_eq!((ran.counts().sent, heard.requests()), (due, due));
        ran.run.total.slip
    };
    // Twenty-one at a time: half of them ten milliseconds late. A busy machine may leave so many due at once that they wait for
    // connections instead: it has three tries.
    assert!((0..3).any(|_| slip(1000.0, 20).at(0.5) >= 7_000_000));
    // One each fifty milliseconds.
    assert!((0..3).any(|_| slip(20.0, 20).at(0.5) < 19_000_000));
}

#[test]
fn connection_for_each_request() {
    for pace in [Pace::Closed, rate(2000.0)] {
        let heard = Arc::new(Heard::default());
        let pool = Pool { connections: 10, requests_per_connection: Some(1), pace, ..pool() };
        let ran = run(plan(pool, ms(300)), &hello(&heard));
        let c = ran.counts();
        assert_eq!((c.answered, c.failed), (c.sent, 0), "{c:?}");
        assert_eq!(c.sent, heard.requests(), "{c:?}");
        // Those that were being made at the end were asked nothing, and one side may have seen less of them.
        let unasked = 0..=10;
        assert!(unasked.contains(&(c.connections_opened - c.sent)), "{c:?}");
        assert!(unasked.contains(&(heard.connections() - c.sent)), "{} {c:?}", heard.connections());
        assert!(c.sent > 100);
    }
}

#[test]
fn requests_of_a_connection_and_in_all() {
    let heard = Arc::new(Heard::default());
    let pool = Pool { connections: 4, requests_per_connection: Some(5), total_requests: Some(103), ..pool() };
    let ran = run(plan(pool, ms(30_000)), &hello(&heard));
    let c = ran.counts();
    assert_eq!((c.sent, c.answered), (103, 103), "{c:?}");
    assert_eq!(heard.requests(), 103);
    assert!((21..=25).contains(&heard.connections()), "{}", heard.connections());
    assert!(ran.outcome.elapsed < ms(10_000), "it ends when all is done");
}

#[test]
fn a_client_that_thinks_still_sends_its_last_request() {
    let heard = Arc::new(Heard::default());
    let think = Think::Constant(ms(10));
    let pool = Pool { connections: 4, think, total_requests: Some(42), ..pool() };
    let ran = run(plan(pool, ms(60_000)), &hello(&heard));
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (42, 42, 0), "{c:?}");
    assert_eq!(heard.requests(), 42);
    assert!(ran.outcome.elapsed < ms(30_000), "it ends when all is done");
}

#[test]
fn connections_in_all() {
    let heard = Arc::new(Heard::default());
    let pool =
        Pool { connections: 2, requests_per_connection: Some(3), total_connections: Some(7), ..pool() };
    let ran = run(plan(pool, ms(30_000)), &hello(&heard));
    assert_eq!((ran.counts().connections_opened, heard.connections()), (7, 7), "{:?}", ran.counts());
    assert_eq!(ran.counts().answered, 21);
}

#[test]
fn thinking_spaces_requests() {
    let heard = Arc::new(Heard::default());
    let pool = Pool { connections: 10, think: Think::Constant(ms(20)), ..pool() };
    let ran = run(plan(pool, ms(500)), &hello(&heard));
    let c = ran.counts();
    // Ten clients, a request each 20 ms, the first after a thought.
    assert!((100..=250).contains(&c.sent), "{c:?}");
    assert_eq!(c.answered, heard.requests());
}

#[test]
fn warm_up_is_not_in_the_figures() {
    let heard = Arc::new(Heard::default());
    let phase =
        |name: &str, measured, from, to| Phase { name: name.into(), duration: ms(200), from, to, measured };
    let mut plan = plan(Pool { connections: 20, pace: rate(5000.0), ..pool() }, ms(1));
    plan.phases = vec![
        phase("warm-up", false, 0.2, 0.2),
        phase("ramp", true, 0.2, 1.0),
        phase("hold", true, 1.0, 1.0),
        phase("cool-down", false, 1.0, 0.0),
    ];
    let ran = run(plan, &hello(&heard));
    let (measured, other) = (&ran.run.total.counts, &ran.run.total.unmeasured);
    // 200 + (600 + 1000) + 500
    assert_eq!(measured.sent + measured.unsent, 1600, "{measured:?}");
    assert_eq!(other.sent + other.unsent, 700, "{other:?}");
    assert_eq!(ran.outcome.measured, ms(400));
    assert_eq!(ran.run.total.latency.count(), measured.answered);
    assert_eq!(heard.requests(), measured.sent + other.sent);
}

#[test]
fn a_run_that_is_interrupted_says_what_it_did_so_far() {
    let heard = Arc::new(Heard::default());
    let ran = run_until(
        1,
        plan(Pool { connections: 5, pace: rate(1000.0), ..pool() }, ms(60_000)),
        &hello(&heard),
        |asked| asked < 6,
    );
    assert!(ran.outcome.interrupted);
    assert_eq!(ran.outcome.failure, None);
    assert!(ran.outcome.elapsed < ms(20_000));
    let c = ran.counts();
    assert!(c.answered > 50, "{c:?}");
    assert_eq!(c.sent, heard.requests());
}

/// All is sent, and an answer is outstanding: who ends the run then waits no longer than who ends it before.
#[test]
fn a_run_that_is_interrupted_while_it_waits_for_answers_ends_soon() {
    let (heard, seen) = (Arc::new(Heard::default()), AtomicU64::new(0));
    let silent = good(&heard, |_, _, _| Vec::new());
    let mut plan = plan(Pool { connections: 2, pace: rate(1000.0), ..pool() }, ms(10));
    (plan.waiting, plan.timeout) = (ms(60_000), ms(60_000));
    let begun = Instant::now();
    let ran = run_until(1, plan, &silent, |_| {
        // The run of ten milliseconds is over when it is asked for the fourth time, each 50 ms after the other, since a request was heard.
        heard.requests() == 0 || seen.fetch_add(1, Ordering::Relaxed) < 4
    });
    assert!(ran.outcome.interrupted);
    assert!(begun.elapsed() < ms(30_000), "{:?}", begun.elapsed());
    assert_eq!((ran.counts().sent, ran.counts().answered), (2, 0), "{:?}", ran.counts());
}

/// What is under way when somebody stops the run has neither failed nor been answered, whatever the version.
#[test]
fn what_is_under_way_when_a_run_is_stopped_has_not_failed() {
    let silent = serve(|stream| async move {
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    });
    for (version, connections) in [
        (Version::Http1 { pipeline: 1 }, 3),
        (Version::Http1 { pipeline: 4 }, 3),
        (Version::Http2 { streams: 4 }, 3),
    ] {
        let seen = AtomicU64::new(0);
        let mut plan = plan(Pool { version, connections, ..pool() }, ms(60_000));
        (plan.waiting, plan.timeout) = (ms(60_000), ms(60_000));
        // Some time passes until all is asked.
        let ran = run_until(1, plan, &silent, |_| seen.fetch_add(1, Ordering::Relaxed) < 10);
        let c = ran.counts();
        assert!(ran.outcome.interrupted && c.sent > 0 && c.answered == 0, "{version:?} {c:?}");
        assert_eq!((c.failed, c.more.get("unfinished")), (0, Some(&c.sent)), "{version:?} {c:?}");
    }
}
