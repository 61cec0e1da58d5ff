//! `flowlane serve memcached` as people run it: memcached's start lines, its own tools as clients, and what is seen of it meanwhile and afterwards.

use flowlane_testnet::{PATIENCE, Program, Scratch, skipped};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
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
        ("-u memcache", "privileges"),
        ("-p 0", "--port"),
        ("-U 65536", "--udp-port"),
        ("-U 11211 -s /tmp/m.sock", "--udp-port"),
        ("-U 11211 --tls", "not encrypted"),
        ("-s /nowhere/m.sock", "--unix-socket /nowhere/m.sock"),
        ("-s /dev/null", "no socket"),
        ("-s /tmp/m.sock -l 127.0.0.1", "--addr"),
        ("-s /tmp/m.sock --link tap:none --addr 10.0.0.1/24", "kernel sockets"),
        ("-s /tmp/m.sock -a 888", "--unix-mask"),
        ("-Z", "--cert"),
        ("-o ssl_chain_cert=/tmp/none.pem", "go together"),
        ("-o ssl_chain_cert=/nowhere.pem,ssl_key=/nowhere.key", "/nowhere.pem"),
        ("-o ssl_ca_cert=/nowhere.pem", "--client-ca"),
        ("-o hash_algorithm=murmur3", "ssl_chain_cert"),
        ("-o idle_timeout=x", "idle_timeout"),
        ("-l 10.0.0.1,10.0.0.2", "one address"),
        ("--buckets 3", "--buckets"),
        ("--idle-timeout x", "--idle-timeout"),
        ("--placement there", "--placement"),
        ("--placement move --link tap:none --addr 10.0.0.1/24", "without --link"),
        ("--placement move --io uring", "--io epoll"),
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
    flowlane_schema::check("serve-v1", interval);
    flowlane_schema::check("serve-v1", last);
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

/// Sends requests that end with `quit` to a Unix socket; everything that is said.
fn ask_at(path: &Path, requests: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn at_a_path() {
    let scratch = Scratch::new("memcached-path");
    let path = scratch.dir().join("m.sock");
    let line = format!("serve memcached -t 2 -m 8 -s {} -a 660 --no-pin", path.display());
    let service = Program::ready(flowlane(&line), &format!("memcached on {}", path.display()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let keys: String = (0..50).map(|n| format!("set key{n} 0 0 2\r\n{n:02}\r\n")).collect();
    assert_eq!(ask_at(&path, &format!("{keys}quit\r\n")), "STORED\r\n".repeat(50));
    let (asked, values): (String, String) =
        (0..50).map(|n| (format!(" key{n}"), format!("VALUE key{n} 0 2\r\n{n:02}\r\n"))).unzip();
    assert_eq!(ask_at(&path, &format!("get{asked}\r\nquit\r\n")), values + "END\r\n");
    let settings = ask_at(&path, "stats settings\r\nquit\r\n");
    assert!(settings.contains(&format!("STAT domain_socket {}\r\n", path.display())), "{settings}");
    assert!(settings.contains("STAT tcpport 0\r\n"), "{settings}");
    // libmemcached's own client.
    let list = scratch.dir().join("value");
    std::fs::write(&list, "hello").unwrap();
    match Command::new("memccp").arg(format!("--servers={}", path.display())).arg(&list).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let got = ask_at(&path, "get value\r\nquit\r\n");
            assert!(got.contains("\r\nhello\r\n"), "{got}");
        }
        Err(_) => skipped("skipped, because there is no memccp (libmemcached-tools)"),
    }
    // A second one does not take it.
    let second = flowlane(&line).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains("another program is listening there") && said.lines().count() == 1, "{said}");
    assert_eq!(ask_at(&path, "mn\r\nquit\r\n"), "MN\r\n");
    drop(service.interrupt());
    assert!(!path.exists(), "its file is left");
}

