//! `flowlane load udp`: what it refuses, and a run into a capture file.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

fn load(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(["load", "udp"]).args(arguments).output().unwrap()
}

/// A run that is right but for what a case changes.
const BASE: [&str; 5] = ["10.11.2.1:7", "--link", "pcap:,/dev/null", "--addr", "10.11.2.2/24"];

fn refused(arguments: &[&str], word: &str) {
    let output = load(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.contains(word), "{arguments:?}: '{word}' in {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn bad_arguments_get_one_line_and_2() {
    for (arguments, word) in [
        (&["--size", "35"][..], "36"),
        (&["--size", "36x0,99"], "a round has from 1 to 4096"),
        (&["--size", "IMIX"], "size in bytes"),
        (&["--burst", "0"], "--burst 0: from 1 to 65536"),
        (&["--burst", "5", "--window", "3"], "--window"),
        (&["--size", "1473"], "at most 1472"),
        (&["--size", "70000"], "MTU"),
        (&["--rate", "0"], "rate"),
        (&["--rate", "fast"], "rate"),
        (&["--rate", "1k", "--window", "3"], "--window"),
        (&["--window", "0"], "--window"),
        (&["--window", "8", "--discard"], "answers"),
        (&["--duration", "0s"], "--duration"),
        (&["--slots", "4x5ms", "--slot", "4"], "slots 0 to 3"),
        (&["--slots", "4x5ms", "--slot", "0", "--guard", "5ms"], "guard"),
        (&["--slots", "4x5ms", "--slot", "0", "--window", "3"], "--slots"),
        (&["--flows", "0"], "--flows"),
        (&["--workers", "0"], "--workers"),
        (&["--clients", "10.12.0.0/16"], "--routed"),
        (&["--clients", "10.11.2.0/24"], "target 10.11.2.1"),
        (&["--clients", "10.11.2.9-10.11.2.3"], "after the last"),
        (&["--clients", "fd00::/64", "--routed"], "family"),
        (&["--gateway", "10.99.0.1"], "--gateway"),
        (&["--buckets", "0"], "--target-key"),
        (&["--target-key", "microsoft", "--buckets", "9"], "bucket 9"),
        (&["--target-key", "microsoft", "--buckets", "x"], "--buckets"),
        (&["--target-key", "microsoft", "--target-buckets", "3"], "--target-buckets"),
        (&["--target-key", "microsoft"], "reaches bucket"),
        (&["--target-key", "abcd"], "key"),
        (&["--fail", "p99 > soon"], "p99"),
        (&["--fail", "speed > 3"], "speed"),
        (&["--vlan", "5000"], "5000"),
        (&["--idle", "never"], "never"),
        (&["--home-ports"], "--link kernel"),
    ] {
        refused(&[&BASE[..], arguments].concat(), word);
    }
    // Without a link it is kernel sockets, and the kernel knows its own ways.
    for (arguments, word) in [
        (&["10.11.2.1:7", "--addr", "10.11.2.2/24"][..], "--link"),
        (&["10.11.2.1:7", "--gateway", "10.11.2.2"], "--gateway"),
        (&["10.11.2.1:7", "--vlan", "5"], "--vlan"),
        (&["10.11.2.1:7", "--routed"], "--routed"),
        (&["10.11.2.1:7", "--key", "microsoft"], "--home-ports"),
        (&["10.11.2.1:7", "--udp-4tuple"], "--home-ports"),
        (&["10.11.2.1:7", "--home-ports"], "--key"),
        (&["10.11.2.1:7", "--home-ports=eth0", "--key", "microsoft"], "the card's key"),
        (&["10.11.2.1:7", "--home-ports=eth0", "--udp-4tuple"], "the card's fields"),
        (&["10.11.2.1:7", "--home-ports=flnone0"], "--home-ports=flnone0"),
        (&["10.11.2.1:7", "--target-key", "microsoft"], "--target-key"),
        (&["10.11.2.1:7", "--flows", "1M"], "--flows"),
        (&["10.11.2.1:7", "--reassembly", "bytes=1000"], "--reassembly"),
        (&["10.11.2.1:7", "--clients", "fd00::/64"], "family"),
        (&["[fe80::1]:7"], "is link-local"),
        (&["no-such-host.invalid:7"], "resolved"),
        (&["10.11.2.1:70000"], "70000 is no port"),
        (&["10.11.2.1:7", "--ramp", "1s", "--window", "4"], "--ramp"),
        (&["10.11.2.1:7", "--save", "/no/such/dir/x.json"], "/no/such/dir"),
        (&["10.11.2.1:7", "--tui", "--quiet"], "--quiet"),
        (&["10.11.2.1", "--link", "tap:x", "--addr", "10.11.2.2/24"], "10.11.2.1"),
        (&["10.11.2.1:7", "--link", "wifi:x", "--addr", "10.11.2.2/24"], "wifi"),
        (&["10.11.2.1:7", "--link", "tap:x", "--addr", "10.11.2.2/99"], "99"),
        (&["10.11.2.1:7", "--link", "tap:x", "--addr", "10.11.2.2"], "10.11.2.2/24"),
        (&["10.11.2.1:7", "--link", "tap:x", "--addr", "fd00::2"], "fd00::2/64"),
        (&["10.11.2.1:7", "--link", "pcap:/no/such/file", "--addr", "10.11.2.2/24"], "/no/such/file"),
        (&["10.11.2.1:7", "--link", "af-packet:nosuchlink0", "--addr", "10.11.2.2/24"], "nosuchlink0"),
        (&["10.99.2.1:7", "--link", "pcap:,/dev/null", "--addr", "10.11.2.2/24"], "--gateway"),
        (&["10.11.2.2:7", "--link", "pcap:,/dev/null", "--addr", "10.11.2.2/24"], "our own"),
    ] {
        refused(arguments, word);
    }
}

/// An echo, for as long as the tests run: its address.
fn echo() -> String {
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = echo.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut data = [0; 2048];
        while let Ok((len, from)) = echo.recv_from(&mut data) {
            echo.send_to(&data[..len], from).unwrap();
        }
    });
    target
}

