//! `RUST_LOG`: the events that it asks for come on standard error, and nothing else changes.

use flowlane_testnet::{Card, CardConfig, Ended, Namespace, Program, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// `flowlane`, in a namespace if one is named.
fn flowlane(inside: Option<&Namespace>, log: Option<&str>, arguments: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_flowlane");
    let mut command = match inside {
        None => Command::new(program),
        Some(namespace) => namespace.command(program),
    };
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).env_remove("RUST_LOG");
    if let Some(log) = log {
        command.env("RUST_LOG", log);
    }
    command
}

/// A run that has links, workers and a report, and no goal that a busy machine could miss.
const RUN: &str = "load http http://10.0.0.1/ --link pair -c 1 -n 10 --quiet --json";

fn run(log: Option<&str>) -> Output {
    flowlane(None, log, RUN).output().unwrap()
}

/// Waits for a line with all of these words, which may have been heard already.
fn hear(service: &mut Program, words: &[&str]) {
    let all = |line: &String| words.iter().all(|word| line.contains(word));
    while !service.heard().iter().any(all) {
        service.says();
    }
}

#[test]
fn without_it_nothing_is_said() {
    for log in [None, Some(""), Some("off"), Some("somebody=trace"), Some("flowlane=error")] {
        let output = run(log);
        assert_eq!(output.status.code(), Some(0), "{log:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{log:?}");
    }
}

#[test]
fn what_is_no_filter_gets_one_line_and_2() {
    for log in ["flowlane=loud", "a=b=c", "info,flowlane::link=9"] {
        let output = run(Some(log));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{log}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with(&format!("flowlane: RUST_LOG={log}: ")), "{stderr}");
    }
    // Help is to be had all the same.
    assert_eq!(flowlane(None, Some("a=b=c"), "--help").output().unwrap().status.code(), Some(0));
}

#[test]
fn events_are_on_standard_error_and_the_report_is_as_without() {
    let output = run(Some("flowlane=debug"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
    for (level, target, words) in [
        ("INFO", "link", "opened link=\"pair:a\""),
        ("DEBUG", "worker", "began"),
        ("INFO", "worker", "runtime started workers="),
        ("DEBUG", "worker", "ended"),
    ] {
        let event = format!("{level} flowlane::{target}: {words}");
        assert!(stderr.lines().any(|line| line.contains(&event)), "{event}: {stderr}");
    }
    // Of one target alone.
    let stderr = String::from_utf8(run(Some("flowlane::link=info")).stderr).unwrap();
    assert!(
        stderr.lines().count() > 0 && stderr.lines().all(|l| l.contains(" INFO flowlane::link: ")),
        "{stderr}"
    );
}

#[test]
fn nobody_has_to_read_them() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = flowlane(None, Some("trace"), RUN);
    assert_eq!(command.stderr(writer).output().unwrap().status.code(), Some(0));
}

#[test]
fn a_service_tells_that_it_listens_and_what_it_gave_up() {
    let serve = format!("serve http --link kernel --addr 127.0.0.1 --port {} --json", free_port());
    let mut service = Program::start(flowlane(None, Some("flowlane=debug"), &serve));
    hear(&mut service, &["http on"]);
    hear(&mut service, &["flowlane::socket", "listening"]);
    hear(&mut service, &["flowlane::privilege", "privileges given up", "after=0"]);
    service.signal(Signal::INT);
    let Ended { status, printed, said } = service.end();
    assert_eq!(status.code(), Some(0));
    assert!(printed.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{printed}");
    assert!(said.iter().any(|l| l.contains("flowlane::worker: ended")), "{said:#?}");
}

#[test]
fn a_link_tells_what_becomes_of_it() {
    if let Err(why) = flowlane_testnet::requires() {
        println!("{why}");
        return;
    }
    let card = Card::new(&CardConfig::for_test("fltr", 1)).unwrap();
    let near = card.near().unwrap();
    let serve =
        "serve udp-echo --link af-packet:near0 --addr 10.11.2.2/24 --port 7 --workers 1 --no-pin --json";
    let mut service = Program::start(flowlane(Some(near), Some("flowlane=info"), serve));
    hear(&mut service, &["udp-echo on"]);
    hear(&mut service, &["INFO flowlane::link: opened", "af-packet:near0"]);
    near.ip("link set near0 mtu 1400").unwrap();
    hear(&mut service, &["INFO flowlane::link", "has an MTU of 1400"]);
    near.ip("link set near0 down").unwrap();
    hear(&mut service, &["WARN flowlane::link", "is down"]);
    near.ip("link set near0 up").unwrap();
    hear(&mut service, &["INFO flowlane::link", "is up again"]);
    near.ip("link del near0").unwrap();
    hear(&mut service, &["WARN flowlane::link", "is gone"]);
    let Ended { status, said, .. } = service.end();
    assert_eq!(status.code(), Some(1));
    let closed = |line: &String| line.contains("INFO flowlane::link: closed") && line.contains("near0");
    assert!(said.iter().any(closed), "{said:#?}");
}
