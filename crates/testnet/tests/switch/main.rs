//! The switch on real links: kernel hosts in namespaces, on every kind of port.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod ports;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::link::LinkSpec;
use flowlane::switch::core::config::{Config, PortConfig};
use flowlane::switch::{self, Around, Handle, Options, PlugListener, PortLink, Switch};
use flowlane::{Host, Interface, Key, Rss, Runtime};
use flowlane_testnet::{Namespace, eventually, requires, skipped};

const PATIENCE: Duration = Duration::from_secs(60);

/// Hosts on veth pairs, whose other ends `e1`, `e2`, ... are the switch's; each host's end is `eth0`.
struct Net {
    middle: Namespace,
    hosts: Vec<Namespace>,
}

impl Net {
    /// `None`, and said, if this machine cannot.
    fn new(label: &str, hosts: usize) -> Option<Net> {
        if let Err(why) = requires() {
            skipped(why);
            return None;
        }
        let name = |what: &str| format!("fl-sw-{label}-{what}-{}", std::process::id());
        let middle = Namespace::new(&name("m")).unwrap();
        middle.ip("link set lo up").unwrap();
        let hosts: Vec<_> = (1..=hosts)
            .map(|n| {
                let host = Namespace::new(&name(&n.to_string())).unwrap();
                middle.ip(&format!("link add e{n} type veth peer name eth0 netns {}", host.name())).unwrap();
                middle.ip(&format!("link set e{n} up")).unwrap();
                host.ip(&format!("addr add 10.9.0.{n}/24 dev eth0")).unwrap();
                host.ip(&format!("addr add fd09::{n}/64 dev eth0 nodad")).unwrap();
                host.ip("link set eth0 up").unwrap();
                host
            })
            .collect();
        Some(Net { middle, hosts })
    }

    fn start(&self, links: &[&str], words: &str, workers: usize) -> Switch {
        self.start_with(links, words, workers, None)
    }

    fn start_with(&self, links: &[&str], words: &str, workers: usize, plugs: Option<PlugListener>) -> Switch {
        let options = Self::options(links, words, workers, plugs);
        self.middle.run(|| switch::start(options).unwrap()).unwrap()
    }

    fn options(links: &[&str], words: &str, workers: usize, plugs: Option<PlugListener>) -> Options {
        let ports = (0..links.len()).map(|n| PortConfig::new(&format!("p{}", n + 1))).collect();
        let config = switch::core::Change::parse(&Config::new(ports), words).unwrap().config;
        let links = links.iter().map(|link| link.parse::<PortLink>().unwrap()).collect();
        let poll = Duration::from_micros(50);
        // Both ways are tried: several workers poll their interfaces themselves.
        let busy_poll = (workers > 1).then_some(64);
        Options {
            config,
            links,
            plugs,
            workers,
            poll,
            busy_poll,
            spare_queues: 2,
            hosts: None,
            around: Around::default(),
            before_start: || Ok(()),
        }
    }
}

/// Whether a datagram gets from one host to an address and back. `expected`: it is tried until it does; else for a short time.
fn reaches(from: &Namespace, to: &Namespace, address: &str, expected: bool) -> bool {
    let bind = |n: &Namespace, at: &str| n.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let bracketed = if address.contains(':') { format!("[{address}]:0") } else { format!("{address}:0") };
    let (asks, answers) = (bind(from, any), bind(to, &bracketed));
    asks.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    answers.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let target = answers.local_addr().unwrap();
    let deadline = Instant::now() + if expected { PATIENCE } else { Duration::from_millis(500) };
    while Instant::now() < deadline {
        // Without a neighbour there is no route to it for a moment.
        let _ = asks.send_to(b"there?", target);
        let mut buffer = [0; 16];
        let Ok((n, source)) = answers.recv_from(&mut buffer) else { continue };
        let _ = answers.send_to(&buffer[..n], source);
        if asks.recv(&mut buffer).is_ok() {
            return true;
        }
    }
    false
}

/// A stream of TCP through the switch: what is merged by the sender's segmentation offload arrives whole.
fn streams(from: &Namespace, to: &Namespace, address: &str) {
    let listener = to.run(|| TcpListener::bind(format!("{address}:0")).unwrap()).unwrap();
    let target = listener.local_addr().unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    // Who cannot connect says so here: nobody would be accepted below.
    let connected = from.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
    let mut sender = connected.unwrap_or_else(|e| panic!("{} to {address}: {e}", from.name()));
    let (mut stream, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let sent = &bytes;
        // The stream ends with the thread.
        scope.spawn(move || {
            sender.set_write_timeout(Some(PATIENCE)).unwrap();
            sender.write_all(sent).unwrap();
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == bytes, "{address}: {} of {} bytes", received.len(), bytes.len());
    });
}

