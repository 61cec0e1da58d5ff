//! How commands end: when nobody reads what they say, when a service is stopped, and what they may still do while they run.

use flowlane_testnet::{Ended, Namespace, PATIENCE, Program, eventually, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn flowlane(arguments: &str) -> Command {
    inside(None, arguments)
}

/// In a namespace, if one is named.
fn inside(namespace: Option<&Namespace>, arguments: &str) -> Command {
    let program = env!("CARGO_BIN_EXE_flowlane");
    let mut command = match namespace {
        None => Command::new(program),
        Some(namespace) => namespace.command(program),
    };
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// As in `flowlane ... 2>&1 | head -n 0`.
#[test]
fn nobody_has_to_read_what_is_said() {
    for (arguments, code) in [
        ("", 2),
        ("--help", 0),
        ("--nonsense", 2),
        ("serve udp-echo --port 0", 2),
        ("serve udp-echo --link tap:flnone0 --addr 10.11.2.0/24", 2),
        ("load compare /nowhere/a /nowhere/b", 2),
        ("rss key", 0),
        ("load http http://127.0.0.1:1/ -d 10ms -c 1 --lines --fail p99>1h", 1),
    ] {
        let both = flowlane(arguments).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(both.code(), Some(code), "{arguments}");
        let one = flowlane(arguments).stdout(Stdio::null()).stderr(closed()).status().unwrap();
        assert_eq!(one.code(), Some(code), "{arguments}");
    }
}

/// One line: what is wrong, and what is right, without what is only spelt like it and without how a value could begin with a dash.
#[test]
fn an_option_of_another_program_is_one_clear_line() {
    for (arguments, line) in [
        ("load http http://a.example/ -t 2", "unexpected argument '-t' found; threads are --workers N"),
        ("load http --version", "unexpected argument '--version' found; the version is 'flowlane --version'"),
        (
            "load http --connetions 3",
            "unexpected argument '--connetions' found; a similar argument exists: '--connections'",
        ),
        ("bench udp --rounds 0", "invalid value '0' for '--rounds <ROUNDS>': from 1 to 1000"),
        ("load set --rate 5", "unexpected argument '--rate' found; what is changed is an argument: rate=N"),
        (
            "load agent --agents g:2",
            "unexpected argument '--agents' found; an agent is one of --group NAME; --agents NAME belongs to the load that agents make",
        ),
        (
            "load agent --group g --nats nats://127.0.0.1:1",
            "--nats: nats://127.0.0.1:1: no NATS server listens there: start one (nats-server), or say where it is with --nats URL",
        ),
        ("serve http --port 70000", "invalid value '70000' for '--port <PORT>': from 1 to 65535"),
        (
            "load tcp 10.0.0.1:70000",
            "invalid value '10.0.0.1:70000' for '<TARGET>': 70000 is no port: it is a number from 1 to 65535",
        ),
        (
            "serve http --metrics 70000",
            "invalid value '70000' for '--metrics <ADDR:PORT>': 70000 is no port: it is a number from 1 to 65535",
        ),
        (
            "load http http://a.example/ --data-binary @f",
            "unexpected argument '--data-binary' found; the body is --body TEXT or --body-file FILE, where '-' is standard input",
        ),
        (
            "load http http://a.example/ -d @f",
            "invalid value '@f' for '--duration <DURATION>': '@f' is not a time such as 5s, 200ms, 50us or 2m; -d is --duration here: a body from a file is --body-file f",
        ),
        (
            "load http --json {}",
            "invalid value '{}' for '[URL]...': '{}': no URL: http://HOST:PORT/PATH or https://... is needed; --json prints the report as JSON here: a body is --body TEXT",
        ),
        (
            "load http http://127.0.0.1:1/ --data a=b",
            "--data a=b (a file of rows, one for each request; a body is --body 'a=b'): No such file or directory (os error 2)",
        ),
        (
            "load http http://127.0.0.1:1/ --data @f",
            "--data @f (rows, one for each request; a body is --body-file f): No such file or directory (os error 2)",
        ),
        (
            "load http http://127.0.0.1:1/ --data -",
            "--data -: No such file or directory (os error 2): standard input is /dev/stdin here",
        ),
    ] {
        let output = flowlane(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said), (Some(2), format!("flowlane: {line}\n")), "{arguments}");
    }
}

/// A service goes on while somebody reads either, and ends by itself when what it prints is read no more.
#[test]
fn a_service_ends_quietly_when_nobody_reads_it() {
    let serve = format!("serve udp-echo --link kernel --port {} --interval 10ms --json", free_port());
    let mut child = flowlane(&serve).stdout(Stdio::piped()).stderr(closed()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "it says what it did");
    }
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// What every thread of a process may do: effective and permitted capabilities, and whether more can be had.
fn privileges(process: u32) -> Vec<(u64, u64, bool)> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process)).unwrap();
    let status =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap());
    status
        .map(|status| {
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            (field("CapEff:"), field("CapPrm:"), field("NoNewPrivs:") == 1)
        })
        .collect()
}

