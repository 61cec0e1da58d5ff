//! `flowlane serve`, `flowlane stat` and `flowlane lab` as people run them: a lab, an echo on each link that it can
//! carry, the kernel as the peer, the control socket, and the end by ^C. Without privileges what can be done over a
//! capture file is done, and the rest says that it was skipped.

use flowlane_testnet::{PATIENCE, Program, Scratch, eventually, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn flowlane(arguments: &str) -> Output {
    command(arguments).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = flowlane(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &str) -> String {
    one_line(&flowlane(arguments), arguments)
}

fn one_line(output: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{what}: {said}");
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    said
}

/// The time to poll is bounded, and other links are polled by other means.
#[test]
fn busy_polling_that_is_not_to_be_had() {
    for (more, words) in [
        ("kernel --port 7007 --busy-poll 1s", "--busy-poll 1s: must be from 1us to 10ms"),
        ("kernel --port 7007 --busy-poll 0s", "must be from 1us to 10ms"),
        ("tap:flnone0 --addr 10.11.2.1/24 --busy-poll 50us", "--busy-poll: for kernel sockets"),
    ] {
        let said = refused(&format!("serve udp-echo --link {more}"));
        assert!(said.contains(words), "{more}: {said}");
    }
}

/// By what connections are served: as asked for, or a line why not; and what is there in place of it, if that is all the same.
#[test]
fn connections_by_io_uring_or_not() {
    let port = free_port();
    for (arguments, words) in [
        (
            "udp-echo --link kernel --io uring".to_owned(),
            "--io uring: for connections; udp-echo has datagrams",
        ),
        ("tcp-echo --link tap:flnone0 --addr 10.11.2.1/24 --io auto".to_owned(), "--io: for kernel sockets"),
        (
            format!("tcp-echo --link kernel --port {port} --io uring --busy-poll 50us"),
            "--busy-poll: not with --io uring",
        ),
    ] {
        let said = refused(&format!("serve {arguments}"));
        assert!(said.contains(words), "{said}");
    }
    let serve = format!("serve tcp-echo --link kernel --addr 127.0.0.1 --port {port} --no-pin --json --io");
    let ask = || {
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
        peer
    };
    // Where it is not permitted, or there is none: what a thread may not do, its children may not either.
    for (error, why) in [(1, "not permitted here"), (38, "this kernel has no io_uring")] {
        let serve = serve.clone();
        let (said, fallen, service) = std::thread::spawn(move || {
            flowlane_sys::kernel::uring::forgo(error).unwrap();
            let refused = one_line(&flowlane(&format!("{serve} uring")), "without io_uring");
            let (service, ready) = start(command(&format!("{serve} auto")));
            (refused, ready, service)
        })
        .join()
        .unwrap();
        assert!(said.contains("io_uring") && said.contains(why), "{said}");
        assert!(fallen.contains("connections by epoll") && fallen.contains(why), "{fallen}");
        drop(ask());
        let summary = last_json(&service.interrupt(), "summary");
        assert_eq!(summary["writes"], 1, "{summary}");
    }
    if let Err(e) = flowlane_sys::kernel::uring::probe() {
        return flowlane_testnet::skipped(format_args!("skipped, because {e} (its part by io_uring)"));
    }
    // ^C with many connections that say nothing.
    let (service, ready) = start(command(&format!("{serve} uring --grace 100ms")));
    assert!(ready.contains("connections by io_uring"), "{ready}");
    let peers: Vec<_> = (0..1500).map(|_| ask()).collect();
    let summary = last_json(&service.interrupt(), "summary");
    assert_eq!(summary["writes"], 1500, "{summary}");
    for mut peer in peers {
        assert!(matches!(peer.read(&mut [0]), Ok(0) | Err(_)), "it has ended");
    }
}

/// Starts a service and waits until it says that it serves, or why not.
fn start(command: Command) -> (Program, String) {
    let mut service = Program::start(command);
    let ready = service.says();
    (service, ready)
}

fn last_json(text: &str, kind: &str) -> Value {
    let mut documents = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    documents.rfind(|d| d["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {text}"))
}

#[test]
fn bad_arguments() {
    let usual = "--link tap:flnone0 --addr 10.11.2.1/24 --no-pin";
    for more in [
        "--addr 10.11.2.0/24",
        "--addr 10.11.2.255/24",
        "--addr 10.11.2.9/40",
        "--addr 224.0.0.1/24",
        "--addr nonsense",
        "--addr 10.11.2.9",
        "--addr fd00::9",
        "--gateway 10.11.3.1",
        "--port 0",
        "--port 65536",
        "--vlan 4095",
        "--workers 0",
        "--workers 65",
        "--buckets 3",
        "--slots 5000",
        "--key 6d5a",
        "--key 00000000000000000000000000000000",
        "--idle sometimes",
        "--interval soon",
        "--interval 0s",
        "--colour blue",
        "--follow-routers some",
        "--follow-routers all",
        "--address-probes 11",
        "--address-probes -1",
    ] {
        refused(&format!("serve udp-echo {usual} {more}"));
    }
    for more in ["--follow-routers none", "--address-probes 0"] {
        let said = refused(&format!("serve udp-echo --link kernel {more}"));
        assert!(said.contains("sysctl"), "{said}");
    }
    refused(&format!("serve tcp-echo {usual} --fast-open 0"));
    assert!(
        refused("serve udp-echo --link kernel --addr fe80::dead:1 --port 7")
            .contains("no interface of this machine")
    );
    refused("serve udp-echo --link wifi:x --addr 10.11.2.1/24");
    refused("serve udp-echo --link af-xdp: --addr 10.11.2.1/24");
    refused("serve udp-echo --link pcap:/nowhere/in.pcap --addr 10.11.2.1/24 --no-pin");
    let said = refused("serve udp-echo --link af-packet:flnone0 --addr 10.11.2.1/24 --no-pin");
    assert!(said.contains("flnone0") || said.contains("CAP_NET_RAW"), "{said}");
    refused("lab up --name much-too-long-a-name");
    refused("lab sideways");
    refused("stat -p ipx");
    refused("stat --interval 1ms");
}

/// Neither a running instance nor a run writes a capture to standard output, and no file has the name of it.
#[test]
fn captures_are_not_for_standard_output() {
    let scratch = Scratch::new("capture-to-nowhere");
    for arguments in [
        "capture -",
        "capture /dev/stdout --overwrite",
        "serve udp-discard --link pcap:,out.pcap --addr 10.11.2.1/24 --no-pin --capture -",
        "load udp 10.11.2.1:7 --link tap:flnone0 --addr 10.11.2.9/24 --no-pin --capture=-,overwrite",
        "load http http://10.0.0.1/ --link pair --no-pin --capture /dev/stdout,overwrite",
    ] {
        let output = command(arguments).current_dir(scratch.dir()).output().unwrap();
        let said = one_line(&output, arguments);
        assert!(said.contains("captures go to files") && said.contains("tshark -r -"), "{arguments}: {said}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
    assert_eq!(std::fs::read_dir(scratch.dir()).unwrap().count(), 0);
}

#[test]
fn the_control_socket_of_a_service() {
    let scratch = Scratch::new("control");
    let here = scratch.dir().to_owned();
    let link = format!("pcap:,{}", scratch.path("out.pcap"));
    let with = |arguments: &str| {
        let mut command = command(arguments);
        command.env("XDG_RUNTIME_DIR", &here);
        command
    };
    let serve = format!("serve udp-discard --link {link} --addr 10.11.2.1/24 --no-pin --json --control");
    let none = with("stat").output().unwrap();
    assert!(one_line(&none, "stat").contains("no instance"));

    let (first, ready) = start(with(&serve));
    let path = ready.split("control socket ").nth(1).unwrap_or_else(|| panic!("{ready}")).to_owned();
    assert!(path.starts_with(&here.display().to_string()) && path.contains(&first.id().to_string()));
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&scratch.path("flowlane")), 0o700);

    let shown = with("stat").output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("serve udp-discard"), "{shown:?}");
    let taken = with(&format!("{serve} {path}")).output().unwrap();
    assert!(one_line(&taken, "a second instance").contains("another instance"));

    let (second, _) = start(with(&serve));
    let several = with("stat").output().unwrap();
    assert!(one_line(&several, "stat").contains("several instances"));
    second.interrupt();

    // A killed process leaves its file; the next one replaces it.
    drop(first);
    assert!(std::path::Path::new(&path).exists());
    let (third, ready) = start(with(&format!("{serve} {path}")));
    assert!(ready.contains(&path));
    let summary = last_json(&third.interrupt(), "summary");
    assert_eq!(summary["received"], 0);
    assert!(!std::path::Path::new(&path).exists(), "removed at the end");
}

/// With one descriptor more each time, until they are enough: whatever lacks one says how that is mended.
#[test]
fn too_few_descriptors_for_the_control_socket() {
    let scratch = Scratch::new("few-descriptors");
    let (port, control) = (free_port(), scratch.path("control"));
    let serve =
        format!("serve udp-echo --link kernel --port {port} --no-pin --workers 1 --control {control}");
    let mut of_control = 0;
    for allowed in 6..64 {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &allowed.to_string()]);
        limited.arg(env!("CARGO_BIN_EXE_flowlane")).args(serve.split_whitespace()).stdin(Stdio::null());
        let mut service = Program::start(limited);
        let said = service.says();
        if said.contains(", control socket ") {
            assert!(of_control > 0, "{allowed} are enough");
            return;
        }
        let code = service.end().status.code();
        if code == Some(127) {
            // Who loads its libraries needs one as well.
            continue;
        }
        assert_eq!(code, Some(2), "{allowed}: {said}");
        assert!(said.contains("no file descriptor is free: raise the limit with 'ulimit -n'"), "{said}");
        of_control += usize::from(said.starts_with("flowlane: control socket "));
    }
    panic!("63 descriptors are too few");
}