fn known(handle: &Handle, port: usize) -> usize {
    handle.view().unwrap().ports[port].addresses
}

#[test]
fn kernel_hosts_on_every_kind_of_port_reach_each_other() {
    let Some(net) = Net::new("all", 2) else { return };
    for workers in [1, 2] {
        let switch = net.start(&["tap:t0", "af-packet:e1", "af-xdp:e2"], "", workers);
        net.middle.ip("addr replace 10.9.0.9/24 dev t0").unwrap();
        net.middle.ip("addr replace fd09::9/64 dev t0 nodad").unwrap();
        let (one, two) = (&net.hosts[0], &net.hosts[1]);
        // The TAP interface of the round before had another address of Ethernet, which hosts would try for eight seconds each.
        for host in [one, two] {
            host.ip("neigh flush dev eth0").unwrap();
        }
        for (from, to, address) in [
            (one, two, "10.9.0.2"),
            (two, one, "10.9.0.1"),
            (one, &net.middle, "10.9.0.9"),
            (two, &net.middle, "fd09::9"),
            (&net.middle, two, "10.9.0.2"),
            (one, two, "fd09::2"),
        ] {
            assert!(reaches(from, to, address, true), "{address}, {workers} workers");
        }
        for (from, to, address) in [
            (one, two, "10.9.0.2"),
            (two, one, "10.9.0.1"),
            (one, &net.middle, "10.9.0.9"),
            (&net.middle, one, "10.9.0.1"),
        ] {
            streams(from, to, address);
        }
        let view = switch.handle().view().unwrap();
        assert!(view.ports.iter().all(|port| port.addresses >= 1), "{view:?}");
        // What a port sends does not come back on it, as a packet socket would show it.
        assert!(view.ports.iter().all(|port| port.counters["moved"] == 0), "{view:?}");
    }
}

/// The interfaces are as they were, and free for the next.
#[test]
fn an_interface_is_left_as_it_was_found() {
    let Some(net) = Net::new("left", 1) else { return };
    let promiscuous = || {
        let text = std::process::Command::new("ip")
            .args(["netns", "exec", net.middle.name(), "ip", "-d", "link", "show", "e1"])
            .output()
            .unwrap();
        String::from_utf8(text.stdout).unwrap().contains("promiscuity 1")
    };
    for link in ["af-packet:e1", "af-xdp:e1"] {
        assert!(!promiscuous());
        let switch = net.start(&[link, "tap:t0"], "", 1);
        assert!(promiscuous(), "{link}");
        drop(switch);
        assert!(!promiscuous(), "{link}");
    }
}

#[test]
fn vlans_keep_hosts_apart_and_a_trunk_joins_them() {
    let Some(net) = Net::new("vlan", 3) else { return };
    let words = "config vlan_mode dot1q vlangroup 10 members p1,p2 vlangroup 20 members p3 port p1 pvid 10 port p2 pvid 10 port p3 pvid 20";
    let switch = net.start(&["af-packet:e1", "af-xdp:e2", "af-packet:e3"], words, 1);
    let handle = switch.handle();
    let [one, two, three] = &net.hosts[..] else { unreachable!() };
    assert!(reaches(one, two, "10.9.0.2", true));
    assert!(!reaches(one, three, "10.9.0.3", false), "another VLAN");
    handle.change("vlangroup 10 members p1,p2,p3 port p3 pvid 10").unwrap();
    assert!(reaches(one, three, "10.9.0.3", true));
    handle.change("vlangroup 10 members p1,p3 vlangroup 20 members p2 port p2 pvid 20").unwrap();
    assert!(!reaches(one, two, "10.9.0.2", false));
    assert!(reaches(one, three, "10.9.0.3", true));
    let error = handle.change("port p1 pvid 77").unwrap_err().to_string();
    assert!(error.contains("there is no VLAN 77"), "{error}");
    assert!(reaches(one, three, "10.9.0.3", true), "nothing was changed");
}

