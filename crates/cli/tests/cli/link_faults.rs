//! What becomes of a run when the interface under its link goes down, comes back, or vanishes: over every link, with the
//! kernel as the peer, and without privileges, which `serve` and `load` have given up by then.

use flowlane_testnet::{Card, CardConfig, Ended, Namespace, PATIENCE, Program};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where a link is and where its peer is: on a veth in two namespaces, on a TAP in one.
enum Place {
    Veth(Card),
    Tap(Namespace),
}

/// A name that no other test of this process has.
fn label() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("flt{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Place {
    /// `None`, having said why, where there can be none.
    fn new(kind: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        if kind != "tap" {
            return Some(Self::Veth(Card::new(&CardConfig::for_test(&label(), 1)).unwrap()));
        }
        let namespace = Namespace::new(&format!("{}{}", label(), std::process::id())).unwrap();
        namespace.ip("tuntap add dev near0 mode tap vnet_hdr").unwrap();
        namespace.ip("addr add 10.11.2.1/24 dev near0").unwrap();
        namespace.ip("link set near0 up").unwrap();
        Some(Self::Tap(namespace))
    }

    fn near(&self) -> &Namespace {
        match self {
            Self::Veth(card) => card.near().unwrap(),
            Self::Tap(namespace) => namespace,
        }
    }

    fn far(&self) -> &Namespace {
        match self {
            Self::Veth(card) => card.far(),
            Self::Tap(namespace) => namespace,
        }
    }

    /// Starts `flowlane` at the near end.
    fn start(&self, arguments: &str) -> Program {
        let mut command = self.near().command(env!("CARGO_BIN_EXE_flowlane"));
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        Program::start(command)
    }

    fn serve(&self, kind: &str) -> Program {
        let mut run = self.start(&format!(
            "serve udp-echo --link {kind}:near0 --addr 10.11.2.2/24 --port 7 --workers 1 --no-pin --json"
        ));
        run.hear("udp-echo on");
        run
    }

    /// Asks until there is an answer: what is sent while a link comes up may be lost.
    fn echo(&self) {
        self.far()
            .run(|| {
                let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let sent = socket.send_to(b"there?", "10.11.2.2:7");
                    match sent.and_then(|_| socket.recv(&mut [0; 16])) {
                        Ok(n) => return assert_eq!(n, 6),
                        Err(e) => assert!(Instant::now() < deadline, "no answer: {e}"),
                    }
                }
            })
            .unwrap();
    }
}

/// Datagrams and connections go on when somebody makes the link narrower, and the far side with it.
fn follows_the_mtu(kind: &str) {
    let Some(place) = Place::new(kind) else { return };
    let ends: &[(&Namespace, &str)] = match &place {
        Place::Veth(card) => &[(card.near().unwrap(), "near0"), (card.far(), "far0")],
        Place::Tap(namespace) => &[(namespace, "near0")],
    };
    for service in ["udp-echo", "tcp-echo"] {
        for (namespace, end) in ends {
            namespace.ip(&format!("link set {end} mtu 1500")).unwrap();
        }
        let mut run = place.start(&format!(
            "serve {service} --link {kind}:near0 --addr 10.11.2.2/24 --port 7 --workers 1 --no-pin --json"
        ));
        run.hear("-echo on");
        let exchange = |message: &[u8], stream: &mut Option<std::net::TcpStream>| {
            let mut back = vec![0; message.len()];
            if service == "tcp-echo" {
                let stream =
                    stream.get_or_insert_with(|| std::net::TcpStream::connect("10.11.2.2:7").unwrap());
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(message).unwrap();
                return stream.read_exact(&mut back).unwrap();
            }
            let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let deadline = Instant::now() + PATIENCE;
            loop {
                let sent = socket.send_to(message, "10.11.2.2:7");
                match sent.and_then(|_| socket.recv(&mut back)) {
                    Ok(n) => return assert_eq!(n, message.len()),
                    Err(e) => assert!(Instant::now() < deadline, "no answer: {e}"),
                }
            }
        };
        let mut stream = None;
        place.far().run(|| exchange(&[7; 1400], &mut stream)).unwrap();
        for mtu in [1000, 1300] {
            for (namespace, end) in ends {
                namespace.ip(&format!("link set {end} mtu {mtu}")).unwrap();
            }
            run.hear(&format!("{kind}:near0: the interface has an MTU of {mtu} now"));
            for message in [&[8; 1400][..], &[9; 20_000]] {
                place.far().run(|| exchange(message, &mut stream)).unwrap();
            }
        }
        run.signal(Signal::INT);
        let Ended { status, .. } = run.end();
        assert!(status.success());
    }
}

