//! `flowlane load compare` and `flowlane compare`: what they find, what they refuse, and their exit codes.

use crate::fixture;

use std::process::{Command, Output};

use flowlane_load::report::files;
use flowlane_testnet::{Ended, Program, Scratch, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// A report whose service times are `scale` times as long.
fn report(dir: &Scratch, name: &str, seed: u64, scale: f64) -> String {
    let path = dir.path(name);
    let mut out = std::fs::File::create(&path).unwrap();
    files::json(&fixture::run_scaled(fixture::HOSTILE, seed, scale), &mut out).unwrap();
    path
}

fn compare(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(["load", "compare"]).args(arguments).output().unwrap()
}

#[test]
fn slower_faster_and_no_difference_are_told_apart() {
    let dir = Scratch::new("compare-verdict");
    let a: Vec<String> = (0..4).map(|i| report(&dir, &format!("a{i}.json"), i, 1.0)).collect();
    let b: Vec<String> = (0..4).map(|i| report(&dir, &format!("b{i}.json"), 10 + i, 1.3)).collect();
    let c: Vec<String> = (0..4).map(|i| report(&dir, &format!("c{i}.json"), 20 + i, 1.0)).collect();
    let ask = |a: &[String], b: &[String]| {
        let mut arguments: Vec<&str> = vec!["--json", "--metric", "p50", "--neglect", "3"];
        arguments.extend(a.iter().map(String::as_str));
        arguments.push("--");
        arguments.extend(b.iter().map(String::as_str));
        let output = compare(&arguments);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), answer["compared"][0].clone())
    };
    let (code, slower) = ask(&a, &b);
    assert_eq!((code, &slower["finding"]), (Some(1), &Value::from("worse")), "{slower}");
    assert_eq!(slower["method"], "paired");
    let ratio = slower["ratio"].as_f64().unwrap();
    assert!((1.2..1.4).contains(&ratio), "{slower}");
    let (code, faster) = ask(&b, &a);
    assert_eq!((code, &faster["finding"]), (Some(0), &Value::from("better")), "{faster}");
    let (code, same) = ask(&a, &c);
    assert_eq!((code, &same["finding"]), (Some(0), &Value::from("no-difference-shown")), "{same}");
    let (_, independent) = ask(&a, &b[..3]);
    assert_eq!(independent["method"], "independent");
    assert_eq!(independent["finding"], "worse");
}