/// Every flow has a port whose answers come to its lane; where ports make no difference the run says so and goes on.
#[test]
fn source_ports_are_chosen_by_where_answers_come() {
    let target = echo();
    let base = [&target, "--home-ports", "--key", "microsoft", "--workers", "2", "-r", "500", "-d", "200ms"];
    for (more, home, warns) in [
        (&["--udp-4tuple", "--flows", "20"][..], Some(20), false),
        (&["--udp-4tuple", "--flows", "20", "--clients", "127.0.0.16/30"], Some(20), false),
        // Of four lanes it is one to which all answers come.
        (&["--flows", "20"], Some(5), true),
        (&["--udp-4tuple", "--flows", "3", "--workers", "1"], Some(3), false),
    ] {
        let mut arguments = base.to_vec();
        if more.contains(&"--workers") {
            arguments.drain(4..6);
        }
        let output = load(&[&arguments[..], more, &["--no-pin", "--json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
        flowlane_schema::check("load-run", &report);
        let ports = &report["home-ports"];
        let flows: u64 = more[more.iter().position(|o| *o == "--flows").unwrap() + 1].parse().unwrap();
        let of = |name: &str| ports[name].as_u64().unwrap();
        assert_eq!((Some(of("home")), of("home") + of("elsewhere")), (home, flows), "{more:?}: {report}");
        let said: Vec<&str> = stderr.lines().filter(|line| line.contains("--home-ports")).collect();
        assert_eq!(said.len(), usize::from(warns), "{more:?}: {stderr}");
        assert!(said.iter().all(|line| line.contains("make no difference")), "{stderr}");
        assert_eq!(report["total"]["counts"]["answered"], report["total"]["counts"]["sent"], "{report}");
    }
    let output = load(&[&base[..], &["--udp-4tuple", "--flows", "20", "--no-pin"]].concat());
    let words = "source ports: answers come to the lane that asks for 20 of 20 flows";
    assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{output:?}");
}

/// The rate goes on while the slot is shut, so most datagrams wait for an opening; each is counted by where it left.
/// A datagram that an echo of ours heard: its size, the sender's port, flow and sequence, and the intended moment.
#[derive(Debug)]
struct Heard {
    size: usize,
    port: u16,
    flow: u32,
    sequence: u64,
    intended: u64,
}

/// What an echo of ours heard, until three seconds of silence.
fn heard_by_an_echo(arguments: &[&str]) -> (Value, Vec<Heard>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap().to_string();
    let echo = std::thread::spawn(move || {
        let (mut heard, mut buffer) = (Vec::new(), [0; 2048]);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let _ = socket.send_to(&buffer[..n], from);
            let word = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().unwrap());
            let (flow, sequence, intended) = (word(8) as u32, word(16), word(24));
            heard.push(Heard { size: n, port: from.port(), flow, sequence, intended });
        }
        heard
    });
    let output = load(&[&[at.as_str(), "--json"], arguments].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    flowlane_schema::check("load-run", &report);
    let heard = echo.join().unwrap();
    // Probes are of no flow.
    (report, heard.into_iter().filter(|one| one.flow != u32::MAX).collect())
}

// Long: several loads of a second.
#[test]
fn sizes_come_in_turn_and_bursts_at_one_moment() {
    let common = ["-d", "1s", "-r", "1k", "--flows", "3", "--workers", "1"];
    let (report, heard) = heard_by_an_echo(&[&common[..], &["--size", "imix", "--burst", "10"]].concat());
    let counts = &report["total"]["counts"];
    assert!(counts["sent"].as_u64().unwrap() + counts["unsent"].as_u64().unwrap_or(0) == 1000, "{report}");
    assert_eq!(counts["corrupt"].as_u64().unwrap_or(0), 0, "{report}");
    assert_eq!(heard.len() as u64, counts["sent"], "{report}");
    let bytes: usize = heard.iter().map(|one| one.size).sum();
    assert_eq!(bytes as u64, counts["bytes-sent"], "{report}");
    // In any twelve in a row of a flow, seven are small and one is large.
    let mut flows: BTreeMap<u16, Vec<(u64, usize)>> = BTreeMap::new();
    heard.iter().for_each(|one| flows.entry(one.port).or_default().push((one.sequence, one.size)));
    assert_eq!(flows.len(), 3);
    for flow in flows.values_mut() {
        flow.sort_unstable();
        for twelve in flow.windows(12) {
            let count = |size| twelve.iter().filter(|(_, s)| *s == size).count();
            assert_eq!([36, 548, 1472].map(count), [7, 4, 1], "{twelve:?}");
        }
    }
    let mut moments: BTreeMap<u64, usize> = BTreeMap::new();
    heard.iter().for_each(|one| *moments.entry(one.intended).or_default() += 1);
    assert!(moments.values().all(|n| *n == 10) || counts["unsent"] != 0, "{moments:?}");
    assert_eq!(report["setup"]["more"]["burst"], "10 datagrams at a time");
    assert_eq!(report["setup"]["more"]["size"], "IMIX, 36 to 1472 bytes, 326 in the mean");

    // One after the other, and one alone at each moment.
    let (report, heard) = heard_by_an_echo(&[&common[..], &["--size", "40,50"]].concat());
    assert!(report["total"]["counts"]["corrupt"].as_u64().unwrap_or(0) == 0, "{report}");
    assert!(
        heard
            .iter()
            .all(|one| one.size == if (u64::from(one.flow) + one.sequence) % 2 == 0 { 40 } else { 50 })
    );
}

#[test]
fn every_datagram_is_counted_by_its_slot() {
    let target = echo();
    let slots = ["--slots", "4x10ms", "--slot", "1", "--guard", "2ms", "-r", "2k", "-d", "500ms"];
    let output = load(&[&[&target[..]], &slots[..], &["--flows", "4", "--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    flowlane_schema::check("load-run", &report);
    let counts = &report["total"]["counts"];
    let of = |name: &str| counts["more"][name].as_u64().unwrap_or(0);
    let sent = counts["sent"].as_u64().unwrap();
    assert!(sent > 0 && of("inside-slot") > 0, "{counts}");
    // They cover the whole run, and `sent` what is measured.
    assert!((sent..=1000).contains(&(of("inside-slot") + of("outside-slot"))), "{counts}");
    let more = &report["setup"]["more"];
    assert_eq!(more["slots"], "slot 1 of 4x10ms, guard 2.00 ms");
    assert!(more["slots kept"].as_str().unwrap().contains(" inside, late at the edge p50 "), "{more}");
}

#[test]
fn silence_fails_the_run() {
    let output = load(&[&BASE[..], &["--json", "--duration", "100ms"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("does not answer"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-run", &report);
    assert_eq!((&report["ok"], &report["ended"]), (&false.into(), &"failed".into()));
    assert_eq!(report["total"]["counts"]["sent"], 0);
}