/// `--rebalance`: so many buckets that lanes can move, a policy by name, and what it did in the summary.
#[test]
fn lanes_may_move_by_themselves() {
    let free = free_port();
    let serve = format!(
        "serve udp-discard --link kernel --addr 127.0.0.1 --port {free} --no-pin --workers 2 --rebalance"
    );
    for (policy, arguments) in [("even", ""), ("pack", " pack")] {
        let (service, ready) = start(command(&format!("{serve}{arguments} --json")));
        assert!(ready.contains("workers 2, buckets 32"), "{ready}");
        let summary = last_json(&service.interrupt(), "summary");
        flowlane_schema::check("serve-v1", &summary);
        assert_eq!(summary["rebalance"]["policy"], policy, "{summary}");
        assert_eq!(summary["rebalance"]["moves"], 0, "{summary}");
    }
    let (service, _) = start(command(&format!("{serve} --buckets 4")));
    let printed = service.interrupt();
    assert!(printed.contains("rebalance even: 0 moves\n"), "{printed}");
    let wrong = command(&format!("{serve} odd")).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("[possible values: even, pack]"), "{wrong:?}");
}

/// Packets of kernel sockets are the kernel's: who would capture them is told so, and no file is made.
#[test]
fn packets_of_the_kernel_are_not_ours_to_show() {
    let scratch = Scratch::new("kernels");
    let (free, control, file) = (free_port(), scratch.path("control"), scratch.path("some.pcapng"));
    let serve =
        format!("serve udp-echo --link kernel --addr 127.0.0.1 --port {free} --no-pin --control {control}");
    let (service, _) = start(command(&serve));
    let said = refused(&format!("capture {file} --for 1s --control {control}"));
    assert!(said.contains("packets of kernel sockets are the kernel's"), "{said}");
    assert!(!std::path::Path::new(&file).exists());
    service.interrupt();
}

