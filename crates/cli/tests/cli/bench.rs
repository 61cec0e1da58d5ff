//! `flowlane bench` as people run it: what is measured is there and can be true.

use std::process::Command;

use serde_json::Value;

/// Idle connections are measured, and single ones of them answer; so do those of the small case.
#[test]
fn idle_connections_answer() {
    let arguments = "bench tcp --only idle --idle 1000 --rounds 2 --json";
    let output =
        Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let row = |begin: &str, end: &str| {
        let name = |r: &&Value| r["name"].as_str().is_some_and(|n| n.starts_with(begin) && n.ends_with(end));
        rows.iter().find(name).unwrap_or_else(|| panic!("no row {begin} ... {end}: {report}"))
    };
    let memory = row("idle connection among 1000,", "").get("median").unwrap().as_f64().unwrap();
    assert!(memory > 100.0, "{report}");
    for connections in ["1000", "10"] {
        let rounds = |shown: &str| -> Vec<f64> {
            let row = row(&format!("a random one of {connections} connections answers"), shown);
            row["rounds"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
        };
        let (p50, p99, p9999, max) = (rounds("p50"), rounds("p99"), rounds("p99.99"), rounds("max"));
        assert_eq!(p50.len(), 2, "{report}");
        for round in 0..2 {
            let times = [p50[round], p99[round], p9999[round], max[round]];
            // Microseconds: two segments, four tasks and a link take more than a tenth of one.
            assert!(times[0] > 0.1 && times.is_sorted(), "{report}");
        }
    }
}
