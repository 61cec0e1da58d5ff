//! Against a server that stands still at known moments, the percentiles are what arithmetic says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_load::http::Pool;

use crate::kit::{ms, ok, plan, pool, rate, run, serve};

#[test]
fn percentiles_against_a_known_stall_are_those_of_arithmetic() {
    // 1000 requests a second for 4 s, at even moments. In the middle the server stands still for a second: requests
    // that are due then wait for its end, from 1 s down to nothing, evenly. Of all 4000 latencies the stalled quarter
    // is the upper one, so that quantile q is (q - 3/4) * 4 seconds.
    let begun = Arc::new(AtomicU64::new(0));
    let server = {
        let begun = begun.clone();
        serve(move |stream| {
            let begun = begun.clone();
            async move {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                    let now = flowlane::precise_now().unwrap().as_nanos();
                    let _ = begun.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
                    let first = begun.load(Ordering::Relaxed);
                    let (from, to) = (first + 1_500_000_000, first + 2_500_000_000);
                    if (from..to).contains(&now) {
                        flowlane::sleep_until(flowlane::Time::from_nanos(to)).await;
                    }
                    if stream.write_all(&ok(b"x")).await.is_err() {
                        return;
                    }
                }
            }
        })
    };
    // Few connections: most of the stalled requests wait for one, which closed loops would not notice.
    let mut plan = plan(Pool { connections: 50, pace: rate(1000.0), ..pool() }, ms(4000));
    plan.timeout = ms(5000);
    let ran = run(plan, &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (4000, 4000, 0), "{c:?}");
    let latency = &ran.run.total.latency;
    for q in [0.80, 0.85, 0.9, 0.95, 0.99, 0.999] {
        let expected = (q - 0.75) * 4.0 * 1e9;
        let found = latency.at(q) as f64;
        // 2 % of the value, and 2 ms for the machine's own moods where the value is small.
        let allowed = expected * 0.02 + 2e6;
        assert!((found - expected).abs() < allowed, "p{}: {found} instead of {expected}", q * 100.0);
    }
    // Service time alone, as closed loops measure it, hides nearly all of it.
    assert!(ran.run.total.service.at(0.9) < 100_000_000);
}