/// A lane that moves takes its counters along: the lines of `--interval` count each datagram once all the same.
#[test]
fn a_lane_that_moves_is_counted_once() {
    let scratch = Scratch::new("moved");
    let (free, control) = (free_port(), scratch.path("control"));
    let serve = format!(
        "serve udp-echo --link kernel --addr 127.0.0.1 --port {free} --no-pin --workers 2 --interval 50ms --json --control {control}"
    );
    let (mut service, _) = start(command(&serve));
    let mut counted =
        || serde_json::from_str::<Value>(&service.prints()).unwrap()["received"].as_u64().unwrap();
    // What came before the first reading is in no line.
    let mut all = counted();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..100 {
        socket.send_to(b"hello", ("127.0.0.1", free)).unwrap();
        socket.recv_from(&mut [0; 16]).unwrap();
    }
    eventually("all datagrams are in lines", || {
        all += counted();
        all >= 100
    });
    for worker in [0, 1] {
        (0..4).for_each(|bucket| drop(text(&format!("lanes move {bucket} {worker} --control {control}"))));
        // Of both workers; so many that a reading lies between.
        all += (0..6).map(|_| counted()).sum::<u64>();
    }
    assert_eq!(all, 100);
    service.interrupt();
}

/// `--rebalance` over AF_XDP, on a card that steers and whose table cannot be changed: connections of one worker's lanes alone are busy, so some of
/// these lanes leave it, and every connection lives on.
#[test]
fn lanes_move_by_themselves_over_af_xdp() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(format!("skipped, because {why}"));
    }
    let card = flowlane_testnet::Card::new(&flowlane_testnet::CardConfig::for_test("rebal", 2)).unwrap();
    let scratch = Scratch::new("rebalance");
    let control = scratch.path("control");
    let mut serve = card.near().unwrap().command(env!("CARGO_BIN_EXE_flowlane"));
    let arguments = format!(
        "serve tcp-echo --link af-xdp:near0 --addr 10.11.2.9/24 --port 7 --workers 2 --no-pin --key microsoft --rebalance --json --control {control}"
    );
    serve.args(arguments.split_whitespace()).stdin(Stdio::null());
    let (service, ready) = start(serve);
    assert!(ready.contains("workers 2, buckets 32"), "{ready}");
    let rss = flowlane::Toeplitz::new(&flowlane::Key::MICROSOFT);
    let at = std::net::SocketAddrV4::new([10, 11, 2, 9].into(), 7);
    // Slots, buckets and workers are dealt in turn.
    let worker = |port: u16| rss.hash_v4_ports([10, 11, 2, 1].into(), *at.ip(), port, at.port()) % 2;
    let left = || {
        let report: flowlane::control::ReportView =
            flowlane::control::get(std::path::Path::new(&control), "/v1/report").unwrap();
        let workers = &report.rss.hosts[0].workers;
        workers.iter().step_by(2).filter(|worker| **worker == Some(1)).count()
    };
    let echo = |streams: &mut [TcpStream]| {
        let (sent, mut back) = (vec![7; 4000], vec![0; 4000]);
        streams.iter_mut().for_each(|stream| stream.write_all(&sent).unwrap());
        streams.iter_mut().for_each(|stream| stream.read_exact(&mut back).unwrap());
    };
    let all = || {
        let open = |_| {
            let stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        };
        let (mut busy, mut idle): (Vec<_>, Vec<_>) =
            (0..64).map(open).partition(|stream| worker(stream.local_addr().unwrap().port()) == 0);
        let begun = std::time::Instant::now();
        while left() == 0 {
            (0..20).for_each(|_| echo(&mut busy));
            assert!(begun.elapsed() < PATIENCE, "no lane has moved");
        }
        echo(&mut busy);
        echo(&mut idle);
        busy.len()
    };
    let busy = card.far().run(all).unwrap();
    assert!((8..56).contains(&busy), "{busy} of 64 connections are worker 0's");
    let summary = last_json(&service.interrupt(), "summary");
    assert!(summary["rebalance"]["moves"].as_u64() > Some(0), "{summary}");
    assert_eq!(summary["connections"], 64, "{summary}");
}

