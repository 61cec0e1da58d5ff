//! Recorders, series, live frames and joining, as properties over seeded runs.

use std::time::Duration;

use flowlane_stack::rng::Rng;

use super::model::Setup;
use super::series::{MOST, SECOND, Series};
use super::*;

/// A moment that no clock begins at.
const START: u64 = 7_000_000_123;

/// Deals out requests of `seconds` seconds to recorders by `to`, and returns what they came to.
fn deal(recorders: &mut [Recorder], seconds: u64, seed: u64, mut to: impl FnMut(u64) -> usize) {
    let mut rng = Rng::new(seed);
    for n in 0..seconds * 500 {
        let recorder = &mut recorders[to(n)];
        let intended = START + n * (SECOND / 500);
        let sent = intended + u64::from(rng.below(20_000));
        recorder.sent(intended, sent, 100);
        let first_byte = sent + (u64::from(rng.below(4_000_000)) >> rng.below(12));
        let done = first_byte + u64::from(rng.below(5_000));
        match rng.below(50) {
            0 => recorder.timed_out(intended, done, || format!("no answer to {n}")),
            1 => recorder.error(intended, done, ErrorKind::Reset, || "reset <&>"),
            code => recorder.answered(&Sample {
                intended,
                sent,
                first_byte,
                done,
                code: if code < 5 { 404 } else { 200 },
            }),
        }
        recorder.received(done, 600);
        recorder.concurrency(done, n % 7);
        recorder.tick(done);
    }
}

fn about(seconds: u64) -> About {
    About {
        setup: Setup { command: "load test".into(), open_loop: true, ..Setup::default() },
        elapsed: Duration::from_secs(seconds),
        measured: Duration::from_secs(seconds),
        ..About::default()
    }
}

fn run_of(lanes: u16, pools: usize, seconds: u64, seed: u64) -> Run {
    let mut recorders: Vec<Recorder> = (0..lanes)
        .flat_map(|lane| (0..pools).map(move |pool| Recorder::new(lane, pool, 1, Span::all(START))))
        .collect();
    let count = recorders.len() as u64;
    let mut rng = Rng::new(seed ^ 1);
    deal(&mut recorders, seconds, seed, |_| rng.below(count as u32) as usize);
    let end = START + seconds * SECOND;
    let records: Vec<LaneRecord> = recorders.into_iter().map(|r| r.finish(end)).collect();
    join(about(seconds), records)
}

#[test]
fn many_lanes_and_pools_come_to_the_same_as_one() {
    for seed in 0..5 {
        let one = run_of(1, 1, 6, seed);
        for (lanes, pools) in [(2, 1), (5, 3), (1, 4)] {
            let many = run_of(lanes, pools, 6, seed);
            let (a, b) = (&one.total, &many.total);
            assert_eq!(a.counts.codes, b.counts.codes, "seed {seed}");
            assert_eq!((a.counts.sent, a.counts.failed), (b.counts.sent, b.counts.failed), "seed {seed}");
            for (a, b) in [
                (&a.latency, &b.latency),
                (&a.service, &b.service),
                (&a.first_byte, &b.first_byte),
                (&a.last_byte, &b.last_byte),
                (&a.slip, &b.slip),
            ] {
                assert_eq!(a, b, "seed {seed}, {lanes} lanes, {pools} pools");
            }
            assert_eq!(a.series.len(), b.series.len());
            for (a, b) in a.series.iter().zip(&b.series) {
                assert_eq!(Point { concurrency: 0, ..*a }, Point { concurrency: 0, ..*b }, "seed {seed}");
            }
            let sum: u64 = many.pools.iter().map(|p| p.counts.sent).sum();
            assert_eq!(sum, b.counts.sent);
            let sum: u64 = many.lanes.iter().map(|l| l.answered).sum();
            assert_eq!(sum, b.counts.answered);
        }
    }
}

#[test]
fn percentiles_are_as_exact_as_promised() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut exact: Vec<u64> =
            (0..5000).map(|_| 1 + ((u64::from(rng.below(u32::MAX)) * 13) >> rng.below(32))).collect();
        let mut times = Times::default();
        let mut series = Series::new(0);
        for value in &exact {
            times.record(*value);
            series.slot(0);
            series.latency(*value);
        }
        exact.sort_unstable();
        let slots = series.finish();
        let second = slots[0].latency();
        for quantile in [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((quantile * exact.len() as f64).ceil() as usize).clamp(1, exact.len());
            let truth = exact[rank - 1] as f64;
            for (shown, bound) in [(times.at(quantile), 0.001), (second.at(quantile), 0.01)] {
                let off = (shown as f64 - truth).abs() / truth;
                assert!(
                    off <= bound || (shown as f64 - truth).abs() <= 1.0,
                    "seed {seed} p{quantile}: {shown} for {truth}"
                );
            }
        }
    }
}

