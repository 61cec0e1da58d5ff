//! `serve --metrics` and `stat --open-metrics`: what is served, to whom, and that Prometheus reads it.

use flowlane_testnet::{PATIENCE, Program, Scratch, eventually, free_port, skipped};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// An echo server on kernel sockets, with metrics and a control socket.
struct Service {
    _program: Program,
    metrics: SocketAddr,
    control: PathBuf,
    _scratch: Scratch,
}

impl Service {
    fn start(tag: &str) -> Self {
        let scratch = Scratch::new(&format!("metrics-{tag}"));
        let control = scratch.dir().join("control.sock");
        let port = free_port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command
            .args(["serve", "udp-echo", "--link", "kernel", "--addr", "127.0.0.1/32", "--port", &port])
            .args(["--workers", "2", "--no-pin", "--metrics", "0", "--control"])
            .arg(&control)
            .env_remove("RUST_LOG");
        let mut program = Program::start(command);
        let said = program.hear("metrics http://");
        let at = said.split_once("metrics http://").unwrap().1.strip_suffix("/metrics").unwrap();
        Self { metrics: at.parse().unwrap(), control, _program: program, _scratch: scratch }
    }

    /// Sends this and reads all that comes back.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// Head and body of an answer.
    fn get(&self, path: &str, accept: &str) -> (String, String) {
        let answer =
            self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\n\r\n", self.metrics));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

fn flowlane(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments.split_whitespace()).output().unwrap()
}

pub(crate) fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        skipped(format!("skipped, because the program {program} (Debian: prometheus) is not there"));
    }
    there
}

#[test]
fn metrics_are_served_in_the_format_that_is_asked_for() {
    let service = Service::start("formats");
    let (head, body) = service.get("/metrics", "*/*");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("# TYPE flowlane_worker_turns_total counter\n"), "{body}");
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"), "{body}");
    let (head, body) =
        service.get("/metrics", "application/openmetrics-text; version=1.0.0, text/plain;q=0.5");
    assert!(head.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    for line in [
        "# TYPE flowlane_worker_turns counter",
        "# UNIT flowlane_lane_busy_seconds seconds",
        "flowlane_workers 2",
        concat!(
            "flowlane_instance_info{name=\"serve udp-echo\",version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        ),
        "flowlane_drops_total{host=\"server\",layer=\"stack\",reason=\"udp-no-socket\"} 0",
    ] {
        assert!(body.lines().any(|l| l == line), "{line} in\n{body}");
    }
    assert!(body.ends_with("# EOF\n"));
    // The same from the control socket.
    let once = flowlane(&format!("stat --open-metrics --control {}", service.control.display()));
    let once = String::from_utf8(once.stdout).unwrap();
    let shape = |text: &str| -> Vec<String> {
        let names = text.lines().map(|l| if l.starts_with('#') { l } else { l.rsplit_once(' ').unwrap().0 });
        names.map(str::to_owned).collect()
    };
    assert_eq!(shape(&once), shape(&body));
}

/// A page in a browser on this machine, whose name was made to lead here, reads nothing.
#[test]
fn only_its_own_names_lead_to_the_metrics() {
    let service = Service::start("names");
    let at = |host: &str| service.raw(&format!("GET /metrics HTTP/1.1\r\n{host}\r\n"));
    let port = service.metrics.port();
    for host in
        ["", "Host: evil.example\r\n", &format!("Host: evil.example:{port}\r\n"), "Host: 127.0.0.1\r\n"]
    {
        let answer = at(host);
        assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains("flowlane_"), "{host} {answer}");
    }
    assert!(at(&format!("Host: localhost:{port}\r\n")).starts_with("HTTP/1.1 200"));
}

