//! What thresholds mean, and what is refused.

use super::*;

fn part() -> Part {
    let mut part = Part::default();
    for ms in 1..=100u64 {
        part.latency.record(ms * 1_000_000);
    }
    part.slip.record(1_000);
    part.counts.sent = 1000;
    part.counts.answered = 990;
    part.counts.failed = 10;
    part.counts
        .errors
        .insert("lost".into(), crate::report::model::ErrorCount { count: 10, ..Default::default() });
    part.counts.more.insert("standing".into(), 7);
    part.counts.bytes_received = 125_000_000;
    part.rates = crate::report::model::Rates::of(&part.counts, 1.0);
    part
}

#[test]
fn thresholds_judge() {
    let part = Part { connect: part().latency, ..part() };
    let fails = |text: &str| text.parse::<Threshold>().unwrap().of_part(&part).0;
    assert!(fails("connect-p99 > 20ms") && !fails("connect-p10 > 20ms"));
    assert!(fails("read < 2G") && !fails("read < 900M") && fails("written < 1"));
    assert!(fails("standing < 8") && !fails("standing < 7") && !fails("unfinished > 0"));
    assert!(fails("p99 > 20ms"));
    assert!(!fails("p99 > 200ms"));
    assert!(fails("p10<50ms"));
    assert!(fails("max > 99ms"));
    assert!(!fails("mean > 60ms"));
    assert!(!fails("slip-p99.9 > 1ms"));
    assert!(fails("slip-max > 500ns"));
    assert!(fails("lost > 0"));
    assert!(fails("lost > 0.9%"));
    assert!(!fails("lost > 1%"));
    assert!(fails("errors > 0.1%"));
    assert!(fails("rate < 1k"));
    assert!(!fails("rate < 900"));
    assert!(fails("lost >= 1%"));
    assert!(fails("p100 <= 101ms"));
}

#[test]
fn nonsense_is_refused_in_one_line() {
    for text in [
        "",
        "p99",
        "p99 = 3ms",
        "p101 > 1s",
        "p99 > fast",
        "lost > 5ms",
        "lost > 101%",
        "foo > 1",
        "> 1",
        "pnan > 1s",
        "pinf > 1s",
        "p-1 > 1s",
        "pool= p99 > 1s",
        "pool=a",
        "pool=\"a p99 > 1s",
        "099 > 1",
        "2x > 1",
        "p99 > > 1s",
        "p99 >=",
        "rate < 0",
        "errors > -1%",
        "errors > nan%",
        "é > 1",
        "20é > 1",
        "slip- > 1s",
    ] {
        let error = text.parse::<Threshold>().unwrap_err().to_string();
        assert!(!error.contains('\n'), "{text}");
    }
}

#[test]
fn nothing_measured_fails() {
    assert!("p99 > 20ms".parse::<Threshold>().unwrap().of_part(&Part::default()).0);
}

fn run() -> Run {
    use crate::report::model::{ErrorCount, Rates};
    let mut fast = Part { name: "fast".into(), ..part() };
    fast.counts.codes = [("200".into(), 980), ("404".into(), 5), ("503".into(), 5)].into();
    fast.counts.connections_opened = 9;
    fast.counts.connections_failed = 1;
    fast.rates = Rates { sent: 1000.0, answered: 990.0, connections: 9.0, ..Rates::default() };
    fast.connect.record(3_000_000);
    let mut slow = Part { name: "slow ones".into(), ..Part::default() };
    slow.latency.record(3_000_000_000);
    slow.counts.sent = 10;
    slow.counts.failed = 2;
    slow.counts.errors = [("timeout".into(), ErrorCount { count: 2, example: "é".into() })].into();
    let mut run = crate::report::join(crate::report::About::default(), Vec::new());
    run.total = Part { name: "total".into(), ..fast.clone() };
    run.pools = vec![fast, slow];
    run
}

#[test]
fn pools_codes_and_connections_are_judged() {
    let run = run();
    let verdict = |text: &str| text.parse::<Threshold>().unwrap().verdict(&run);
    for (text, fails, words) in [
        ("p99 > 2s", false, "99.0 ms"),
        ("pool=\"slow ones\" p99 > 2s", true, "3.00 s"),
        ("pool=fast p99 > 2s", false, "99.0 ms"),
        ("pool=nobody p99 > 2s", true, "no such pool"),
        ("pool=\"slow ones\" timeout > 19.9%", true, "20.000% (2 of 10)"),
        ("pool=\"slow ones\" errors > 20%", false, "20.000% (2 of 10)"),
        ("timeout > 0", false, "0"),
        ("5xx > 0.5%", true, "0.505% (5 of 990)"),
        ("404 > 5", false, "5"),
        ("2xx < 990", true, "980"),
        ("connections-failed >= 10%", true, "10.000% (1 of 10)"),
        ("connect-p50 > 2ms", true, "3.00 ms"),
        ("tls-p50 > 2ms", true, "not measured"),
        ("tls-p50 < 2ms", false, "not measured"),
        ("sent-rate < 1001", true, "1 000 a second"),
        ("connection-rate < 9", false, "9 a second"),
    ] {
        let verdict = verdict(text);
        assert_eq!((verdict.failed, verdict.measured.as_str()), (fails, words), "{text}");
    }
}

#[test]
fn pools_that_are_not_there_are_named_before_the_run() {
    let threshold: Threshold = "pool=slow p99 > 2s".parse().unwrap();
    assert!(threshold.check(&["fast", "slow"]).is_ok());
    let error = threshold.check(&["fast", "many"]).unwrap_err().to_string();
    assert!(error.contains("there are fast, many"), "{error}");
    assert!("p99 > 2s".parse::<Threshold>().unwrap().check::<&str>(&[]).is_ok());
    assert!(threshold.check::<&str>(&[]).is_err());
}
