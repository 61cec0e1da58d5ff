//! `flowlane load udp --find-burst`: queues whose length and rate are known, in this process and in the kernel.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowlane_testnet::{Namespace, Program, Scratch, free_port, skipped};
use serde_json::Value;

use crate::wire::Wire;

/// A queue: so many datagrams wait at most, and one leaves each so often, nanoseconds.
#[derive(Clone, Copy)]
struct Queue {
    most: u64,
    each: u64,
    free: u64,
}

impl Queue {
    fn new(most: u64, per_second: u64) -> Self {
        Self { most, each: 1_000_000_000 / per_second, free: 0 }
    }

    /// How long a datagram that comes at this time stays; `None` if there is no room.
    fn take(&mut self, now: u64) -> Option<u64> {
        let leaves = self.free.max(now) + self.each;
        (leaves - now <= self.most * self.each).then(|| {
            self.free = leaves;
            leaves - now
        })
    }

    /// Datagrams of the longest burst at this rate that passes.
    fn longest(mut self, rate: f64) -> u64 {
        (0..).find(|n| self.take(1 + (*n as f64 / rate * 1e9) as u64).is_none()).unwrap()
    }
}

/// Echoes what the queue has room for, when it leaves. A datagram comes when it was meant to be sent, which it says itself, so that a busy machine
/// changes nothing. `late`: what has no room is echoed, too, with what comes 30 ms after it.
fn server(mut queue: Queue, late: bool) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, out) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let (to, from) = mpsc::channel::<(Instant, Vec<u8>, SocketAddr)>();
    std::thread::spawn(move || {
        for (due, datagram, to) in from {
            // What waits in a queue takes its time: nothing is waited for.
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = out.send_to(&datagram, to);
        }
    });
    std::thread::spawn(move || {
        let (mut buffer, mut kept, mut last) = ([0; 2048], Vec::new(), 0);
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let now = u64::from_le_bytes(buffer[24..32].try_into().unwrap());
            let datagram = buffer[..n].to_vec();
            if now > last + 30_000_000 {
                for old in kept.drain(..) {
                    to.send((Instant::now(), old, from)).unwrap();
                }
            }
            last = now;
            match queue.take(now) {
                Some(stays) => {
                    to.send((Instant::now() + Duration::from_nanos(stays), datagram, from)).unwrap();
                }
                None if late => kept.push(datagram),
                None => {}
            }
        }
    });
    address
}

fn load(target: &str, arguments: &str) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "udp", target, "--no-pin"]).args(arguments.split_whitespace());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    (output, said)
}

fn found(output: &Output, said: &str) -> Value {
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    flowlane_schema::check("load-bursts-v1", &found);
    found
}

/// 100 datagrams wait at most, 1000 a second leave: a burst at 4000 a second passes up to 100 / (1 - 1/4) of them.
// Long: several complete searches, with silence behind each burst that lost something.
#[test]
fn the_burst_that_a_known_queue_takes_is_found() {
    let dir = Scratch::new("find-burst");
    let saved = dir.path("bursts.json");
    let queue = Queue::new(100, 1000);
    let longest = queue.longest(4000.0) as f64;
    assert!((133.0..=134.0).contains(&longest), "{longest}");
    for late in [false, true] {
        let address = server(queue, late).to_string();
        let options =
            "--find-burst --trials 2 --burst-rate 4k --between 50..400 --throughput 1k --json --save";
        let (output, said) = load(&address, &format!("{options} {saved}"));
        assert_eq!(output.status.code(), Some(0), "{said}");
        let found = found(&output, &said);
        let number = |name: &str| found[name].as_f64().unwrap();
        let of = |name: &str| found["longest"][name].as_f64().unwrap();
        assert!(of("min") >= longest * 0.98 && of("max") <= longest, "late {late}, {longest}: {found:#}");
        // The buffer has 100 places, which fill at 4000 a second.
        assert!((0.0244..=0.0252).contains(&number("corrected-buffer-seconds")), "{found:#}");
        assert!((0.0326..=0.0336).contains(&number("implied-buffer-seconds")), "{found:#}");
        assert_eq!((&found["limit"], &found["ended"]), (&"server".into(), &"narrow".into()), "{found:#}");
        assert_eq!(found["trials"].as_array().unwrap().len(), 2);
        assert_eq!(said.lines().filter(|line| line.starts_with("trial ")).count(), 2, "{said}");
        let kept: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
        assert_eq!(kept, found);
    }
}

