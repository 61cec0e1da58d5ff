//! `flowlane load tcp`: what it refuses, how ^C ends it, and runs against the kernel's TCP over every link. Without
//! privileges the first two are done, and the rest says that it was skipped.

use crate::counted::count;
use crate::wire::Wire;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flowlane_load::tcp::pattern;
use flowlane_testnet::{Namespace, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn load(arguments: &str) -> Output {
    command(&format!("load tcp {arguments}")).output().unwrap()
}

/// A run that is right but for what a case changes.
const BASE: &str = "10.11.2.1:7 --link pcap:,/dev/null --addr 10.11.2.2/24";

#[test]
fn bad_arguments_get_one_line_and_2() {
    for (arguments, word) in [
        ("--mode sing", "sing"),
        ("--connections 0", "--connections"),
        ("--connections 5M", "--connections"),
        ("--connections 70k", "--clients"),
        ("--size 0", "--size"),
        ("--rate 0", "rate"),
        ("--opening 0", "rate"),
        ("--ramp 1s", "--ramp"),
        ("--mode syn", "--rate"),
        ("--mode half-open --rate 10 --total 5", "--total"),
        ("--reassembly bytes=x", "bytes"),
        ("--duration 0s", "--duration"),
        ("--timeout 0s", "--timeout"),
        ("--total 0", "--total"),
        ("--mode hold --total 5", "--total"),
        ("--mode echo --verify", "--verify"),
        ("--poisson", "--poisson"),
        ("--mode connect --poisson", "--poisson"),
        ("--workers 65", "--workers"),
        ("--clients fd00::/64 --routed", "family"),
        ("--clients fd00::/64 --routed --mode connect", "family"),
        ("--clients 10.12.0.0/16", "--routed"),
        ("--gateway 10.99.0.1", "--gateway"),
        ("--buckets 0", "--target-key"),
        ("--target-key microsoft --buckets 9", "bucket 9"),
        ("--fail fast", "fast"),
        ("--vlan 5000", "5000"),
        ("--home-ports", "--link kernel"),
        ("--fast-open", "not echo"),
        ("--mode write --fast-open", "not write"),
        ("--mode read --fast-open", "not read"),
        ("--mode hold --fast-open", "not hold"),
        ("--mode half-open --rate 10 --fast-open", "not half-open"),
        ("--mode connect --fast-open --clients 10.12.0.0/15 --routed", "not 131070"),
    ] {
        let output = load(&format!("{BASE} {arguments}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: '{word}' in {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    // On kernel sockets.
    for (arguments, word) in [
        ("--mode half-open --rate 10", "--link"),
        ("--mode syn --rate 10", "--link"),
        ("--addr 10.11.2.2/24", "--link"),
        ("--target-key microsoft", "--target-key"),
        ("--clients fd00::/64", "family"),
        ("--key microsoft", "--home-ports"),
        ("--home-ports", "--key"),
        ("--home-ports=eth0 --key microsoft", "the card's key"),
        ("--home-ports=flnone0", "--home-ports=flnone0"),
    ] {
        let output = load(&format!("127.0.0.1:7 {arguments}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word) && stderr.lines().count() == 1, "{arguments:?}: '{word}' in {stderr}");
    }
}

#[test]
fn nobody_there_fails_the_run() {
    let output = load(&format!("{BASE} --json --duration 100ms --timeout 100ms"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("does not answer"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-run", &report);
    assert_eq!((&report["ok"], count(&report, "begun")), (&false.into(), 16));
    assert_eq!((count(&report, "connect-timeout"), count(&report, "connections-failed")), (16, 16));
}

/// Waits until the process catches ^C, which it does before it opens anything, and has had a moment of its run.
fn interrupt(mut child: Child) -> Output {
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
        // Workers run: signals are listened for before they are started.
        let running = std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count) > 1;
        running && u64::from_str_radix(&caught, 16).is_ok_and(|c| c & 2 != 0)
    };
    eventually("it listens for ^C", caught);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let begun = Instant::now();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut err).unwrap();
    let status = child.wait().unwrap();
    assert!(begun.elapsed() < PATIENCE, "it ends soon");
    Output { status, stdout: out, stderr: err }
}

/// The run would last ten minutes; ^C ends it with the report so far, and the exit code is that of the report.
#[test]
fn ctrl_c_ends_a_run_with_the_report_so_far() {
    for (run, misses) in [
        ("udp 10.11.2.1:7 --discard --rate 1k", 0),
        ("tcp 10.11.2.1:7 --mode hold --timeout 200ms", 1),
        ("tcp 10.11.2.1:7 --mode connect --timeout 200ms --rate 100", 1),
        ("tcp 10.11.2.1:7 --mode half-open --timeout 200ms --rate 100", 1),
    ] {
        let line = format!("load {run} --link pcap:,/dev/null --addr 10.11.2.2/24 --duration 10m --json");
        let child = command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = interrupt(child);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
        flowlane_schema::check("load-run", &report);
        assert_eq!(report["ended"], "interrupted", "{run}");
        // A machine with other things to do may have made the generator late: then that is what the report says.
        let late = report["slip"]["kept"] == false;
        assert_eq!(report["ok"], misses == 0 && !late, "{run}: {report}");
        assert_eq!(output.status.code(), Some(130), "{run}: {stderr}");
        assert!(report["seconds"].as_f64().unwrap() < 30.0, "{run}");
    }
}

/// A target that accepts connections and then does nothing, or ends them at once, is no success.
#[test]
fn a_target_that_only_accepts_fails_the_run() {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, rude) = (listen(), listen());
    let [silent_at, rude_at] = [&silent, &rude].map(|l| l.local_addr().unwrap());
    // Both end with the process. What is accepted stays, or goes.
    std::thread::spawn(move || silent.incoming().collect::<Vec<_>>());
    std::thread::spawn(move || rude.incoming().for_each(drop));
    for (target, run, words) in [
        (silent_at, "--mode echo -d 100ms", "sends nothing: does 'flowlane serve tcp-echo'"),
        (silent_at, "--mode connect -d 100ms", "sends nothing: does 'flowlane serve tcp-echo'"),
        (silent_at, "--mode hold -d 100ms --rate 100", "sends nothing: does 'flowlane serve tcp-echo'"),
        (silent_at, "--mode write -d 500ms", "takes nothing: does 'flowlane serve tcp-discard'"),
        // What fits the buffers of both ends is taken by them alone.
        (silent_at, "--mode write -d 100ms --total 1000", "takes nothing: does 'flowlane serve tcp-discard'"),
        (
            silent_at,
            "--mode write -d 100ms --rate 100 --size 64",
            "takes nothing: does 'flowlane serve tcp-discard'",
        ),
        (silent_at, "--mode read -d 100ms", "sends nothing: does 'flowlane serve tcp-source'"),
        // These end when the last connection has.
        (rude_at, "--mode read -d 10m", "sends nothing: does 'flowlane serve tcp-source'"),
        (rude_at, "--mode write -d 10m", "takes nothing: does 'flowlane serve tcp-discard'"),
    ] {
        let output = load(&format!("{target} -c 4 -q --timeout 200ms {run}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{run}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{run}: {stderr}");
        assert!(stderr.contains(words), "{run}: {stderr}");
    }
}

/// One connection of four is served. A condition about errors may say that this is enough.
#[test]
fn a_run_of_which_most_connections_fail_is_a_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    // It ends with the process.
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let stream = stream.unwrap();
            if n % 4 == 0 {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        }
    });
    for (condition, code) in [("", 1), (" --fail errors>99%", 0)] {
        let output = load(&format!("{target} --mode echo -c 4 -d 200ms -q{condition}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{condition}: {stderr}");
        assert_eq!(stderr.contains("3 of 4 connections failed"), code == 1, "{condition}: {stderr}");
    }
}

/// Far more is due than can be sent: the run ends when it should, and has counted everything that was due. One by one the counting
/// would take hours.
#[test]
fn a_rate_beyond_every_machine_ends_in_time() {
    for run in [
        "udp 10.11.2.1:7 --discard",
        "tcp 10.11.2.1:7 --mode connect --timeout 200ms",
        "tcp 10.11.2.1:7 --mode half-open --timeout 200ms",
    ] {
        let line = format!(
            "load {run} --link pcap:,/dev/null --addr 10.11.2.2/24 --rate 1000000M --duration 100ms --json"
        );
        let mut child = command(&line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut printed = child.stdout.take().unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = done.send(printed.read_to_string(&mut text).map(|_| text));
        });
        let Ok(text) = ended.recv_timeout(PATIENCE) else {
            child.kill().unwrap();
            panic!("{run}: it does not end");
        };
        assert!(matches!(child.wait().unwrap().code(), Some(1 | 3)), "{run}");
        let report: Value = serde_json::from_str(&text.unwrap()).unwrap();
        flowlane_schema::check("load-run", &report);
        let due = count(&report, "sent") + count(&report, "unsent");
        assert!(due.abs_diff(100_000_000_000) < 1000, "{run}: {due}");
        // The processor time is that of the whole run, and so is the time by which it is divided.
        let generator = &report["generator"];
        assert!(generator["seconds"].as_f64().unwrap() >= 0.1, "{run}: {generator}");
    }
}

/// What the kernel's side of a connection does.
#[derive(Clone, Copy)]
enum Peer {
    Echo,
    Sink,
    Source,
}

/// A service of the kernel's TCP inside `namespace`; what it counted: connections, and bytes read that were right.
struct KernelService {
    port: u16,
    connections: Arc<AtomicU64>,
    right: Arc<AtomicU64>,
}

impl KernelService {
    fn start(namespace: &Namespace, v6: bool, peer: Peer) -> Self {
        let any: SocketAddr = if v6 { "[::]:0" } else { "0.0.0.0:0" }.parse().unwrap();
        let listener = namespace.run(|| TcpListener::bind(any)).unwrap().unwrap();
        let service = Self {
            port: listener.local_addr().unwrap().port(),
            connections: Arc::default(),
            right: Arc::default(),
        };
        let (connections, right) = (service.connections.clone(), service.right.clone());
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::Relaxed);
                let right = right.clone();
                std::thread::spawn(move || {
                    let _ = talk(&stream, peer, &right);
                });
            }
        });
        service
    }
}

