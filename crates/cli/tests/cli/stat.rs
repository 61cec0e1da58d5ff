//! `flowlane stat` against an instance in this process, and the documents against their schema: no privileges needed.

use flowlane::{
    Bucket, Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream, UdpSocket, block_on,
    control, current, spawn,
};
use flowlane_schema::{check, check_part};
use flowlane_testnet::{Program, eventually, free_port};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A server and a client joined by a pair, after five datagrams there and back.
struct Running {
    runtime: Option<Runtime>,
    control: Option<control::Control>,
    path: PathBuf,
}

impl Running {
    fn start(tag: &str) -> Self {
        Self::with(tag, 1)
    }

    fn with(tag: &str, workers: usize) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-stat-{tag}-{}.sock", std::process::id()));
        let rss = Arc::new(Rss::new(Key::MICROSOFT, workers));
        let on =
            |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
        let mut builder = Runtime::builder().workers(workers).pin(false);
        let server = builder.host(
            Host::new("server", rss.clone(), || async {
                let listener = TcpListener::on_port(80).unwrap();
                let accept = async move {
                    let mut kept = Vec::new();
                    while let Ok(stream) = listener.accept().await {
                        kept.push(stream);
                    }
                };
                spawn(accept).unwrap();
                let socket = UdpSocket::on_port(7).unwrap();
                let mut batch = Vec::new();
                while socket.recv_batch(&mut batch, 64).await.is_ok() {
                    let _ = socket.reply_batch(&mut batch).await;
                }
            })
            .interface(on("10.0.0.1/24")),
        );
        let (done, finished) = mpsc::channel();
        let client = Host::new("client", rss, move || {
            let done = done.clone();
            async move {
                // One lane is enough.
                if current().unwrap().bucket.0 != 0 {
                    return;
                }
                let socket = UdpSocket::connect("10.0.0.1:7".parse().unwrap()).unwrap();
                for _ in 0..5 {
                    socket.send(b"hello").await.unwrap();
                    socket.recv().await.unwrap();
                }
                let stream = TcpStream::connect("10.0.0.1:80".parse().unwrap()).await.unwrap();
                // Nobody reads it: it waits on the other side.
                stream.write_all(&[7; 1234]).await.unwrap();
                done.send(()).unwrap();
                // The sockets stay, to be listed.
                std::future::pending::<()>().await;
            }
        });
        let client = builder.host(client.interface(on("10.0.0.2/24")));
        builder.pair((server, 0), (client, 0), PairConfig::default());
        let runtime = builder.start().unwrap();
        finished.recv_timeout(Duration::from_secs(20)).unwrap();
        let control = control::serve(Some(&path), runtime.handle(), "test").unwrap();
        Self { runtime: Some(runtime), control: Some(control), path }
    }

    /// What `flowlane lanes` prints, and how it ends.
    fn lanes(&self, arguments: &str) -> (Option<i32>, String) {
        self.command("lanes", arguments)
    }

    /// What a command prints, and how it ends.
    fn command(&self, command: &str, arguments: &str) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
            .arg(command)
            .args(arguments.split_whitespace())
            .arg("--control")
            .arg(&self.path)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    }

    /// So many datagrams to the server and back, on a socket of the client whose port is returned.
    fn probe(&self, datagrams: usize) -> u16 {
        let handle = self.runtime.as_ref().unwrap().handle();
        let probe = handle.spawn_on(1, Bucket(0), async move {
            let socket = UdpSocket::connect("10.0.0.1:7".parse().unwrap()).unwrap();
            for _ in 0..datagrams {
                socket.send(b"hello").await.unwrap();
                socket.recv().await.unwrap();
            }
            socket.local().unwrap().1
        });
        block_on(probe.unwrap()).unwrap()
    }

    /// So many datagrams to a port of the server at which nobody is.
    fn send_to_nobody(&self, datagrams: usize) {
        let handle = self.runtime.as_ref().unwrap().handle();
        let sent = handle.spawn_on(1, Bucket(0), async move {
            let socket = UdpSocket::connect("10.0.0.1:9".parse().unwrap()).unwrap();
            for _ in 0..datagrams {
                // An error is that nobody is there.
                let _ = socket.send(b"hello").await;
            }
        });
        block_on(sent.unwrap()).unwrap();
        let drops = || {
            self.stat("-p drops").lines().any(|line| {
                line.trim_start().starts_with(&format!("{datagrams} UDP datagrams for a port without"))
            })
        };
        let begun = std::time::Instant::now();
        while !drops() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", self.stat("-p drops"));
        }
    }

    fn stat(&self, letters: &str) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
            .arg("stat")
            .args(letters.split_whitespace())
            .arg("--control")
            .arg(&self.path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{letters}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends this and reads all that comes back.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.control.take());
        drop(self.runtime.take());
        assert!(!self.path.exists(), "the socket's file is removed");
    }
}