#[test]
fn services_on_kernel_sockets_keep_one_privilege_or_none() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let namespace = Namespace::new(&format!("flpv{}", std::process::id())).unwrap();
    const BIND: u64 = 1 << flowlane_sys::privilege::CAP_NET_BIND_SERVICE;
    for (what, kept) in [
        ("http --port 80", BIND),
        ("udp-echo --port 7 --link kernel", BIND),
        ("tcp-echo --port 7 --link kernel --workers 2", BIND),
        ("http --port 1024", 0),
        ("udp-echo --link kernel", 0),
    ] {
        let service = Program::ready(inside(Some(&namespace), &format!("serve {what} --control")), " port ");
        for thread in privileges(service.id()) {
            assert_eq!(thread, (kept, kept, true), "{what}");
        }
        service.interrupt();
    }
}

#[test]
fn loads_on_kernel_sockets_keep_no_privilege() {
    let port = free_port();
    let service = Program::ready(flowlane(&format!("serve http --addr 127.0.0.1 --port {port}")), " port ");
    for what in [
        format!("http http://127.0.0.1:{port}/size/1 -d 1h -c 1 --quiet"),
        format!("tcp 127.0.0.1:{port} --mode connect -d 1h --quiet"),
    ] {
        let mut load = flowlane(&format!("load {what}")).stdout(Stdio::null()).spawn().unwrap();
        let threads = format!("/proc/{}/task", load.id());
        // Workers begin when it has given up what it gives up.
        let worker = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.unwrap().path().join("comm")).is_ok_and(|n| n == "flowlane-0\n")
        };
        eventually(&what, || {
            assert!(load.try_wait().unwrap().is_none(), "{what}");
            std::fs::read_dir(&threads).unwrap().any(worker)
        });
        let kept = privileges(load.id());
        load.kill().unwrap();
        load.wait().unwrap();
        assert!(kept.iter().all(|thread| *thread == (0, 0, true)), "{what}: {kept:?}");
    }
    service.interrupt();
}

fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "ended: {}", String::from_utf8_lossy(&got));
        got.push(byte[0]);
    }
    String::from_utf8(got).unwrap()
}

