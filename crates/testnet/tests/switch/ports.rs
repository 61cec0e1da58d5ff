//! Ports over interfaces that come and go while the switch runs.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use flowlane::switch::{self, Around, Options, PortLink};
use flowlane_sys::privilege;
use flowlane_testnet::Namespace;

use crate::{Net, eventually, reaches, streams};

/// What `ip` says of an interface.
fn said_of(namespace: &Namespace, interface: &str) -> String {
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", namespace.name(), "ip", "-d", "link", "show", interface]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Ports are added and removed, one of each kind, while a stream passes between two others that notices nothing.
#[test]
fn ports_come_and_go_under_traffic() {
    let Some(net) = Net::new("ports", 3) else { return };
    let switch = net.start(&["af-packet:e1", "af-xdp:e2"], "", 2);
    let handle = switch.handle();
    let (one, two, three) = (&net.hosts[0], &net.hosts[1], &net.hosts[2]);
    let promiscuous = || said_of(&net.middle, "e3").contains("promiscuity 1");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                streams(one, two, "10.9.0.2");
            }
        });
        // Whatever fails: the stream ends with the test.
        let _ends = Ends(&stop);
        for kind in ["af-packet", "af-xdp"] {
            handle.add_port("p3", &format!("{kind}:e3")).unwrap();
            handle.add_port("p4", "tap:t4").unwrap();
            net.middle.ip("addr replace 10.9.0.9/24 dev t4").unwrap();
            // Not what the stream asks for: an address that is forgotten while it is asked for is unreachable.
            for host in [one, three] {
                host.ip("neigh flush to 10.9.0.3 dev eth0").unwrap();
                host.ip("neigh flush to 10.9.0.9 dev eth0").unwrap();
            }
            assert!(reaches(one, three, "10.9.0.3", true), "{kind}");
            assert!(reaches(three, &net.middle, "10.9.0.9", true), "{kind}");
            for other in ["af-packet:e3", "af-xdp:e3"] {
                let said = handle.add_port("p5", other).unwrap_err().to_string();
                assert_eq!(said, "port p5: port p3 is on the same interface");
            }
            for none in ["af-packet:none0", "af-xdp:none0"] {
                let said = handle.add_port("p5", none).unwrap_err().to_string();
                assert!(said.contains("none0"), "{said}");
            }
            assert!(promiscuous());
            // The number that is vacant is the next one's.
            handle.remove_port("p3").unwrap();
            // A program that another test starts has copies of its sockets for a moment.
            eventually("it is as it was", || !promiscuous() && !said_of(&net.middle, "e3").contains("xdp"));
            assert!(!reaches(one, three, "10.9.0.3", false));
            handle.remove_port("p4").unwrap();
            eventually("the TAP interface goes", || net.middle.ip("link show t4").is_err());
            let view = handle.view().unwrap();
            assert_eq!(view.ports.len(), 2, "{view:?}");
        }
    });
    // What was forwarded between the others was not touched.
    let view = handle.view().unwrap();
    assert!(view.ports.iter().all(|port| !port.drops.contains_key("queue-full")), "{view:?}");
    drop(switch);
}

/// Says that it is over when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls before a link is opened and after it has been closed, with the privileges that take.
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static AFTER: AtomicUsize = AtomicUsize::new(0);

