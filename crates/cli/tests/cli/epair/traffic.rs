//! Traffic of the kernel through a pair: every byte, the queue of each flow, the order in it, and no wake-up that is lost.

use super::kit::*;
use flowlane::epair::DirectionReport;
use flowlane::{Flow, HashConfig, Key, Protocol, Rss, UdpFields, Worker};
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::sample::Sampler;
use flowlane_testnet::{Namespace, eventually};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Command;

/// Bytes of a connection.
const BYTES: usize = 8 << 20;

// Long: forty megabytes by a debug build, eight of them in single segments.
#[test]
fn streams_arrive_byte_for_byte_with_and_without_offloads() {
    if !can() {
        return;
    }
    let pair = Pair::up("o", "--queues 2");
    let [a, b, _] = &pair.spaces;
    for (family, sending) in [(0, 0), (1, 1)] {
        for (from, to, address) in [(a, b, ADDRESSES[family][1]), (b, a, ADDRESSES[family][0])] {
            let before = pair.report().directions[usize::from(std::ptr::eq(from, b))].total;
            stream(from, to, address, BYTES);
            let after = pair.report().directions[usize::from(std::ptr::eq(from, b))].total;
            let (packets, segments) = (after.packets - before.packets, after.segments - before.segments);
            assert!(segments > 2 * packets, "{sending}: {segments} segments in {packets} packets");
            assert_eq!(after.dropped(), before.dropped());
        }
    }
    // Without checksums left undone the kernel segments, too.
    for (space, interface) in [(a, "a"), (b, "b")] {
        let off = || Interface::find(interface).and_then(|found| found.set_transmit_checksum(false));
        space.run(off).unwrap().unwrap();
    }
    let before = pair.report();
    stream(a, b, ADDRESSES[0][1], BYTES);
    stream(b, a, ADDRESSES[1][0], BYTES);
    let after = pair.report();
    for (was, is) in before.directions.iter().zip(&after.directions) {
        assert_eq!(is.total.segments - was.total.segments, is.total.packets - was.total.packets);
        assert!(is.total.packets - was.total.packets > BYTES as u64 / 1500);
        assert_eq!(is.total.dropped(), was.total.dropped());
    }
}

/// What a burst loses is counted, each packet once: at the queue of the interface, which holds a burst as it is made, and loses most of one
/// when it is short.
#[test]
fn a_burst_is_received_or_counted() {
    const BURST: u64 = 20_000;
    if !can() {
        return;
    }
    let pair = Pair::up("u", "");
    pair.neighbours();
    let [a, b, _] = &pair.spaces;
    assert!(queue_length(a, "a") > BURST);
    // So that the kernel has nothing to send by itself.
    for (space, interface) in [(a, "a"), (b, "b")] {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        space.run(|| std::fs::write(path, "1")).unwrap().unwrap();
    }
    let (here, there) = (socket(a, ADDRESSES[0][0], 7100), socket(b, ADDRESSES[0][1], 7200));
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&there, 64 << 20).unwrap();
    for short in [false, true] {
        if short {
            a.ip("link set dev a txqueuelen 10").unwrap();
        }
        let before = pair.report().directions[0].clone();
        for _ in 0..BURST {
            here.send_to(&[7; 50], (ADDRESSES[0][1], 7200)).unwrap();
        }
        let lost = |now: &DirectionReport| now.dropped() - before.dropped();
        let passed = |now: &DirectionReport| now.total.packets - before.total.packets;
        let mut now = before.clone();
        eventually("each packet is passed on or lost", || {
            now = pair.report().directions[0].clone();
            passed(&now) + lost(&now) >= BURST
        });
        assert_eq!(passed(&now) + lost(&now), BURST, "{now:?}");
        there.set_nonblocking(true).unwrap();
        let received = std::iter::from_fn(|| there.recv(&mut [0; 64]).ok()).count() as u64;
        assert_eq!(received + lost(&now), BURST, "{now:?}");
        assert_eq!(now.interface_full - before.interface_full, lost(&now), "{now:?}");
        assert_eq!(short, lost(&now) > 0, "{now:?}");
    }
    let said = pair.ask("show");
    assert!(said.contains(" dropped: interface-full, not read in time"), "{said}");
}

