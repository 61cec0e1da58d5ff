//! `flowlane serve memcached` as people run it: memcached's start lines, its own tools as clients, and what is seen of it meanwhile and afterwards.

use crate::shape::has_the_shape;
use flowlane_testnet::Program;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

#[test]
fn bad_arguments() {
    for (more, word) in [
        ("-m 0", "1 MiB"),
        ("-m 4 -t 1 -I 3m", "half"),
        ("-I 10", "1 KiB"),
        ("-t 1 --max-buffers 512Ki", "buffers"),
        ("-c 0", "--max-connections"),
        ("-U 11211", "UDP"),
        ("-s /tmp/m.sock", "unix"),
        ("-u memcache", "privileges"),
        ("-p 0", "--port"),
        ("-l 10.0.0.1,10.0.0.2", "one address"),
        ("--buckets 3", "--buckets"),
        ("--idle-timeout x", "--idle-timeout"),
    ] {
        let output = flowlane(&format!("serve memcached --no-pin {more}")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(word), "{more}: {said}");
    }
}

/// Sends requests that end with `quit`; everything that is said.
fn ask(port: u16, requests: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_start_line_of_memcached() {
    let port = flowlane_testnet::free_port();
    let line = format!(
        "serve memcached -m 16 -c 50 -t 2 -p {port} -U 0 -l 127.0.0.1 -I 512k --no-pin --json --metrics 0 --interval 50ms"
    );
    let service = Program::ready(flowlane(&line), "memcached on 127.0.0.1");
    let big = format!("set big 0 0 600000\r\n{}\r\n", "b".repeat(600_000));
    let asked = "set key 3 0 5\r\nhello\r\nget key\r\nstats\r\nstats settings\r\n";
    let said = ask(port, &format!("{asked}{big}quit\r\n"));
    assert!(said.ends_with("SERVER_ERROR object too large for cache\r\n"));
    let (first, rest) = said.split_once("END\r\n").unwrap();
    assert_eq!(first, "STORED\r\nVALUE key 3 5\r\nhello\r\n");
    for line in [
        "STAT curr_items 1",
        "STAT threads 2",
        "STAT lanes 2",
        "STAT limit_maxbytes 16777216",
        "STAT maxconns 50",
        "STAT inter 127.0.0.1",
        "STAT item_size_max 524288",
    ] {
        assert!(rest.contains(&format!("{line}\r\n")), "{line}: {rest}");
    }
    assert!(rest.contains(&format!("STAT tcpport {port}\r\n")));
    match Command::new("memccapable").args(["-a", "-h", "127.0.0.1", "-p", &port.to_string()]).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("All tests passed"), "{said}");
        }
        Err(_) => flowlane_testnet::skipped("skipped, because there is no memccapable"),
    }
    let printed = service.interrupt();
    let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = documents.iter().rfind(|d| d["kind"] == "memcached-summary").unwrap();
    assert!(last["cmd-set"].as_u64() >= Some(1), "{last}");
    assert_eq!(last["store-too-large"], 1);
    let interval = documents.iter().find(|d| d["kind"] == "memcached-interval").unwrap();
    has_the_shape(interval, "MemcachedInterval");
    has_the_shape(last, "MemcachedSummary");
}

#[test]
fn its_counters_are_in_the_views() {
    let port = flowlane_testnet::free_port();
    let control = std::env::temp_dir().join(format!("flowlane-memcached-{}.sock", std::process::id()));
    let line =
        format!("serve memcached -t 1 -p {port} -l 127.0.0.1 --no-pin --control {}", control.display());
    let service = Program::ready(flowlane(&line), "memcached on 127.0.0.1");
    assert_eq!(
        ask(port, "set key 0 0 1\r\nx\r\nget key none\r\nquit\r\n"),
        "STORED\r\nVALUE key 0 1\r\nx\r\nEND\r\n"
    );
    let shown = flowlane(&format!("stat -s -p memcached --control {}", control.display())).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in
        ["1 keys asked for and found", "1 keys asked for and not found", "1 items", "1 values to store"]
    {
        assert!(shown.contains(&format!("\t{line}\n")), "{line}: {shown}");
    }
    drop(service.interrupt());
}
