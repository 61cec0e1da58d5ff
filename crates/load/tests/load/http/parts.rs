//! The figures of each phase and each request, beside what the server heard, and a stall that is seen in its second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowlane_load::Phase;
use flowlane_load::http::{Checks, Pool, Request, Version};
use flowlane_load::report::{Figures, html};

use super::h2::http2;
use super::kit::{Heard, good, ms, ok, plan, pool, rate, run, serve};

fn phase(name: &str, time: u64, from: f64, to: f64, measured: bool) -> Phase {
    Phase { name: name.into(), duration: ms(time), from, to, measured }
}

fn get(name: &str, path: &str, weight: f64) -> Request {
    let checks = Checks { length: (path == "/b").then_some(99), ..Checks::default() };
    Request { name: Some(name.into()), path: Some(path.into()), weight, checks, ..Request::default() }
}

/// What lies between two measured phases counts for none of the totals.
#[test]
fn each_phase_and_each_request_has_what_the_server_heard() {
    for per_connection in [None, Some(1)] {
        let asked: Arc<[AtomicU64; 2]> = Arc::default();
        let count = asked.clone();
        let server = good(&Arc::new(Heard::default()), move |_, path, _| {
            count[usize::from(path == "/b")].fetch_add(1, Relaxed);
            ok(b"hello")
        });
        let requests = vec![get("first", "/a", 3.0), get("second", "/b", 1.0)];
        let pool = Pool {
            connections: 4,
            pace: rate(400.0),
            requests_per_connection: per_connection,
            requests,
            ..pool()
        };
        let mut plan = plan(pool, ms(1));
        plan.phases = vec![
            phase("before", 300, 0.0, 1.0, false),
            phase("one", 400, 1.0, 1.0, true),
            phase("pause", 300, 0.5, 0.5, false),
            phase("two", 400, 2.0, 2.0, true),
        ];
        let ran = run(plan, &server);
        let (m, u) = (&ran.run.total.counts, &ran.run.total.unmeasured);
        assert_eq!(ran.outcome.failure, None);
        assert_eq!(ran.outcome.measured, ms(800));
        let figures: Vec<&Figures> = ran.run.phases.iter().map(|p| p.figures.as_ref().unwrap()).collect();
        // Open loops send what is due: before 60, then 160, 60 and 320, but for the one on a boundary.
        for (f, due) in figures.iter().zip([60u64, 160, 60, 320]) {
            assert!((f.sent + f.unsent).abs_diff(due) <= 1, "{f:?}, {due}");
            assert_eq!((f.answered, f.latency.count()), (f.sent, f.sent), "{f:?}");
        }
        assert_eq!(figures[1].sent + figures[3].sent, m.sent, "what is measured");
        assert_eq!(figures[0].sent + figures[2].sent, u.sent, "what is not");
        assert_eq!(figures.iter().map(|f| f.failed).sum::<u64>(), m.failed + u.failed);
        assert_eq!((figures[2].seconds, figures[3].seconds), (0.3, 0.4));

        let requests = &ran.run.pools[0].requests;
        let names: Vec<&str> = requests.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        let [first, second] = [&requests[0].figures, &requests[1].figures];
        assert_eq!(first.sent + second.sent, m.sent);
        assert_eq!((first.answered, second.answered), (first.sent, second.sent));
        // The second's answers are none of those that it expects.
        assert_eq!((first.failed, second.failed), (0, second.sent));
        assert_eq!(m.failed, second.failed);
        let heard = [asked[0].load(Relaxed), asked[1].load(Relaxed)];
        assert_eq!(heard[0] + heard[1], m.sent + u.sent);
        assert_eq!(heard[1], m.failed + u.failed, "only the second fails");
        assert!(first.sent <= heard[0] && second.sent <= heard[1] && second.sent > 0);
    }
}

#[test]
fn http2_has_the_same_figures() {
    let heard = Arc::new(Heard::default());
    let requests = vec![get("first", "/a", 1.0), get("second", "/b", 1.0)];
    let version = Version::Http2 { streams: 4 };
    let mut plan = plan(Pool { version, connections: 2, pace: rate(300.0), requests, ..pool() }, ms(1));
    plan.phases = vec![phase("before", 200, 1.0, 1.0, false), phase("one", 400, 1.0, 1.0, true)];
    let ran = run(plan, &http2(&heard));
    let (m, u) = (&ran.run.total.counts, &ran.run.total.unmeasured);
    let requests = &ran.run.pools[0].requests;
    let sum = |f: fn(&Figures) -> u64| requests.iter().map(|r| f(&r.figures)).sum::<u64>();
    assert_eq!((sum(|f| f.sent), sum(|f| f.answered), sum(|f| f.failed)), (m.sent, m.answered, m.failed));
    assert_eq!(requests[1].figures.failed, m.failed);
    let phases: Vec<u64> = ran.run.phases.iter().map(|p| p.figures.as_ref().unwrap().sent).collect();
    assert_eq!(phases, [u.sent, m.sent]);
    assert_eq!(m.sent + u.sent, heard.requests());
}

/// A tenth of a second in which nothing is answered is in the second in which it was, and in the picture of it.
#[test]
fn a_stall_of_a_tenth_of_a_second_is_seen() {
    const STALL: u64 = 100_000_000;
    let begun = Arc::new(AtomicU64::new(0));
    let server = serve(move |stream| {
        let begun = begun.clone();
        async move {
            let mut buffer = [0; 4096];
            while matches!(stream.read(&mut buffer).await, Ok(1..)) {
                let now = flowlane::precise_now().unwrap().as_nanos();
                let _ = begun.compare_exchange(0, now, Relaxed, Relaxed);
                let from = begun.load(Relaxed) + 1_300_000_000;
                if (from..from + STALL).contains(&now) {
                    flowlane::sleep_until(flowlane::Time::from_nanos(from + STALL)).await;
                }
                if stream.write_all(&ok(b"x")).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut plan = plan(Pool { connections: 20, pace: rate(500.0), ..pool() }, ms(1));
    plan.phases = vec![
        phase("quiet", 1000, 1.0, 1.0, true),
        phase("stall", 1000, 1.0, 1.0, true),
        phase("after", 400, 1.0, 1.0, true),
    ];
    let ran = run(plan, &server);
    // The machine may stand still besides: the stall is the least that is there.
    let series = &ran.run.total.series;
    let seen = series[1..].iter().map(|p| p.p99_9_ns).max().unwrap();
    assert!(seen >= STALL * 8 / 10, "{series:?}");
    let phase = ran.run.phases[1].figures.as_ref().unwrap();
    assert!(phase.latency.max() >= STALL * 8 / 10, "{phase:?}");
    let mut page = Vec::new();
    html::page(&ran.run, &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let plot = page.split("<h2>Latency over time</h2>").nth(1).unwrap().split("</svg>").next().unwrap();
    for word in ["p99.9: ", ">p99.9</text>", ">quiet</text>", ">stall</text>"] {
        assert!(plot.contains(word), "{word} in {plot}");
    }
    assert_eq!(plot.matches("class=\"mark\"").count(), 3, "{plot}");
}