#[test]
fn warm_up_is_counted_apart() {
    let span = Span::new(START, START + 2 * SECOND..START + 5 * SECOND);
    let mut recorders = vec![Recorder::new(3, 0, 9, span)];
    deal(&mut recorders, 6, 1, |_| 0);
    let records: Vec<LaneRecord> = recorders.into_iter().map(|r| r.finish(START + 6 * SECOND)).collect();
    let run = join(About { measured: Duration::from_secs(3), ..about(6) }, records);
    assert_eq!(run.total.counts.sent, 1500);
    assert_eq!(run.total.unmeasured.sent, 1500);
    assert_eq!(run.total.rates.sent, 500.0);
    assert_eq!(run.total.slip.count(), 1500);
    assert_eq!(
        run.total.latency.count(),
        run.total.counts.answered + run.total.counts.errors["timeout"].count
    );
    assert_eq!(run.total.series.len(), 6);
    assert_eq!(run.total.series.iter().map(|p| p.sent).sum::<u64>(), 3000);
    assert_eq!((run.lanes[0].bucket, run.lanes[0].flows), (3, 9));
}

#[test]
fn long_runs_stay_small_and_lose_nothing() {
    let mut series = Series::new(START);
    let mut other = Series::new(START);
    let seconds = MOST as u64 * 5 + 77;
    for second in 0..seconds {
        let now = START + second * SECOND + 5;
        series.slot(now).answered += 2;
        series.latency(1_000_000);
        series.latency(9_000_000);
        assert!(series.closed().len() <= MOST);
        // The other lane sleeps for most of it.
        if second.is_multiple_of(1000) {
            other.slot(now).answered += 1;
            other.latency(500_000_000);
        }
    }
    let (one, two) = (series.finish(), other.finish());
    assert!(one.len() <= MOST && two.len() <= MOST);
    let (points, latencies, _) = super::series::points(&[&one, &two], seconds as f64);
    assert!(points.len() <= MOST);
    assert_eq!(points.iter().map(|p| p.answered).sum::<u64>(), 2 * seconds + seconds.div_ceil(1000));
    assert_eq!(latencies.iter().map(Times::count).sum::<u64>(), 2 * seconds + seconds.div_ceil(1000));
    let covered: f64 = points.iter().map(|p| p.seconds).sum();
    assert_eq!(covered, seconds as f64);
    let longest = points.iter().map(|p| p.max_ns).max().unwrap();
    assert!((495_000_000..=505_000_000).contains(&longest), "{longest}");
}

#[test]
fn a_clock_that_jumps_far_costs_nothing() {
    let mut series = Series::new(0);
    series.slot(5).sent += 1;
    series.slot(u64::MAX).sent += 1;
    series.slot(3).sent += 1;
    let slots = series.finish();
    assert!(slots.len() <= MOST + 1);
    assert_eq!(slots.iter().map(|s| s.sent).sum::<u64>(), 3);
}

