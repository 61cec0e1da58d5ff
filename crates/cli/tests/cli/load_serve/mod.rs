//! The generator against our own services: over kernel sockets and over a link in namespaces, datagrams, connections,
//! HTTP and HTTPS. What the generator says and what the service says must be the same.

mod collector;
mod kernel_records;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use flowlane::{Bucket, HashConfig, Key, Rss, UdpFields};
use flowlane_rss::{Flow, Protocol};
use flowlane_testnet::{Namespace, Program, Scratch, eventually, free_port};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::counted::count;

/// A command in a namespace, or here.
fn command(inside: Option<&Namespace>, line: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_flowlane");
    let mut command = match inside {
        None => Command::new(program),
        Some(namespace) => namespace.command(program),
    };
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// A service that says that it serves.
struct Service(Program);

impl Service {
    fn start(inside: Option<&Namespace>, line: &str) -> Self {
        Self(Program::ready(command(inside, &format!("serve {line} --no-pin --json")), " on "))
    }

    /// ^C; what it printed.
    fn end(self) -> Vec<Value> {
        let printed = self.0.interrupt();
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn last<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().rfind(|d| d["kind"] == kind).unwrap()
}

/// A run whose report follows the schema and where nothing but the schedule may have been missed.
fn load(inside: Option<&Namespace>, line: &str) -> Value {
    let output = command(inside, &format!("load {line} --json --quiet --no-pin")).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{line}: {e}: {stderr}"));
    assert_eq!(flowlane_schema::faults("load-run", &report), Vec::<String>::new(), "{line}");
    let late = report["slip"]["kept"] == false && report["failed"].as_array().unwrap().len() == 1;
    assert!(output.status.success() || late, "{line}: {stderr}");
    report
}

/// Two namespaces with a wire between them: `va` in the first, `vb` in the second. `None`, having said why.
fn wire(tag: &str) -> Option<(Namespace, Namespace)> {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return None;
    }
    let make = |end: &str| Namespace::new(&format!("h3{tag}{}{end}", std::process::id())).unwrap();
    let (a, b) = (make("a"), make("b"));
    let (near, far) = (a.name(), b.name());
    flowlane_testnet::ip(&format!("link add va netns {near} type veth peer name vb netns {far}")).unwrap();
    a.ip("link set va up").unwrap();
    b.ip("link set vb up").unwrap();
    Some((a, b))
}

const NEAR: &str = "--link af-packet:va --addr 10.11.2.2/24 --clients 10.11.2.64/26";
const FAR: &str = "--link af-packet:vb --addr 10.11.2.1/24 --workers 2";

#[test]
fn datagrams_over_kernel_sockets() {
    let port = free_port();
    let service = Service::start(None, &format!("udp-echo --link kernel --addr 127.0.0.1/8 --port {port}"));
    let mut sent = 0;
    for more in [
        "--rate 500 --duration 1s",
        "--rate 400 --poisson --ramp 500ms --warm-up 200ms --duration 500ms --flows 7 --workers 2",
        "--window 4 --duration 300ms --flows 3 --clients 127.0.0.16/28",
        "--rate 100 --duration 300ms --size 20000",
    ] {
        let report = load(None, &format!("udp 127.0.0.1:{port} {more}"));
        assert_eq!(count(&report, "answered"), count(&report, "sent"), "{more}: {report}");
        assert_eq!((count(&report, "failed"), count(&report, "strays")), (0, 0), "{more}");
        assert!(count(&report, "sent") >= 4, "{more}: {report}");
        let measured = &report["total"]["counts"]["answered"];
        assert_eq!(
            (&report["total"]["latency"]["count"], &report["total"]["service"]["count"]),
            (measured, measured)
        );
        assert_eq!(
            (&report["setup"]["link"], &report["setup"]["command"]),
            (&"kernel".into(), &"load udp".into())
        );
        sent += count(&report, "sent") + count(&report, "probes");
    }
    let said = service.end();
    let summary = last(&said, "summary");
    assert_eq!((&summary["received"], &summary["sent"]), (&sent.into(), &sent.into()), "{summary}");

    let service = Service::start(None, &format!("udp-discard --link kernel --port {port}"));
    let report = load(None, &format!("udp localhost:{port} --discard --rate 500 --duration 500ms"));
    let sent = count(&report, "sent") + count(&report, "probes");
    let said = service.end();
    assert_eq!(last(&said, "summary")["received"], sent, "{report}");
}

/// Other programs have all ports of a lane but one: its second flow goes on from another, and is counted.
#[test]
fn flows_go_on_from_another_port_when_the_lane_has_none() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(why);
    }
    let end = Namespace::new(&format!("h3p{}", std::process::id())).unwrap();
    end.ip("link set lo up").unwrap();
    let (first, last_port) = (40_000, 40_099);
    let range = format!("echo {first} {last_port} > /proc/sys/net/ipv4/ip_local_port_range");
    let mut shell = Command::new("ip");
    assert!(shell.args(["netns", "exec", end.name(), "sh", "-c", &range]).status().unwrap().success());
    let mut rss = Rss::new(Key::MICROSOFT, 2);
    rss.config = HashConfig::with_udp(UdpFields::Four);
    let ip = IpAddr::from([127, 0, 0, 1]);
    let bucket_of = |port| {
        let answer = Flow::new(SocketAddr::new(ip, 7007), SocketAddr::new(ip, port), Protocol::UDP);
        rss.steer(&answer).bucket
    };
    let theirs: Vec<u16> = (first..=last_port).filter(|port| bucket_of(*port) == Bucket(0)).skip(1).collect();
    assert!(theirs.len() > 5, "{theirs:?}");
    let bound =
        end.run(|| theirs.iter().map(|port| UdpSocket::bind((ip, *port)).unwrap()).collect::<Vec<_>>());
    let service = Service::start(Some(&end), "udp-echo --link kernel --addr 127.0.0.1/8 --port 7007");
    let lanes = rss.buckets.len();
    let home = "--home-ports --key microsoft --udp-4tuple --workers 2";
    let load = |flows| {
        let line = format!("udp 127.0.0.1:7007 {home} --clients 127.0.0.1 --flows {flows} -r 200 -d 300ms");
        load(Some(&end), &line)
    };
    for (flows, elsewhere) in [(lanes, 0), (2 * lanes, 1)] {
        let report = load(flows);
        assert_eq!(count(&report, "answered"), count(&report, "sent"), "{report}");
        assert_eq!((count(&report, "failed"), count(&report, "strays")), (0, 0), "{report}");
        let ports = &report["home-ports"];
        assert_eq!(
            (&ports["home"], &ports["elsewhere"]),
            (&Value::from(flows - elsewhere), &Value::from(elsewhere)),
            "{report}"
        );
    }
    drop((bound, service.end()));
}