fn talk(mut stream: &TcpStream, peer: Peer, right: &AtomicU64) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 1 << 16];
    if let Peer::Source = peer {
        let mut at = 0;
        loop {
            stream.write_all(pattern::slice(at, 60_000))?;
            at += 60_000;
        }
    }
    // Where in the pattern this connection begins: at one of these.
    let (mut at, mut phase) = (0, None);
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return stream.shutdown(Shutdown::Write);
        }
        if let Peer::Echo = peer {
            stream.write_all(&buffer[..n])?;
        } else {
            let begins = |p: &u64| pattern::matches(*p, &buffer[..n]);
            let phase = *phase.get_or_insert_with(|| (0..64).map(|i| i * 7919).find(begins).unwrap_or(0));
            if pattern::matches(phase + at, &buffer[..n]) {
                right.fetch_add(n as u64, Ordering::Relaxed);
            }
            at += n as u64;
        }
    }
}

/// Every mode against the kernel, over both families; each byte is compared at whichever end sees it.
fn against_the_kernel(kind: &str, tag: &str) {
    const EACH: u64 = 8 << 20;
    let Some(wire) = Wire::new(kind, tag) else { return };
    for v6 in [false, true] {
        let target = |s: &KernelService| {
            if v6 { format!("[fd00:11:2::2]:{}", s.port) } else { format!("10.11.2.2:{}", s.port) }
        };
        let clean = "--fail errors>0 --fail unfinished>0 --timeout 30s";

        let echo = KernelService::start(&wire.namespace, v6, Peer::Echo);
        let report = wire.load(
            "tcp",
            &format!("{} --mode echo --connections 4 --total {EACH} --duration 60s {clean}", target(&echo)),
        );
        assert_eq!(
            (count(&report, "completed"), count(&report, "bytes-received")),
            (4, 4 * EACH),
            "{report}"
        );

        let sink = KernelService::start(&wire.namespace, v6, Peer::Sink);
        let report = wire.load(
            "tcp",
            &format!("{} --mode write --connections 4 --total {EACH} --duration 60s {clean}", target(&sink)),
        );
        assert_eq!((count(&report, "completed"), count(&report, "bytes-sent")), (4, 4 * EACH), "{report}");
        assert_eq!(sink.right.load(Ordering::Relaxed), 4 * EACH, "the kernel got every byte in its place");

        let source = KernelService::start(&wire.namespace, v6, Peer::Source);
        let report = wire.load(
            "tcp",
            &format!(
                "{} --mode read --verify --connections 4 --total {EACH} --duration 60s {clean}",
                target(&source)
            ),
        );
        assert_eq!(count(&report, "completed"), 4, "{report}");
        assert!(count(&report, "bytes-received") >= 4 * EACH, "{report}");

        let report = wire.load(
            "tcp",
            &format!("{} --mode hold --connections 200 --rate 2k --duration 500ms {clean}", target(&echo)),
        );
        assert_eq!((count(&report, "standing"), count(&report, "completed")), (200, 200), "{report}");
        assert!(count(&report, "answered") > 500, "{report}");
    }
}