#[test]
fn af_packet_follows_the_mtu() {
    follows_the_mtu("af-packet");
}

#[test]
fn tap_follows_the_mtu() {
    follows_the_mtu("tap");
}

fn comes_back(kind: &str) {
    let Some(place) = Place::new(kind) else { return };
    let mut run = place.serve(kind);
    place.echo();
    for _ in 0..2 {
        place.near().ip("link set near0 down").unwrap();
        run.hear(&format!("{kind}:near0: the interface is down"));
        place.near().ip("link set near0 up").unwrap();
        run.hear(&format!("{kind}:near0: the interface is up again"));
        place.echo();
    }
    run.signal(Signal::INT);
    let Ended { status, printed, .. } = run.end();
    assert!(status.success());
    let summary: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(summary.is_object(), "{printed}");
}

fn is_gone(kind: &str) {
    let Some(place) = Place::new(kind) else { return };
    let run = place.serve(kind);
    place.echo();
    place.near().ip("link del near0").unwrap();
    let Ended { status, printed, said: complaints } = run.end();
    assert_eq!(status.code(), Some(1), "{complaints:?}");
    let gone = format!("flowlane: {kind}:near0: the interface is gone");
    assert_eq!(complaints.last(), Some(&gone), "{complaints:?}");
    let summary: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert!(summary.is_object(), "it says what there was until then: {printed}");
}

#[test]
fn af_packet_goes_on_when_its_interface_is_up_again() {
    comes_back("af-packet");
}

#[test]
fn af_xdp_goes_on_when_its_interface_is_up_again() {
    comes_back("af-xdp");
}

#[test]
fn tap_goes_on_when_its_interface_is_up_again() {
    comes_back("tap");
}

#[test]
fn af_packet_ends_when_its_interface_is_gone() {
    is_gone("af-packet");
}

#[test]
fn af_xdp_ends_when_its_interface_is_gone() {
    is_gone("af-xdp");
}

#[test]
fn tap_ends_when_its_interface_is_gone() {
    is_gone("tap");
}

/// A load at that rate, whose interface vanishes.
fn a_load_ends(kind: &str, rate: &str) {
    let Some(place) = Place::new(kind) else { return };
    let server = place.far().run(|| UdpSocket::bind("10.11.2.1:7").unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let run = place.start(&format!(
        "load udp 10.11.2.1:7 --link {kind}:near0 --addr 10.11.2.2/24 --rate {rate} --duration 10m --workers 1 --quiet --json"
    ));
    match server.recv(&mut [0; 2048]) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("nothing came: {:?}", run.end()),
        other => assert!(other.unwrap() > 0),
    }
    flowlane_testnet::assert_no_privileges(run.id());
    place.near().ip("link del near0").unwrap();
    let Ended { status, printed, said: complaints } = run.end();
    assert_eq!(status.code(), Some(1), "{complaints:?}");
    assert!(complaints.last().is_some_and(|l| l.ends_with("the interface is gone")), "{complaints:?}");
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert!(report.is_object());
}

#[test]
fn a_load_ends_with_its_report_when_its_interface_is_gone() {
    a_load_ends("af-xdp", "1k");
}

#[test]
fn an_interface_vanishes_under_a_full_ring_of_af_xdp() {
    a_load_ends("af-xdp", "5M");
}

#[test]
fn an_interface_vanishes_under_a_full_ring_of_af_packet() {
    a_load_ends("af-packet", "5M");
}

#[test]
fn an_interface_vanishes_under_a_full_queue_of_a_tap() {
    a_load_ends("tap", "5M");
}

#[test]
fn closing_a_tap_that_was_made_for_us_is_no_loss() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let place = Place::Tap(Namespace::new(&format!("{}{}", label(), std::process::id())).unwrap());
    let run = place.serve("tap");
    run.signal(Signal::INT);
    let Ended { status, said: complaints, .. } = run.end();
    assert!(status.success(), "{complaints:?}");
    assert!(!complaints.iter().any(|l| l.contains("gone")), "{complaints:?}");
}