/// Two clients of a web server that is stopped: one is idle, the other in the middle of a request.
fn stop_between(at: &str, service: &Program) {
    let connect = || {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let (mut idle, mut busy) = (connect(), connect());
    idle.write_all(b"GET /status/404 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(!read_to(&mut idle, "404 Not Found\n").contains("Connection"));
    busy.write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello").unwrap();
    read_to(&mut busy, "\r\n\r\nhello");
    service.signal(Signal::INT);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "the end");
    drop(idle);
    busy.write_all(b"worldGET /status/404 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    read_to(&mut busy, "world");
    // Nothing of the request was promised before the stop, but it came behind one that was.
    assert!(read_to(&mut busy, "404 Not Found\n").contains("\r\nConnection: close\r\n"));
    assert_eq!(busy.read(&mut [0]).unwrap(), 0, "the end");
}

/// What a service printed that has been told to end and does so.
fn ended(service: Program) -> String {
    let Ended { status, printed, said } = service.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    printed
}

fn http_summary(printed: &str) -> Value {
    let documents = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    documents.into_iter().find(|d| d["kind"] == "http-summary").unwrap()
}

#[test]
fn a_web_server_that_is_stopped_answers_what_was_asked() {
    // Longer than the test's patience: who waits for the grace does not pass.
    let port = free_port();
    let serve = format!("serve http --addr 127.0.0.1 --port {port} --grace 1h --json");
    let service = Program::ready(flowlane(&serve), " port ");
    stop_between(&format!("127.0.0.1:{port}"), &service);
    let summary = http_summary(&ended(service));
    assert_eq!((&summary["requests"], &summary["connections-open"]), (&3.into(), &0.into()), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let namespace = Namespace::new(&format!("flws{}", std::process::id())).unwrap();
    let serve = "serve http --link tap:tap0 --addr 10.11.2.1/24 --no-pin --grace 1h --json";
    let service = Program::ready(inside(Some(&namespace), serve), " port ");
    namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
    namespace.ip("link set tap0 up").unwrap();
    namespace.run(|| stop_between("10.11.2.1:8080", &service)).unwrap();
    let summary = http_summary(&ended(service));
    assert_eq!((&summary["requests"], &summary["connections-open"]), (&3.into(), &0.into()), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
}

/// Nobody hears of the stop: neither an idle client nor one in the middle of an answer. It ends all the same when the grace is over.
#[test]
fn a_web_server_whose_link_is_dead_ends_with_the_grace() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let namespace = Namespace::new(&format!("flwd{}", std::process::id())).unwrap();
    let serve = "serve http --link tap:tap0 --addr 10.11.2.1/24 --no-pin --grace 300ms --json";
    let service = Program::ready(inside(Some(&namespace), serve), " port ");
    namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
    namespace.ip("link set tap0 up").unwrap();
    let clients = namespace
        .run(|| {
            let connect = || {
                let stream = TcpStream::connect("10.11.2.1:8080").unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream
            };
            let (mut idle, mut busy) = (connect(), connect());
            idle.write_all(b"GET /status/404 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            read_to(&mut idle, "404 Not Found\n");
            // More than all buffers on the way hold.
            busy.write_all(b"GET /size/1000000000 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            read_to(&mut busy, "\r\n\r\n");
            [idle, busy]
        })
        .unwrap();
    namespace.ip("link set tap0 down").unwrap();
    let summary = http_summary(&service.interrupt());
    assert_eq!(summary["requests"], 2, "{summary}");
    drop(clients);
}

/// Whether this process, and so what it starts, ignores SIGHUP: under `nohup`.
fn no_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1;
    if ignored {
        flowlane_testnet::skipped("SIGHUP is ignored here: the tests run under nohup");
    }
    ignored
}

/// Sends two signals. Whether that was at once: this thread may have waited for a processor in between.
fn twice_at_once(program: &Program) -> bool {
    let begin = Instant::now();
    program.signal(Signal::TERM);
    program.signal(Signal::INT);
    begin.elapsed() < Duration::from_millis(100)
}

/// `timeout` of coreutils sends its signal twice, to the child and to its group: that is one signal.
#[test]
fn a_signal_that_comes_twice_at_once_ends_in_order() {
    let mut judged = 0;
    for _ in 0..20 {
        let port = free_port();
        let serve = format!("serve http --addr 127.0.0.1 --port {port} --json");
        let service = Program::ready(flowlane(&serve), " port ");
        if twice_at_once(&service) {
            assert_eq!(http_summary(&ended(service))["requests"], 0);
            judged += 1;
        }
    }
    assert!(judged > 0);
}

/// As above, of a command that ends by itself; and a signal that comes later ends one that hangs: it waits for somebody who reads its report.
// Long: four runs that begin, and two that are to hang before they are ended.
#[test]
fn a_later_signal_ends_what_hangs() {
    let port = free_port();
    let service = Program::ready(flowlane(&format!("serve http --addr 127.0.0.1 --port {port}")), " port ");
    let load = format!("load http http://127.0.0.1:{port}/ -c 1 -r 10 -d 10m --slip-budget 10m --lines");
    for again in [Signal::TERM, Signal::INT] {
        let mut run = Program::start(flowlane(&format!("{load} --json")));
        run.hear("answers/s");
        if twice_at_once(&run) {
            let Ended { status, printed, said } = run.end();
            assert!(matches!(status.code(), Some(130 | 143)), "{status:?}: {said:#?}");
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["ended"], "interrupted");
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let mut full = writer.try_clone().unwrap();
        rustix::io::ioctl_fionbio(&full, true).unwrap();
        while full.write(&[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&full, false).unwrap();
        let mut command = flowlane(&format!("{load} --json"));
        let mut run = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop((command, full));
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
        lines.find(|line| line.contains("answers/s")).unwrap();
        let process = rustix::process::Pid::from_child(&run);
        flowlane_testnet::eventually("it ends", || {
            rustix::process::kill_process(process, again).unwrap();
            run.try_wait().unwrap().is_some()
        });
        assert_eq!(run.wait().unwrap().code(), Some(128 + again.as_raw()));
        drop(reader);
    }
    service.interrupt();
}

/// A peer accepts and says nothing, and may take ten minutes: the first signal ends the run all the same, with what there was, of which nothing has failed.
#[test]
fn a_run_whose_peer_is_silent_ends_at_the_first_signal() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    // It ends with the process; what is accepted stays, and is told when it has been asked something.
    let (asked, is_asked) = std::sync::mpsc::channel();
    let asked_by_udp = asked.clone();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        for mut stream in silent.incoming().map_while(Result::ok) {
            let _ = asked.send(stream.read(&mut [0; 16]));
            all.push(stream);
        }
    });
    // Of datagrams it answers the first of each flow, which asks whether somebody is there.
    let quiet = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = quiet.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 2048]);
        while let Ok((n, from)) = quiet.recv_from(&mut buffer) {
            if seen.contains(&from) {
                let _ = asked_by_udp.send(Ok(n));
            } else {
                seen.push(from);
                let _ = quiet.send_to(&buffer[..n], from);
            }
        }
    });
    for load in [
        format!("udp {udp} --window 4 --flows 1 --workers 1"),
        format!("tcp {at}"),
        format!("tcp {at} --mode connect"),
        format!("tcp {at} --mode hold --slip-budget 10m"),
        format!("tcp {at} --mode write"),
        format!("memcached {at}"),
        format!("ws ws://{at}/"),
        format!("http http://{at}/"),
        format!("http http://{at}/ --http2"),
    ] {
        while is_asked.try_recv().is_ok() {}
        let one = if load.starts_with("udp") { "" } else { "-c 1" };
        let run =
            Program::start(flowlane(&format!("load {load} {one} -d 10m --timeout 10m --no-pin -q --json")));
        is_asked.recv_timeout(PATIENCE).unwrap().unwrap();
        let begun = Instant::now();
        run.signal(Signal::INT);
        let Ended { status, printed, said } = run.end();
        assert_eq!(status.code(), Some(130), "{load}: {said:?}");
        assert!(begun.elapsed() < PATIENCE, "{load}");
        let report: Value = serde_json::from_str(&printed).unwrap();
        flowlane_schema::check("load-run", &report);
        assert_eq!(said, ["flowlane: ended before its time"], "{load}");
        let counts = &report["total"]["counts"];
        assert_eq!(
            (&report["ended"], &counts["failed"]),
            (&"interrupted".into(), &0.into()),
            "{load}: {counts}"
        );
        // Nothing is said on a WebSocket before it is one, and no schedule had time for much.
        if !load.starts_with("ws") {
            assert!(counts["more"]["unfinished"].as_u64().is_some_and(|n| n > 0), "{load}: {counts}");
        }
    }
}