fn counted(counter: &AtomicUsize) {
    if privilege::has(privilege::CAP_NET_ADMIN) {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// A card of four queues is served by fewer workers and by more, who have given up their privileges. Its interface is deleted while it is a port;
/// the port is removed after that, and another interface of the name is added.
#[test]
fn an_af_xdp_port_is_added_with_any_number_of_queues_and_survives_its_interface() {
    for workers in [1, 2, 6] {
        let Some(net) = Net::new("queues", 2) else { return };
        let (one, two) = (&net.hosts[0], &net.hosts[1]);
        let card = || {
            let peer = format!("type veth peer name eth0 numtxqueues 4 numrxqueues 4 netns {}", two.name());
            net.middle.ip(&format!("link add e2 numtxqueues 4 numrxqueues 4 {peer}")).unwrap();
            net.middle.ip("link set e2 up").unwrap();
            two.ip("addr add 10.9.0.2/24 dev eth0").unwrap();
            two.ip("link set eth0 up").unwrap();
            one.ip("neigh flush dev eth0").unwrap();
        };
        net.middle.ip("link del e2").unwrap();
        card();
        BEFORE.store(0, Ordering::SeqCst);
        AFTER.store(0, Ordering::SeqCst);
        let around =
            Around { before: |_: &PortLink| counted(&BEFORE), after: |_: &PortLink| counted(&AFTER) };
        let options = Net::options(&["af-packet:e1"], "", workers, None);
        let before_start = || privilege::drop_all().map(|_| ()).map_err(|e| panic!("{e}"));
        let options = Options { around, before_start, ..options };
        let (switch, added) = net
            .middle
            .run(|| {
                let switch = switch::start(options).unwrap();
                // This thread has no privileges any more.
                let added = switch.handle().add_port("p2", "af-xdp:e2");
                (switch, added)
            })
            .unwrap();
        added.unwrap();
        let handle = switch.handle();
        // Several flows, and so several queues.
        for _ in 0..4 {
            assert!(reaches(one, two, "10.9.0.2", true) && reaches(two, one, "10.9.0.1", true), "{workers}");
        }
        streams(one, two, "10.9.0.2");
        streams(two, one, "10.9.0.1");
        let view = handle.view().unwrap();
        assert_eq!(view.ports[1].workers, (0..workers.min(4)).collect::<Vec<_>>(), "{view:?}");
        net.middle.ip("link del e2").unwrap();
        let state = || handle.view().unwrap().ports[1].state.clone();
        eventually("its link is down", || state() == "down");
        assert!(handle.add_port("p3", "af-xdp:e2").is_err(), "a port of a switch is on it still");
        handle.remove_port("p2").unwrap();
        let said = handle.add_port("p2", "af-xdp:e2").unwrap_err().to_string();
        assert!(said.contains("e2"), "{said}");
        card();
        handle.add_port("p2", "af-xdp:e2").unwrap();
        assert!(reaches(one, two, "10.9.0.2", true));
        handle.remove_port("p2").unwrap();
        eventually("it is as it was", || !said_of(&net.middle, "e2").contains("xdp"));
        // The port of the start, and three that were asked for; one of them is there still.
        assert_eq!([&BEFORE, &AFTER].map(|n| n.load(Ordering::SeqCst)), [4, 3], "{workers} workers");
    }
}

/// Memory is set aside for so many queues. Each port gets at most half of what is left, the last ones none, and what one had is there again when it
/// is gone.
#[test]
fn af_xdp_ports_are_added_until_no_frames_are_left() {
    let Some(net) = Net::new("frames", 8) else { return };
    let switch = net.start(&["tap:t0"], "", 1);
    let handle = switch.handle();
    let add = |n: usize| handle.add_port(&format!("x{n}"), &format!("af-xdp:e{n}"));
    for n in 1..=6 {
        add(n).unwrap();
    }
    let said = std::iter::from_fn(|| switch.notice(Duration::ZERO)).collect::<Vec<_>>();
    let fewer = |line: &&String| line.contains(" frames wait for packets on each queue, not 2048");
    assert_eq!(said.iter().filter(fewer).count(), 5, "{said:?}");
    let said = add(7).unwrap_err().to_string();
    assert!(said.starts_with("port x7: too few frames are left for an af-xdp port"), "{said}");
    // Those who have few work, too, and others find frames.
    handle.add_port("q7", "af-packet:e7").unwrap();
    let [one, .., six, seven, _] = &net.hosts[..] else { unreachable!() };
    assert!(reaches(one, six, "10.9.0.6", true) && reaches(six, seven, "10.9.0.7", true));
    streams(one, six, "10.9.0.6");
    handle.remove_port("x1").unwrap();
    handle.add_port("x8", "af-xdp:e8").unwrap();
    assert!(reaches(&net.hosts[7], six, "10.9.0.6", true));
}

/// Ports of two VLANs take turns at one number, under a load of broadcasts in one of them: nobody in the other ever hears one.
#[test]
fn no_frame_reaches_the_vlan_of_the_port_that_has_the_number_next() {
    let Some(net) = Net::new("turns", 3) else { return };
    let words = "config vlan_mode dot1q vlangroup 1 members none vlangroup 10 members p1 port p1 pvid 10 port p2 pvid 0";
    let switch = net.start(&["af-packet:e1", "plug"], words, 2);
    let handle = switch.handle();
    let [one, two, three] = &net.hosts[..] else { unreachable!() };
    let speaks = one.run(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
    speaks.set_broadcast(true).unwrap();
    let listener = |host: &Namespace| {
        let socket = host.run(|| UdpSocket::bind("0.0.0.0:7777").unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (may, may_not) = (listener(two), listener(three));
    let hears = |socket: &UdpSocket| match socket.recv(&mut [0; 16]) {
        Ok(_) => true,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
            false
        }
    };
    let (go_on, goes_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let speaks = &speaks;
        scope.spawn(move || {
            while goes_on.recv().is_ok() {
                for _ in 0..200 {
                    let _ = speaks.send_to(b"secret", "10.9.0.255:7777");
                }
            }
        });
        for round in 0..6 {
            let (first, second) = if round % 2 == 0 { ("af-xdp", "af-xdp") } else { ("af-packet", "af-xdp") };
            handle.add_port("in", &format!("{first}:e2")).unwrap();
            handle.change("vlangroup 10 members p1,in port in pvid 10").unwrap();
            eventually("the listener hears", || {
                let _ = go_on.send(());
                hears(&may)
            });
            let _ = go_on.send(());
            handle.remove_port("in").unwrap();
            let _ = go_on.send(());
            handle.add_port("out", &format!("{second}:e3")).unwrap();
            assert_eq!(handle.config().port("out").unwrap().index(), 2, "the number of the one before");
            let _ = go_on.send(());
            handle.change("vlangroup 20 members out port out pvid 20").unwrap();
            let _ = go_on.send(());
            handle.remove_port("out").unwrap();
            assert!(!hears(&may_not), "a frame in a wrong VLAN, round {round}");
        }
        // The same listener hears it where it may.
        handle.add_port("out", "af-xdp:e3").unwrap();
        handle.change("vlangroup 10 members p1,out port out pvid 10").unwrap();
        eventually("the listener hears", || {
            let _ = go_on.send(());
            hears(&may_not)
        });
        drop(go_on);
    });
}
