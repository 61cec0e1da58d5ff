//! `flowlane demo`, run as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

fn flowlane(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).output().unwrap()
}

/// Runs the demo and returns its JSON.
fn demo(arguments: &[&str]) -> Value {
    let (report, stderr) = demo_and_stderr(arguments);
    assert!(stderr.is_empty(), "{stderr}");
    report
}

fn demo_and_stderr(arguments: &[&str]) -> (Value, String) {
    let output = flowlane(&[&["demo", "--json", "--duration", "300ms", "--seed", "1"], arguments].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}{}", String::from_utf8_lossy(&output.stdout));
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// What holds of every run.
fn check(report: &Value, workers: usize) {
    let n = |path: &str| {
        report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {report}"))
    };
    flowlane_schema::check("demo", report);
    assert_eq!(n("/version"), 1);
    assert_eq!(report["ok"], true);
    assert_eq!(report["alignment"], 1.0);
    assert_eq!(report["workers"].as_array().unwrap().len(), workers);
    assert_eq!(report["buckets"].as_array().unwrap().len(), 2 * workers);
    assert!(n("/client/sent") > 0);
    assert_eq!(n("/client/sent"), n("/client/received"));
    assert_eq!(n("/total/redirected"), 0);
    // Probes are echoed too.
    assert_eq!(n("/total/echoed"), n("/client/sent") + n("/client/probes"));
    assert_eq!(n("/latency-ns/count"), n("/client/received"));
    let echoed: u64 =
        report["buckets"].as_array().unwrap().iter().map(|b| b["echoed"].as_u64().unwrap()).sum();
    assert_eq!(echoed, n("/total/echoed"));
    assert!(report["buckets"].as_array().unwrap().iter().all(|b| b["echoed"].as_u64() > Some(1)));
}

#[test]
fn one_worker() {
    check(&demo(&["--workers", "1"]), 1);
}

#[test]
fn two_workers() {
    if processors() < 2 {
        flowlane_testnet::skipped("skipped, because there is one processor");
        return;
    }
    check(&demo(&["--workers", "2"]), 2);
    check(&demo(&["--workers", "2", "--udp-4tuple"]), 2);
}

/// The hosts learn the rule of every card that has one, and all packets of such a card arrive where they belong.
// Long: a demo with each card.
#[test]
fn every_emulated_card() {
    for (card, _) in flowlane_rss::emulated::CARDS {
        let (report, stderr) = demo_and_stderr(&["--workers", "2", "--card", card]);
        flowlane_schema::check("demo", &report);
        let known = &report["card"];
        assert_eq!(known["name"], card, "{report}");
        assert_eq!(known["learned"], card != "jhash", "{report}");
        let forgot = known["set-again"].as_u64() > Some(0);
        assert_eq!(stderr.contains("its settings were set again"), forgot, "{card}: {stderr}");
        assert!(forgot || stderr.is_empty(), "{card}: {stderr}");
        assert_eq!(known["misdirects"], card == "misdirects", "{report}");
        assert_eq!(report["client"]["lost"], 0, "{report}");
        let alignment = report["alignment"].as_f64().unwrap();
        match card {
            "jhash" | "misdirects" => assert!(alignment < 1.0, "{card}: {report}"),
            // It forgets after a while, and is set again.
            "forgets" => assert!(alignment > 0.5, "{card}: {report}"),
            _ => assert_eq!(alignment, 1.0, "{card}: {report}"),
        }
    }
    let output = flowlane(&["demo", "--duration", "200ms", "--workers", "2", "--card", "jhash"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("card        jhash, rule not learned") && text.contains("not affine"), "{text}");
}

#[test]
fn any_size() {
    for size in ["36", "64", "1000", "1472"] {
        let report = demo(&["--workers", "1", "--size", size]);
        check(&report, 1);
        assert_eq!(report["size"].to_string(), size);
    }
}

#[test]
fn a_table_for_people() {
    let output = flowlane(&["demo", "--duration", "200ms", "--workers", "1"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for word in
        ["bucket", "worker", "aligned", "redirected", "dropped", "echoed", "p99.9", "alignment   100.00 %"]
    {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn bad_arguments_get_one_line_and_2() {
    for arguments in [
        &["--size", "35"][..],
        &["--size", "1473"],
        &["--size", "many"],
        &["--duration", "0s"],
        &["--duration", "soon"],
        &["--workers", "0"],
        &["--workers", "1000"],
        &["--window", "0"],
        &["--no-such-option"],
        &["argument"],
    ] {
        let output = flowlane(&[&["demo"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
