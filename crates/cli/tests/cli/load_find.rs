//! `--find-rate` of `load http`, `load tcp` and `load udp`: servers whose limit is known.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowlane_testnet::{Program, Scratch, free_port};
use rustix::process::Signal;
use serde_json::Value;

use crate::wire::Wire;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http"]).args(arguments);
    command
}

fn load(arguments: &[&str]) -> (Output, String) {
    said(command(arguments))
}

fn said(mut command: Command) -> (Output, String) {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

/// A server that gives one answer each so often, in the order in which it was asked; a connection a thread.
fn server_with_a_queue(each: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let free = Arc::new(Mutex::new(Instant::now()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, free) = (stream.unwrap(), free.clone());
            std::thread::spawn(move || answer(stream, each, &free));
        }
    });
    address
}

/// Comes back when it is this one's turn.
fn in_turn(each: Duration, free: &Mutex<Instant>) {
    let done = {
        let mut free = free.lock().unwrap();
        *free = (*free).max(Instant::now()) + each;
        *free
    };
    // A server that takes its time is the situation: nothing is waited for.
    std::thread::sleep(done.saturating_duration_since(Instant::now()));
}

fn answer(mut stream: TcpStream, each: Duration, free: &Mutex<Instant>) {
    stream.set_nodelay(true).unwrap();
    let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        held.extend_from_slice(&buffer[..n]);
        while let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            held.drain(..end + 4);
            in_turn(each, free);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                return;
            }
        }
    }
}

/// A queue that is served 250 times a second has a known limit. A busy machine serves it less often, and none more.
// Long: a search takes several steps, each long enough to be judged.
#[test]
fn the_rate_of_a_known_queue_is_found() {
    let address = server_with_a_queue(Duration::from_millis(4));
    let dir = Scratch::new("find-rate");
    let (url, [saved, page]) = (format!("http://{address}/"), ["f.json", "f.html"].map(|f| dir.path(f)));
    let (output, said) = load(&[
        &url,
        "--find-rate",
        "p90 < 60ms",
        "--between",
        "100..1k",
        "--within",
        "10%",
        "-d",
        "600ms",
        "--warm-up",
        "200ms",
        "-c",
        "50",
        "--json",
        "--save",
        &saved,
        "--html",
        &page,
        "--slip-budget",
        "50ms",
    ]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    flowlane_schema::check("load-find-v1", &found);
    let number = |name: &str| found[name].as_f64().unwrap();
    let (rate, fails) = (number("rate"), number("fails-at"));
    assert!((150.0..=275.0).contains(&rate), "{found:#}");
    assert!(fails > rate && fails <= rate * 1.1001, "{found:#}");
    assert_eq!((&found["limit"], &found["ended"]), (&"server".into(), &"narrow".into()), "{found:#}");
    assert_eq!(said.lines().count(), found["steps"].as_array().unwrap().len(), "a line for each run: {said}");
    assert!(
        said.contains(" a second: holds, ") && said.contains(" a second: does not hold, it was "),
        "{said}"
    );
    let kept: Value = serde_json::from_slice(&std::fs::read(saved).unwrap()).unwrap();
    assert_eq!(kept, found);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("p90 &lt; 60ms holds up to"), "{page}");
    assert!(crate::markup::elements(&page).is_ok(), "well-formed");
}

/// Searches by `load udp` or `load tcp`; what was found.
fn found(kind: &str, address: SocketAddr, condition: &str, more: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", kind, &address.to_string(), "--find-rate", condition]);
    command.args("--within 10% -d 1s --warm-up 300ms --json -q --slip-budget 100ms".split(' '));
    let (output, said) = said({
        command.args(more.split(' '));
        command
    });
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{kind}");
    let found = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-find-v1", &found);
    assert_eq!((&found["limit"], &found["ended"]), (&"server".into(), &"narrow".into()), "{found:#}");
    found
}

/// A server of datagrams that answers 500 a second, 50 at once at most, and drops the others. A twentieth may be lost, so the highest rate is
/// (500 + 50 / 1.3) / 0.95 = 567 a second. A busy machine answers fewer, and none more.
// Long: a search takes several steps, each long enough to be judged.
#[test]
fn the_rate_of_known_loss_is_found() {
    const EACH: Duration = Duration::from_millis(2);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut free) = ([0; 2048], Instant::now());
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            free = free.max(Instant::now()) + EACH;
            if free > Instant::now() + 50 * EACH {
                free -= EACH;
            } else {
                let _ = socket.send_to(&buffer[..n], from);
            }
        }
    });
    let found = found("udp", address, "lost <= 5%", "--between 200..2k --timeout 300ms");
    let (rate, fails) = (found["rate"].as_f64().unwrap(), found["fails-at"].as_f64().unwrap());
    assert!((400.0..=625.0).contains(&rate) && fails <= rate * 1.1001, "{found:#}");
    let failed =
        found["steps"].as_array().unwrap().iter().find(|s| s["rate"].as_f64() == Some(fails)).unwrap();
    assert!(failed["why"].as_str().unwrap().starts_with("it was "), "{failed:#}");
}

/// A queue of connections that is served 250 times a second.
// Long: a search takes several steps, each long enough to be judged.
#[test]
fn the_rate_of_known_connections_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let free = Arc::new(Mutex::new(Instant::now()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, free) = (stream.unwrap(), free.clone());
            std::thread::spawn(move || {
                let mut message = [0; 64];
                if stream.read_exact(&mut message).is_ok() {
                    in_turn(Duration::from_millis(4), &free);
                    let _ = stream.write_all(&message);
                    let _ = stream.read(&mut message);
                }
            });
        }
    });
    let found = found("tcp", address, "p90 < 60ms", "--mode connect --between 100..1k");
    let (rate, fails) = (found["rate"].as_f64().unwrap(), found["fails-at"].as_f64().unwrap());
    assert!((150.0..=275.0).contains(&rate) && fails <= rate * 1.1001, "{found:#}");
}