// Long: nearly two hundred megabytes by a debug build, and four hundred connections.
#[test]
fn against_the_kernel_over_af_xdp() {
    against_the_kernel("af-xdp", "lx");
}

// Long: the same.
#[test]
fn against_the_kernel_over_af_packet() {
    against_the_kernel("af-packet", "lp");
}

#[test]
fn against_the_kernel_over_tap() {
    against_the_kernel("tap", "lt");
}

/// Ten thousand connections from a range of addresses, each opened, answered and closed; none is lost. On a machine that is so
/// busy that some are never begun, none of the others.
// Long: ten thousand connections, two thousand a second.
#[test]
fn ten_thousand_short_connections() {
    let Some(wire) = Wire::new("af-xdp", "ls") else { return };
    let echo = KernelService::start(&wire.namespace, false, Peer::Echo);
    let report = wire.load("tcp", &format!(
        "10.11.2.2:{} --mode connect --rate 2k --connections 2k --duration 5s --timeout 60s --clients 10.11.2.64/26 \
         --fail errors>0 --fail unfinished>0",
        echo.port
    ));
    let begun = count(&report, "begun");
    assert_eq!(begun + count(&report, "unsent"), 10_000, "{report}");
    assert!(begun == 10_000 || begun > 1000 && report["slip"]["kept"] == false, "{report}");
    assert_eq!(count(&report, "completed"), begun, "{report}");
    assert_eq!(echo.connections.load(Ordering::Relaxed), begun);
    assert_eq!(report["total"]["latency"]["count"], begun);
}