#[test]
fn encrypted() {
    let scratch = Scratch::new("memcached-tls");
    let (cert, port) = (scratch.dir().join("cert.pem"), flowlane_testnet::free_port());
    let line = format!(
        "serve memcached -t 2 -m 8 -p {port} -l 127.0.0.1 --tls --write-cert {} --no-pin --json",
        cert.display()
    );
    let service = Program::ready(flowlane(&line), "TLS");
    // One that speaks no TLS.
    let said = ask_raw(port, b"get key\r\n");
    assert!(!said.windows(3).any(|three| three == b"END"), "an answer without TLS");
    let value = "v".repeat(200_000);
    let asked = format!("set key 0 0 200000\r\n{value}\r\nget key\r\nstats settings\r\nquit\r\n");
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-quiet", "-verify_return_error", "-CAfile"]).arg(&cert);
    openssl.args(["-connect", &format!("127.0.0.1:{port}"), "-verify_ip", "127.0.0.1"]);
    let Ok(mut client) = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    else {
        return skipped("skipped, because there is no openssl");
    };
    let mut input = client.stdin.take().unwrap();
    input.write_all(asked.as_bytes()).unwrap();
    let mut said = String::new();
    client.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let _ = client.wait();
    drop(input);
    let expected = format!("STORED\r\nVALUE key 0 200000\r\n{value}\r\nEND\r\n");
    assert!(said.starts_with(&expected), "{} bytes", said.len());
    assert!(said.contains("STAT ssl_enabled yes\r\n"));
    let printed = service.interrupt();
    let last = printed.lines().rfind(|line| line.contains("memcached-summary")).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["ssl-handshake-errors"], 1, "{last}");
    assert_eq!(last["curr-connections"], 0, "{last}");
}