#[test]
fn who_watches_sees_the_newest_and_never_stops_a_lane() {
    let (to, from) = super::live::channel();
    let recorder = |lane, pool| Recorder::new(lane, pool, 1, Span::all(START)).reporting_to(to.clone());
    let mut recorders = vec![recorder(0, 0), recorder(1, 0), recorder(1, 1)];
    let mut live = Live::new();
    deal(&mut recorders, 5, 3, |n| n as usize % 3);
    live.take(&from);
    let frame = live.frame(Duration::from_secs(5));
    // The last quarter of a second may not have been told.
    assert!((2300..=2500).contains(&frame.total.sent), "{}", frame.total.sent);
    assert_eq!(frame.pools.len(), 2);
    assert_eq!(frame.buckets.iter().map(|(b, _)| *b).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(frame.seconds.len(), 4);
    assert!(frame.seconds.iter().all(|p| p.sent == 500 && p.p99_ns > 0), "{:?}", frame.seconds);
    assert!((480.0..=520.0).contains(&frame.total.sent_rate), "{}", frame.total.sent_rate);
    // Nobody takes them any more.
    drop(from);
    deal(&mut recorders, 2, 4, |_| 0);
    let run = join(about(5), recorders.into_iter().map(|r| r.finish(START + 5 * SECOND)).collect::<Vec<_>>());
    assert_eq!(run.total.counts.sent, 3500);
}

#[test]
fn json_gives_the_run_back() {
    let run = run_of(2, 2, 3, 11);
    let text = serde_json::to_string(&run).unwrap();
    let mut back: Run = serde_json::from_str(&text).unwrap();
    back.total.intervals.clone_from(&run.total.intervals);
    back.total.slips.clone_from(&run.total.slips);
    for (mine, theirs) in back.pools.iter_mut().zip(&run.pools) {
        mine.intervals.clone_from(&theirs.intervals);
        mine.slips.clone_from(&theirs.slips);
    }
    assert_eq!(back, run);
}

/// The example of docs/report.md: a server that answers in 1 ms stands still once for 500 ms in 10 s.
#[test]
fn a_stall_shows_in_as_many_latencies_as_it_lasted() {
    const MS: u64 = 1_000_000;
    let (stall, stalled) = (4_000 * MS, 500 * MS);
    let answer =
        |sent: u64| if (stall..stall + stalled).contains(&sent) { stall + stalled } else { sent + MS };
    // One request after the other.
    let mut closed = Recorder::new(0, 0, 1, Span::all(0));
    let mut now = 0;
    while now < 10_000 * MS {
        let done = answer(now);
        closed.sent(now, now, 1);
        closed.answered(&Sample { intended: now, sent: now, first_byte: done, done, code: 0 });
        now = done;
    }
    // A thousand a second, whatever happens.
    let mut open = Recorder::new(0, 0, 1, Span::all(0));
    let mut events: Vec<(u64, u64)> = (0..10_000).map(|n| (answer(n * MS), n * MS)).collect();
    events.sort_unstable();
    for (done, intended) in events {
        open.sent(intended, intended, 1);
        open.answered(&Sample { intended, sent: intended, first_byte: done, done, code: 0 });
    }
    let at = |recorder: Recorder| {
        let run = join(about(10), vec![recorder.finish(10_500 * MS)]);
        let times = &run.total.latency;
        [times.at(0.5), times.at(0.99), times.at(0.999), times.max()].map(|nanos| nanos as f64 / MS as f64)
    };
    for (found, expected) in [(at(closed), [1.0, 1.0, 1.0, 500.0]), (at(open), [1.0, 400.0, 490.0, 500.0])] {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.005, "{found} ms, expected {expected}");
        }
    }
}

#[test]
fn rates_are_the_same_however_often_one_looks() {
    let (to, from) = super::live::channel();
    let mut recorders: Vec<Recorder> =
        (0..4).map(|lane| Recorder::new(lane, 0, 1, Span::all(START)).reporting_to(to.clone())).collect();
    let mut live = Live::new();
    // A thousand a second over all, told each quarter of a second, looked at each tenth.
    for n in 0..5000_u64 {
        let now = START + n * (SECOND / 1000);
        let recorder = &mut recorders[n as usize % 4];
        recorder.sent(now, now, 10);
        recorder.tick(now);
        if n.is_multiple_of(100) && n > 500 {
            live.take(&from);
            let frame = live.frame(Duration::from_millis(n));
            let rate = frame.total.sent_rate;
            assert!((950.0..=1050.0).contains(&rate), "{rate} after {n} ms");
            for (bucket, now) in &frame.buckets {
                assert!((230.0..=270.0).contains(&now.sent_rate), "{bucket}: {now:?}");
            }
        }
    }
}

#[test]
fn the_line_of_a_run_fits_its_terminal() {
    let (to, from) = super::live::channel();
    let mut recorders = vec![Recorder::new(0, 0, 1, Span::all(START)).reporting_to(to.clone())];
    let mut live = Live::new();
    deal(&mut recorders, 5, 3, |_| 0);
    live.take(&from);
    let frame = live.frame(Duration::from_secs(5));
    for columns in [20, 40, 80, 120, 300] {
        let line = text::status(&frame, 10.0, columns);
        assert!(line.chars().count() < columns && line.starts_with("5.0 of 10 s"), "{columns}: {line}");
    }
    assert!(text::status(&frame, 10.0, 300).contains("slip p99"));
}

/// A run of so many requests a second, of which so many slipped a hundredth of a second, and so many were not sent.
fn late(sent: u64, slipped: u64, unsent: u64, change: impl FnOnce(&mut About)) -> Run {
    let mut recorder = Recorder::new(0, 0, 1, Span::all(START));
    for n in 0..sent {
        let intended = START + n * (SECOND / (sent + 1));
        let slip = if n < slipped { 10_000_000 } else { 20_000 };
        recorder.sent(intended, intended + slip, 10);
        let (first_byte, done) = (intended + slip + 5_000, intended + slip + 9_000);
        recorder.answered(&Sample { intended, sent: intended + slip, first_byte, done, code: 200 });
    }
    // Half of them had a connection.
    for n in 0..unsent {
        if n % 2 == 0 {
            recorder.unsent(START, START + SECOND, 1);
        } else {
            recorder.tally(START).unsent += 1;
        }
    }
    let mut about = about(1);
    change(&mut about);
    join(about, vec![recorder.finish(START + SECOND)])
}