#[test]
fn a_port_nobody_has_is_said_so() {
    for line in ["udp 127.0.0.1:PORT --duration 1s", "tcp 127.0.0.1:PORT --duration 200ms"] {
        let line = line.replace("PORT", &free_port().to_string());
        let output = command(None, &format!("load {line} --quiet --no-pin")).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.contains("nothing listens at") && stderr.lines().count() == 1, "{line}: {stderr}");
    }
    // Nobody is allowed an address that is not the machine's.
    let line = "load udp 127.0.0.1:9 --clients 192.0.2.7 --discard --quiet --no-pin --duration 100ms";
    let output = command(None, line).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("192.0.2.7") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn connections_over_kernel_sockets() {
    const EACH: u64 = 1 << 20;
    let port = free_port();
    let serve = |what: &str| {
        Service::start(None, &format!("{what} --link kernel --addr 127.0.0.1/8 --port {port} --workers 2"))
    };
    let clean = "--fail errors>0 --fail unfinished>0 --timeout 30s";
    let total = format!("--connections 8 --total {EACH} --duration 60s {clean}");

    let service = serve("tcp-echo");
    let report = load(None, &format!("tcp 127.0.0.1:{port} --mode echo {total}"));
    assert_eq!((count(&report, "completed"), count(&report, "bytes-received")), (8, 8 * EACH), "{report}");
    let report = load(
        None,
        &format!("tcp 127.0.0.1:{port} --mode hold --connections 50 --rate 500 --duration 500ms {clean}"),
    );
    assert_eq!((count(&report, "standing"), count(&report, "completed")), (50, 50), "{report}");
    let paced = "--mode connect --rate 200 --poisson --ramp 300ms --connections 500 --duration 500ms --clients 127.0.0.0/24";
    let report = load(None, &format!("tcp 127.0.0.1:{port} {paced} {clean}"));
    assert_eq!(count(&report, "completed"), count(&report, "begun"), "{report}");
    assert_eq!(count(&report, "sent"), count(&report, "begun"), "{report}");
    assert!(report["total"]["unmeasured"]["sent"].as_u64().unwrap() > 5, "{report}");
    let connections = 8 + 50 + count(&report, "begun");
    let said = service.end();
    assert_eq!(last(&said, "summary")["connections"], connections);

    let service = serve("tcp-discard");
    let report = load(None, &format!("tcp 127.0.0.1:{port} --mode write {total}"));
    assert_eq!((count(&report, "completed"), count(&report, "bytes-sent")), (8, 8 * EACH), "{report}");
    drop(service.end());

    let service = serve(&format!("tcp-source --total {EACH}"));
    let report = load(None, &format!("tcp 127.0.0.1:{port} --mode read --verify {total}"));
    assert_eq!((count(&report, "completed"), count(&report, "bytes-received")), (8, 8 * EACH), "{report}");
    drop(service.end());
}