fn tool(namespace: &Namespace, line: &str) -> Output {
    let mut words = line.split_whitespace();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name()]).args(words.by_ref()).stdin(Stdio::null());
    command.output().unwrap()
}

/// Which of these programs is not there.
fn missing(programs: &[&str]) -> Option<String> {
    let is_there = |name: &&&str| {
        let path = std::env::var("PATH").unwrap_or_default();
        !path.split(':').any(|dir| std::path::Path::new(dir).join(name).exists())
    };
    programs.iter().find(is_there).map(|p| format!("skipped, because there is no {p}"))
}

/// Two ends and a router between them, all in namespaces: `va` in `near`, `vb` in `far`.
struct Routed {
    near: Namespace,
    router: Namespace,
    far: Namespace,
}

impl Routed {
    fn new() -> Self {
        let make = |end: &str| Namespace::new(&format!("flr{}{end}", std::process::id())).unwrap();
        let routed = Self { near: make("a"), router: make("r"), far: make("b") };
        let (near, router, far) = (routed.near.name(), routed.router.name(), routed.far.name());
        flowlane_testnet::ip(&format!("link add va netns {near} type veth peer name ra netns {router}"))
            .unwrap();
        flowlane_testnet::ip(&format!("link add vb netns {far} type veth peer name rb netns {router}"))
            .unwrap();
        for (namespace, interface) in
            [(&routed.near, "va"), (&routed.router, "ra"), (&routed.router, "rb"), (&routed.far, "vb")]
        {
            namespace.ip(&format!("link set {interface} up")).unwrap();
            // Checksums are in the packets, as on a wire, so that whoever looks at them on the way finds them right.
            let off = tool(namespace, &format!("ethtool -K {interface} tx off tso off gso off gro off"));
            assert!(off.status.success(), "{off:?}");
        }
        routed.router.ip("addr add 10.11.2.254/24 dev ra").unwrap();
        routed.router.ip("addr add 10.11.3.254/24 dev rb").unwrap();
        routed.far.ip("addr add 10.11.3.2/24 dev vb").unwrap();
        routed.far.ip("route add default via 10.11.3.254").unwrap();
        for setting in ["net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_tcp_be_liberal=0"] {
            let set = tool(&routed.router, &format!("sysctl -w {setting}"));
            assert!(set.status.success(), "{set:?}");
        }
        routed
    }