#[test]
fn what_netstat_would_say() {
    let running = Running::start("text");
    let protocols = running.stat("-s");
    assert!(protocols.contains("host server\n") && protocols.contains("host client\n"));
    assert_eq!(protocols.matches("\t5 datagrams received\n").count(), 2, "{protocols}");
    assert!(protocols.contains("\t0 with bad checksum\n"));
    let busy = running.stat("-s -s");
    assert!(!busy.contains("\t0 ") && busy.contains("\t5 delivered\n"));
    let udp = running.stat("-p udp");
    assert!(udp.contains("udp:\n") && !udp.contains("ip:\n"));
    let netisr = running.stat("-Q");
    for part in [
        "Configuration:",
        "Thread count",
        "Protocols:",
        "Workstreams:",
        "HDisp'd",
        "Where workers meet:",
        "Time, percent:",
    ] {
        assert!(netisr.contains(part), "{netisr}");
    }
    let sockets = running.stat("-a");
    assert_eq!(sockets.lines().filter(|l| l.contains("*.7 ")).count(), 2, "one for each lane: {sockets}");
    assert_eq!(sockets.lines().filter(|l| l.contains("10.0.0.1.7")).count(), 1, "the client: {sockets}");
    let flows = running.stat("-R");
    let report: Value = serde_json::from_str(&running.stat("--json")).unwrap();
    let client = report["sockets"]["sockets"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["connected"] == true && s["proto"] == "udp4")
        .unwrap();
    let flowid = format!("{:08x}", client["flowid"].as_u64().unwrap());
    assert!(flows.contains(&flowid) && client["flowtype"] == 0x81, "{flows}");
    let overview = running.stat("");
    assert!(overview.contains("alignment 100.0 %"));
    let mut lines = overview.lines().skip_while(|line| *line != "Time, percent:").skip(1);
    let names: Vec<_> = lines.next().unwrap_or_else(|| panic!("{overview}")).split_whitespace().collect();
    assert_eq!(
        names,
        ["worker", "receive", "stack", "tasks", "netisr", "transmit", "looking", "asleep"],
        "{overview}"
    );
    let shares = lines.next().unwrap().split_whitespace().skip(1).map(|share| share.parse::<f64>().unwrap());
    let sum: f64 = shares.sum();
    assert!((sum - 100.0).abs() < 0.5, "{overview}");
}

