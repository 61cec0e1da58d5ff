//! `RUST_LOG`: the events that it asks for come on standard error, and nothing else changes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use flowlane_testnet::{Card, CardConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// `flowlane`, in a namespace if one is named.
fn flowlane(inside: Option<&str>, log: Option<&str>, arguments: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_flowlane");
    let mut command = match inside {
        None => Command::new(program),
        Some(namespace) => {
            let mut ip = Command::new("ip");
            ip.args(["netns", "exec", namespace, program]);
            ip
        }
    };
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).env_remove("RUST_LOG");
    if let Some(log) = log {
        command.env("RUST_LOG", log);
    }
    command
}

/// A port of the loopback that nobody has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A run that has links, workers and a report, and no goal that a busy machine could miss.
const RUN: &str = "load http http://10.0.0.1/ --link pair -c 1 -n 10 --quiet --json";

fn run(log: Option<&str>) -> Output {
    flowlane(None, log, RUN).output().unwrap()
}

/// A service that runs, and the lines it says.
struct Service {
    child: Child,
    said: Receiver<String>,
    heard: Vec<String>,
}

impl Service {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
        Self { child, said, heard: Vec::new() }
    }

    /// Waits for a line with all of these words.
    fn hear(&mut self, words: &[&str]) {
        let all = |line: &String| words.iter().all(|word| line.contains(word));
        while !self.heard.iter().any(all) {
            let line = self.said.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|e| panic!("{words:?}: {e}: {:#?}", self.heard));
            self.heard.push(line);
        }
    }

    /// Its end: the exit code and the whole of what it printed; what is said until then is heard.
    fn end(&mut self) -> (Option<i32>, String) {
        let printed = std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        let code = self.child.wait().unwrap().code();
        self.heard.extend(self.said.iter());
        (code, printed)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let mut service = Service::start(flowlane(None, Some("flowlane=debug"), &serve));
    service.hear(&["http on"]);
    service.hear(&["flowlane::socket", "listening"]);
    service.hear(&["flowlane::privilege", "privileges given up", "after=0"]);
    kill_process(Pid::from_child(&service.child), Signal::INT).unwrap();
    let (code, printed) = service.end();
    assert_eq!(code, Some(0));
    assert!(printed.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{printed}");
    assert!(service.heard.iter().any(|l| l.contains("flowlane::worker: ended")), "{:#?}", service.heard);
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
    let mut service = Service::start(flowlane(Some(near.name()), Some("flowlane=info"), serve));
    service.hear(&["udp-echo on"]);
    service.hear(&["INFO flowlane::link: opened", "af-packet:near0"]);
    near.ip("link set near0 mtu 1400").unwrap();
    service.hear(&["INFO flowlane::link", "has an MTU of 1400"]);
    near.ip("link set near0 down").unwrap();
    service.hear(&["WARN flowlane::link", "is down"]);
    near.ip("link set near0 up").unwrap();
    service.hear(&["INFO flowlane::link", "is up again"]);
    near.ip("link del near0").unwrap();
    service.hear(&["WARN flowlane::link", "is gone"]);
    assert_eq!(service.end().0, Some(1));
    service.hear(&["INFO flowlane::link: closed", "near0"]);
}