/// On a link of ours, where a lane has one socket for all its flows.
#[test]
fn bursts_are_sent_on_a_link_of_ours() {
    let Some(wire) = Wire::new("af-packet", "lb") else { return };
    let port = free_port();
    let mut server = wire.namespace.command(env!("CARGO_BIN_EXE_flowlane"));
    server.args(["serve", "udp-echo", "--port", &port.to_string(), "--workers", "1", "--no-pin"]);
    let _server = Program::ready(server, " port ");
    let options = "--find-burst --trials 2 --between 5..40 --burst-rate 5k -q";
    let (mut command, line) = wire.command("udp", &format!("10.11.2.2:{port} {options}"));
    let output = command.arg("--no-pin").output().unwrap();
    let found = found(&output, &format!("{line}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    assert_eq!(found["longest"]["min"], 40.0, "{found:#}");
    assert!((4800.0..=5400.0).contains(&found["rate"]["average"].as_f64().unwrap()), "{found:#}");
}

/// What always passes, what never does, what no generator sends, and what is ended by its time.
// Long: five searches, each of runs with pauses in which a queue empties.
#[test]
fn what_never_passes_and_what_cannot_be_sent_is_said() {
    let of = |queue, options: &str| {
        let (output, said) = load(&server(queue, false).to_string(), &format!("--find-burst -q {options}"));
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), said)
    };
    let (code, text, said) = of(Queue::new(1000, 5000), "--trials 2 --between 10..100 --burst-rate 4k");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(text.contains("bursts of 100 datagrams pass without loss, the longest"), "{text}");
    assert!(text.contains("--throughput"), "{text}");
    let (code, text, said) =
        of(Queue::new(5, 500), "--trials 3 --between 100..1k --burst-rate 4k --throughput 500");
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(text.contains("not even bursts of 100 datagrams pass without loss (limit: server)"), "{text}");
    let (code, text, said) = of(Queue::new(1000, 50_000), "--trials 2 --between 500..1k --burst-rate 1G");
    assert_eq!((code, said.lines().count()), (Some(3), 1), "{said} {text}");
    assert!(text.contains("limit: generator") && said.contains("--burst-rate"), "{said} {text}");
    let (code, text, said) = of(Queue::new(200, 5000), "--trials 1000 --find-for 300ms --burst-rate 4k");
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(text.contains("the time was up (--find-for)"), "{text}");
}

#[test]
fn what_makes_no_search_is_refused() {
    for (options, word) in [
        ("--find-burst --rate 5", "cannot be used with"),
        ("--find-burst --window 5", "cannot be used with"),
        ("--find-burst --burst 5", "cannot be used with"),
        ("--find-burst --discard", "cannot be used with"),
        ("--find-burst --flows 5", "cannot be used with"),
        ("--find-burst --html x", "cannot be used with"),
        ("--find-burst --find-rate lost<=0", "cannot be used with"),
        ("--trials 5", "--find-burst"),
        ("--throughput 5k", "--find-burst"),
        ("--find-burst --trials 0", "--trials 0"),
        ("--find-burst --between 0.5..5", "whole numbers"),
        ("--find-burst --between 9..5", "above the second"),
        ("--find-burst --throughput /nowhere", "--throughput /nowhere"),
        ("--find-burst --throughput /etc/passwd", "neither a rate"),
    ] {
        let (output, said) = load("127.0.0.1:9", options);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{options}: {said}");
        assert!(said.contains(word), "{options}: '{word}' in {said}");
    }
    let (output, said) = load(&format!("127.0.0.1:{}", free_port()), "--find-burst");
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("nothing listens at"), "{said}");
}

/// A router whose queue the kernel has: 100,000 bytes, of which 40 Mbit leave a second, are 181 frames of 552 bytes at 9058 a second; three more are let
/// through at once.
// Long: several complete searches, with silence behind each burst that lost something.
#[test]
fn the_buffer_of_a_kernels_queue_is_found() {
    if let Err(why) = flowlane_testnet::requires() {
        return skipped(why);
    }
    let make = |end: &str| Namespace::new(&format!("flbur{}{end}", std::process::id())).unwrap();
    let (near, router, far) = (make("a"), make("r"), make("b"));
    for (space, name, net) in [(&near, "va", 1), (&far, "vb", 2)] {
        let pair = format!(
            "link add {name} netns {} type veth peer name r{name} netns {}",
            space.name(),
            router.name()
        );
        flowlane_testnet::ip(&pair).unwrap();
        space.ip(&format!("addr add 10.11.{net}.2/24 dev {name}")).unwrap();
        space.ip(&format!("link set {name} up")).unwrap();
        router.ip(&format!("addr add 10.11.{net}.1/24 dev r{name}")).unwrap();
        router.ip(&format!("link set r{name} up")).unwrap();
        space.ip(&format!("route add default via 10.11.{net}.1")).unwrap();
    }
    let run = |line: &str| {
        let mut words = line.split_whitespace();
        router.command(words.next().unwrap()).args(words).output().is_ok_and(|output| output.status.success())
    };
    assert!(run("sysctl -qw net.ipv4.ip_forward=1"));
    if !run("tc qdisc add dev rvb root tbf rate 40mbit burst 1600 limit 100000") {
        return skipped("skipped, because the kernel has no tbf, or there is no tc (iproute2)");
    }
    let mut serve = far.command(env!("CARGO_BIN_EXE_flowlane"));
    serve.args("serve udp-echo --port 7 --no-pin".split(' ')).stdin(Stdio::null());
    let _server = Program::ready(serve, "7");
    let options = "--trials 7 --between 20..5k --throughput 9058 --json -q --no-pin";
    let mut load = near.command(env!("CARGO_BIN_EXE_flowlane"));
    load.args(["load", "udp", "10.11.2.2:7", "--find-burst"]).args(options.split(' ')).stdin(Stdio::null());
    let output = load.output().unwrap();
    let found = found(&output, &String::from_utf8_lossy(&output.stderr));
    let frames =
        found["corrected-buffer-seconds"].as_f64().unwrap() * found["rate"]["average"].as_f64().unwrap();
    assert!((175.0..=193.0).contains(&frames), "{frames}: {found:#}");
}