#[test]
fn connections_are_listed_with_their_states_and_flows() {
    let running = Running::start("tcp");
    // The last acknowledgement and the data may be on their way still.
    let begun = std::time::Instant::now();
    let table = loop {
        let table = running.stat("-a -p tcp");
        let read = table.lines().any(|l| l.starts_with("tcp4    1234      0 10.0.0.1.80 "));
        if read && table.contains("2 LISTEN, 2 ESTABLISHED") {
            break table;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{table}");
    };
    assert!(table.contains("(state)"), "{table}");
    assert_eq!(
        table.lines().filter(|l| l.starts_with("tcp46") && l.contains("LISTEN")).count(),
        2,
        "{table}"
    );
    assert_eq!(
        table.lines().filter(|l| l.contains("ESTABLISHED") && l.starts_with("tcp4 ")).count(),
        2,
        "{table}"
    );
    assert!(!table.contains("udp"), "{table}");
    let report: Value = serde_json::from_str(&running.stat("-a --json")).unwrap();
    let sockets = &report["sockets"];
    assert_eq!(sockets["tcp-states"]["ESTABLISHED"], 2);
    let end = |local: &str| {
        let rows = sockets["sockets"].as_array().unwrap();
        rows.iter().find(|s| s["local"] == local && s["state"] == "ESTABLISHED").unwrap().clone()
    };
    let server = end("10.0.0.1.80");
    assert_eq!((&server["receive-queue"], &server["flowtype"]), (&1234.into(), &0x82.into()), "{server}");
    let flow = format!("{:08x}", server["flowid"].as_u64().unwrap());
    assert!(running.stat("-R").contains(&flow));
    let counters = running.stat("-s -s -p tcp");
    assert!(counters.contains("\t1 connection requests\n") && counters.contains("\t1 connection accepts\n"));
}

/// A connection on kernel sockets is listed with the processor on which its last packet arrived, and why that is not its worker's.
#[test]
fn where_kernel_connections_arrive() {
    if !flowlane_sys::affinity::allowed_cpus().starts_with(&[0, 1]) {
        return flowlane_testnet::skipped("it needs processors 0 and 1");
    }
    let path = std::env::temp_dir().join(format!("flowlane-stat-arrive-{}.sock", std::process::id()));
    let flowlane = || Command::new(env!("CARGO_BIN_EXE_flowlane"));
    let port = free_port();
    let mut serve = flowlane();
    serve
        .args([
            "serve",
            "tcp-discard",
            "--link",
            "kernel",
            "--addr",
            "127.0.0.1/8",
            "--port",
            &port.to_string(),
        ])
        .args(["--workers", "2", "--cpus", "0,1", "--steer", "cpu", "--control", path.to_str().unwrap()]);
    let server = Program::ready(serve, " port ");
    let stat = |letters: &str| {
        let output = flowlane()
            .args(["stat", letters, "--json", "--control", path.to_str().unwrap()])
            .output()
            .unwrap();
        let text = flowlane().args(["stat", letters, "--control", path.to_str().unwrap()]).output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["sockets"].clone(), String::from_utf8(text.stdout).unwrap())
    };
    // In a thread of its own, which goes from one processor to the other. Nothing is answered: an acknowledgement of an answer would come from
    // the processor of the worker.
    let client = || {
        flowlane_sys::affinity::pin_to(0).unwrap();
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let ours = format!("127.0.0.1.{}", stream.local_addr().unwrap().port());
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let mut arrived = |processor: u64, words: &str| loop {
            stream.write_all(b"x").unwrap();
            let (sockets, text) = stat("-a");
            let rows = sockets["sockets"].as_array().unwrap();
            let row = rows.iter().find(|row| row["foreign"] == ours.as_str());
            let line = text.lines().rfind(|l| l.contains(&ours));
            if let (Some(row), Some(line)) = (row, line)
                && row["arrival"]["processor"] == processor
                && line.ends_with(words)
            {
                return (row.clone(), text);
            }
            assert!(std::time::Instant::now() < until, "{text}");
        };
        let (row, text) = arrived(0, "    0      0 aligned");
        assert_eq!((&row["state"], &row["flowtype"]), (&"ESTABLISHED".into(), &0x82.into()), "{row}");
        assert_eq!(row["arrival"]["worker-processor"], 0, "{row}");
        assert!(
            row["arrival"].get("elsewhere").is_none() && text.contains(", 1 ESTABLISHED"),
            "{row}, {text}"
        );
        flowlane_sys::affinity::pin_to(1).unwrap();
        let (row, text) = arrived(1, "    1      0 sender");
        assert_eq!(row["arrival"]["elsewhere"], "sender", "{row}");
        assert!(
            text.contains("\nsender: the processor of its sender on this machine has changed\n"),
            "{text}"
        );
    };
    let done = std::thread::scope(|scope| scope.spawn(client).join());
    drop(server);
    let _ = std::fs::remove_file(&path);
    done.unwrap();
}