/// The kernel repeats what it listens to only when it is asked. With nobody who asks the switch forgets it; once the switch asks itself it knows it
/// again, and the entries live on.
// Long: what nobody repeats is forgotten after three seconds, and kept for longer once it is asked for.
#[test]
fn a_switch_that_asks_keeps_the_groups_of_kernel_hosts() {
    let Some(net) = Net::new("query", 2) else { return };
    let words = "config snooping on query_interval 1";
    let switch = net.start(&["af-packet:e1", "af-xdp:e2"], words, 2);
    let handle = switch.handle();
    let (one, two) = (&net.hosts[0], &net.hosts[1]);
    let join = || {
        let v4 = UdpSocket::bind("0.0.0.0:7777").unwrap();
        v4.join_multicast_v4(&"239.1.2.3".parse().unwrap(), &"10.9.0.1".parse().unwrap()).unwrap();
        let v6 = UdpSocket::bind("[::]:7778").unwrap();
        // Its route is there a moment after the link is up.
        eventually("IPv6 has a route", || v6.join_multicast_v6(&"ff15::7".parse().unwrap(), 0).is_ok());
        (v4, v6)
    };
    let (hears, _v6) = one.run(join).unwrap();
    let on_one = |group: &str| {
        let listeners = handle.view().unwrap().listeners;
        listeners.iter().any(|(vlan, mac, ports)| (*vlan, mac.as_str(), ports.as_str()) == (0, group, "p1"))
    };
    let groups = ["01:00:5e:01:02:03", "33:33:00:00:00:07"];
    eventually("the reports are heard", || on_one(groups[0]));
    eventually("they are forgotten", || !groups.iter().any(|group| on_one(group)));
    handle.change("config querier on").unwrap();
    eventually("the hosts answer", || groups.iter().all(|group| on_one(group)));
    let queries = || handle.view().unwrap().ports[0].counters["queries"];
    let before = queries();
    // Of each family one a second. An entry that nobody repeats lasts three.
    eventually("queries are sent", || {
        assert!(groups.iter().all(|group| on_one(group)), "{:?}", handle.view());
        queries() >= before + 2 * 4
    });
    let says = two.run(|| UdpSocket::bind("10.9.0.2:0").unwrap()).unwrap();
    hears.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    eventually("a datagram arrives", || {
        let _ = says.send_to(b"to all of you", "239.1.2.3:7777");
        hears.recv(&mut [0; 16]).is_ok()
    });
}