/// `--ipfix` where nobody counts flows, or nowhere to send to, is refused; a collector that is not there is said once, and the
/// service goes on.
#[test]
fn a_collector_has_to_make_sense() {
    let ours = "--link pcap:/nonexistent --addr 10.0.0.1/24";
    assert!(refused("serve udp-discard --link kernel --ipfix 127.0.0.1:9").contains("one socket for all"));
    assert!(refused(&format!("serve udp-echo {ours} --ipfix 127.0.0.1:9,idle=off")).contains("idle"));
    for nowhere in ["127.0.0.1", "127.0.0.1:0", "0.0.0.0:4739", "[::]:4739", ":9"] {
        let output = flowlane(&format!("serve tcp-echo {ours} --ipfix {nowhere}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{nowhere}: {said}");
        assert!(said.contains("--ipfix"), "{nowhere}: {said}");
    }
}

/// Each worker is bound to the processor that is named for it; what cannot be is refused in a line.
#[test]
fn workers_on_named_processors() {
    let scratch = Scratch::new("cpus");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let first: u64 = allowed.split([',', '-']).next().unwrap().parse().unwrap();
    let serve = |more: &str| {
        format!("serve udp-discard --link pcap:,{} --addr 10.11.2.1/24 {more}", scratch.path("out.pcap"))
    };
    let control = scratch.path("control");
    let (service, _) = start(command(&serve(&format!("--cpus {first} --control {control}"))));
    let shown: Value = serde_json::from_str(&text(&format!("stat -Q --json --control {control}"))).unwrap();
    let bound: Vec<_> =
        shown["netisr"]["workstreams"].as_array().unwrap().iter().map(|w| w["cpu"].as_u64()).collect();
    assert_eq!(bound, [Some(first)], "one worker, since one processor is named");
    service.interrupt();
    for (more, word) in [
        ("--cpus 5000", "5000"),
        (&format!("--cpus {first} --workers 2"), "1 processor for 2 workers"),
        ("--cpus 3-1", "not a list of processors"),
        (&format!("--cpus {first},{first}"), "twice"),
        (&format!("--cpus {first} --no-pin"), "--no-pin"),
    ] {
        let said = String::from_utf8(flowlane(&serve(more)).stderr).unwrap();
        assert!(said.contains(word), "{more}: {said}");
        assert_eq!(flowlane(&serve(more)).status.code(), Some(2));
    }
}

/// A lab with a name of its own. Removed on drop.
struct Lab(String);

impl Lab {
    /// `None`, having said why, where there can be none.
    fn up(tag: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let lab = Self(format!("fl{tag}{}", std::process::id()));
        let said = text(&format!("lab up --name {}", lab.0));
        assert!(said.contains("serve udp-echo") && said.contains("ip netns exec"));
        assert!(said.contains(" --workers 2 --key "), "a command that can be typed: {said}");
        Some(lab)
    }

    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = std::mem::ManuallyDrop::new(flowlane_testnet::Namespace::adopt(&self.0));
        namespace.run(work).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = flowlane(&format!("lab down --name {}", self.0));
    }
}

