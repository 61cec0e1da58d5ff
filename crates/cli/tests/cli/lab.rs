//! `flowlane lab` as the instruments see it: its card tells key, table and fields, and does what they say.

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use flowlane_testnet::Namespace;
use serde_json::Value;

fn flowlane(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments.split_whitespace()).output().unwrap()
}

/// What a command prints; it ends with this code.
fn text(arguments: &str, code: i32) -> String {
    let output = flowlane(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&text(&format!("{arguments} --json"), 0)).unwrap()
}

/// A lab, gone with this.
struct Lab(String);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = flowlane(&format!("lab down --name {}", self.0));
    }
}

/// Sends datagrams of many flows from the lab's far end until it is told to stop.
fn send(far: &str, stop: &AtomicBool) {
    let mut namespace = Namespace::adopt(far);
    namespace.keep();
    namespace
        .run(|| {
            let sockets: Vec<_> = (0..64).map(|_| UdpSocket::bind("10.11.2.2:0").unwrap()).collect();
            while !stop.load(Ordering::Relaxed) {
                for socket in &sockets {
                    let _ = socket.send_to(b"practice", "10.11.2.1:9");
                }
                std::thread::yield_now();
            }
        })
        .unwrap();
}

/// As a user does it: what is shown is what why, plan and check go by, and the check finds that the card obeys.
#[test]
fn the_instruments_know_the_card_of_a_lab() {
    if let Err(why) = flowlane_testnet::requires() {
        return flowlane_testnet::skipped(why);
    }
    let lab = Lab(format!("flp{}", std::process::id()));
    let (name, near) = (&lab.0, format!("{}0", lab.0));
    let said = text(&format!("lab up --name {name} --queues 4"), 0);
    assert!(said.contains(&format!("flowlane rss check {near}")), "{said}");
    let shown = json(&format!("rss show {near} --key"));
    assert_eq!(
        (&shown["rss"]["function"], shown["rss"]["table"].as_array().unwrap().len()),
        (&"toeplitz".into(), 128),
        "{shown}"
    );
    assert!(shown["rss"]["key"].as_str().unwrap().starts_with("6d:5a:56:da"), "{shown}");
    // The queue is the one that the same key and table give, by a command that knows no card.
    let why = json(&format!("rss why 10.11.2.2:5000 10.11.2.1:8080 {near} --udp"));
    let hash = json("rss hash 10.11.2.2:5000 10.11.2.1:8080 --udp --key microsoft --udp-4tuple --workers 4");
    assert_eq!(why["hashed"]["hash"], hash["hash"], "{why} {hash}");
    let plan = text(&format!("rss plan --card {near} --from 10.11.2.2 --to 10.11.2.1:8080 --udp"), 0);
    let reached = |queue: &str| plan.lines().any(|line| line.split_whitespace().next() == Some(queue));
    assert!(["0", "1", "2", "3"].into_iter().all(reached), "{plan}");
    // Packets come, and each is on the queue that its hash names.
    for command in [format!("ip addr add 10.11.2.1/24 dev {near}"), format!("ip link set {near} up")] {
        let mut words = command.split(' ');
        assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success());
    }
    let stop = AtomicBool::new(false);
    let checked = std::thread::scope(|scope| {
        scope.spawn(|| send(name, &stop));
        let checked = flowlane(&format!("rss check {near} --for 2s --json"));
        stop.store(true, Ordering::Relaxed);
        checked
    });
    let document: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((checked.status.code(), &document["off"]), (Some(0), &Value::Null), "{document}");
    let sampled = document["sampled"].as_u64().unwrap();
    assert!(sampled > 100, "{document}");
    let judged = document["judged"]["queue"].as_u64().unwrap();
    assert!(judged > sampled * 9 / 10 && document["aligned"] == judged, "{document}");
    // An alias of somebody else's says nothing.
    let renamed = Command::new("ip").args(["link", "set", &near, "alias", "uplink"]).status().unwrap();
    assert!(renamed.success());
    let said = text(&format!("rss show {near}"), 0);
    assert!(said.contains("not told by the driver"), "{said}");
}
