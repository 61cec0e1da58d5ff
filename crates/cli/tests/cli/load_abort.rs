//! `--abort`: a condition of `--fail` ends a run of each kind, and what has broken it is in every report.

use std::process::{Command, Output, Stdio};

use flowlane_testnet::{Program, Scratch, free_port};
use serde_json::Value;

/// `flowlane serve ...` on a port of the loopback, and its address.
fn serve(line: &str, ready: &str) -> (Program, String) {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.arg("serve").args(line.split_whitespace()).args(["--addr", "127.0.0.1/8", "--no-pin", "--port"]);
    command.arg(port.to_string()).stdin(Stdio::null());
    (Program::ready(command, ready), format!("127.0.0.1:{port}"))
}

fn load(line: &str, conditions: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.arg("load").args(line.split_whitespace()).arg("--quiet").args(conditions);
    command.stdin(Stdio::null()).output().unwrap()
}

fn report(output: &Output) -> Value {
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    report
}

/// Runs of a minute that a condition ends: how each ended.
fn aborted(line: &str, condition: &str, abort: &str) -> Value {
    let output = load(&format!("{line} -d 60s --json"), &["--fail", condition, abort]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
    let report = report(&output);
    assert_eq!(
        (&report["ended"], &report["ok"]),
        (&Value::from("aborted"), &Value::from(false)),
        "{line}: {report}"
    );
    assert_eq!(report["aborted"]["condition"], condition, "{line}");
    assert!(report["seconds"].as_f64().unwrap() < 30.0, "{line}: {report}");
    assert!(report["aborted"]["at-seconds"].as_f64().unwrap() <= report["seconds"].as_f64().unwrap() + 0.1);
    assert!(stderr.contains("aborted after ") && stderr.contains(condition), "{line}: {stderr}");
    report
}

// Long: eight runs, of which two try half a thousand requests before a share is believed.
#[test]
fn http_ends_when_too_many_answers_are_wrong() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    for more in ["", "--http2 4"] {
        let line = format!("http http://{address}/size/10 -r 400 -c 4 --expect-status 404 {more}");
        let report = aborted(&line, "errors > 1%", "--abort");
        // Half a thousand have to be tried before a share of 1 % is believed.
        assert!(report["total"]["counts"]["failed"].as_u64().unwrap() >= 400, "{report}");
    }
    // What nothing breaks goes on to its end, and so does what is broken by few.
    let line =
        format!("http http://{address}/size/10 -r 100 -c 4 -d 500ms --json --warm-up 100ms --slip-budget 1h");
    for condition in ["errors > 1%", "max > 1h", "rate < 1", "200 < 5%"] {
        let output = load(&line, &["--fail", condition, "--abort"]);
        assert_eq!(
            (output.status.code(), &report(&output)["ended"]),
            (Some(0), &Value::from("done")),
            "{condition}"
        );
    }
    let output = load(&line, &["--fail", "rate < 1M", "--abort"]);
    assert_eq!((output.status.code(), &report(&output)["ended"]), (Some(1), &Value::from("done")));
}

// Long: six runs, three of which may not end within a second and a half.
#[test]
fn other_loads_end_when_a_condition_says_so() {
    for (serve_line, ready, line) in [
        ("tcp-echo", "tcp-echo on", "tcp ADDRESS -c 4 --rate 400 --size 64"),
        ("udp-echo", "udp-echo on", "udp ADDRESS --rate 400"),
        ("memcached", "memcached on", "memcached ADDRESS -c 4 --rate 400 --keys 10 --fill"),
    ] {
        let (_server, address) = serve(serve_line, ready);
        let line = line.replace("ADDRESS", &address);
        let slow = aborted(&line, "p50 > 1ns", "--abort");
        assert!(slow["total"]["latency"]["count"].as_u64().unwrap() >= 100, "{slow}");
        let late = aborted(&line, "rate < 1M", "--abort=1500ms");
        assert!(late["aborted"]["at-seconds"].as_f64().unwrap() >= 1.5, "{late}");
    }
}

#[test]
fn every_report_says_what_ended_the_run() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let room = Scratch::new("abort");
    let [page, cases, words] = ["run.html", "run.xml", "run.md"].map(|name| room.path(name));
    let line = format!(
        "http http://{address}/size/10 -r 200 -c 2 -d 60s --html {page} --junit {cases} --markdown {words}"
    );
    let output = load(&line, &["--fail", "errors > 50", "--fail", "200 > 0", "--abort"]);
    assert_eq!(output.status.code(), Some(1));
    let table = String::from_utf8(output.stdout).unwrap();
    let said = "aborted after ";
    assert!(table.contains(said) && table.contains("200 > 0"), "{table}");
    for file in [page, cases, words] {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(said), "{file}: {text}");
    }
}

#[test]
fn abort_needs_a_condition() {
    for (arguments, word) in [
        (&["--abort"][..], "--fail"),
        (&["--fail", "errors > 1%", "--abort=soon"], "soon"),
        (&["--find-rate", "p99 < 1ms", "--abort"], "--abort"),
        (&["--agents", "lab", "--fail", "errors > 1%", "--abort"], "--abort"),
    ] {
        let output = load("http http://127.0.0.1:1/", arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
}