    /// Runs the generator behind the gateway.
    fn load(&self, arguments: &str) -> Value {
        let line = format!(
            "load tcp {arguments} --link af-packet:va --addr 10.11.2.1/24 --gateway 10.11.2.254 --clients \
             10.11.2.64/26 --json"
        );
        let output = tool(&self.near, &format!("{} {line}", env!("CARGO_BIN_EXE_flowlane")));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
        assert_eq!((count(&report, "failed"), count(&report, "unfinished")), (0, 0), "{report}");
        report
    }
}

/// A router that tracks connections finds none of our packets invalid, and a capture on the way holds no damaged and no
/// malformed one: streams, short connections, and connections ended by resets.
// Long: eight megabytes through a capture, which another program then reads twice.
#[test]
fn a_router_and_a_capture_find_nothing_wrong() {
    let needed = missing(&["nft", "ethtool", "tcpdump", "tshark", "sysctl"]);
    if let Some(why) = flowlane_testnet::requires().err().or(needed) {
        flowlane_testnet::skipped(why);
        return;
    }
    let net = Routed::new();
    for rule in ["add table ip t", "add chain ip t f { type filter hook forward priority 0; }"] {
        let added = tool(&net.router, &format!("nft {rule}"));
        assert!(added.status.success(), "{added:?}");
    }
    let rules = ["add rule ip t f ct state invalid counter", "add rule ip t f ct state established counter"];
    for rule in rules {
        let added = tool(&net.router, &format!("nft {rule}"));
        assert!(added.status.success(), "{added:?}");
    }
    let capture = std::env::temp_dir().join(format!("flowlane-router-{}.pcap", std::process::id()));
    let mut tcpdump = Command::new("ip")
        .args([
            "netns",
            "exec",
            net.router.name(),
            "tcpdump",
            "-i",
            "ra",
            "-s",
            "0",
            "-B",
            "65536",
            "-U",
            "-w",
        ])
        .arg(&capture)
        .arg("tcp")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(tcpdump.stderr.take().unwrap()));
    assert!(said.by_ref().map_while(Result::ok).any(|line| line.contains("listening on")), "tcpdump listens");

    let echo = KernelService::start(&net.far, false, Peer::Echo);
    let target = format!("10.11.3.2:{}", echo.port);
    let report =
        net.load(&format!("{target} --mode echo --connections 4 --total 2Mi --duration 60s --timeout 30s"));
    assert_eq!(count(&report, "completed"), 4, "{report}");
    let short = "--mode connect --connections 32 --duration 500ms --timeout 20s";
    net.load(&format!("{target} {short}"));
    net.load(&format!("{target} {short} --reset"));

    kill_process(Pid::from_child(&tcpdump), Signal::INT).unwrap();
    tcpdump.wait().unwrap();
    let counted = tool(&net.router, "nft list ruleset");
    let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
    let packets = |state: &str| -> u64 {
        let line = counted.lines().find(|l| l.contains(&format!("ct state {state}"))).unwrap();
        line.split("packets ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(packets("established") > 10_000, "{counted}");
    assert_eq!(packets("invalid"), 0, "{counted}");

    let read = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-r"]).arg(&capture);
        // It is an echo, whatever a port of ours means to others.
        tshark.args(["-d", "tcp.port==1-65535,echo"]);
        let output = tshark.args(["-Y", filter]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // That it does look at checksums.
    assert!(read("tcp.checksum.status == \"Good\" && ip.src == 10.11.2.0/24").lines().count() > 1000);
    // Of what we sent: the kernel writes a sum of zero as 0xffff, which tshark calls wrong.
    let wrong = read(
        "ip.src == 10.11.2.0/24 && (_ws.malformed || tcp.checksum.status == \"Bad\" || ip.checksum.status == \"Bad\")",
    );
    assert!(wrong.is_empty(), "{wrong}");
    let _ = std::fs::remove_file(&capture);
}

/// A service and a generator on a VLAN: tagged they talk, with another tag or none they do not.
#[test]
fn on_a_vlan() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let make = |end: &str| Namespace::new(&format!("flv{}{end}", std::process::id())).unwrap();
    let (a, b) = (make("a"), make("b"));
    flowlane_testnet::ip(&format!(
        "link add va netns {} type veth peer name vb netns {}",
        a.name(),
        b.name()
    ))
    .unwrap();
    a.ip("link set va up").unwrap();
    b.ip("link set vb up").unwrap();
    let mut serve = Command::new("ip")
        .args(["netns", "exec", b.name(), env!("CARGO_BIN_EXE_flowlane"), "serve", "tcp-source", "--link"])
        .args([
            "af-packet:vb",
            "--addr",
            "10.11.2.2/24",
            "--port",
            "7",
            "--vlan",
            "5",
            "--no-pin",
            "--total",
            "1Mi",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(serve.stderr.take().unwrap()));
    assert!(said.next().unwrap().unwrap().contains("tcp-source on 10.11.2.2"));
    let load = |vlan: &str, seconds: &str| {
        let line = format!(
            "{} load tcp 10.11.2.2:7 --link af-packet:va --addr 10.11.2.1/24 --mode read --verify --total 1Mi {vlan} \
             --json --duration {seconds} --timeout {seconds}",
            env!("CARGO_BIN_EXE_flowlane")
        );
        serde_json::from_slice::<Value>(&tool(&a, &line).stdout).unwrap()
    };
    let report = load("--vlan 5", "20s");
    assert_eq!((count(&report, "completed"), count(&report, "bytes-received")), (16, 16 << 20));
    for other in ["--vlan 6", ""] {
        assert_eq!(count(&load(other, "200ms"), "connections-opened"), 0, "{other}");
    }
    kill_process(Pid::from_child(&serve), Signal::INT).unwrap();
    serve.wait().unwrap();
}

/// A listener of chosen buckets takes their connections; to the others the port is closed.
#[test]
fn a_service_in_chosen_buckets() {
    let Some(wire) = Wire::new("af-xdp", "lb") else { return };
    let name = wire.lab.as_deref().unwrap();
    let mut serve = command(&format!(
        "serve tcp-echo --link af-xdp:{name}0 --addr 10.11.2.1/24 --port 7 --workers 2 --no-pin --key microsoft \
         --listen-buckets 1,2"
    ))
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut said = std::io::BufRead::lines(std::io::BufReader::new(serve.stderr.take().unwrap()));
    assert!(said.next().unwrap().unwrap().contains("tcp-echo on 10.11.2.1"));
    let (mut taken, mut refused) = (0, 0);
    wire.namespace
        .run(|| {
            for _ in 0..64 {
                match TcpStream::connect("10.11.2.1:7") {
                    Ok(mut stream) => {
                        stream.write_all(b"hello").unwrap();
                        stream.read_exact(&mut [0; 5]).unwrap();
                        taken += 1;
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => refused += 1,
                    Err(e) => panic!("{e}"),
                }
            }
        })
        .unwrap();
    assert!(taken > 8 && refused > 8 && taken + refused == 64, "{taken} taken, {refused} refused");
    kill_process(Pid::from_child(&serve), Signal::INT).unwrap();
    let mut summary = String::new();
    serve.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
    serve.wait().unwrap();
    assert!(summary.contains(&format!("connections: {taken}\n")), "{summary}");
}
