//! Against a server that stands still at known moments, the percentiles are what arithmetic says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_load::http::Pool;

use super::kit::{ms, ok, plan, pool, rate, run, serve};

/// 1000 requests a second for 4 s, at even moments; in the middle the server stands still for a second. Requests that are
/// due then wait for its end, from that second down to nothing, evenly. They are the upper part of all latencies: with
/// a stall of S seconds quantile q is (q - (1 - S/4)) * 4 seconds. What is found, and what arithmetic says. That leaves out
/// how long both sides need for the thousand requests that wait at its end, some 5 ms on a slow machine, so quantiles below
/// 0.85, which are less than 400 ms, do not judge the generator.
fn measure() -> Vec<(f64, f64, f64)> {
    let (begun, resumed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let server = {
        let (begun, resumed) = (begun.clone(), resumed.clone());
        serve(move |stream| {
            let (begun, resumed) = (begun.clone(), resumed.clone());
            async move {
                let clock = || flowlane::precise_now().unwrap().as_nanos();
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                    let now = clock();
                    let _ = begun.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
                    let from = begun.load(Ordering::Relaxed) + STALL.0;
                    let to = from + STALL.1;
                    if (from..to).contains(&now) {
                        flowlane::sleep_until(flowlane::Time::from_nanos(to)).await;
                        // As late as the machine made it.
                        let _ = resumed.compare_exchange(0, clock(), Ordering::Relaxed, Ordering::Relaxed);
                    }
                    if stream.write_all(&ok(b"x")).await.is_err() {
                        return;
                    }
                }
            }
        })
    };
    // Few connections: most of the stalled requests wait for one, which closed loops would not notice.
    let ran = run(plan(Pool { connections: 50, pace: rate(1000.0), ..pool() }, ms(4000)), &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (4000, 4000, 0), "{c:?}");
    let from = begun.load(Ordering::Relaxed) + STALL.0;
    let stall = (resumed.load(Ordering::Relaxed) - from) as f64;
    // Service time alone, as closed loops measure it, hides nearly all of it.
    assert!(ran.run.total.service.at(0.9) < 500_000_000);
    let latency = &ran.run.total.latency;
    [0.85, 0.9, 0.95, 0.99, 0.999].map(|q| (q, (q - 1.0) * 4e9 + stall, latency.at(q) as f64)).to_vec()
}

/// When the server stands still after its first request, and for how long, nanoseconds.
const STALL: (u64, u64) = (1_500_000_000, 1_000_000_000);

#[test]
fn percentiles_against_a_known_stall_are_those_of_arithmetic() {
    // A machine with other things to do stands still itself at times: it has three tries.
    let mut found = Vec::new();
    for _ in 0..3 {
        found = measure();
        if found.iter().all(|(_, expected, found)| (found - expected).abs() < expected * 0.02) {
            return;
        }
    }
    panic!("quantile, expected and found, nanoseconds: {found:?}");
}
