//! Records of flows as a collector of nfdump's reads them, beside what tcpdump saw on the wire.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flowlane_testnet::{Ended, Namespace, Program, Scratch, eventually};
use rustix::process::Signal;
use serde_json::Value;

use super::{FAR, Service, last, wire};

/// Records of connections as nfdump's collector reads them, against what tcpdump saw on the wire: addresses, packets and octets of both
/// directions, whoever opened the connection and however it ended.
#[test]
fn a_collector_reads_the_records() {
    let connections: [&[&str]; 4] = [&["0"], &["600"], &["30000"], &["1000000"]];
    let Some(collected) = collect_connections("ix", "", &connections) else { return };
    // With the active timeout that there is by default, and connections that are short.
    assert_eq!(collected.exported, serde_json::json!({ "sent": 4, "refused": 0, "lost": 0 }));
    assert_eq!(collected.compare("tcp"), [1; 4]);
}

/// A connection that stands for seconds has a record each time the active timeout has passed, and all of them together are what tcpdump saw.
#[test]
fn a_collector_reads_of_connections_that_stand() {
    let connections: [&[&str]; 2] = [&["600"; 8], &["600"]];
    let Some(collected) = collect_connections("iy", ",active=200ms", &connections) else { return };
    let records = collected.compare("tcp");
    assert!(records.len() == 2 && records.iter().any(|records| *records > 4), "{records:?}");
    assert_eq!(collected.exported["sent"], records.iter().sum::<usize>(), "{:?}", collected.exported);
}

/// The same of UDP: flows of one datagram and of many, with an active timeout, in both directions.
#[test]
fn a_collector_reads_of_datagrams() {
    let traffic = |near: &Namespace, _: &Inside<'_>, _: &Captured<'_>| {
        let flow = |(size, millis): (usize, u64)| {
            let socket = UdpSocket::bind("10.11.2.2:0").unwrap();
            socket.connect("10.11.2.1:8080").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let (began, mut echoed) = (Instant::now(), 0);
            while echoed == 0 || began.elapsed() < Duration::from_millis(millis) {
                socket.send(&vec![7; size]).unwrap();
                assert_eq!(socket.recv(&mut [0; 2048]).unwrap(), size);
                echoed += 1;
            }
        };
        near.run(|| [(0, 0), (1, 0), (1400, 0), (100, 700)].into_iter().for_each(flow)).unwrap();
    };
    let Some(collected) = collect("iu", "udp-echo", ",active=200ms", traffic) else { return };
    let records = collected.compare("udp");
    assert!(records.len() == 4 && records.iter().any(|records| *records > 2), "{records:?}");
    assert_eq!(collected.exported["sent"], records.iter().sum::<usize>(), "{:?}", collected.exported);
}

/// What a collector took, and what was on the wire.
struct Collected {
    exported: Value,
    flows: Vec<Value>,
    wire: String,
    _dir: Scratch,
}

impl Collected {
    /// Compares packets and octets of each flow with those on the wire. How many records each has.
    fn compare(&self, protocol: &str) -> Vec<usize> {
        let number = if protocol == "udp" { 17 } else { 6 };
        let mut of_port: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for flow in &self.flows {
            assert_eq!(
                (&flow["src4_addr"], &flow["dst4_addr"]),
                (&"10.11.2.2".into(), &"10.11.2.1".into()),
                "{flow}"
            );
            assert_eq!((&flow["dst_port"], &flow["proto"]), (&8080.into(), &number.into()), "{flow}");
            of_port.entry(flow["src_port"].as_u64().unwrap()).or_default().push(flow);
        }
        for (port, flows) in &of_port {
            let seen =
                |direction: &str| on_the_wire(&self.wire, &format!("{protocol} {direction} port {port}"));
            let sum = |count: &str| flows.iter().map(|flow| flow[count].as_u64().unwrap()).sum::<u64>();
            assert_eq!((sum("in_packets"), sum("in_bytes")), seen("src"), "{flows:?}");
            assert_eq!((sum("out_packets"), sum("out_bytes")), seen("dst"), "{flows:?}");
        }
        of_port.values().map(Vec::len).collect()
    }
}

/// Starts a program at the near end.
type Inside<'a> = dyn Fn(&[&str]) -> Command + 'a;
/// Waits until so many packets that the filter lets pass are in the capture, which is behind.
type Captured<'a> = dyn Fn(&str, usize) + 'a;

