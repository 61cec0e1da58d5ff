//! `flowlane load memcached`: what it refuses, what it says of servers that are not there, and runs against our own server and Debian's, whose counts must be its own.

use crate::counted::count;
use crate::wire::Wire;

use flowlane_testnet::Program;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn load(arguments: &str) -> Output {
    command(&format!("load memcached {arguments}")).output().unwrap()
}

#[test]
fn bad_arguments_get_one_line_and_2() {
    for (arguments, word) in [
        ("127.0.0.1 --keys 0", "--keys"),
        ("127.0.0.1 --keys 1M -K 5", "--key-size"),
        ("127.0.0.1 -K 300", "250"),
        ("127.0.0.1 -K gev:1", "gev:LOC,SCALE,SHAPE"),
        ("127.0.0.1 -V 2Gi", "1 GiB"),
        ("127.0.0.1 --popularity zipf", "zipf:0.99"),
        ("127.0.0.1 --workload var", "etc or usr"),
        ("127.0.0.1 -u 2", "10%"),
        ("127.0.0.1 --ratio 1", "1:10"),
        ("127.0.0.1 --ratio 1:10 -u 0.1", "--update"),
        ("127.0.0.1 --multiget 0", "--multiget"),
        ("127.0.0.1 --multiget 1001", "--multiget"),
        ("127.0.0.1 --depth 0", "--depth"),
        ("127.0.0.1 -c 0", "--connections"),
        ("127.0.0.1 --poisson", "--rate"),
        ("127.0.0.1 --ramp 1s", "--rate"),
        ("127.0.0.1 -d 0s", "--duration"),
        ("127.0.0.1 --timeout 0s", "--timeout"),
        ("127.0.0.1 --protocol binary", "not spoken"),
        ("127.0.0.1 --key-maximum 100", "--keys N"),
        ("127.0.0.1 -T 4", "--workers"),
        ("127.0.0.1 -d 32", "--value-size 32"),
        ("127.0.0.1:0", "port"),
        ("127.0.0.1 --fail fast", "fast"),
        ("127.0.0.1 --addr 10.0.0.1/24", "--link"),
        ("10.11.2.1 --link pcap:,/dev/null", "--addr"),
        ("10.11.2.1 --link pcap:,/dev/null --addr 10.11.2.2/24 --clients fd00::/64 --routed", "family"),
    ] {
        let output = load(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word) && stderr.lines().count() == 1, "{arguments:?}: '{word}' in {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// What a memcached counted, by its own words.
fn stat(port: u16, name: &str) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let line = said.lines().find_map(|l| l.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).trim().parse().unwrap()
}

/// Runs against a server, one after the other: all that is counted is counted there, too.
fn agrees_with(port: u16) {
    let mut before = [0; 4];
    // The first stores what the next two find.
    for options in [
        "--keys 1000 -V 1..3000 --fill --verify --workers 2",
        "--keys 1000 -V 1..3000 -r 2k --poisson --warm-up 100ms --verify --multiget 5",
        "--keys 1000 -V 1..3000 --depth 16 --protocol meta --multiget 3 -u 50%",
        "--keys 2000 --workload etc --fill --verify --depth 4 --popularity zipf:1.2",
    ] {
        let output = load(&format!("127.0.0.1:{port} -c 4 -d 300ms --json {options}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
        flowlane_schema::check("load-run", &report);
        let only_late = report["slip"]["kept"] == false && report["failed"].as_array().unwrap().len() == 1;
        assert!(output.status.success() || only_late, "{options}: {stderr}");
        let of = |name| count(&report, name);
        assert_eq!((of("failed"), of("answered"), of("sets")), (0, of("sent"), of("stored")), "{options}");
        let now = ["cmd_get", "get_hits", "get_misses", "cmd_set"].map(|name| stat(port, name));
        let ours = [of("keys"), of("hits"), of("misses"), of("sets") + of("filled")];
        let theirs: Vec<u64> = now.iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(theirs, ours, "{options}");
        assert_eq!(of("misses"), 0, "{options}: {report}");
        assert!(of("gets") > 20 && of("sent") == of("gets") + of("sets"), "{options}");
        let requests = report["pools"][0]["requests"].as_array().unwrap();
        let names: Vec<&str> = requests.iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["get", "set"]);
        before = now;
    }
}

#[test]
fn runs_agree_with_our_server() {
    let port = flowlane_testnet::free_port();
    let line = format!("serve memcached -t 2 -p {port} -l 127.0.0.1 --no-pin");
    let service = Program::ready(command(&line), "memcached on 127.0.0.1");
    agrees_with(port);
    drop(service.interrupt());
}

/// With connections that are opened until each is in the lane of its keys, no request is handed over in the server; without, most of those of other lanes
/// are.
#[test]
fn each_key_is_asked_for_in_its_lane() {
    let port = flowlane_testnet::free_port();
    let scratch = flowlane_testnet::Scratch::new("by-lane");
    let socket = scratch.path("control.sock");
    let line = format!("serve memcached -t 2 -p {port} -l 127.0.0.1 --no-pin --control {socket}");
    let service = Program::ready(command(&line), "memcached on 127.0.0.1");
    let handed_over = || -> u64 {
        let output = command(&format!("stat -s --control {socket}")).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let line = said.lines().find_map(|l| l.trim().strip_suffix(" requests that another lane answered"));
        line.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
    };
    let run = |options: &str| {
        let output = load(&format!("127.0.0.1:{port} -c 8 -d 300ms --keys 1000 --verify --json {options}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        flowlane_schema::check("load-run", &report);
        assert_eq!((count(&report, "failed"), count(&report, "misses")), (0, 0), "{options}: {report}");
        assert!(count(&report, "hits") > 20 && count(&report, "stored") > 0, "{options}: {report}");
    };
    run("--fill");
    let before = handed_over();
    assert!(before > 0);
    for options in [
        "--by-lane",
        "--by-lane --multiget 3 -r 2k",
        "--by-lane --depth 8 --protocol meta --popularity zipf:1.1",
    ] {
        run(options);
        assert_eq!(handed_over(), before, "{options}");
    }
    let few = load(&format!("127.0.0.1:{port} -c 1 -d 300ms --by-lane"));
    let said = String::from_utf8_lossy(&few.stderr).into_owned();
    assert_eq!(few.status.code(), Some(1), "{said}");
    assert!(said.contains("lanes: at least as many --connections") && said.lines().count() == 1, "{said}");
    drop(service.interrupt());
}

/// As many connections as the server has lanes: each lane has one, so all keys are asked for. By chance they would hardly ever come to lie so.
#[test]
fn every_lane_has_a_connection() {
    let port = flowlane_testnet::free_port();
    let line = format!("serve memcached -t 8 -p {port} -l 127.0.0.1 --no-pin");
    let service = Program::ready(command(&line), "memcached on 127.0.0.1");
    let output = load(&format!("127.0.0.1:{port} -c 8 -d 500ms --keys 1000 --by-lane -q"));
    assert_ne!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let said = service.interrupt();
    // bucket, worker, reads, writes, dropped
    let rows = said.lines().skip_while(|line| !line.starts_with("bucket")).skip(1);
    let reads: Vec<u64> = rows
        .map_while(|line| {
            let row: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
            row.filter(|row| row.len() == 5).map(|row| row[2])
        })
        .collect();
    // Connections that came to another lane than they were meant for read a question and an end there.
    assert!(reads.len() == 8 && reads.iter().all(|reads| *reads > 50), "{reads:?} in {said}");
}

#[test]
fn runs_agree_with_debians_memcached() {
    let port = flowlane_testnet::free_port();
    let mut memcached = Command::new("memcached");
    memcached.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-t", "2", "-p", &port.to_string()]);
    let Ok(mut child) = memcached.stdin(Stdio::null()).spawn() else {
        flowlane_testnet::skipped("skipped, because there is no memcached");
        return;
    };
    flowlane_testnet::eventually("memcached listens", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    let agreed = std::panic::catch_unwind(|| {
        agrees_with(port);
        // It has no lanes to tell of.
        let output = load(&format!("127.0.0.1:{port} -d 300ms --by-lane"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("it is no flowlane serve memcached") && said.lines().count() == 1, "{said}");
    });
    child.kill().unwrap();
    child.wait().unwrap();
    agreed.unwrap();
}

/// Over links of ours, to Debian's memcached on the kernel's sockets behind them: every item is found, and is the one that was stored.
#[test]
fn runs_over_links_of_ours() {
    for (link, tag) in [("af-xdp", "mx"), ("af-packet", "mp"), ("tap", "mt")] {
        let Some(wire) = Wire::new(link, tag) else { return };
        let mut memcached = wire.namespace.command("memcached");
        memcached.args(["-u", "nobody", "-l", "10.11.2.2", "-U", "0", "-t", "2", "-p", "11211"]);
        let Ok(mut child) = memcached.stdin(Stdio::null()).stderr(Stdio::null()).spawn() else {
            return flowlane_testnet::skipped("skipped, because there is no memcached");
        };
        let there = || wire.namespace.run(|| TcpStream::connect("10.11.2.2:11211").is_ok()).unwrap();
        flowlane_testnet::eventually("memcached listens", || {
            assert_eq!(child.try_wait().unwrap(), None, "there is no memcached, or it ends");
            there()
        });
        let run = || {
            let options = "-c 4 -d 300ms --keys 1000 -V 1..3000 --fill --verify --depth 4";
            let report = wire.load("memcached", &format!("10.11.2.2 {options}"));
            let of = |name| count(&report, name);
            assert_eq!((of("failed"), of("misses"), of("filled")), (0, 0, 1000), "{link}: {report}");
            assert_eq!((of("answered"), of("stored")), (of("sent"), of("sets")), "{link}: {report}");
            assert!(of("hits") > 20 && of("sets") > 0, "{link}: {report}");
        };
        let went = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        child.kill().unwrap();
        child.wait().unwrap();
        went.unwrap();
    }
}

#[test]
fn the_table_says_what_was_asked() {
    let port = flowlane_testnet::free_port();
    let line = format!("serve memcached -t 1 -p {port} -l 127.0.0.1 --no-pin");
    let service = Program::ready(command(&line), "memcached on 127.0.0.1");
    let output = load(&format!("127.0.0.1:{port} -d 200ms --keys 500 --fill --verify -u 20%"));
    let (said, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("500 items are stored before the run"), "{stderr}");
    for words in [
        "closed loop, 16",
        "keys: 500 of 30 bytes, uniform",
        "values: 200 bytes",
        "requests: 20 % sets",
        "fill: all items are stored",
        "\nhits ",
        "\nfilled ",
        "\nget ",
        "\nset ",
    ] {
        assert!(said.contains(words), "'{words}' in {said}");
    }
    assert!(!said.contains("\nmisses"), "{said}");
    // The search stores the items once, and finds a rate.
    let line = "--keys 100 --fill --find-rate p99<1s --between 100..200 -d 200ms --warm-up 50ms --json";
    let output = load(&format!("127.0.0.1:{port} {line}"));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-find-v1", &found);
    assert!(found["rate"].as_f64().unwrap_or(0.0) >= 100.0, "{found}");
    assert_eq!(found["command"], "load memcached");
    drop(service.interrupt());
}

#[test]
fn a_server_that_is_none_fails_the_run() {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, rude) = (listen(), listen());
    let [silent_at, rude_at] = [&silent, &rude].map(|l| l.local_addr().unwrap());
    // Both end with the process. What is accepted stays, or goes.
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    std::thread::spawn(move || rude.incoming().for_each(drop));
    let nobody = format!("127.0.0.1:{}", flowlane_testnet::free_port());
    for (at, options, words) in [
        (silent_at.to_string(), "-d 300ms", "answers nothing: does a memcached have this port?"),
        (silent_at.to_string(), "-d 300ms -r 100", "answers nothing: does a memcached have this port?"),
        (silent_at.to_string(), "-d 300ms --fill", "items cannot be stored: no answer within the timeout"),
        (rude_at.to_string(), "-d 300ms", "answers nothing: does a memcached have this port?"),
        (nobody, "-d 10m --fill", "connection refused"),
    ] {
        let begun = Instant::now();
        let output = load(&format!("{at} -c 4 -q --timeout 200ms --json {options}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{options}: {stderr}");
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{options}: {stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        flowlane_schema::check("load-run", &report);
        assert_eq!(report["ok"], false);
        assert!(begun.elapsed() < Duration::from_secs(30), "{options}");
    }
}