/// Sends from several ports; how many datagrams came back as they were.
fn ask(to: &str, ports: usize, each: usize) -> usize {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut back = 0;
    // All at once: a port that was given up might come again.
    let sockets: Vec<_> = (0..ports).map(|_| UdpSocket::bind(any).unwrap()).collect();
    for (port, socket) in sockets.iter().enumerate() {
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        for n in 0..each {
            let sent = format!("datagram {n} of port {port}");
            socket.send(sent.as_bytes()).unwrap();
            let mut buffer = [0; 100];
            let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{sent}: {e}"));
            back += usize::from(&buffer[..len] == sent.as_bytes());
        }
    }
    back
}

fn echo_over(kind: &str, tag: &str) {
    let Some(lab) = Lab::up(tag) else { return };
    let scratch = Scratch::new(tag);
    let control = scratch.path("control.sock");
    let (mut service, ready) = start(command(&format!(
        "serve udp-echo --link {kind}:{}0 --addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2 --no-pin --key microsoft \
         --udp-4tuple --flows --json --interval 50ms --control {control}",
        lab.0
    )));
    assert!(ready.contains("10.11.2.1 and fd00:11:2::1 port 8080"), "{ready}");
    assert_eq!(lab.inside(|| ask("10.11.2.1:8080", 16, 4)), 64);
    assert_eq!(lab.inside(|| ask("[fd00:11:2::1]:8080", 16, 4)), 64);

    flowlane_testnet::assert_no_privileges(service.id());

    let stat = |letters: &str| text(&format!("stat {letters} --control {control}"));
    assert!(stat("-s -s -p udp").contains("\t128 datagrams received\n"));
    assert!(!stat("-s -s").contains("\t0 "));
    assert!(stat("-s").contains("\t0 with bad checksum\n"));
    assert!(stat("-Q").contains("Workstreams:"));
    assert_eq!(stat("-a").lines().filter(|l| l.contains("*.8080")).count(), 4);
    assert!(stat("-R").contains("flowid"));
    let report: Value = serde_json::from_str(&stat("--json")).unwrap();
    let steering = &report["rss"]["hosts"][0]["steering"];
    assert_eq!(steering["redirected"], 0, "the card and the lanes agree: {steering}");

    let interval = service.prints();
    flowlane_schema::check("serve-v1", &last_json(&interval, "interval"));
    service.signal(Signal::USR1);
    let printed = service.interrupt();
    flowlane_schema::check("serve-v1", &last_json(&printed, "flows"));
    let summary = last_json(&printed, "summary");
    flowlane_schema::check("serve-v1", &summary);
    assert_eq!((&summary["received"], &summary["sent"]), (&128.into(), &128.into()), "{printed}");
    let sum = |key: &str| {
        summary["buckets"].as_array().unwrap().iter().map(|b| b[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(sum("received"), 128);
    let flows = last_json(&printed, "flows");
    let flows = flows["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 32, "one flow for each port");
    for flow in flows {
        assert_eq!(flow["count"], 4);
        assert_eq!(flow["bucket"], flow["hash"].as_u64().unwrap() % 128 % 4);
    }
}

#[test]
fn echo_over_af_xdp() {
    echo_over("af-xdp", "x");
}

#[test]
fn echo_over_af_packet() {
    echo_over("af-packet", "p");
}

/// Bytes that tell their place in the stream.
fn stream(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

/// The kernel's TCP as the peer: so many bytes there, read back as `echo` says, and closed from our side.
fn talk(to: &str, len: usize, echo: bool) -> Duration {
    let stream_out =
        TcpStream::connect_timeout(&to.parse().unwrap(), PATIENCE).unwrap_or_else(|e| panic!("{to}: {e}"));
    stream_out.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = stream(len);
    let begin = std::time::Instant::now();
    let back = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut back = Vec::new();
            (&stream_out).read_to_end(&mut back).map(|_| back)
        });
        (&stream_out).write_all(&sent).unwrap();
        stream_out.shutdown(Shutdown::Write).unwrap();
        reader.join().unwrap().unwrap_or_else(|e| panic!("{to}: {e}"))
    });
    if echo {
        assert!(back == sent, "{to}: {} of {} bytes came back, or not those", back.len(), sent.len());
    } else {
        assert_eq!(back.len(), 0);
    }
    begin.elapsed()
}

/// Long and short connections of both families against the service, and what it says of them afterwards.
fn talk_to(service: Program, control: &str, inside: impl Fn(&(dyn Fn() + Sync))) {
    const LONG: usize = 16 << 20;
    for to in ["10.11.2.1:8080", "[fd00:11:2::1]:8080"] {
        inside(&|| {
            let took = talk(to, LONG, true);
            println!("{to}: {:.2} Gbit/s each way", (LONG * 8) as f64 / took.as_secs_f64() / 1e9);
        });
        inside(&|| {
            for len in 1..=100 {
                talk(to, len, true);
            }
        });
        // Nobody listens there.
        inside(&|| assert!(TcpStream::connect(to.replace("8080", "8081")).is_err()));
    }
    let stat = text(&format!("stat -s -s -p tcp --control {control}"));
    for bad in ["bad checksums", "bad header offset"] {
        assert!(!stat.contains(bad), "{stat}");
    }
    assert!(stat.contains("\t202 connection accepts\n"), "{stat}");
    let table = text(&format!("stat -a -p tcp --control {control}"));
    assert_eq!(table.lines().filter(|l| l.contains("*.8080") && l.contains("LISTEN")).count(), 4, "{table}");
    assert!(table.contains("TCP by state: ") && table.contains("4 LISTEN"), "{table}");
    let printed = service.interrupt();
    flowlane_schema::check("serve-v1", &last_json(&printed, "interval"));
    let summary = last_json(&printed, "summary");
    flowlane_schema::check("serve-v1", &summary);
    assert_eq!(summary["connections"], 202, "{summary}");
}

fn tcp_over(kind: &str, tag: &str) {
    let Some(lab) = Lab::up(tag) else { return };
    let scratch = Scratch::new(tag);
    let control = scratch.path("control.sock");
    let (service, ready) = start(command(&format!(
        "serve tcp-echo --link {kind}:{}0 --addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2 --no-pin --key microsoft \
         --flows --json --interval 50ms --control {control}",
        lab.0
    )));
    assert!(ready.contains("tcp-echo on 10.11.2.1"), "{ready}");
    talk_to(service, &control, |work| lab.inside(work));
}

#[test]
fn tcp_over_af_xdp() {
    tcp_over("af-xdp", "tx");
}

#[test]
fn tcp_over_af_packet() {
    tcp_over("af-packet", "tp");
}

#[test]
fn tcp_over_tap() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let name = format!("fltt{}", std::process::id());
    let namespace = flowlane_testnet::Namespace::new(&name).unwrap();
    let scratch = Scratch::new("tt");
    let control = scratch.path("control.sock");
    let serve = format!(
        "serve tcp-echo --link tap:tap0 --addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2 --no-pin --json \
         --interval 50ms --control {control}"
    );
    let mut inside = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    inside.args(serve.split_whitespace()).stdin(Stdio::null());
    let (service, ready) = start(inside);
    assert!(ready.contains("tcp-echo on 10.11.2.1"), "{ready}");
    namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
    namespace.ip("addr add fd00:11:2::2/64 dev tap0 nodad").unwrap();
    namespace.ip("link set tap0 up").unwrap();
    talk_to(service, &control, |work| namespace.run(work).unwrap());
}