/// Packets that an interface lets wait.
fn queue_length(space: &Namespace, interface: &str) -> u64 {
    let shown =
        Command::new("ip").args(["-n", space.name(), "link", "show", "dev", interface]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    shown.split_whitespace().skip_while(|word| *word != "qlen").nth(1).unwrap().parse().unwrap()
}

const FLOWS: u16 = 48;
const EACH: u16 = 40;

/// The far kernel sees each packet on the queue that Toeplitz names for its flow, in the order in which it was sent.
#[test]
fn flows_keep_their_queue_and_order() {
    if !can() {
        return;
    }
    for name in ["microsoft", "symmetric"] {
        let key: Key = name.parse().unwrap();
        let pair = Pair::up("q", &format!("--queues 4 --workers 2 --udp-4tuple --rss {name}"));
        let [a, b, _] = &pair.spaces;
        let mut rss = Rss::new(key, 4);
        rss.config = HashConfig::with_udp(UdpFields::Four);
        let mut sampler = b.run(|| Sampler::open(&Interface::find("b").unwrap(), 8192)).unwrap().unwrap();
        sampler.set_share(1.0).unwrap();
        for family in 0..2 {
            let [from, to] = ADDRESSES[family];
            let sockets: Vec<_> = (0..FLOWS).map(|flow| socket(a, from, 7000 + flow)).collect();
            let sink = socket(b, to, 9);
            assert!(answers(a, family, 56, PATIENCE), "so that the neighbour is known");
            for number in 0..EACH {
                for socket in &sockets {
                    socket.send_to(&number.to_be_bytes(), (to, 9)).unwrap();
                }
                // What has arrived has been seen by the sampler.
                for _ in &sockets {
                    sink.recv(&mut [0; 2]).unwrap();
                }
            }
            let mut seen: HashMap<u16, (u16, u16)> = HashMap::new();
            let mut queues = [0; 4];
            while let Some(sample) = sampler.take() {
                let udp = if family == 0 { 34 } else { 54 };
                let protocol = sample.bytes[if family == 0 { 23 } else { 20 }];
                let port = |at: usize| u16::from_be_bytes([sample.bytes[at], sample.bytes[at + 1]]);
                if protocol != 17 || port(udp + 2) != 9 || sample.bytes[13] != [0x00, 0xdd][family] {
                    continue;
                }
                let (source, number) = (port(udp), port(udp + 8));
                let address = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port);
                let flow = Flow::new(address(from, source), address(to, 9), Protocol::UDP);
                let Worker(wanted) = rss.steer(&flow).worker;
                assert_eq!(sample.queue, Some(wanted), "flow from port {source}");
                let (next, _) = *seen.entry(source).or_insert((0, wanted));
                assert_eq!(number, next, "flow from port {source}");
                seen.insert(source, (next + 1, wanted));
                queues[usize::from(wanted)] += 1;
            }
            assert_eq!(seen.len(), usize::from(FLOWS));
            assert!(seen.values().all(|(next, _)| *next == EACH));
            assert!(queues.iter().all(|n| *n > 0), "{queues:?}");
        }
        let report = pair.report();
        // What the kernel chose by the program is what is computed here.
        assert_eq!(report.directions[0].total.requeued, 0);
        assert!(report.directions[0].queues.iter().all(|queue| queue.packets > 0));
    }
}

/// A wake-up that is lost is one for ever here: each datagram is sent only when the answer to the last has come.
#[test]
fn no_wake_up_is_lost() {
    if !can() {
        return;
    }
    let pair = Pair::up("l", "--queues 4 --workers 2 --udp-4tuple");
    let [a, b, _] = &pair.spaces;
    const FLOWS: u16 = 4;
    const ROUNDS: u32 = 2500;
    std::thread::scope(|scope| {
        for flow in 0..FLOWS {
            scope.spawn(move || {
                let (here, there) =
                    (socket(a, ADDRESSES[0][0], 7100 + flow), socket(b, ADDRESSES[0][1], 7200 + flow));
                here.connect((ADDRESSES[0][1], 7200 + flow)).unwrap();
                scope.spawn(move || {
                    let mut data = [0; 4];
                    for _ in 0..ROUNDS {
                        let (_, from) = there.recv_from(&mut data).unwrap();
                        there.send_to(&data, from).unwrap();
                    }
                });
                let mut data = [0; 4];
                for round in 0..ROUNDS {
                    here.send(&round.to_be_bytes()).unwrap();
                    here.recv(&mut data).unwrap();
                    assert_eq!(u32::from_be_bytes(data), round);
                }
            });
        }
    });
    let report = pair.report();
    for direction in &report.directions {
        assert!(direction.total.packets >= u64::from(ROUNDS) * u64::from(FLOWS));
        assert_eq!(direction.total.dropped(), 0);
    }
}