/// The fault of the reference is to forget everybody's addresses when one link goes.
#[test]
fn a_link_that_flaps_costs_its_own_addresses_alone() {
    let Some(net) = Net::new("flap", 3) else { return };
    let switch = net.start(&["af-packet:e1", "af-packet:e2", "af-xdp:e3"], "", 1);
    let handle = switch.handle();
    let [one, two, three] = &net.hosts[..] else { unreachable!() };
    assert!(reaches(one, two, "10.9.0.2", true) && reaches(two, three, "10.9.0.3", true));
    let (first, second) = (known(&handle, 0), known(&handle, 1));
    assert!(first >= 1 && second >= 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Traffic of others goes on.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(reaches(one, two, "10.9.0.2", true));
            }
        });
        for _ in 0..3 {
            three.ip("link set eth0 down").unwrap();
            eventually("its addresses go", || {
                known(&handle, 2) == 0 && handle.view().unwrap().ports[2].state == "down"
            });
            assert!(known(&handle, 0) >= 1 && known(&handle, 1) >= 1);
            three.ip("link set eth0 up").unwrap();
            three.ip("addr replace fd09::3/64 dev eth0 nodad").unwrap();
            eventually("it is up again", || handle.view().unwrap().ports[2].state == "up");
            assert!(reaches(two, three, "10.9.0.3", true));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn two_ports_joined_outside_are_found_and_one_is_blocked() {
    let Some(net) = Net::new("loop", 1) else { return };
    net.middle.ip("link add x1 type veth peer name x2").unwrap();
    net.middle.ip("link set x1 up").unwrap();
    net.middle.ip("link set x2 up").unwrap();
    let switch = net.start(&["af-packet:e1", "af-packet:x1", "af-packet:x2"], "", 1);
    let handle = switch.handle();
    let states = || handle.view().unwrap().ports.iter().map(|port| port.state.clone()).collect::<Vec<_>>();
    eventually("the loop is found", || states().contains(&"blocked".to_owned()));
    let states = states();
    assert!(
        states[0] == "up" && states.iter().filter(|state| *state == "blocked").count() == 1,
        "{states:?}"
    );
    let mut said = String::new();
    eventually("it is said", || {
        said += &switch.notice(Duration::from_millis(10)).unwrap_or_default();
        said.contains("a loop")
    });
}

/// A frame of the VLAN of one configuration is never seen in that of another: two hosts that share no VLAN in any of them never hear
/// each other, however often the VLANs change.
#[test]
fn a_thousand_changes_under_load_lead_no_frame_astray() {
    let Some(net) = Net::new("load", 3) else { return };
    let words = |one: u16, two: u16| {
        format!(
            "config vlan_mode dot1q vlangroup 1 members none vlangroup {one} members p1,p3t vlangroup {two} members p2,p3t \
             port p1 pvid {one} port p2 pvid {two} port p3 pvid 0"
        )
    };
    let switch = net.start(&["af-packet:e1", "af-packet:e2", "af-xdp:e3"], &words(10, 20), 2);
    let handle = switch.handle();
    let [one, two, _] = &net.hosts[..] else { unreachable!() };
    // Broadcasts need no neighbour: all that p1's host says to everybody.
    let speaks = one.run(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
    speaks.set_broadcast(true).unwrap();
    let hears = two.run(|| UdpSocket::bind("0.0.0.0:7777").unwrap()).unwrap();
    hears.set_nonblocking(true).unwrap();
    // Some frames at each change: a sender that never rests takes the processor from those who make the change.
    let (go_on, goes_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let speaks = &speaks;
        scope.spawn(move || {
            while goes_on.recv().is_ok() {
                for _ in 0..20 {
                    let _ = speaks.send_to(b"secret", "10.9.0.255:7777");
                }
            }
        });
        for n in 0..1000u16 {
            let (one, two) = (10 + n % 7, 20 + n % 5);
            go_on.send(()).unwrap();
            let others = handle
                .config()
                .groups
                .keys()
                .map(|vid| format!("vlangroup {vid} members none "))
                .collect::<String>();
            handle
                .change(&format!(
                    "{others} {}",
                    words(one, two).trim_start_matches("config vlan_mode dot1q vlangroup 1 members none ")
                ))
                .unwrap();
        }
        drop(go_on);
    });
    let view = handle.view().unwrap();
    assert!(view.ports[0].counters["received"] > 1000, "there was load: {view:?}");
    let sent_to_trunk = view.ports[2].counters["sent"];
    assert!(sent_to_trunk > 100, "it went where it may: {view:?}");
    assert_eq!(
        hears.recv(&mut [0; 16]).map_err(|e| e.kind()),
        Err(ErrorKind::WouldBlock),
        "a frame in a wrong VLAN"
    );
    // The same listener hears it where it may.
    handle.change("vlangroup 99 members p1,p2 port p1 pvid 99 port p2 pvid 99").unwrap();
    eventually("the listener hears", || {
        let _ = speaks.send_to(b"secret", "10.9.0.255:7777");
        hears.recv(&mut [0; 16]).is_ok()
    });
}

/// Hosts of the kernel and one of Flowlane that is plugged in, on two workers between which all ports move: every byte arrives, there and back.
#[test]
fn streams_go_on_while_ports_move() {
    let Some(net) = Net::new("move", 2) else { return };
    let name = format!("sw-move-{}", std::process::id());
    let plugs = flowlane::control::listen_for_plugs(&name).unwrap();
    let switch = net.start_with(&["af-packet:e1", "af-xdp:e2", "plug", "tap:t0"], "", 2, Some(plugs));
    net.middle.ip("addr replace 10.9.0.9/24 dev t0").unwrap();
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let addresses = vec!["10.9.0.7/24".parse().unwrap()];
    let interface = Interface { addresses: addresses.clone(), ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let host = builder.host(Host::new("echo", rss.clone(), echo).interface(interface));
    format!("switch:{name}/p3").parse::<LinkSpec>().unwrap().join(&mut builder, host, &addresses, None, &rss);
    let runtime = builder.start().unwrap();
    let (one, two) = (&net.hosts[0], &net.hosts[1]);
    let handle = switch.handle();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                let port = format!("p{}", 1 + n % 4);
                if let Err(e) = handle.move_port(&port, n / 4 % 2) {
                    // A link of the kernel may be slow to take what there is; then the port stays, and that is said.
                    assert!(e.to_string().contains("stays where it is"), "{e}");
                }
                n += 1;
            }
            assert!(n > 8, "{n} moves");
        });
        streams(one, two, "10.9.0.2");
        streams(two, &net.middle, "10.9.0.9");
        for from in [one, two] {
            there_and_back(from, "10.9.0.7:7");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(runtime.stop());
    eventually("the port is free", || handle.view().unwrap().ports[2].state == "down");
}

async fn echo() {
    let at = "10.9.0.7".parse().unwrap();
    let listener = flowlane::TcpListener::bind(Some(at), 7, flowlane::ListenOptions::default()).unwrap();
    while let Ok(stream) = listener.accept().await {
        let echo = async move {
            let mut buffer = vec![0; 1 << 14];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(std::net::Shutdown::Write);
        };
        flowlane::spawn(echo).unwrap();
    }
}

fn there_and_back(from: &Namespace, address: &str) {
    let target = address.parse().unwrap();
    let mut stream = from.run(|| TcpStream::connect_timeout(&target, PATIENCE).unwrap()).unwrap();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|n| (n % 241) as u8).collect();
    let mut received = vec![0; bytes.len()];
    for timeout in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        timeout(&stream, Some(PATIENCE)).unwrap();
    }
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&bytes).unwrap());
        stream.read_exact(&mut received).unwrap();
    });
    assert!(received == bytes, "{address}");
}