#[test]
fn schedules_are_kept_or_not_by_what_was_due() {
    for (sent, slipped, unsent, kept) in [
        (5000, 0, 0, true),
        (5000, 40, 0, true),
        (5000, 60, 0, false),
        // Not sent is late, whoever was to blame.
        (5000, 0, 40, true),
        (5000, 0, 60, false),
        (5000, 30, 30, false),
        (40_000, 0, 9_960_000 / 100, false),
        // Few requests say little: nobody fails for one of them.
        (500, 49, 0, true),
        (500, 51, 0, false),
        (5, 1, 0, true),
        (5, 5, 0, true),
        (5, 0, 5, true),
        (5, 0, 6, false),
        (0, 0, 10, false),
        (0, 0, 0, true),
    ] {
        let run = late(sent, slipped, unsent, |_| {});
        assert_eq!(run.slip.kept, kept, "{sent} {slipped} {unsent}: {:?}", run.slip);
        assert_eq!(run.ok, kept);
        assert_eq!(run.slip.due, sent + unsent);
    }
    // As asked.
    let lenient = |about: &mut About| about.slip_budget = Some(Duration::from_millis(20));
    assert!(late(5000, 4000, 0, lenient).ok);
    let strict = |about: &mut About| about.slip_budget = Some(Duration::from_micros(10));
    assert!(!late(5000, 0, 0, strict).ok);
    // Two requests a second may be sent a twentieth of a second late.
    let slow = late(2, 2, 0, |_| {});
    assert_eq!((slow.slip.budget_ns, slow.ok), (50_000_000, true));
    // A schedule that is kept may still be most of what was measured: then it is said.
    let table = |run: &Run| {
        let mut table = Vec::new();
        text::table(run, &mut table).unwrap();
        String::from_utf8(table).unwrap().replace("\n    ", " ")
    };
    let noted = "most of p99 is the generator's own lateness";
    let few = late(5000, 0, 0, |_| {});
    assert!(few.slip.kept && !table(&few).contains(noted), "20 us are nobody's concern");
    let mut most = late(5000, 0, 0, |_| {});
    (0..100).for_each(|_| most.total.slip.record(4_000_000));
    (0..100).for_each(|_| most.total.latency.record(4_010_000));
    assert!(table(&most).contains(noted), "{}", table(&most));
    most.slip.budget_ns = 20_000_000;
    assert!(!table(&most).contains(noted), "as asked");
    // What was missed has its cause beside it.
    let missed = late(5000, 100, 0, |_| {});
    assert!(
        missed.failed[0].contains("the schedule was not kept: 100 of 5 000 requests"),
        "{:?}",
        missed.failed
    );
    assert!(missed.failed[0].contains("1 % may be; "), "{:?}", missed.failed);
    // Closed loops have no schedule.
    assert!(late(5000, 5000, 0, |about| about.setup.open_loop = false).ok);
}

#[test]
fn failures_fail_a_run_unless_told_otherwise() {
    let run = |count: bool, fail: &[&str]| {
        let mut recorders = vec![Recorder::new(0, 0, 1, Span::all(START))];
        deal(&mut recorders, 2, 5, |_| 0);
        let records: Vec<LaneRecord> = recorders.into_iter().map(|r| r.finish(START + 2 * SECOND)).collect();
        let thresholds = fail.iter().map(|t| t.parse().unwrap()).collect();
        join(About { failures_count: count, thresholds, ..about(2) }, records)
    };
    // Where nothing was answered, most of what went wrong says what is there.
    let mut recorder = Recorder::new(0, 0, 1, Span::all(START));
    recorder.sent(START, START, 9);
    recorder.error(START, START, ErrorKind::Malformed, || "it speaks something else");
    recorder.tally(START).told("unasked", || "'SSH-2.0'".to_owned());
    let records = vec![recorder.finish(START + SECOND)];
    let silent = join(About { failures_count: true, ..about(1) }, records);
    let words = "1 of 1 requests failed: it speaks something else (--fail 'errors > SHARE' says what may be)";
    assert_eq!(silent.failed, [words]);
    let mut table = Vec::new();
    text::table(&silent, &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("unasked                              1  first: 'SSH-2.0'\n"), "{table}");
    let strict = run(true, &[]);
    assert!(strict.total.counts.failed > 0);
    assert!(!strict.ok && strict.failed[0].contains("requests failed"), "{:?}", strict.failed);
    assert!(run(false, &[]).ok);
    assert!(run(true, &["errors > 50%"]).ok);
    assert!(!run(true, &["errors > 1"]).ok);
    // One about something else says nothing of errors.
    assert!(!run(true, &["p99 > 100s"]).ok);
    assert!(!run(true, &["pool=all errors > 50%"]).ok);
    let nothing = join(About { failures_count: true, ..about(1) }, Vec::new());
    assert_eq!(nothing.failed, ["nothing was sent"]);
    let nothing = |goal| join(About { failures_count: true, goal, ..about(1) }, Vec::new()).failed;
    assert_eq!(nothing(Goal::Connections), ["no connection was opened"]);
    assert!(nothing(Goal::Attempts).is_empty());
}