/// UDP on kernel sockets: a socket in each lane, and what the kernel dropped while nobody read.
#[test]
fn udp_sockets_of_the_kernel() {
    let path = std::env::temp_dir().join(format!("flowlane-stat-udp-{}.sock", std::process::id()));
    let control = path.to_str().unwrap();
    let port = free_port();
    let line = format!("serve udp-echo --link kernel --addr 127.0.0.1/8 --port {port} --workers 2 --no-pin");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    serve.args(line.split_whitespace()).args(["--control", control]);
    let server = Program::ready(serve, " port ");
    let told = std::panic::catch_unwind(|| {
        let stat = |letters: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
            command.arg("stat").args(letters).args(["--control", control]);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        // Asks until this one is answered: answers to others may come first, and fill our queue.
        let answered = |word: &[u8]| {
            let mut buffer = [0; 2048];
            client.send(word).unwrap();
            loop {
                match client.recv(&mut buffer) {
                    Ok(n) if &buffer[..n] == word => return,
                    Ok(_) => {}
                    Err(_) => drop(client.send(word)),
                }
                assert!(std::time::Instant::now() < until, "no answer");
            }
        };
        // Received, dropped, sent of all sockets; what the lanes count as dropped.
        let counted = || {
            let report: Value = serde_json::from_str(&stat(&["-a", "-s", "--json"])).unwrap();
            let rows = report["sockets"]["sockets"].as_array().unwrap();
            assert_eq!((rows.len(), &report["sockets"]["left-out"]), (4, &0.into()), "{rows:?}");
            let name = format!("127.0.0.1.{port}");
            for (bucket, row) in rows.iter().enumerate() {
                assert_eq!((&row["proto"], &row["local"]), (&"udp4".into(), &name.as_str().into()), "{row}");
                assert_eq!((&row["bucket"], &row["worker"]), (&bucket.into(), &(bucket % 2).into()), "{row}");
                let (received, kind) = (row["received"].as_u64().unwrap(), &row["flowtype"]);
                assert_eq!(received > 0, *kind != 0, "{row}");
            }
            let sum = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
            let lanes = &report["stats"]["hosts"][0]["protocols"]["kernel"]["datagrams-overflown"];
            [sum("received"), sum("dropped"), sum("sent"), lanes.as_u64().unwrap()]
        };
        answered(b"first");
        let [received, dropped, sent, overflown] = counted();
        assert!(
            (1..=received).contains(&sent) && (dropped, overflown) == (0, 0),
            "{received} {sent} {dropped}"
        );
        server.signal(Signal::STOP);
        for _ in 0..3000 {
            client.send(&[7; 1400]).unwrap();
        }
        server.signal(Signal::CONT);
        // Behind all that waited, so that the lane has been told what was lost.
        answered(b"last");
        let [received, dropped, _, overflown] = counted();
        assert!(received > 100 && dropped > 0 && received + dropped <= 3100, "{received} {dropped}");
        assert_eq!(dropped, overflown);
        let text = stat(&["-a"]);
        let name = format!(" 127.0.0.1.{port} ");
        assert_eq!(text.lines().filter(|l| l.starts_with("udp4 ") && l.contains(&name)).count(), 4, "{text}");
        assert!(!text.contains(" more: "), "{text}");
    });
    drop(server);
    let _ = std::fs::remove_file(&path);
    if let Err(why) = told {
        std::panic::resume_unwind(why);
    }
}