/// A stopped service tells its peers; a second signal does not wait for them.
#[test]
fn a_stop_ends_connections_and_a_second_one_waits_for_none() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    for twice in [false, true] {
        let name = format!("flst{}{}", u8::from(twice), std::process::id());
        let namespace = flowlane_testnet::Namespace::new(&name).unwrap();
        let mut inside = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
        // Longer than the test's patience: who waits for the grace does not pass.
        let serve = "serve tcp-echo --link tap:tap0 --addr 10.11.2.1/24 --no-pin --grace 1h";
        inside.args(serve.split_whitespace()).stdin(Stdio::null());
        let (service, ready) = start(inside);
        assert!(ready.contains("tcp-echo on 10.11.2.1"), "{ready}");
        namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
        namespace.ip("link set tap0 up").unwrap();
        let peer = namespace
            .run(|| {
                let mut stream = TcpStream::connect("10.11.2.1:8080").unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(b"hello").unwrap();
                let mut got = [0; 5];
                stream.read_exact(&mut got).unwrap();
                service.signal(Signal::INT);
                assert_eq!(stream.read(&mut got).unwrap(), 0, "FIN");
                stream
            })
            .unwrap();
        let code = if twice {
            let ended = service.insist(Signal::INT);
            drop(peer);
            ended.status.code()
        } else {
            drop(peer);
            service.end().status.code()
        };
        assert_eq!(code, Some(if twice { 130 } else { 0 }));
    }
}

