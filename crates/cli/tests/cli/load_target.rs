//! Targets of `flowlane load` that are not there, and such as answer before they have read the request, on kernel sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use flowlane_testnet::{Namespace, Program, Scratch, free_port};
use serde_json::Value;

fn load(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.arg("load").args(arguments.split(' ')).output().unwrap()
}

/// A port that was free a moment ago, of TCP and UDP.
fn nobody() -> SocketAddr {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        if UdpSocket::bind(tcp).is_ok() {
            return tcp;
        }
    }
}

/// One line that says so, at once, and nothing else.
#[test]
fn a_refused_target_is_one_line_and_one_failure() {
    let target = nobody();
    for arguments in [
        format!("http http://{target}/ -d 10m"),
        format!("http http://{target}/ -d 10m -r 1000"),
        format!("http http://{target}/ -d 10m -r 1000 --no-keepalive"),
        format!("http http://{target}/ -d 10m --http2"),
        format!("tcp {target} -d 10m --mode connect"),
        format!("tcp {target} -d 10m --mode connect --rate 1000"),
        format!("tcp {target} -d 10m --mode hold"),
        format!("tcp {target} -d 10m --mode write"),
        format!("udp {target} -d 10m"),
        format!("udp {target} -d 10m --discard --rate 1000"),
    ] {
        let begun = Instant::now();
        let output = load(&format!("{arguments} --no-pin"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {stderr}");
        let words = format!("flowlane: nothing listens at {target}: ");
        assert!(stderr.starts_with(&words), "{arguments}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
        // Less than a target is given that says nothing.
        assert!(begun.elapsed() < Duration::from_millis(2900), "{arguments}: {:?}", begun.elapsed());
        let output = load(&format!("{arguments} --no-pin --json"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = &report["total"]["counts"];
        assert_eq!(counts["failed"], 1, "{arguments}: {counts}");
        assert_eq!(counts["errors"]["refused"]["count"], 1, "{arguments}: {counts}");
        assert_eq!((&report["ended"], &counts["answered"]), (&"failed".into(), &0.into()), "{arguments}");
        assert_eq!(report["failed"].as_array().unwrap().len(), 1, "{arguments}: {}", report["failed"]);
    }
    let dir = Scratch::new("load-refused");
    let page = dir.path("page.html");
    load(&format!("http http://{target}/ -r 1000 --no-pin --html {page}"));
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("nothing listens").count(), 1, "{page}");
    assert!(!page.contains("schedule was kept"), "{page}");
}

/// A server that goes away while it is asked is another matter: what it refuses then is counted.
#[test]
fn a_server_that_goes_away_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    });
    let output = load(&format!("http http://{address}/ -c 1 -d 500ms --no-pin --json"));
    server.join().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["total"]["counts"];
    assert_eq!((output.status.code(), &counts["answered"]), (Some(1), &1.into()), "{counts}");
    assert!(counts["errors"]["refused"]["count"].as_u64().unwrap() > 1, "{counts}");
    assert_eq!(report["ended"], "done");
}

/// Reads the beginning of a request, answers and goes away at once, with the rest unread, which resets the connection.
fn refuse(mut stream: TcpStream, answer: &[u8]) {
    let mut buffer = [0; 1024];
    if matches!(stream.read(&mut buffer), Ok(1..)) {
        let _ = stream.write_all(answer);
    }
}

#[test]
fn an_answer_before_the_end_of_the_request_is_the_answer() {
    for answer in [
        &b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much"[..],
        b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\ntoo much",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                refuse(stream.unwrap(), answer);
            }
        });
        for more in ["", " --io epoll", " -H Expect:100-continue"] {
            let asked = "-n 40 -c 4 --body-size 16Mi --expect-status 413 --expect-length 8 --no-pin --json";
            let output = load(&format!("http http://{address}/ {asked}{more}"));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let counts = &report["total"]["counts"];
            assert_eq!((&counts["answered"], &counts["failed"]), (&40.into(), &0.into()), "{more}: {counts}");
            assert_eq!(counts["codes"]["413"], 40, "{more}: {counts}");
            assert!(output.status.success(), "{more}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Servers that answer the first request of a connection with 103 for ever: no run lasts longer or grows for them.
#[test]
fn endless_interim_answers_end_with_the_run() {
    // After SETTINGS, HEADERS of stream 1 with :status 103, a literal with the name of static entry 8.
    let http2 = (&b"\0\0\0\x04\0\0\0\0\0"[..], &b"\0\0\x05\x01\x04\0\0\0\x01\x08\x03103"[..]);
    let http1 = (&b""[..], &b"HTTP/1.1 103 Early Hints\r\n\r\n"[..]);
    for (more, (first, again)) in [("--http2", http2), ("--http2 --rate 100", http2), ("", http1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 1024]);
                    let flood = again.repeat(1000);
                    let _ = stream.write_all(first);
                    while stream.write_all(&flood).is_ok() {}
                });
            }
        });
        let begun = Instant::now();
        let arguments =
            format!("http http://{address}/ -c 2 -d 1s --request-timeout 1s --no-pin --json {more}");
        let output = load(arguments.trim_end());
        // A second of sending, one for the last request, and time for a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(8), "{more}: {:?}", begun.elapsed());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = &report["total"]["counts"];
        assert_eq!((output.status.code(), &counts["answered"]), (Some(1), &0.into()), "{more}: {counts}");
        assert!(counts["failed"].as_u64().unwrap() > 0, "{more}: {counts}");
        let memory = report["generator"]["memory-bytes"].as_u64().unwrap();
        assert!(memory < 100 << 20, "{more}: {memory} bytes");
    }
}