#[test]
fn every_document_fits_the_schema() {
    let running = Running::start("schema");
    let report: Value = control::get(&running.path, "/v1/report").unwrap();
    check("control-v1", &report);
    for part in ["stats", "netisr", "sockets", "rss", "workers"] {
        let document: Value = control::get(&running.path, &format!("/v1/{part}")).unwrap();
        check_part("control-v1", &format!("/$defs/ReportView/properties/{part}"), &document);
    }
    let metrics: Value = control::get(&running.path, "/v1/metrics").unwrap();
    check_part("control-v1", "/$defs/MetricsView", &metrics);
    // What the web page asks for.
    let web = control::listen_for_web("127.0.0.1:0".parse().unwrap()).unwrap();
    let web = web.serve(running.runtime.as_ref().unwrap().handle(), "test").unwrap();
    let mut stream = std::net::TcpStream::connect(web.address()).unwrap();
    write!(stream, "GET /v1/live HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", web.address()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let live = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    check_part("control-v1", "/$defs/LiveView", &live);
    let live: Value = control::get(&running.path, "/v1/live").unwrap();
    check_part("control-v1", "/$defs/LiveView", &live);
}

#[test]
fn what_commands_print_fits_their_schemas() {
    for (kind, arguments) in [
        ("Hash", "hash 10.0.0.1:5 10.0.0.2:6"),
        ("Hash", "hash 10.0.0.1 10.0.0.2"),
        ("Plan", "plan --to 10.0.0.1:7 --from 10.0.0.2"),
        ("Plan", "plan --to 10.0.0.1:7 --from 10.0.0.0/16 --udp --replies"),
        ("Key", "key"),
        ("Judgement", "key --judge microsoft"),
        ("Learn", "learn --emulated xor --unseen 10"),
        ("Learn", "learn --emulated jhash --unseen 10"),
        ("Cards", "learn --emulated all --unseen 10"),
        ("Judgement", "key --judge 00000000000000000000000000000000"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
            .arg("rss")
            .args(arguments.split_whitespace())
            .arg("--json")
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        check_part("rss-v1", &format!("/$defs/{kind}"), &document);
    }
    let file = std::env::temp_dir().join(format!("flowlane-rule-schema-{}", std::process::id()));
    for card in ["random", "sorted-pair"] {
        let arguments = ["rss", "learn", "--unseen", "10", "--emulated", card, "--output"];
        let learned =
            Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).arg(&file).output().unwrap();
        assert!(learned.status.success(), "{learned:?}");
        check("rss-rule-v1", &serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap());
    }
    std::fs::remove_file(&file).unwrap();
    let why = Command::new(env!("CARGO_BIN_EXE_flowlane"))
        .args(["rss", "why", "10.0.0.1:5", "10.0.0.2:6", "lo", "--json"])
        .output()
        .unwrap();
    check("rss-why-v1", &serde_json::from_slice(&why.stdout).unwrap());
    let checked = Command::new(env!("CARGO_BIN_EXE_flowlane"))
        .args(["rss", "check", "lo", "--for", "100ms", "--json"])
        .output()
        .unwrap();
    // Without the right to sample there is none.
    if checked.status.code() != Some(2) {
        check("rss-check-v1", &serde_json::from_slice(&checked.stdout).unwrap());
    }
    for interface in std::fs::read_dir("/sys/class/net").unwrap() {
        let name = interface.unwrap().file_name();
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
            .args(["rss", "show", "--json", "--key"])
            .arg(&name)
            .output()
            .unwrap();
        // Interfaces of other tests come and go.
        if output.status.success() {
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            check("rss-show-v1", &document);
        }
    }
}

#[test]
fn lanes_are_shown_and_moved() {
    let running = Running::with("lanes", 2);
    let rows = || {
        let (code, said) = running.lanes("--interval 10ms --json");
        assert_eq!(code, Some(0), "{said}");
        let document: Value = serde_json::from_str(&said).unwrap();
        check("lanes-v1", &document);
        document["lanes"].as_array().unwrap().clone()
    };
    let of = |rows: &[Value]| {
        let lane = rows.iter().find(|row| row["host"] == "server" && row["bucket"] == 1).unwrap();
        (lane["worker"].as_u64().unwrap(), lane["moves"].as_u64().unwrap())
    };
    let before = rows();
    let (worker, moves) = of(&before);
    assert!(before.iter().all(|row| row["load"].is_number()), "{before:?}");
    let to = 1 - worker;
    let (code, said) = running.lanes(&format!("move 1 {to} --host server"));
    let words = format!("server: the lane of bucket 1 moved from worker {worker} to worker {to}\n");
    assert_eq!((code, said), (Some(0), words));
    assert_eq!(of(&rows()), (to, moves + 1));
    let (code, said) = running.lanes(&format!("move 1 {to} --host server"));
    assert_eq!((code, said.contains("already")), (Some(0), true), "{said}");
    let (_, text) = running.lanes("--interval 10ms");
    assert!(text.contains("server") && text.contains("worker 1: "), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    for (wrong, why) in [
        ("move 1 0", "there are several hosts, name one: server, client"),
        ("move 1 0 --host nobody", "there is no host 'nobody', but server, client"),
        ("move 999 0 --host server", "there is no bucket 999: they are 0 to"),
        ("move 1 2 --host server", "there is no worker 2: they are 0 to 1"),
        ("--interval 1ms", "--interval: must be at least 10ms"),
        ("move 1", "WORKER"),
    ] {
        let (code, said) = running.lanes(wrong);
        assert_eq!((code, said.contains(why)), (Some(2), true), "{wrong}: {said}");
    }
}

/// Off until somebody asks; then the counts are those of the sockets, also of a lane that moves, and small tables say their bounds.
#[test]
fn flows_are_watched_on_demand() {
    let running = Running::with("flows", 2);
    let flows = |arguments: &str| running.command("flows", arguments);
    let (code, said) = flows("");
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("flows on") && said.contains("--top-flows"), "{said}");
    assert_eq!(flows("on"), (Some(0), "flows are watched from now on\n".into()));
    let socket = running.probe(1000);
    let document = |arguments: &str| {
        let (code, said) = flows(&format!("--json {arguments}"));
        assert_eq!(code, Some(0), "{said}");
        let document: Value = serde_json::from_str(&said).unwrap();
        check("flows-v1", &document);
        document
    };
    let local = format!("10.0.0.2:{socket}");
    let of = |document: &Value, host: &str| {
        let rows = document["flows"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["host"] == host && (row["remote"] == *local || row["local"] == *local));
        let row = row.unwrap_or_else(|| panic!("{document}"));
        let numbers =
            ["packets", "packets-error", "bytes", "received-packets", "sent-packets", "bucket", "worker"];
        numbers.map(|name| row[name].as_u64().unwrap())
    };
    // 1000 datagrams of 5 bytes and their answers: 33 bytes of IP each.
    let [packets, error, bytes, received, sent, bucket, worker] = of(&document(""), "server");
    assert_eq!([packets, error, bytes, received, sent], [2000, 0, 66_000, 1000, 1000]);
    // The client sends in one lane and receives in another, for UDP is steered by addresses: a row for each.
    let all = document("--by bytes -n 50");
    let rows = all["flows"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.filter(|row| row["host"] == "client" && row["local"] == *local).collect();
    let sum = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(["packets", "packets-error", "bytes"].map(sum), [2000, 0, 66_000]);
    // It moves with its lane.
    let (code, said) = running.lanes(&format!("move {bucket} {} --host server", 1 - worker));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(of(&document(""), "server"), [2000, 0, 66_000, 1000, 1000, bucket, 1 - worker]);
    let (_, text) = flows("-n 1");
    assert!(
        text.contains("the counts of packets are exact\na flow that is not listed has at most"),
        "{text}"
    );
    assert!(
        text.contains("2.00k  66.0k      0   50 ") && text.lines().all(|line| line.len() <= 80),
        "{text}"
    );
    // A lane that comes from elsewhere follows what was said meanwhile.
    assert_eq!(flows("off").0, Some(0));
    assert_eq!(flows("").0, Some(2));
    assert_eq!(flows("on --size 8").0, Some(0));
    assert_eq!(document("")["flows"].as_array().unwrap().len(), 0, "counted from anew");
    assert_eq!(document("")["room"], 8);
    for wrong in ["-n 0", "-n 10001", "--by size", "--watch 1ms", "on --size 3", "on --size 9999999"] {
        let (code, said) = flows(wrong);
        assert_eq!(code, Some(2), "{wrong}: {said}");
    }
    for body in ["", "{}", "{\"watch\":1}", "{\"watch\":true,\"more\":1}"] {
        let head = format!(
            "POST /v1/flows HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        assert!(running.raw((head + body).as_bytes()).starts_with("HTTP/1.1 400"), "{body}");
    }
}

/// A process and those that it starts. All of them are killed after a time, so that whoever reads what they say does not wait for ever.
struct Bounded {
    child: Child,
    /// Closed when the process has ended.
    ended: Option<mpsc::Sender<()>>,
    guard: Option<std::thread::JoinHandle<()>>,
}

impl Bounded {
    fn start(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        let (ended, ends) = mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            if ends.recv_timeout(Duration::from_secs(90)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        });
        Self { child, ended: Some(ended), guard: Some(guard) }
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        // Whoever panics leaves nothing behind; one that has ended by itself is not there any more.
        if std::thread::panicking() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.wait();
        drop(self.ended.take());
        self.guard.take().map(std::thread::JoinHandle::join);
    }
}

/// `flowlane capture` while datagrams go to and fro, some of them to a port without socket, and a lane moves: what tshark reads is what was
/// sent, each frame with its comment.
#[test]
fn a_capture_while_it_runs() {
    let running = Running::with("capture", 2);
    let file = std::env::temp_dir().join(format!("flowlane-capture-cli-{}.pcapng", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let name = file.to_str().unwrap();
    let begin = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.arg("capture").args(arguments.split_whitespace()).arg("--control").arg(&running.path);
        let mut all = Bounded::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut said = String::new();
        let mut stderr = BufReader::new(all.child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("capturing to"), "{said}");
        all
    };
    let end = |mut all: Bounded| {
        kill_process(Pid::from_child(&all.child), Signal::INT).unwrap();
        let mut said = String::new();
        all.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(all.child.wait().unwrap().success());
        said
    };
    let child = begin(&format!("{name} --host server"));
    // Two at once; this one only has what is dropped.
    let drops = format!("{name}.drops");
    let _ = std::fs::remove_file(&drops);
    let second = begin(&format!("{drops} --host server --drops"));
    running.probe(100);
    let handle = running.runtime.as_ref().unwrap().handle();
    for bucket in 0..2 {
        let to = 1 - handle.worker_of(0, Bucket(bucket)).unwrap();
        handle.move_lane(0, Bucket(bucket), to).unwrap();
    }
    running.probe(100);
    running.send_to_nobody(7);
    let said = end(child);
    assert!(said.contains(" 7 of them dropped, ") && !said.contains("missed"), "{said}");
    assert!(end(second).contains(": 7 frames, 7 of them dropped, "));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, refused) = running.command("capture", &format!("{name} --for 1s"));
    assert_eq!((code, refused.contains("only overwritten with 'overwrite'")), (Some(2), true), "{refused}");
    let (code, said) = running.command("capture", &format!("{name}2 --for 10ms --flow udp"));
    assert_eq!((code, said.contains(" frames, ")), (Some(0), true), "{said}");
    for (wrong, why) in [
        ("/nowhere/a", "No such file"),
        ("--snap 1", "from 64 to 32768"),
        ("--max-size 1", "at least 4096"),
        ("--lane 99 --host server", "no bucket 99"),
        ("--lane 0", "several hosts"),
        ("--host nobody", "no host 'nobody'"),
        ("--flow nothing", "is no flow"),
    ] {
        let file = if wrong.starts_with('/') { String::new() } else { format!("{name}3") };
        let (code, said) = running.command("capture", &format!("{file} {wrong}"));
        assert_eq!((code, said.contains(why)), (Some(2), true), "{wrong}: {said}");
        assert!(!Path::new(&format!("{name}3")).exists(), "{wrong}: nothing is left behind");
    }
    let fields = ["-T", "fields", "-e", "udp.dstport", "-e", "frame.comment"];
    let read = Command::new("tshark").args(["-r", name, "-Y", "udp && !icmp"]).args(fields).output();
    if let Ok(read) = read {
        let complaints = String::from_utf8_lossy(&read.stderr).replace("could be dangerous", "");
        assert!(read.status.success() && complaints.lines().count() <= 1, "{complaints}");
        let text = String::from_utf8(read.stdout).unwrap();
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!((count("\treceived; worker "), count("\tsent; worker ")), (200, 200), "{text}");
        assert_eq!(count("9\tdropped: stack udp-no-socket; worker "), 7, "{text}");
        assert_eq!(count(", queue "), 407, "{text}");
        assert!(
            count("; worker 0, ") > 0 && count("; worker 1, ") > 0 && count(", bucket ") == 407,
            "{text}"
        );
    } else {
        flowlane_testnet::skipped("skipped, because there is no tshark");
    }
    for file in [name.to_owned(), drops, format!("{name}2")] {
        std::fs::remove_file(file).unwrap();
    }
}

/// `serve --capture` in a file system with 64 KiB of room: one line says that it is full, the service goes on, and the file can be read. Killed
/// in the middle, it can be read, too.
#[test]
fn a_capture_that_fills_the_disk_and_one_that_is_killed() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(why);
    }
    let dir = std::env::temp_dir().join(format!("flowlane-capture-disk-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let input = dir.join("in.pcap");
    let mut pcap = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_ne_bytes).concat();
    // Captures begin before the first of them is read, and their chunks have room for all.
    for n in 0..20_000_u32 {
        let mut frame =
            vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0];
        frame.extend([10, 0, 1, (n >> 8) as u8, 10, 0, 0, 1, 4, n as u8, 0, 9, 0, 26, 0, 0]);
        frame.resize(60, 7);
        pcap.extend([n, 0, 60, 60].map(u32::to_ne_bytes).concat());
        pcap.extend(frame);
    }
    std::fs::write(&input, pcap).unwrap();
    let room = dir.join("room");
    std::fs::create_dir_all(&room).unwrap();
    let start = |mount: bool, file: &Path| {
        let mount = if mount { "mount -t tmpfs -o size=64k none $ROOM || exit 9; " } else { "" };
        // What is in a mount namespace is gone with it: it is read before that.
        let line = format!(
            "{mount} {} serve udp-discard --link pcap:{},/dev/null --addr 10.0.0.1/8 --port 8 --no-pin \
             --capture $FILE & PID=$!; echo $PID; wait $PID; echo code $?; {}",
            env!("CARGO_BIN_EXE_flowlane"),
            input.display(),
            if mount.is_empty() { "true" } else { "tshark -r $FILE | wc -l" }
        );
        let mut shell = Command::new("unshare");
        shell
            .args(["-m", "--propagation", "private", "sh", "-c", &line])
            .env("ROOM", &room)
            .env("FILE", file);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut all = Bounded::start(&mut shell);
        let mut out = BufReader::new(all.child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let service = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        (all, service, out)
    };
    let file = room.join("c.pcapng");
    let (mut full, service, mut out) = start(true, &file);
    let mut err = BufReader::new(full.child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("No space left on device") {
        assert!(err.read_line(&mut said).unwrap() > 0, "{said}");
    }
    kill_process(service, Signal::INT).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    err.read_to_string(&mut said).unwrap();
    drop(full);
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
    // It served to its end, and part of what was asked of it is lost.
    assert!(rest.contains("code 1\n") && said.contains("the rest could not be written"), "{rest} {said}");
    if Command::new("tshark").arg("-v").output().is_ok() {
        let frames: u64 = rest.lines().last().unwrap().trim().parse().unwrap();
        assert!(frames > 100 && !said.contains("cut short"), "{rest} {said}");
    }
    // Killed once the file grows.
    let file = dir.join("killed.pcapng");
    let (killed, service, _out) = start(false, &file);
    eventually("something is captured", || std::fs::metadata(&file).map_or(0, |m| m.len()) >= 20_000);
    kill_process(service, Signal::KILL).unwrap();
    drop(killed);
    if let Ok(read) = Command::new("tshark").arg("-r").arg(&file).output() {
        let complaints = String::from_utf8_lossy(&read.stderr);
        // A write may be under way: then the last packet is not whole, and all before it are.
        let cut = complaints.contains("cut short in the middle of a packet");
        assert!(read.status.success() || cut, "{complaints}");
        assert!(read.stdout.iter().filter(|b| **b == b'\n').count() > 50);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn requests_that_make_no_sense() {
    let running = Running::start("requests");
    let get = |path: &str| {
        running.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
    };
    assert!(get("/v1/stats").starts_with("HTTP/1.1 200"));
    assert!(get("/").starts_with("HTTP/1.1 404"));
    assert!(get("/v1/secrets").starts_with("HTTP/1.1 404"));
    assert!(get("/v1/").starts_with("HTTP/1.1 404"));
    let post = b"POST /v1/stats HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(running.raw(post).starts_with("HTTP/1.1 405"));
    for body in ["", "{}", "[1]", "{\"bucket\":70000,\"worker\":0}", &"x".repeat(5000)] {
        let length = body.len();
        let post = format!(
            "POST /v1/move HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        assert!(running.raw(post.as_bytes()).starts_with("HTTP/1.1 400"), "{body}");
    }
    assert!(get("/v1/move").starts_with("HTTP/1.1 404"));
    assert!(running.raw(b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    assert!(running.raw(long.as_bytes()).starts_with("HTTP/1.1 4"));
    let headers = format!("GET /v1/stats HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert!(running.raw(headers.as_bytes()).starts_with("HTTP/1.1 4"));
    // More connections than are served at once: those that say nothing make the rest wait, and not for ever.
    let silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&running.path).unwrap()).collect();
    drop(silent);
    assert!(get("/v1/report").contains("\"instance\""));
}

#[test]
fn nobody_there() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_flowlane")).args(["stat", "--control", "/nowhere/x.sock"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
}