#[test]
fn tcp_discard_takes_all_and_says_nothing() {
    let Some(lab) = Lab::up("td") else { return };
    let (service, _) = start(command(&format!(
        "serve tcp-discard --link af-xdp:{}0 --addr 10.11.2.1/24 --workers 2 --no-pin --flows --json",
        lab.0
    )));
    let took = lab.inside(|| talk("10.11.2.1:8080", 64 << 20, false));
    println!("{:.2} Gbit/s", f64::from(64 << 23) / took.as_secs_f64() / 1e9);
    service.signal(Signal::USR1);
    let printed = service.interrupt();
    assert_eq!(last_json(&printed, "flows")["flows"].as_array().unwrap().len(), 1);
    assert_eq!(last_json(&printed, "summary")["connections"], 1);
}

#[test]
fn echo_over_tap() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let namespace = flowlane_testnet::Namespace::new(&format!("fltap{}", std::process::id())).unwrap();
    let mut inside = namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    let serve =
        "serve udp-echo --link tap:t0 --addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2 --no-pin --json -d";
    inside.args(serve.split_whitespace()).stdin(Stdio::null());
    let (service, ready) = start(inside);
    assert!(ready.contains("tap:t0"), "{ready}");
    namespace.ip("addr add 10.11.2.2/24 dev t0").unwrap();
    namespace.ip("addr add fd00:11:2::2/64 dev t0 nodad").unwrap();
    namespace.ip("link set t0 up").unwrap();
    assert_eq!(namespace.run(|| ask("10.11.2.1:8080", 8, 4)).unwrap(), 32);
    assert_eq!(namespace.run(|| ask("[fd00:11:2::1]:8080", 8, 4)).unwrap(), 32);
    flowlane_testnet::assert_no_privileges(service.id());
    let summary = last_json(&service.interrupt(), "summary");
    assert_eq!((&summary["received"], &summary["sent"]), (&64.into(), &64.into()));
    assert_eq!(summary["alignment"], 1.0);
}