/// A web server, and curl that asks it for the sizes of each connection, a request each 250 ms.
fn collect_connections(word: &str, options: &str, connections: &[&[&str]]) -> Option<Collected> {
    let traffic = |_: &Namespace, inside: &Inside<'_>, captured: &Captured<'_>| {
        for sizes in connections {
            let url = format!("http://10.11.2.1:8080/size/{{{}}}", sizes.join(","));
            let mut curl = inside(&["curl", "-s", "-m", "60", "-o", "/dev/null", "--rate", "4/s"]);
            let output = curl.args(["-w", "%{size_download} %{num_connects},", &url]).output().unwrap();
            let connects = std::iter::once(1).chain(std::iter::repeat(0));
            let expected: String =
                sizes.iter().zip(connects).map(|(size, new)| format!("{size} {new},")).collect();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
        }
        // Each connection is closed by both ends when two FINs of it are seen.
        for host in ["10.11.2.1", "10.11.2.2"] {
            captured(&format!("tcp[tcpflags] & tcp-fin != 0 and src host {host}"), connections.len());
        }
        // Nobody listens there, and this is no connection: no record.
        let refused = inside(&["curl", "-s", "-m", "30", "http://10.11.2.1:8081/"]).output().unwrap();
        assert!(!refused.status.success());
    };
    collect(word, "http", options, traffic)
}

/// A service with an exporter, nfdump's collector, and tcpdump beside it.
fn collect(
    word: &str,
    service: &str,
    options: &str,
    traffic: impl FnOnce(&Namespace, &Inside<'_>, &Captured<'_>),
) -> Option<Collected> {
    let tools = ["nfcapd", "nfdump", "tcpdump"];
    if let Some(missing) = tools.iter().find(|tool| Command::new(tool).arg("-V").output().is_err()) {
        flowlane_testnet::skipped(format!(
            "skipped, because there is no {missing} (packages nfdump and tcpdump)"
        ));
        return None;
    }
    let (near, far) = wire(word)?;
    far.ip("link set lo up").unwrap();
    near.ip("addr add 10.11.2.2/24 dev va").unwrap();
    let dir = Scratch::new(&format!("loads-{word}"));
    let inside = |namespace: &Namespace, words: &[&str]| {
        let mut command = namespace.command(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command
    };
    let directory = dir.path("");
    let collector =
        tool(inside(&far, &["nfcapd", "-b", "127.0.0.1", "-p", "4739", "-w", &directory]), "Startup");
    let capture = dir.path("wire.pcap");
    let watch = inside(
        &near,
        &[
            "tcpdump",
            "-i",
            "va",
            "--immediate-mode",
            "-s",
            "128",
            "-B",
            "16384",
            "-U",
            "-w",
            &capture,
            "port",
            "8080",
        ],
    );
    let watcher = tool(watch, "listening on");

    let line = format!("{service} --port 8080 --ipfix 127.0.0.1:4739{options} {FAR}");
    let service = Service::start(Some(&far), &line);
    let captured = |filter: &str, count: usize| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while on_the_wire(&capture, filter).0 < count as u64 {
            assert!(Instant::now() < deadline, "{} packets", on_the_wire(&capture, "").0);
        }
    };
    traffic(&near, &|words| inside(&near, words), &captured);
    let said = service.end();
    let exported = last(&said, "summary")["ipfix"].clone();
    // The capture has all when it has what was sent last: a SYN that nobody answers any more.
    let mut unheard = inside(&near, &["curl", "-s", "--connect-timeout", "0.1", "--local-port", "999"]);
    assert!(!unheard.arg("http://10.11.2.1:8080/").status().unwrap().success());
    captured("tcp src port 999", 1);
    end(watcher);
    end_of_collector(collector, 4739);

    let output = Command::new("nfdump").args(["-R", &directory, "-o", "json"]).output().unwrap();
    let flows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    Some(Collected { exported, flows, wire: capture, _dir: dir })
}

/// Packets of a capture, and the sum of their lengths by their IP headers.
fn on_the_wire(capture: &str, filter: &str) -> (u64, u64) {
    let output = Command::new("tcpdump").args(["-r", capture, "-nn", "-v", filter]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lengths = text
        .lines()
        .filter_map(|line| line.split_once("proto ")?.1.split_once("), length ")?.1.split(')').next());
    let lengths: Vec<u64> = lengths.map(|length| length.parse().unwrap()).collect();
    (lengths.len() as u64, lengths.iter().sum())
}

/// A program of somebody else's, once it says that it is ready.
fn tool(command: Command, ready: &str) -> Program {
    let mut program = Program::start(command);
    program.hear(ready);
    program
}

/// nfcapd ends with what it has read: what still waits at its port when the signal comes is lost.
pub(super) fn end_of_collector(collector: Program, port: u16) {
    let sockets = format!("/proc/{}/net/udp", collector.id());
    eventually("the collector reads what was sent", || {
        let text = std::fs::read_to_string(&sockets).unwrap();
        let mut of_port = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = of_port.find(|columns| columns[1].ends_with(&format!(":{port:04X}")));
        found.expect("the collector's socket")[4].ends_with(":00000000")
    });
    end(collector);
}

/// It ends in order by SIGTERM.
fn end(tool: Program) {
    tool.signal(Signal::TERM);
    let Ended { status, said, .. } = tool.end();
    assert!(status.success(), "{status}: {said:#?}");
}