/// Whatever lacks descriptors says in one line how there are more.
#[test]
fn what_lacks_descriptors_says_how_there_are_more() {
    let port = free_port();
    for command in [
        "demo --duration 100ms".to_owned(),
        format!("serve http --addr 127.0.0.1 --port {port}"),
        format!("load udp 127.0.0.1:{port} -d 100ms"),
        format!("load tcp 127.0.0.1:{port} -d 100ms"),
    ] {
        for allowed in [4, 5] {
            let mut limited = Command::new("sh");
            limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &allowed.to_string()]);
            limited.arg(env!("CARGO_BIN_EXE_flowlane")).args(command.split(' ')).stdin(Stdio::null());
            let output = limited.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(127) {
                // Who loads its libraries needs one as well.
                continue;
            }
            assert_eq!(
                (output.status.code(), said.lines().count()),
                (Some(2), 1),
                "{command} {allowed}: {said}"
            );
            assert!(said.contains("ulimit -n"), "{command} {allowed}: {said}");
        }
    }
}

/// The terminal goes away: kernel and shell both send SIGHUP. Nothing is left behind, and nothing is lost.
#[test]
fn what_loses_its_terminal_ends_in_order() {
    if no_hangups() {
        return;
    }
    let place = std::env::temp_dir().join(format!("fl-hup-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let (socket, saved) = (place.join("socket"), place.join("run.json"));
    let port = free_port();
    let serve = format!("serve http --addr 127.0.0.1 --port {port} --json --control {}", socket.display());
    let service = Program::ready(flowlane(&serve), " port ");
    assert!(socket.exists());
    for _ in 0..2 {
        service.signal(Signal::HUP);
    }
    assert_eq!(http_summary(&ended(service))["requests"], 0);
    assert!(!socket.exists(), "it is left");
    // It lasts until it is told to end, and tells how far it is.
    let service = Program::ready(flowlane(&format!("serve http --addr 127.0.0.1 --port {port}")), " port ");
    let load = format!(
        "load http http://127.0.0.1:{port}/ -c 1 -r 10 -d 10m --slip-budget 10m --lines --save {}",
        saved.display()
    );
    let mut run = flowlane(&load).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("answers/s") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    for _ in 0..2 {
        rustix::process::kill_process(rustix::process::Pid::from_child(&run), Signal::HUP).unwrap();
    }
    std::io::copy(&mut lines, &mut std::io::sink()).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(129));
    let report: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    assert_eq!(report["ended"], "interrupted", "{report}");
    drop(service);
    std::fs::remove_dir_all(&place).unwrap();
}

/// Under `nohup` it goes on without a terminal.
#[test]
fn what_is_to_outlive_its_terminal_does() {
    let port = free_port();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_flowlane")])
        .stdin(Stdio::null());
    shell.args(["serve", "http", "--addr", "127.0.0.1", "--json", "--port", &port.to_string()]);
    let service = Program::ready(shell, " port ");
    service.signal(Signal::HUP);
    stop_between(&format!("127.0.0.1:{port}"), &service);
    assert_eq!(http_summary(&ended(service))["requests"], 3);
}

/// On kernel sockets segments are not seen: what is counted are reads and writes, and they are called that.
#[test]
fn what_kernel_sockets_count_is_called_what_it_is() {
    for json in [true, false] {
        let port = free_port();
        let form = if json { " --json --interval 10ms" } else { "" };
        let serve = format!("serve tcp-echo --link kernel --addr 127.0.0.1 --port {port}{form}");
        let service = Program::ready(flowlane(&serve), " port ");
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..3 {
            stream.write_all(b"hello").unwrap();
            read_to(&mut stream, "hello");
        }
        let printed = service.interrupt();
        if !json {
            let last = printed.lines().last().unwrap();
            assert!(last.starts_with("tcp-echo: reads 3, writes 3, dropped 0, "), "{printed}");
            assert!(printed.starts_with("in reads and writes:\n"), "{printed}");
            assert!(!printed.contains("segments") && !printed.contains("aligned"), "{printed}");
            continue;
        }
        let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = |kind: &str| documents.iter().rfind(|d| d["kind"] == kind);
        if let Some(interval) = last("interval") {
            flowlane_schema::check("serve-v1", interval);
        }
        let summary = last("summary").unwrap();
        flowlane_schema::check("serve-v1", summary);
        assert_eq!((&summary["reads"], &summary["writes"]), (&3.into(), &3.into()), "{summary}");
    }
}