/// A run in which so many requests are sent and answered, so many of these wrongly, and so many connections are refused.
fn refusing(sent: u64, answered: u64, wrong: u64, refused: u64, fail: &str) -> Run {
    let mut recorder = Recorder::new(0, 0, 1, Span::all(START));
    for n in 0..sent {
        let now = START + n;
        recorder.sent(now, now, 10);
        if n < answered {
            recorder.answered(&Sample { intended: now, sent: now, first_byte: now, done: now, code: 200 });
        }
        if n < wrong {
            let kind = ErrorKind::OF_ANSWERS[n as usize % ErrorKind::OF_ANSWERS.len()];
            recorder.error(now, now, kind, || "not as expected");
        }
    }
    (0..refused).for_each(|n| recorder.error(START + n, START + n, ErrorKind::Refused, || "refused"));
    let thresholds = vec![fail.parse().unwrap()];
    join(About { failures_count: true, thresholds, ..about(1) }, vec![recorder.finish(START + SECOND)])
}

#[test]
fn the_share_of_failures_is_of_the_requests_tried() {
    for (run, measured, share) in [
        // Refused connections are no requests sent.
        (refusing(847, 847, 0, 1608, "errors > 70%"), "65.499% (1 608 of 2 455)", "65.4990 %"),
        (refusing(847, 847, 0, 1608, "refused > 70%"), "65.499% (1 608 of 2 455)", "65.4990 %"),
        // A wrong answer is one request.
        (refusing(100, 100, 40, 0, "errors > 70%"), "40.000% (40 of 100)", "40.0000 %"),
        (refusing(100, 100, 100, 100, "errors > 100%"), "100.000% (200 of 200)", "100.0000 %"),
        (refusing(0, 0, 0, 5, "errors > 100%"), "100.000% (5 of 5)", "100.0000 %"),
        // Nobody waits for answers.
        (refusing(1000, 0, 0, 5, "errors > 70%"), "0.500% (5 of 1 000)", "0.5000 %"),
    ] {
        assert!(run.total.counts.error_share() <= 1.0, "{measured}");
        let verdict = &run.thresholds[0];
        assert_eq!((verdict.measured.as_str(), verdict.failed), (measured, false), "{}", verdict.threshold);
        let (mut table, mut page) = (Vec::new(), Vec::new());
        text::table(&run, &mut table).unwrap();
        html::page(&run, &mut page).unwrap();
        let (table, page) = (String::from_utf8(table).unwrap(), String::from_utf8(page).unwrap());
        let line = table.lines().find(|l| l.contains("failed ")).unwrap();
        assert!(line.ends_with(share), "{line}");
        let card = format!("errors</span><strong>{:.3} %", run.total.counts.error_share() * 100.0);
        assert!(page.contains(&card), "{card}");
    }
    let run = refusing(847, 847, 0, 1608, "p99 > 1s");
    assert!(run.failed.iter().any(|f| f.starts_with("1 608 of 2 455 requests failed")), "{:?}", run.failed);
}

/// Where no condition asks for times, a snapshot with counts copies none: only counts are pushed of it.
#[test]
fn counts_alone_have_no_times() {
    let (to, from) = super::live::channel();
    let mut recorder = Recorder::new(0, 0, 1, Span::all(0)).reporting_to(SnapshotsTo::from(to).with_counts());
    recorder.sent(1, 1, 7);
    recorder.tick(SECOND);
    let passed = from.try_recv().unwrap().passed.unwrap();
    assert!(passed.spectra.is_none());
    assert_eq!((passed.all_counts().sent, passed.all_counts().bytes_sent), (1, 7));
}