/// Where even the lowest rate fails, and where the highest holds.
#[test]
fn what_never_holds_and_what_always_holds_is_said() {
    let address = server_with_a_queue(Duration::from_millis(4));
    let url = format!("http://{address}/");
    let run = ["-d", "300ms", "--warm-up", "100ms", "-q", "--slip-budget", "100ms", "--between"];
    let (output, said) = load(&[&[&url, "--find-rate", "p50 < 1ms"], &run[..], &["20..40"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "flowlane: p50 < 1ms does not hold at the lowest rate\n");
    assert!(
        text.contains("p50 < 1ms does not hold at 20 a second, the lowest rate (limit: server)"),
        "{text}"
    );
    let (output, said) = load(&[&[&url, "--find-rate", "errors <= 1%"], &run[..], &["20..40"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
    assert!(text.contains("errors <= 1% holds at 40 a second, the highest rate"), "{text}");
    // The time was up.
    let (output, said) =
        load(&[&[&url, "--find-rate", "errors <= 1%", "--find-for", "1ns"], &run[..], &["20..40"]].concat());
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the time was up before the search was"), "{said}");
}

/// ^C ends a search with what it knows; a target that is not there ends it at once.
#[test]
fn a_search_is_ended() {
    let address = server_with_a_queue(Duration::from_millis(1));
    let mut search = Program::start(command(&[
        &format!("http://{address}/"),
        "--find-rate",
        "p99 < 1s",
        "--between",
        "20..40",
        "-d",
        "60s",
        "--lines",
    ]));
    let refused = search.says();
    assert!(refused.contains("cannot be used with"), "one run's display: {refused}");
    drop(search.end());
    let mut search = Program::start(command(&[
        &format!("http://{address}/"),
        "--find-rate",
        "p99 < 1s",
        "--between",
        "20..400",
        "-d",
        "400ms",
        "--slip-budget",
        "1s",
    ]));
    search.hear(" a second: holds");
    search.signal(Signal::INT);
    let ended = search.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let nobody = format!("http://127.0.0.1:{}/", free_port());
    let (output, said) = load(&[&nobody, "--find-rate", "p99 < 1s"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing listens at") && said.lines().count() == 1, "{said}");
}

#[test]
fn what_makes_no_search_is_refused() {
    for (arguments, word) in [
        (&["--find-rate", "p99"][..], "a threshold is METRIC > VALUE"),
        (&["--find-rate", "p99 < 20"], "it has no unit"),
        (&["--find-rate", "p99 < 20ms", "-r", "10"], "cannot be used with"),
        (&["--find-rate", "p99 < 20ms", "--fail", "errors > 0"], "cannot be used with"),
        // There is one file, and there are many runs.
        (&["--find-rate", "p99 < 20ms", "--link", "pair", "--capture", "x.pcapng"], "cannot be used with"),
        (&["--find-rate", "p99 < 20ms", "--link", "pair", "--flow-log", "x.parquet"], "cannot be used with"),
        (&["--find-rate", "pool=x p99 < 20ms"], "pool"),
        (&["--between", "1..2"], "--find-rate"),
        (&["--find-rate", "p99 < 20ms", "--between", "2..1"], "above the second"),
        (&["--find-rate", "p99 < 20ms", "--within", "0.1%"], "from 1% to 100%"),
    ] {
        let (output, said) = load(&[&["http://127.0.0.1:9/"], arguments].concat());
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: '{word}' in {said}");
    }
    for (kind, arguments, word) in [
        ("udp", "--window 1", "cannot be used with"),
        ("udp", "--discard", "cannot be used with"),
        ("udp", "--rate 5", "cannot be used with"),
        ("udp", "--ramp 5s", "cannot be used with"),
        ("udp", "--capture x.pcapng", "cannot be used with"),
        ("tcp", "--mode echo", "only with --mode connect, not echo"),
        ("tcp", "--mode hold", "only with --mode connect, not hold"),
        ("tcp", "--mode connect --rate 5", "cannot be used with"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", kind, "127.0.0.1:9", "--find-rate", "p99 < 20ms"]).args(arguments.split(' '));
        let (output, said) = said(command);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: '{word}' in {said}");
    }
}

/// A link of ours is opened anew for each run of a search, which takes the privileges that a single run gives up.
// Long: the runs of two searches, on a link that comes up for each of them.
#[test]
fn a_search_opens_its_link_for_each_run() {
    let Some(wire) = Wire::new("af-packet", "lf") else { return };
    for (service, load) in [("udp-echo", "udp 10.11.2.2:"), ("http", "http http://10.11.2.2:")] {
        let port = free_port();
        let mut server = wire.namespace.command(env!("CARGO_BIN_EXE_flowlane"));
        server.args(["serve", service, "--port", &port.to_string(), "--workers", "1", "--no-pin"]);
        let _server = Program::ready(server, " port ");
        let (kind, target) = load.split_once(' ').unwrap();
        let runs =
            "--find-rate p50<10s --slip-budget 10s --between 100..200 --within 50% -d 200ms --warm-up 0s";
        let (mut command, line) = wire.command(kind, &format!("{target}{port} {runs}"));
        command.arg("--no-pin");
        let (output, said) = said(command);
        assert!(output.status.success(), "{line}: {said}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((found["rate"].as_f64(), &found["fails-at"]), (Some(200.0), &Value::Null), "{found}");
        assert!(found["steps"].as_array().unwrap().len() >= 3, "{found}");
    }
}