#[test]
fn people_get_a_table_without_strangers_control_characters() {
    let dir = Scratch::new("compare-table");
    let (a, b) = (report(&dir, "a.json", 1, 1.0), report(&dir, "b.json", 2, 2.0));
    // One of each, though one is twice as slow: the ratio, and no finding.
    let output = compare(&[&a, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for word in ["not judged", "1 of A, 1 of B", "compare several"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let output = compare(&["--json", &a, &b]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["compared"][0]["finding"], "not-judged", "{answer}");
    assert!(answer["compared"][0].get("low").is_none(), "{answer}");
    let output = compare(&[&a, &a, "--", &b, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in ["2 of A, 2 of B", "p99.9", "slower", "rate"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("B is worse"));
}

#[test]
fn what_is_no_report_is_refused_in_one_line() {
    let dir = Scratch::new("compare-refused");
    let good = report(&dir, "good.json", 1, 1.0);
    let good = good.as_str();
    let bad = dir.dir().join("bad.json");
    std::fs::write(&bad, "{\"version\": 7}").unwrap();
    let bad = bad.to_str().unwrap();
    for (arguments, word) in [
        (&[][..], "A"),
        (&[good], "reports of two sides"),
        (&[good, good, good], "reports of two sides"),
        (&[good, bad], "version 1"),
        (&[good, "/no/such/file.json"], "/no/such/file.json"),
        (&["--metric", "speed", good, good], "p99.9"),
        (&["--confidence", "100", good, good], "99.9"),
        (&["--neglect", "5000", good, good], "neglect"),
    ] {
        let output = compare(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: '{word}' in {stderr}");
        if !arguments.is_empty() {
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

/// Two commands in turns: what they print decides, and the exit code says which way.
#[test]
fn commands_are_run_in_turns() {
    let compare = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_flowlane")).arg("compare").args(arguments).output().unwrap()
    };
    let dir = Scratch::new("compare-turns");
    // Figures that differ from run to run, as figures do, and a note of the order.
    let of = |side: &str, base: u32| {
        let path = dir.dir().display();
        format!("cd {path}; echo {side} >> order; n=$(wc -l < order); echo $(({base} + n % 5))")
    };
    let (fast, slow) = (of("a", 1000), of("b", 900));
    let worse = compare(&["--a", &fast, "--b", &slow, "--json"]);
    let answer: Value = serde_json::from_slice(&worse.stdout).unwrap();
    assert_eq!(
        (worse.status.code(), &answer["verdict"], &answer["pairs"]),
        (Some(1), &"b-is-less".into(), &6.into())
    );
    flowlane_schema::check("compare-v1", &answer);
    let order = std::fs::read_to_string(dir.dir().join("order")).unwrap();
    assert_eq!(order.split_whitespace().collect::<String>(), "abbaabbaabba");
    let cheaper = compare(&["--a", &fast, "--b", &slow, "--less-is-better"]);
    assert_eq!(cheaper.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&cheaper.stdout).contains("verdict: B is better"));
    let same = compare(&["--a", &fast, "--b", &fast]);
    assert_eq!(same.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&same.stdout).contains("verdict: no difference of 2.00 %"));
    // The figure of a report is the metric that was asked for; more time is worse.
    let (quick, late) = (report(&dir, "quick.json", 1, 1.0), report(&dir, "late.json", 2, 1.5));
    let reports =
        compare(&["--a", &format!("cat {quick}"), "--b", &format!("cat {late}"), "--metric", "p50"]);
    assert_eq!(reports.status.code(), Some(1));
    for (b, words) in [
        ("exit 3", "--b: the command failed (exit status: 3)"),
        ("echo none", "the last line it printed is no number, and there is no report (flowlane load --json)"),
        ("true", "the last line it printed is no number"),
        ("echo 5; echo 'schedule: kept; 50 % may be'", "the last line it printed is no number"),
        ("echo rate 5", "the last line it printed is no number"),
        (&format!("cat {quick}"), "one side prints a report and the other a plain number"),
        ("echo 0", "not above 0"),
    ] {
        let bad = compare(&["--a", "echo 1", "--b", b]);
        assert_eq!(bad.status.code(), Some(2));
        let said = String::from_utf8_lossy(&bad.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    }
    let blind = compare(&["--neglect", "5", "--smallest", "3", "--a", "echo 1", "--b", "echo 1"]);
    let said = String::from_utf8_lossy(&blind.stderr).into_owned();
    assert_eq!(blind.status.code(), Some(2), "{said}");
    assert!(said.contains("(--neglect 5.00 %)") && said.contains("(--smallest 3.00 %)"), "{said}");
    // For p99 less is better, for a number more: which of them this is nobody has said.
    let plain = compare(&["--metric", "p99", "--a", "echo 1", "--b", "echo 2"]);
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert_eq!(plain.status.code(), Some(2), "{said}");
    assert!(said.contains("--metric is for reports") && said.lines().count() == 1, "{said}");
}

/// ^C in the fourth pair: the three whole ones are shown, though they differ without a verdict, and the run that it cut short does not count.
#[test]
fn an_interrupted_comparison_shows_its_pairs() {
    let dir = Scratch::new("compare-interrupted");
    let counted = format!("cd {}; echo >> runs; n=$(wc -l < runs)", dir.dir().display());
    // The command's parent is the comparison.
    let of = |base: u32, then: &str| format!("{counted}; [ $n -lt 7 ] || {then}; echo $(({base} + n % 2))");
    for then in ["kill -INT $PPID", "{ kill -TERM $PPID; exit 1; }"] {
        let _ = std::fs::remove_file(dir.dir().join("runs"));
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
            .args(["compare", "--json", "--a", &of(1000, then), "--b", &of(900, then)])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.ends_with("\nflowlane: interrupted after 3 pairs\n"), "{said}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["verdict"], &answer["pairs"]), (&"interrupted".into(), &3.into()), "{answer}");
        assert_eq!(std::fs::read_to_string(dir.dir().join("runs")).unwrap().lines().count(), 7);
    }
}

/// Who ends the comparison alone ends what it runs: the command, what that has started, and one that does not listen.
#[test]
fn a_signal_ends_the_command_that_runs() {
    for trap in ["", "trap '' TERM; "] {
        let dir = Scratch::new("compare-ended");
        let pids = dir.path("pids");
        let hang =
            format!("{trap}sleep 1000 & echo $! > {pids}.1; echo $$ >> {pids}.1; mv {pids}.1 {pids}; wait");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["compare", "--a", &hang, "--b", "echo 1"]);
        let program = Program::start(command);
        eventually("it runs", || std::path::Path::new(&pids).exists());
        program.signal(Signal::TERM);
        let Ended { status, said, .. } = program.end();
        assert_eq!(status.code(), Some(2), "{said:?}");
        assert_eq!(said, ["flowlane: interrupted after 0 pairs"]);
        for pid in std::fs::read_to_string(&pids).unwrap().lines() {
            // The parent of an orphan may take its time to wait for it.
            eventually("it is gone", || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
                stat.map_or(true, |stat| stat.contains(") Z "))
            });
        }
    }
}
