//! `load --metrics`: the same figures for whoever fetches them while a run goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use flowlane_testnet::{Program, eventually};

use super::serve;
use crate::metrics::is_there;

/// What is served at that address now, as OpenMetrics.
pub(crate) fn fetch(at: &str) -> String {
    let body = fetch_as(at, "application/openmetrics-text; version=1.0.0");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body
}

fn fetch_as(at: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\nAccept: {accept}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    body.to_owned()
}

/// The value of a series; 0 if there is none.
pub(crate) fn value(body: &str, series: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    body.lines().find_map(of).unwrap_or(0.0)
}

/// The address that a load says.
pub(crate) fn said(load: &mut Program) -> String {
    let line = load.hear("metrics http://");
    line.split_once("metrics http://").unwrap().1.strip_suffix("/metrics").unwrap().to_owned()
}

#[test]
fn figures_are_fetched_while_a_run_goes_on() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", &format!("http://{address}/size/10"), "-r", "300", "-c", "4", "-n", "900"]);
    command.args(["-d", "1h", "--no-pin", "--slip-budget", "1h", "--metrics", "0"]).stdin(Stdio::null());
    let mut load = Program::start(command);
    let at = said(&mut load);
    let (mut before, mut body) = (0.0, String::new());
    eventually("half of the requests are seen, and no counter goes back", || {
        body = fetch(&at);
        let answered = value(&body, "flowlane_load_requests_answered_total{pool=\"all\"}");
        assert!(answered >= before, "{answered} after {before}");
        before = answered;
        answered >= 450.0 && value(&body, "flowlane_load_latency_seconds_count{pool=\"all\"}") >= 200.0
    });
    let series = |name: &str| value(&body, name);
    assert!(series("flowlane_load_answers_total{code=\"200\",pool=\"all\"}") >= 450.0, "{body}");
    assert_eq!(series("flowlane_load_concurrency{pool=\"all\"}"), 4.0, "{body}");
    let counted = "flowlane_load_latency_seconds_count{pool=\"all\"}";
    let all = "flowlane_load_latency_seconds_bucket{le=\"+Inf\",pool=\"all\"}";
    assert_eq!(series(all), series(counted), "{body}");
    // The runtime's own stand before them.
    assert!(body.contains("flowlane_instance_info{name=\"load http\""), "{body}");
    if is_there("promtool") {
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut promtool = promtool.spawn().unwrap();
        // It reads the older format.
        promtool.stdin.take().unwrap().write_all(fetch_as(&at, "text/plain").as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let of_loads: Vec<&str> = words.lines().filter(|line| line.contains("flowlane_load_")).collect();
        assert!(of_loads.is_empty(), "{of_loads:#?}");
    }
    assert_eq!(load.end().status.code(), Some(0));
}
