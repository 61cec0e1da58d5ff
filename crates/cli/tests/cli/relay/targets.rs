//! Several targets: which of them is chosen, and which is left out because it is down.

use super::*;
use std::sync::mpsc::channel;

/// What a target that says its name said; `None` for a reset.
fn name(relay: &Relay) -> Option<String> {
    let mut said = String::new();
    relay.connect().read_to_string(&mut said).ok().map(|_| said)
}

/// A target that says its name to everybody, until it is told to close.
struct Named {
    at: SocketAddr,
    stop: std::sync::mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Named {
    fn new(at: SocketAddr) -> Self {
        let target = Target(TcpListener::bind(at).unwrap());
        let at = target.at();
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            target.0.set_nonblocking(true).unwrap();
            while stopped.try_recv().is_err() {
                if !poll(&target.0, rustix::event::PollFlags::IN, Duration::from_millis(20)) {
                    continue;
                }
                if let Ok((mut stream, _)) = target.0.accept() {
                    // A check of health has gone already.
                    let _ = stream.write_all(target.at().to_string().as_bytes());
                }
            }
        });
        Self { at, stop, thread: Some(thread) }
    }

    fn stop(mut self) {
        self.stop.send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn connections_go_on_to_another_target_if_one_refuses() {
    let there = Named::new(any());
    let gone = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for balance in ["hash", "least"] {
        let relay = Relay::to(&[gone, there.at], &format!("--balance {balance}"));
        for _ in 0..20 {
            assert_eq!(name(&relay), Some(there.at.to_string()));
        }
        let summary = relay.stop();
        let [of_gone, of_there] = [0, 1].map(|i| &summary["targets"][i]);
        assert_eq!(of_there["connections"], 20, "{summary}");
        assert!(of_gone["refused"].as_u64().unwrap() > 0 && of_gone["connections"] == 0, "{summary}");
        assert_eq!(summary["unreached"], 0, "{summary}");
    }
    there.stop();
}

/// A target that goes down is told once, gets no connections, is told once to be up again, and gets some again.
#[test]
fn health_checks_tell_who_is_up() {
    let (one, two) = (Named::new(any()), Named::new(any()));
    let (first, second) = (one.at, two.at);
    let mut relay = Relay::to(&[first, second], "--health 20ms");
    let both = |relay: &Relay| {
        let until = Instant::now() + PATIENCE;
        let mut seen = [false; 2];
        while seen != [true; 2] {
            let said = name(relay).unwrap();
            seen[usize::from(said == second.to_string())] = true;
            assert!(Instant::now() < until, "one gets nothing");
        }
    };
    both(&relay);
    two.stop();
    assert_eq!(relay.program.says(), format!("flowlane: target {second} is down"));
    for _ in 0..50 {
        assert_eq!(name(&relay), Some(first.to_string()));
    }
    let two = Named::new(second);
    assert_eq!(relay.program.says(), format!("flowlane: target {second} is up again"));
    both(&relay);
    one.stop();
    two.stop();
    let down: Vec<_> = (0..2).map(|_| relay.program.says()).collect();
    assert!(down.iter().all(|line| line.ends_with(" is down")), "{down:?}");
    assert_eq!(name(&relay), None);
    let heard = relay.program.heard().to_vec();
    let (summary, said) = relay.stop_and_hear();
    assert_eq!(said, heard, "said once");
    assert_eq!(summary["no-target"], 1, "{summary}");
    let of = &summary["targets"][1];
    assert_eq!((&of["went-down"], &of["came-up"], &of["up"]), (&2.into(), &1.into(), &0.into()), "{summary}");
    assert!(of["checks-failed"].as_u64().unwrap() >= 6, "{summary}");
    assert_eq!(of["refused"], 0, "clients do not find out: {summary}");
}

/// The counters of each target are in every view.
#[test]
fn every_view_shows_each_target() {
    let target = Named::new(any());
    let metrics = free_port();
    let control = std::env::temp_dir().join(format!("flowlane-relay-{}", std::process::id()));
    let mut relay = Relay::to(
        &[target.at],
        &format!("--interval 20ms --metrics {metrics} --control {}", control.display()),
    );
    assert_eq!(name(&relay), Some(target.at.to_string()));
    let bytes = target.at.to_string().len();
    let mut scrape = connect(SocketAddr::from(([127, 0, 0, 1], metrics)));
    write!(scrape, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{metrics}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    scrape.read_to_string(&mut text).unwrap();
    for line in [
        format!("flowlane_relay_target_connections_total{{host=\"server\",target=\"{}\"}} 1", target.at),
        format!(
            "flowlane_relay_target_to_client_bytes_total{{host=\"server\",target=\"{}\"}} {bytes}",
            target.at
        ),
        format!("flowlane_relay_target_up{{host=\"server\",target=\"{}\"}} 1", target.at),
        "flowlane_relay_accepted_total{host=\"server\"} 1".to_owned(),
        "flowlane_drops_total{host=\"server\",layer=\"relay\",reason=\"unreached\"} 0".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is missing in {text}");
    }
    let stat = |more: &str| {
        let output = command(&[], &format!("stat --control {} {more}", control.display())).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let said = stat("-s -p relay");
    for line in [
        "relay:\n".to_owned(),
        format!("relay {}:\n", target.at),
        "\t1 connections relayed, or flows of UDP\n".to_owned(),
        format!("\t{bytes} bytes relayed to clients\n"),
    ] {
        assert!(said.contains(&line), "{line:?} is missing in {said}");
    }
    assert!(!said.contains("tcp:"), "{said}");
    let json: Value = serde_json::from_str(&stat("-s -p relay --json")).unwrap();
    assert!(json.to_string().contains(&format!("\"relay {}\":{{", target.at)), "{json}");
    target.stop();
    flowlane_schema::check("serve-v1", &relay.prints("relay-interval"));
    relay.stop();
}