/// Behind https:// something answers that is no TLS: which it is, is said in words.
#[test]
fn a_target_without_tls_is_said_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let output = load(&format!("http https://{target}/ -c 1 -d 1s -k --no-pin"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(
        stderr,
        format!("flowlane: {target}: the server does not speak TLS on this port: is http:// meant?\n")
    );
}

/// Where no route leads nothing is connected: one line says so, at once, and there is no table of nothing.
#[test]
fn where_no_route_leads_is_one_line() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(&why);
        return;
    }
    let alone = Namespace::new(&format!("flnr{}", std::process::id())).unwrap();
    for (load, port) in [
        ("tcp 10.99.99.1:7 -d 10m", 7),
        ("tcp 10.99.99.1:7 -d 10m --mode connect", 7),
        ("tcp 10.99.99.1:7 -d 10m --mode connect --rate 100", 7),
        ("tcp 10.99.99.1:7 -d 10m --mode hold", 7),
        ("udp 10.99.99.1:7 -d 10m", 7),
        ("http http://10.99.99.1:80/ -d 300ms --http2", 80),
    ] {
        let mut command = alone.command(env!("CARGO_BIN_EXE_flowlane"));
        let output = command.arg("load").args(load.split(' ')).arg("--no-pin").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{load}: {stderr}");
        let words = format!("10.99.99.1:{port}: no route to the peer");
        assert!(stderr.contains(&words) && stderr.lines().count() == 1, "{load}: {stderr}");
        assert!(output.stdout.is_empty(), "{load}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// docs/peers-options.md: each line of ours beside one of iperf3 is run, for a shorter time.
// Long: every line of the table is run.
#[test]
fn what_stands_beside_the_options_of_iperf3_works() {
    let service = |name: &str| {
        let (mut command, port) = (Command::new(env!("CARGO_BIN_EXE_flowlane")), free_port());
        command.args(["serve", name, "--addr", "127.0.0.1/8", "--no-pin", "--port", &port.to_string()]);
        (Program::ready(command, &format!("{name} on ")), format!("127.0.0.1:{port}"))
    };
    let services = ["tcp-discard", "tcp-source", "tcp-echo", "udp-echo"].map(service);
    let [sink, source, echo, datagrams] = [0, 1, 2, 3].map(|i| &services[i].1);
    let dir = Scratch::new("load-iperf3");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/peers-options.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("\n## iperf3\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut tried = 0;
    for row in table.lines().filter(|row| row.contains("| `flowlane load ")) {
        let ours = row.split("| `flowlane ").nth(1).unwrap().split('`').next().unwrap();
        let echo = if ours.starts_with("load udp") { datagrams } else { echo };
        let mut line = ours.to_owned();
        for (long, short) in [
            ("HOST:9", sink.as_str()),
            ("HOST:19", source),
            ("HOST:7", echo),
            ("-d 30s", "-d 200ms"),
            ("-d 10s", "-d 200ms"),
            ("--warm-up 2s", "--warm-up 50ms"),
            // Who has one processor alone has this one.
            ("--cpus 1", "--cpus 0"),
        ] {
            line = line.replace(long, short);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(line.split(' ')).current_dir(dir.dir()).stdin(std::process::Stdio::null());
        if !line.contains("--cpus") {
            command.arg("--no-pin");
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // On a machine with other things to do the generator may be late, and says so.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}: {stderr}");
        tried += 1;
    }
    assert!(tried >= 18, "{tried}");
    drop(services.map(|(service, _)| service.interrupt()));
}