// Long: silent peers are closed when the time of a request is over.
#[test]
fn nothing_else_is_served_and_peers_that_do_not_finish_are_cut_off() {
    let service = Service::start("limits");
    assert!(service.get("/", "*/*").0.starts_with("HTTP/1.1 404"));
    assert!(service.get("/v1/report", "*/*").0.starts_with("HTTP/1.1 404"));
    let body = "{\"bucket\":0,\"worker\":1}";
    let post = |path: &str| {
        let length = body.len();
        let host = service.metrics;
        service
            .raw(&format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    assert!(post("/v1/move").starts_with("HTTP/1.1 405") && post("/metrics").starts_with("HTTP/1.1 405"));
    assert!(service.raw("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = "x".repeat(100_000);
    assert!(service.raw(&format!("GET /metrics HTTP/1.1\r\nX: {long}\r\n\r\n")).starts_with("HTTP/1.1 4"));
    // More than are served at once, and none of them finishes its request: each is closed, and others get their turn.
    let mut silent: Vec<_> = (0..6).map(|_| TcpStream::connect(service.metrics).unwrap()).collect();
    silent.iter_mut().for_each(|s| s.write_all(b"GET /metr").unwrap());
    assert!(service.get("/metrics", "*/*").0.starts_with("HTTP/1.1 200"));
    for mut stream in silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        let timed_out = closed.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "a peer that says no more is closed: {closed:?}");
    }
}

#[test]
fn addresses_that_nobody_meant_are_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (address, why) in [
        ("0.0.0.0:9464", "every address of this machine; name one, such as 127.0.0.1:9464"),
        ("[::]:9464", "every address of this machine"),
        ("[::ffff:0.0.0.0]:9464", "every address of this machine"),
        ("localhost", "give an address and a port, such as 127.0.0.1:9464"),
        ("127.0.0.1", "give an address and a port, such as 127.0.0.1:9464"),
        ("70000", "70000 is no port"),
        (&taken.to_string(), "another program has this port"),
    ] {
        let output = flowlane(&format!("serve udp-echo --link kernel --port 1 --metrics {address}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.contains(why)), (Some(2), true), "{address}: {said}");
    }
}

#[test]
fn promtool_finds_nothing_to_mend() {
    if !is_there("promtool") {
        return;
    }
    let service = Service::start("promtool");
    let (_, text) = service.get("/metrics", "text/plain");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// Names that begin with `flowlane_` in a text.
fn named(text: &str) -> std::collections::BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("flowlane_")).collect()
}

/// Each metric that the dashboard and the alert rules name is served, and Prometheus takes the rules.
#[test]
fn dashboard_and_rules_name_what_there_is() {
    let contrib = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana"));
    let dashboard = std::fs::read_to_string(contrib.join("flowlane.json")).unwrap();
    let document: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(document["panels"].as_array().unwrap().len() > 5);
    let rules = std::fs::read_to_string(contrib.join("rules.yml")).unwrap();
    let service = Service::start("rules");
    let (_, text) = service.get("/metrics", "text/plain");
    // Kernel sockets have no links; names of their queues' counters are those of the list.
    let mut there = named(&text);
    let link = flowlane::link::QueueStats::FIELDS
        .map(|name| format!("flowlane_link_{}_total", name.replace('-', "_")));
    there.extend(link.iter().map(String::as_str));
    // The kernel keeps the round-trip times of its connections to itself.
    there.insert("flowlane_tcp_rtt_seconds_bucket");
    for (file, names) in [("flowlane.json", named(&dashboard)), ("rules.yml", named(&rules))] {
        assert!(names.len() > 4, "{file}: {names:?}");
        let unknown: Vec<_> = names.difference(&there).collect();
        assert!(unknown.is_empty(), "{file} names what is not served: {unknown:?}");
    }
    if is_there("promtool") {
        let checked =
            Command::new("promtool").args(["check", "rules"]).arg(contrib.join("rules.yml")).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// A program that has said a line with this word on standard error, and the line.
fn started(mut command: Command, word: &str) -> (Program, String) {
    command.env_remove("RUST_LOG");
    let mut program = Program::start(command);
    let line = program.hear(word);
    (program, line)
}

/// A Prometheus that scrapes these once a second, and takes remote write.
pub(crate) struct Prometheus {
    _process: Program,
    pub(crate) at: String,
    _dir: Scratch,
}

impl Prometheus {
    pub(crate) fn start(name: &str, targets: &[SocketAddr]) -> Self {
        let dir = Scratch::new(name);
        let config = dir.path("prometheus.yml");
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: flowlane\n    static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        std::fs::write(&config, text).unwrap();
        let mut prometheus = Command::new("prometheus");
        prometheus
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", dir.path("data")))
            .arg("--web.enable-remote-write-receiver")
            .arg("--web.listen-address=127.0.0.1:0");
        let listening = "Listening on\" address=";
        let (process, line) = started(prometheus, listening);
        let at = line.split_once(listening).unwrap().1.trim().to_owned();
        Self { _process: process, at, _dir: dir }
    }

    /// What it answers to a query: the series; empty while there is none. `Err`: it does not take the query.
    pub(crate) fn ask(&self, query: &str) -> Result<Vec<Value>, String> {
        let Ok(mut stream) = TcpStream::connect(&self.at) else { return Ok(Vec::new()) };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let document: Value = serde_json::from_str(body).unwrap_or_default();
        match document["error"].as_str() {
            Some(error) => Err(format!("{query}: {error}")),
            None => Ok(document["data"]["result"].as_array().cloned().unwrap_or_default()),
        }
    }
}

/// A query up to its comparison, behind which no series may be left.
fn without_comparison(query: &str) -> &str {
    let at = [" > ", " < "].into_iter().filter_map(|sign| query.find(sign)).min();
    &query[..at.unwrap_or(query.len())]
}

/// Prometheus scrapes it, in the format OpenMetrics, which it asks for. Each query of the dashboard and each of the alert rules has an answer, for a
/// service on a link of ours that is under load; what compares, before it compares; and no alert is on.
// Long: Prometheus scrapes what it compares over time.
#[test]
fn prometheus_reads_it() {
    if !is_there("prometheus") {
        return;
    }
    let scratch = Scratch::new("queries");
    let dir = scratch.dir();
    let ours = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(line.split_whitespace()).env("XDG_RUNTIME_DIR", dir).current_dir(dir);
        command
    };
    let mut switch = ours("switch up --port web --port x");
    switch.env_remove("RUST_LOG");
    let mut switch = Program::start(switch);
    while !switch.prints().contains("switch ") {}
    let host = |port, address, line: &str| {
        ours(&format!("{line} --link switch:sw0/{port} --addr 10.9.0.{address}/24 --workers 2 --no-pin"))
    };
    let (_service, said) = started(host("web", 1, "serve tcp-echo --port 7 --metrics 0"), "metrics http://");
    let at = said.split_once("metrics http://").unwrap().1.strip_suffix("/metrics").unwrap();
    let load =
        host("x", 2, "load tcp 10.9.0.1:7 --mode hold --connections 4 --rate 200 --duration 10m --quiet");
    let _load = Program::start(load);

    let service = Service::start("prometheus");
    let prometheus = Prometheus::start("prometheus", &[service.metrics, at.parse().unwrap()]);
    let contrib = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana"));
    let dashboard = std::fs::read_to_string(contrib.join("flowlane.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let rules = std::fs::read_to_string(contrib.join("rules.yml")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let drawn = targets.map(|target| target["expr"].as_str().unwrap());
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    let queries: Vec<String> = drawn
        .chain(alerts.iter().copied())
        .map(|query| query.replace("$instance", ".*").replace("$__rate_interval", "1m"))
        .collect();
    assert!(queries.len() > alerts.len() + 8 && alerts.len() > 4, "{queries:?}");
    for query in &queries {
        eventually(query, || !prometheus.ask(without_comparison(query)).unwrap().is_empty());
    }
    for alert in alerts {
        assert_eq!(prometheus.ask(alert), Ok(vec![]), "{alert}");
    }
    let bytes = prometheus.ask("sum(flowlane_link_rx_bytes_total)").unwrap();
    assert!(bytes[0]["value"][1].as_str().unwrap().parse::<f64>().unwrap() > 0.0, "{bytes:?}");
    assert_eq!(prometheus.ask("count(flowlane_worker_turns_total)").unwrap()[0]["value"][1], "4");
    let up = prometheus.ask("up").unwrap();
    assert!(up.len() == 2 && up.iter().all(|up| up["value"][1] == "1"), "{up:?}");
    let name = prometheus.ask("flowlane_instance_info{name='serve udp-echo'}").unwrap();
    assert_eq!(name.len(), 1, "{name:?}");
}