/// Sends requests and expects these answers, and once more when the connection may have moved.
fn converses(mut output: impl Read, mut input: impl Write, asked: &str, expected: &str) {
    input.write_all(asked.as_bytes()).unwrap();
    let mut said = vec![0; expected.len()];
    output.read_exact(&mut said).unwrap();
    assert!(said == expected.as_bytes(), "{:.200}", String::from_utf8_lossy(&said));
    input.write_all(b"mn\r\nquit\r\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "MN\r\n");
}

/// Clients with one key each, some of which come to another lane than that of their key: they move there, TLS and all, and the views count them.
#[test]
fn clients_move_to_the_lane_of_their_key() {
    let scratch = Scratch::new("memcached-move");
    let (cert, path) = (scratch.dir().join("cert.pem"), scratch.dir().join("m.sock"));
    let client = |n: usize| {
        let get = format!("get key{n}\r\n");
        let value = format!("VALUE key{n} 0 2\r\n{n:02}\r\nEND\r\n");
        let asked = format!("set key{n} 0 0 2\r\n{n:02}\r\n{}", get.repeat(300));
        (asked, format!("STORED\r\n{}", value.repeat(300)))
    };
    for way in ["plain", "path", "tls"] {
        let port = flowlane_testnet::free_port();
        let how = match way {
            "plain" => format!("-p {port} -l 127.0.0.1"),
            "path" => format!("-s {}", path.display()),
            _ => format!("-p {port} -l 127.0.0.1 --tls --write-cert {}", cert.display()),
        };
        let line = format!("serve memcached -t 2 -m 8 --placement move --no-pin --json {how}");
        let service = Program::ready(flowlane(&line), if way == "tls" { "TLS" } else { "memcached on" });
        // That all 16 come to the lane of their key is as likely as 16 coins of one side.
        for n in 0..16 {
            let (asked, expected) = client(n);
            match way {
                "plain" => {
                    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    converses(&stream, &stream, &asked, &expected);
                }
                "path" => {
                    let stream = UnixStream::connect(&path).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    converses(&stream, &stream, &asked, &expected);
                }
                _ => {
                    let mut openssl = Command::new("openssl");
                    openssl.args(["s_client", "-quiet", "-verify_return_error", "-CAfile"]).arg(&cert);
                    openssl.args(["-connect", &format!("127.0.0.1:{port}"), "-verify_ip", "127.0.0.1"]);
                    openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                    let Ok(mut client) = openssl.spawn() else {
                        return skipped("skipped in part, because there is no openssl");
                    };
                    let (input, output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
                    converses(output, &input, &asked, &expected);
                    let _ = client.wait();
                    drop(input);
                }
            }
        }
        let printed = service.interrupt();
        let last = printed.lines().rfind(|line| line.contains("memcached-summary")).unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        flowlane_schema::check("serve-v1", &last);
        let moved = last["moved-connections"].as_u64().unwrap();
        assert!((1..=16).contains(&moved), "{way}: {last}");
        assert_eq!(
            (&last["moves-refused"], &last["curr-connections"]),
            (&0.into(), &0.into()),
            "{way}: {last}"
        );
    }
}

/// What is said until the end of the connection.
fn ask_raw(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn with_a_certificate_as_memcached_has_it() {
    let scratch = Scratch::new("memcached-cert");
    let (cert, key) = (scratch.dir().join("cert.pem"), scratch.dir().join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cache", "-days", "2"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert);
    let Ok(made) = openssl.output() else { return skipped("skipped, because there is no openssl") };
    assert!(made.status.success());
    let port = flowlane_testnet::free_port();
    let files = format!("ssl_chain_cert={},ssl_key={}", cert.display(), key.display());
    let line = format!("serve memcached -t 1 -p {port} -l 127.0.0.1 -Z -o {files},idle_timeout=60 --no-pin");
    let service = Program::ready(flowlane(&line), "TLS");
    let shown = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("CN = cache") || shown.contains("CN=cache"), "{shown}");
    drop(service.interrupt());
}

/// A datagram with one request, and its answer, which is one datagram.
fn ask_by_datagram(port: u16, text: &str) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(&[&[0xab, 0xcd, 0, 0, 0, 1, 0, 0], text.as_bytes()].concat()).unwrap();
    let mut answer = [0; 2048];
    let n = socket.recv(&mut answer).unwrap();
    assert_eq!(answer[..8], [0xab, 0xcd, 0, 0, 0, 1, 0, 0]);
    String::from_utf8(answer[8..n].to_vec()).unwrap()
}

#[test]
fn over_udp_and_without_tcp() {
    let port = flowlane_testnet::free_port();
    let line = format!("serve memcached -t 2 -m 8 -l 127.0.0.1 -p 0 -U {port} --no-pin --flows");
    let service = Program::ready(flowlane(&line), &format!("UDP port {port}"));
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err(), "there is TCP");
    for n in 0..20 {
        assert_eq!(ask_by_datagram(port, &format!("set key{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    for n in 0..20 {
        let answer = ask_by_datagram(port, &format!("get key{n}\r\n"));
        assert_eq!(answer, format!("VALUE key{n} 0 1\r\nx\r\nEND\r\n"));
    }
    let lanes = ask_by_datagram(port, "stats lanes\r\n");
    assert!(lanes.starts_with("STAT lanes 2\r\n") && lanes.contains("STAT steering toeplitz\r\n"), "{lanes}");
    // The port is taken.
    let second = flowlane(&line).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("--udp-port {port}: another program has it")), "{said}");
    let printed = service.interrupt();
    assert!(printed.contains("41 datagrams that asked something"), "{printed}");
    assert!(printed.contains("flow 0x"), "{printed}");
}

#[test]
fn metrics_have_the_exporters_names_and_the_page_its_rates() {
    let port = flowlane_testnet::free_port();
    let line = format!("serve memcached -t 2 -m 8 -p {port} -l 127.0.0.1 --no-pin --metrics 0 --web 0");
    let mut program = Program::start(flowlane(&line));
    let said = program.hear("metrics http://");
    let at = |before: &str| {
        let rest = said.split_once(before).unwrap().1;
        rest.split(['/', ',', ' ']).next().unwrap().to_owned()
    };
    let (metrics, web) = (at("metrics http://"), at("web page http://"));
    assert_eq!(
        ask(port, "set key 0 0 1\r\nx\r\nget key none\r\ndelete none\r\nquit\r\n"),
        "STORED\r\nVALUE key 0 1\r\nx\r\nEND\r\nNOT_FOUND\r\n"
    );
    let get = |address: &str, path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let shown = get(&metrics, "/metrics");
    for line in [
        "memcached_commands_total{command=\"get\",host=\"server\",status=\"hit\"} 1",
        "memcached_commands_total{command=\"get\",host=\"server\",status=\"miss\"} 1",
        "memcached_commands_total{command=\"delete\",host=\"server\",status=\"miss\"} 1",
        "memcached_current_items{host=\"server\"} 1",
        "memcached_limit_bytes{host=\"server\"} 8388608",
        "memcached_connections_total{host=\"server\"} 1",
        "flowlane_memcached_get_hits_total{host=\"server\"} 1",
    ] {
        assert!(shown.contains(&format!("\n{line}\n")), "{line}: {shown}");
    }
    let live = get(&web, "/v1/live");
    for text in ["Gets", "Hits", "Sets", "Evictions", "Routed", "Moved"] {
        assert!(live.contains(&format!("\"text\":\"{text}\"")), "{text}: {live}");
    }
    drop(program.interrupt());
}