#[test]
fn the_life_of_a_lab() {
    let Some(lab) = Lab::up("l") else { return };
    let name = &lab.0;
    assert!(text(&format!("lab status --name {name}")).contains("2 queues"));
    text(&format!("lab up --name {name}"));
    refused(&format!("lab up --name {name} --queues 4"));
    // Half of it gone: 'up' mends it.
    flowlane_testnet::ip(&format!("netns del {name}")).unwrap();
    let status = flowlane(&format!("lab status --name {name}"));
    assert_eq!(status.status.code(), Some(1));
    text(&format!("lab up --name {name} --queues 4"));
    assert!(text(&format!("lab status --name {name}")).contains("4 queues"));
    assert!(text(&format!("lab down --name {name}")).contains("removed"));
    assert!(text(&format!("lab down --name {name}")).contains("not there"));
    assert!(!PathBuf::from(format!("/sys/class/net/{name}0")).exists());
}

#[test]
fn queues_and_links_that_are_taken() {
    let Some(lab) = Lab::up("t") else { return };
    let serve = |link: &str, more: &str| {
        format!("serve udp-discard --link {link}:{}0 --addr 10.11.2.1/24 --no-pin {more}", lab.0)
    };
    let (service, _) = start(command(&serve("af-xdp", "--workers 2")));
    let said = refused(&serve("af-xdp", "--workers 2"));
    assert!(said.contains(&lab.0), "{said}");
    service.interrupt();
    // Queues and workers need not be as many: there are two queues.
    for workers in ["", "--workers 1", "--workers 3"] {
        let (service, _) = start(command(&serve("af-xdp", workers)));
        service.interrupt();
    }
}