/// Datagrams and connections are reported as requests are: every file is written, and runs are compared.
// Long: every kind of load has a run for every kind of report.
#[test]
fn reports_of_every_kind_are_the_same() {
    let dir = Scratch::new("loads-files");
    for (serve, load_line) in [
        ("udp-echo", "udp 127.0.0.1:PORT --rate 300 --duration 1200ms"),
        ("tcp-echo", "tcp 127.0.0.1:PORT --mode hold --connections 20 --rate 300 --duration 1200ms"),
    ] {
        let port = free_port();
        let service =
            Service::start(None, &format!("{serve} --link kernel --addr 127.0.0.1/8 --port {port}"));
        let mut saved = Vec::new();
        for run in 0..4 {
            let [json, page, csv, log] =
                ["json", "html", "csv", "hlog"].map(|e| dir.path(&format!("{serve}{run}.{e}")));
            let line = format!(
                "{} --save {json} --html {page} --csv {csv} --hdr {log} --lines --no-pin --fail errors>0",
                load_line.replace("PORT", &port.to_string())
            );
            let output = command(None, &format!("load {line}")).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let text = String::from_utf8_lossy(&output.stdout);
            let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
            assert_eq!(flowlane_schema::faults("load-run", &report), Vec::<String>::new());
            assert_eq!(report["ok"], output.status.success(), "{stderr}");
            assert!(text.contains("latency") && text.contains("passed: errors>0"), "{text}");
            assert!(stderr.contains("answers/s"), "{stderr}");
            assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
            assert!(std::fs::read_to_string(&csv).unwrap().lines().count() > 1);
            assert!(std::fs::read_to_string(&log).unwrap().contains("HISTF"));
            saved.push(json);
        }
        drop(service.end());
        let arguments = [
            "load",
            "compare",
            "--json",
            "--neglect",
            "1000",
            &saved[0],
            &saved[1],
            "--",
            &saved[2],
            &saved[3],
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(compared["compared"].as_array().unwrap().iter().any(|c| c["metric"] == "p50"), "{compared}");
    }
}

/// The service's requests and connections are the generator's.
fn http_agrees(said: &[Value], report: &Value) {
    let summary = last(said, "http-summary");
    assert_eq!(summary["requests"], count(report, "sent"), "{summary} {report}");
    assert_eq!(summary["answers-2xx"], count(report, "answered"), "{summary}");
    assert_eq!(summary["connections"], count(report, "connections-opened"), "{summary}");
    assert_eq!((count(report, "failed"), &summary["errors"]), (0, &serde_json::json!({})), "{summary}");
    assert!(count(report, "sent") > 100, "{report}");
}

#[test]
fn http_over_kernel_sockets() {
    for (serve, more) in [
        ("", "-c 5 --rate 400"),
        ("", "-c 5 --rate 200 --no-keepalive"),
        ("", "-c 3 --rate 300 --http2 4"),
        ("--keepalive 7", "-c 5 -n 500"),
    ] {
        let port = free_port();
        let service =
            Service::start(None, &format!("http --addr 127.0.0.1/8 --port {port} --workers 2 {serve}"));
        let report = load(None, &format!("http http://127.0.0.1:{port}/size/600 -d 1s {more}"));
        http_agrees(&service.end(), &report);
    }
}

// Long: three servers, and a load of a second on each.
#[test]
fn http_over_a_link() {
    let Some((near, far)) = wire("h") else { return };
    for more in ["-c 20 --rate 400", "-c 50 --rate 200 --no-keepalive", "-c 2 --rate 300 --pipeline 4"] {
        let service = Service::start(Some(&far), &format!("http {FAR} --port 80"));
        let report = load(Some(&near), &format!("http http://10.11.2.1/size/600 {NEAR} -d 1s {more}"));
        http_agrees(&service.end(), &report);
    }
}

/// rustls at both ends, our stack beneath them; what must not be believed is not, and said so.
// Long: a load of a second, and one for each thing that is not to be believed.
#[test]
fn https_over_a_link() {
    let Some((near, far)) = wire("s") else { return };
    let dir = Scratch::new("loads-tls");
    let pem = dir.path("made.pem");
    let service = Service::start(Some(&far), &format!("http {FAR} --port 443 --tls --write-cert {pem}"));
    let url = "http https://10.11.2.1/size/600";
    let report = load(Some(&near), &format!("{url} {NEAR} -c 8 --rate 200 -d 1s --ca {pem}"));
    assert!(report["total"]["tls"]["count"].as_u64().unwrap() + count(&report, "connections-opened") > 8);
    let refused = |more: &str, word: &str| {
        let line = format!("load {url} {NEAR} -c 2 --rate 20 -d 300ms --no-pin --quiet --json {more}");
        let output = command(Some(&near), &line).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(count(&report, "answered"), 0, "{report}");
        let why = report["total"]["counts"]["errors"]["tls"]["example"].as_str().unwrap_or_default();
        assert!(why.contains(word) || stderr.contains(word), "'{word}' in '{why}' or {stderr}");
    };
    // Nobody that the machine trusts has signed it.
    refused("", "certificate");
    let said = service.end();
    let requests = last(&said, "http-summary")["requests"].as_u64().unwrap();
    assert_eq!(requests, count(&report, "sent"), "what was refused never asked");

    // One that is trusted, and is for somebody else.
    let other = rcgen::generate_simple_self_signed(vec!["elsewhere.test".to_owned()]).unwrap();
    let key = dir.path("key.pem");
    std::fs::write(&pem, other.cert.pem()).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let service = Service::start(Some(&far), &format!("http {FAR} --port 443 --cert {pem} --cert-key {key}"));
    refused(&format!("--ca {pem}"), "not valid for name");
    let report = load(Some(&near), &format!("{url} {NEAR} -c 2 --rate 50 -d 500ms --insecure"));
    http_agrees_but_for_failures(&service.end(), &report);
}

fn http_agrees_but_for_failures(said: &[Value], report: &Value) {
    assert_eq!(last(said, "http-summary")["requests"], count(report, "answered"));
    assert_eq!(count(report, "failed"), 0, "{report}");
}

/// A SYN and no more, against our own listener with and without cookies.
#[test]
fn half_open_clients_over_a_link() {
    let Some((near, far)) = wire("o") else { return };
    for mode in ["half-open", "syn"] {
        let service = Service::start(Some(&far), &format!("tcp-echo {FAR} --port 7"));
        let line = format!("tcp 10.11.2.1:7 {NEAR} --mode {mode} --rate 500 --duration 1s --timeout 800ms");
        let report = load(Some(&near), &line);
        assert_eq!(
            (count(&report, "answered"), count(&report, "failed")),
            (count(&report, "begun"), 0),
            "{report}"
        );
        assert_eq!(count(&report, "begun") + count(&report, "unsent"), 500);
        let said = service.end();
        let summary = last(&said, "summary");
        // Each SYN, and with resets as many again; nobody was accepted.
        let heard = count(&report, "begun") * if mode == "syn" { 2 } else { 1 };
        assert_eq!((&summary["received"], &summary["connections"]), (&heard.into(), &0.into()), "{summary}");
    }
}

/// Requests with the SYN, from the second connection of each client address in each lane on; the first asks for the cookie, which is
/// good in every lane of the server.
#[test]
fn requests_with_the_syn_over_a_link() {
    let Some((near, far)) = wire("f") else { return };
    let service = Service::start(Some(&far), &format!("tcp-echo {FAR} --port 7 --fast-open"));
    let near_end = "--link af-packet:va --addr 10.11.2.2/24 --clients 10.11.2.16-10.11.2.18 --workers 2";
    let line = format!("tcp 10.11.2.1:7 {near_end} --mode connect --rate 300 --duration 1s --fast-open");
    let report = load(Some(&near), &line);
    let (begun, with_syn) = (count(&report, "begun"), count(&report, "syn-data"));
    assert_eq!((count(&report, "completed"), count(&report, "failed")), (begun, 0), "{report}");
    assert_eq!((begun + count(&report, "unsent"), count(&report, "syn-data-resent")), (300, 0), "{report}");
    // While an answer is on its way more connections may ask.
    assert!(with_syn > begun / 2 && with_syn < begun, "{report}");
    assert_eq!(last(&service.end(), "summary")["connections"], begun);
}

/// Sets `net.ipv4.tcp_fastopen` of a namespace.
fn set_fast_open(end: &Namespace, value: u32) {
    let file = format!("echo {value} > /proc/sys/net/ipv4/tcp_fastopen");
    let mut shell = Command::new("ip");
    assert!(shell.args(["netns", "exec", end.name(), "sh", "-c", &file]).status().unwrap().success());
}

/// What the kernel of a namespace has counted under this name among those of TCP.
fn counted(end: &Namespace, name: &str) -> u64 {
    let output = Command::new("ip").args(["netns", "exec", end.name(), "cat", "/proc/net/netstat"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (mut names, mut values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.position(|word| word == name).unwrap();
    values.nth(at).unwrap().parse().unwrap()
}

/// The ends of a wire with addresses of the kernel's.
fn wire_of_the_kernel(tag: &str) -> Option<(Namespace, Namespace)> {
    let (near, far) = wire(tag)?;
    for (end, address) in [(&near, "10.11.2.2/24 dev va"), (&far, "10.11.2.1/24 dev vb")] {
        end.ip(&format!("addr add {address}")).unwrap();
    }
    Some((near, far))
}

/// The same on kernel sockets, as the kernel counts it at both ends. Without its sysctl each end says how to have it.
#[test]
fn requests_with_the_syn_over_kernel_sockets() {
    let Some((near, far)) = wire_of_the_kernel("k") else { return };
    let serving = "tcp-echo --link kernel --addr 10.11.2.1/24 --port 7 --workers 2 --fast-open";
    let loading = "tcp 10.11.2.1:7 --mode connect --rate 200 --duration 500ms --fast-open";
    set_fast_open(&near, 0);
    set_fast_open(&far, 1);
    for (end, line) in [(&far, format!("serve {serving}")), (&near, format!("load {loading}"))] {
        let output = command(Some(end), &line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("sysctl net.ipv4.tcp_fastopen=3"), "{said}");
    }
    set_fast_open(&near, 1);
    set_fast_open(&far, 3);
    let service = Service::start(Some(&far), serving);
    let report = load(Some(&near), loading);
    let (begun, with_syn) = (count(&report, "begun"), count(&report, "syn-data"));
    assert_eq!((count(&report, "completed"), count(&report, "failed")), (begun, 0), "{report}");
    // The first asks for the cookie, and while it does others may.
    assert!(with_syn > begun / 2 && with_syn < begun, "{report}");
    let summary = last(&service.end(), "summary").clone();
    assert_eq!(summary["connections"], begun, "{summary}");
    assert_eq!(
        (counted(&near, "TCPFastOpenActive"), counted(&far, "TCPFastOpenPassive")),
        (with_syn, with_syn)
    );
}

/// The relay takes requests with the SYN when it is told to, and passes them on.
#[test]
fn a_relay_takes_requests_with_the_syn() {
    let Some((near, far)) = wire_of_the_kernel("v") else { return };
    set_fast_open(&near, 1);
    set_fast_open(&far, 3);
    let at = |port: u16| format!("--link kernel --addr 10.11.2.1/24 --workers 2 --port {port}");
    let web = Service::start(Some(&far), &format!("http {}", at(80)));
    let relay = Service::start(Some(&far), &format!("relay {} --to 10.11.2.1:80 --fast-open", at(81)));
    let loading = "http http://10.11.2.1:81/size/600 --no-keepalive --fast-open -c 1 -n 30 -d 20s";
    let report = load(Some(&near), loading);
    assert_eq!((count(&report, "answered"), count(&report, "syn-data")), (30, 29), "{report}");
    assert_eq!((counted(&near, "TCPFastOpenActive"), counted(&far, "TCPFastOpenPassive")), (29, 29));
    relay.end();
    assert_eq!(last(&web.end(), "http-summary")["requests"], 30);
}

/// HTTP requests with the SYN: one after the other, many at once, at a rate, longer than a SYN; as the kernels count them at both ends.
#[test]
fn http_requests_with_the_syn_over_kernel_sockets() {
    let Some((near, far)) = wire_of_the_kernel("y") else { return };
    set_fast_open(&far, 3);
    let loading = "http http://10.11.2.1/size/600 --no-keepalive --fast-open";
    let refused = |line: &str, why: &str| {
        let output = command(Some(&near), &format!("load {line}")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why), "{said}");
    };
    set_fast_open(&near, 0);
    refused(loading, "sysctl net.ipv4.tcp_fastopen=3");
    set_fast_open(&near, 1);
    refused("http http://10.11.2.1/ --fast-open", "--no-keepalive");
    refused("http https://10.11.2.1/ --fast-open --no-keepalive", "https");

    let web = "http --link kernel --addr 10.11.2.1/24 --port 80 --workers 2 --fast-open";
    let service = Service::start(Some(&far), web);
    // The first asks for the cookie, and the kernel keeps it for all that follow.
    let first = load(Some(&near), &format!("{loading} -c 1 -n 1 -d 20s"));
    assert_eq!((count(&first, "answered"), count(&first, "syn-data")), (1, 0), "{first}");
    let (mut sent, mut answered, mut bytes) = (0, 1, count(&first, "bytes-sent"));
    let scratch = Scratch::new("fast-open-pool");
    let scenario = scratch.path("pool.toml");
    let pool = "[[phase]]\nduration = \"20s\"\n[[pool]]\nconnections = 3\nrequests = 30\nkeep-alive = false\nfast-open = true\n\
         target = [{ url = \"http://10.11.2.1/size/600\" }]\n";
    std::fs::write(&scenario, pool).unwrap();
    let echo =
        "http http://10.11.2.1/echo --no-keepalive --fast-open --body-size 20000 --expect-length 20000";
    for line in [
        format!("{loading} -c 1 -n 40 -d 20s"),
        format!("{loading} -c 20 -n 200 -d 20s --workers 2"),
        format!("{loading} -c 50 --rate 200 -d 500ms"),
        format!("{loading} -c 4 -n 20 -d 20s --think 1ms"),
        format!("{echo} -c 4 -n 40 -d 20s"),
        format!("http --scenario {scenario}"),
    ] {
        let report = load(Some(&near), &line);
        let requests = count(&report, "sent");
        assert_eq!((count(&report, "answered"), count(&report, "failed")), (requests, 0), "{report}");
        assert_eq!(count(&report, "connections-opened"), requests, "{report}");
        assert_eq!(
            (count(&report, "syn-data"), count(&report, "syn-data-resent")),
            (requests, 0),
            "{report}"
        );
        (sent, answered) = (sent + requests, answered + requests);
        bytes += count(&report, "bytes-sent");
        assert_eq!(
            (counted(&near, "TCPFastOpenActive"), counted(&far, "TCPFastOpenPassive")),
            (sent, sent),
            "{line}"
        );
    }
    // Nothing went twice.
    let summary = last(&service.end(), "http-summary").clone();
    assert_eq!((&summary["requests"], &summary["bytes-in"]), (&answered.into(), &bytes.into()), "{summary}");

    // Who takes no data from SYNs gets it again.
    let service = Service::start(Some(&far), &web.replace(" --fast-open", ""));
    let report = load(Some(&near), &format!("{loading} -c 1 -n 20 -d 20s"));
    let (taken, again) = (count(&report, "syn-data"), count(&report, "syn-data-resent"));
    assert_eq!((count(&report, "answered"), count(&report, "failed"), taken), (20, 0, 0), "{report}");
    assert!(again > 0, "{report}");
    assert_eq!(last(&service.end(), "http-summary")["requests"], 20);
}

/// The same over a link of ours, whose lane keeps the cookie of its address.
#[test]
fn http_requests_with_the_syn_over_a_link() {
    let Some((near, far)) = wire("z") else { return };
    let service = Service::start(Some(&far), &format!("http {FAR} --port 80 --fast-open"));
    let near_end = "--link af-packet:va --addr 10.11.2.2/24 --workers 1 --no-keepalive --fast-open";
    let report = load(Some(&near), &format!("http http://10.11.2.1/size/600 {near_end} -c 1 -n 40 -d 20s"));
    assert_eq!((count(&report, "answered"), count(&report, "failed")), (40, 0), "{report}");
    assert_eq!((count(&report, "syn-data"), count(&report, "syn-data-resent")), (39, 0), "{report}");
    assert_eq!(last(&service.end(), "http-summary")["requests"], 40);
}

/// nginx as the server, if there is one.
#[test]
fn nginx_over_loopback() {
    if Command::new("nginx").arg("-v").output().is_err() {
        flowlane_testnet::skipped("skipped, because there is no nginx");
        return;
    }
    let dir = Scratch::new("loads-nginx");
    let port = free_port();
    let root = dir.dir().display();
    std::fs::write(dir.path("page"), "x".repeat(600)).unwrap();
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log {root}/access.log; keepalive_requests 100000; \
         client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root}; \
         scgi_temp_path {root}; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    );
    std::fs::write(dir.path("nginx.conf"), text).unwrap();
    let mut nginx = Command::new("nginx")
        .args(["-e", &dir.path("first.log"), "-c", &dir.path("nginx.conf")])
        .spawn()
        .unwrap();
    eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut asked = 0;
    for more in ["--rate 300", "--rate 100 --no-keepalive", "-n 400 --pipeline 4"] {
        let report = load(
            None,
            &format!(
                "http http://127.0.0.1:{port}/page -c 4 -d 1s --expect-length 600 --expect-status 200 {more}"
            ),
        );
        assert_eq!(
            (count(&report, "answered"), count(&report, "failed")),
            (count(&report, "sent"), 0),
            "{report}"
        );
        asked += count(&report, "sent");
    }
    kill_process(Pid::from_child(&nginx), Signal::TERM).unwrap();
    nginx.wait().unwrap();
    let heard = std::fs::read_to_string(dir.path("access.log")).unwrap();
    assert_eq!(heard.lines().filter(|l| l.contains("GET /page")).count() as u64, asked);
}
