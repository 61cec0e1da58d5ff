//! A part of a run whose others go: what they had is made by those that are left, exactly.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use flowlane_load::Part;
use flowlane_load::http::{HttpOptions, Pool, Version};
use flowlane_load::run::gone::Gone;

use super::h2::http2;
use super::kit::{Heard, hello, ms, plan, pool, rate, run_part};

/// Three generators of two lanes each. The second goes when it has sent 50 requests, the third without a word.
fn gone() -> [Gone; 2] {
    [Gone { first: 2, lanes: 2, sent: vec![50] }, Gone { first: 4, lanes: 2, sent: Vec::new() }]
}

#[test]
fn a_generator_that_is_left_makes_what_others_had() {
    let usual = || Pool { connections: 12, total_requests: Some(600), ..pool() };
    let version = Version::Http2 { streams: 3 };
    for (pool, connections) in [
        (usual(), 12..=12),
        (Pool { pace: rate(3000.0), ..usual() }, 12..=12),
        (Pool { requests_per_connection: Some(1), ..usual() }, 550..=550),
        (Pool { total_connections: Some(30), requests_per_connection: Some(100), ..usual() }, 12..=12),
        // Those that have nothing left to send are closed: four, eight and twelve are opened, but for those that come when all is sent.
        (Pool { version, ..usual() }, 12..=24),
        (Pool { version, pace: rate(3000.0), ..usual() }, 12..=24),
    ] {
        let is_http2 = pool.version == version;
        let (heard, steps, all) = (Arc::new(Heard::default()), Cell::new(0), gone());
        let options = HttpOptions {
            lanes: 2,
            part: Some(Part { first: 0, of: 6 }),
            stays: true,
            ..HttpOptions::default()
        };
        let server = if is_http2 { http2(&heard) } else { hello(&heard) };
        let ran = run_part(plan(pool, ms(20_000)), &server, options, |load| {
            if load.is_ready() {
                load.begin_at(Instant::now());
            }
            let step = steps.get();
            // All that it has is made, and it knows who is gone: then the next goes.
            if load.idle() == Some(step) {
                let made = [200, 275, 550][step];
                assert_eq!(heard.requests(), made, "its own, half of what the second left, and all");
                steps.set(step + 1);
                match all.get(..=step) {
                    Some(gone) => load.share(gone),
                    None => load.finish(),
                }
            }
            true
        });
        assert_eq!((ran.outcome.failure.clone(), steps.get()), (None, 3));
        assert_eq!((ran.counts().sent, ran.counts().answered, heard.requests()), (550, 550, 550));
        assert!(connections.contains(&heard.connections()), "{}", heard.connections());
        assert!(ran.outcome.elapsed < ms(19_000), "it ends when all is made");
    }
}

/// Without totals there is nothing to wait for, and connections of others are opened while the run lasts.
#[test]
fn connections_of_others_are_opened_in_a_closed_loop() {
    for version in [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 3 }] {
        let (heard, shared) = (Arc::new(Heard::default()), Cell::new(false));
        let pool = Pool { connections: 12, version, ..pool() };
        let options = HttpOptions {
            lanes: 2,
            part: Some(Part { first: 0, of: 6 }),
            stays: true,
            ..HttpOptions::default()
        };
        let server = if matches!(version, Version::Http1 { .. }) { hello(&heard) } else { http2(&heard) };
        let ran = run_part(plan(pool, ms(30_000)), &server, options, |load| {
            if load.is_ready() {
                load.begin_at(Instant::now());
            }
            if !shared.get() && heard.requests() > 100 {
                assert_eq!(heard.connections(), 4);
                load.share(&gone());
                shared.set(true);
            }
            heard.connections() < 12
        });
        assert_eq!(heard.connections(), 12);
        assert_eq!((ran.counts().failed, ran.outcome.interrupted), (0, true));
    }
}
