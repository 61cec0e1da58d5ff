//! The solver against brute force over all 65536 ports.

use std::collections::HashSet;

use crate::random::Random;
use crate::{
    Affine, Arrangement, BucketMap, Flow, General, HashConfig, HomePorts, HomePortsError, Indirection, Key,
    PacketKind, Protocol, Rss, SlotSet, Toeplitz, UdpFields,
};
use core::net::{IpAddr, SocketAddr};

fn rss(key: &Key, slots: usize, udp: UdpFields) -> Rss {
    let table = Indirection::new(slots, 2).unwrap();
    Rss::from_parts(Toeplitz::new(key), HashConfig::with_udp(udp), table, BucketMap::new(2, 2).unwrap())
}

fn brute(rss: &Rss, slots: &SlotSet, local: IpAddr, remote: SocketAddr, protocol: Protocol) -> HashSet<u16> {
    let home = |&port: &u16| {
        let reply = Flow::new(remote, SocketAddr::new(local, port), protocol);
        slots.contains(rss.steer(&reply).slot)
    };
    (0..=u16::MAX).filter(home).collect()
}

fn addresses(random: &mut Random, v6: bool) -> (IpAddr, SocketAddr) {
    let (a, b): ([u8; 16], [u8; 16]) = (random.bytes(), random.bytes());
    let port = random.next() as u16;
    if v6 {
        (a.into(), SocketAddr::new(b.into(), port))
    } else {
        let four = |x: [u8; 16]| IpAddr::from([x[0], x[1], x[2], x[3]]);
        (four(a), SocketAddr::new(four(b), port))
    }
}

/// Random, periodic, sparse and short keys: ranks from 0 to full.
fn keys(random: &mut Random) -> Vec<Key> {
    let mut keys = vec![Key::MICROSOFT, Key::symmetric(), Key::new(&[0; 40]).unwrap()];
    keys.push(Key::new(&[0x55; 52]).unwrap());
    keys.push(Key::new(&Key::MICROSOFT.as_bytes()[..16]).unwrap());
    for len in [16, 29, 40, 52] {
        keys.push(Key::new(&random.bytes::<52>()[..len]).unwrap());
    }
    let mut sparse = [0; 40];
    (sparse[11], sparse[13], sparse[36]) = (0x40, 0x21, 0x82);
    keys.push(Key::new(&sparse).unwrap());
    keys
}

/// Rules that are no Toeplitz: affine with other columns for each kind, symmetric, and affine in pieces.
#[test]
fn any_rule_brings_ports_home() {
    let mut random = Random::new(16);
    let config = HashConfig::with_udp(UdpFields::Four);
    let maps = |random: &mut Random| {
        PacketKind::ALL.map(|kind| {
            let columns: Vec<u32> = (0..kind.bits()).map(|_| random.next() as u32).collect();
            Some(Affine::new(&columns, random.next() as u32))
        })
    };
    let mut rules = vec![General::symmetric_xor(&Key::MICROSOFT, &config)];
    for arrangement in Arrangement::ALL {
        rules.push(General::new(arrangement, maps(&mut random)));
    }
    for rule in rules {
        for slots in [100, 128] {
            let table = Indirection::new(slots, 2).unwrap();
            let map = BucketMap::new(2, 2).unwrap();
            let rss = Rss::from_parts(rule.clone(), rule.config(), table, map);
            let wanted: SlotSet = (0..slots).filter(|_| random.below(4) == 0).collect();
            let solver = HomePorts::new(&rss, &wanted);
            for v6 in [false, true] {
                let (local, remote) = addresses(&mut random, v6);
                for protocol in [Protocol::TCP, Protocol::UDP, Protocol(1)] {
                    let ports = solver.to(local, remote, protocol).unwrap();
                    let expected = brute(&rss, &wanted, local, remote, protocol);
                    assert_eq!(ports.len(), expected.len(), "{:?} {protocol}", rule.arrangement());
                    assert_eq!(ports.iter().collect::<HashSet<_>>(), expected);
                    if let Some(port) = ports.nth(7) {
                        assert!(ports.contains(port));
                    }
                }
            }
        }
    }
}

#[test]
fn exactly_the_ports_that_come_home() {
    let mut random = Random::new(6);
    for key in keys(&mut random) {
        for slots in [2, 3, 16, 100, 128, 512, 2048] {
            for (v6, protocol, udp) in [
                (false, Protocol::TCP, UdpFields::Two),
                (true, Protocol::TCP, UdpFields::Two),
                (false, Protocol::UDP, UdpFields::Two),
                (true, Protocol::UDP, UdpFields::Four),
            ] {
                let rss = rss(&key, slots, udp);
                let share = random.next() % 5;
                let wanted: SlotSet = (0..slots).filter(|_| random.next() % 5 <= share).collect();
                let solver = HomePorts::new(&rss, &wanted);
                let (local, remote) = addresses(&mut random, v6);
                let ports = solver.to(local, remote, protocol).unwrap();
                let expected = brute(&rss, &wanted, local, remote, protocol);
                let found: Vec<u16> = ports.iter().collect();
                assert_eq!(found.len(), expected.len());
                assert_eq!(found.iter().copied().collect::<HashSet<_>>(), expected);
                assert_eq!((ports.len(), ports.is_empty()), (expected.len(), expected.is_empty()));
                assert!((0..=u16::MAX).step_by(7).all(|p| ports.contains(p) == expected.contains(&p)));
                for n in [0, 1, 1000, 65535] {
                    assert_eq!(ports.nth(n), found.get(n).copied());
                }
                assert_eq!(ports.nth(found.len()), None);
            }
        }
    }
}

/// Picks until nothing is left: every usable home port once, and nothing else.
#[test]
fn every_usable_port_is_picked_once() {
    let mut random = Random::new(7);
    for (key, slots) in
        [(Key::MICROSOFT, 128), (Key::MICROSOFT, 2048), (Key::symmetric(), 512), (Key::MICROSOFT, 100)]
    {
        let rss = rss(&key, slots, UdpFields::Four);
        let wanted: SlotSet = (0..slots).filter(|s| s % 4 == 1).collect();
        let solver = HomePorts::new(&rss, &wanted);
        let (local, remote) = addresses(&mut random, false);
        let ports = solver.to(local, remote, Protocol::TCP).unwrap();
        let mut set = ports.all_free(1024..=65000);
        let mut expected = brute(&rss, &wanted, local, remote, Protocol::TCP);
        expected.retain(|port| (1024..=65000).contains(port));
        if let Some(&port) = expected.iter().next() {
            assert!(ports.reserve(port, &mut set) && !ports.reserve(port, &mut set));
            expected.remove(&port);
        }
        let mut last = None;
        while let Some(port) = ports.pick(random.next() as u32, &mut set) {
            assert!(expected.remove(&port), "{port} was not to be had");
            last = Some(port);
        }
        assert!(expected.is_empty());
        let last = last.unwrap();
        assert!(ports.release(last, &mut set) && !ports.release(last, &mut set));
        assert!(!ports.release(80, &mut set) && !ports.release(0, &mut set));
        assert_eq!(ports.pick(random.next() as u32, &mut set), Some(last));
    }
}

#[test]
fn one_set_serves_all_destinations() {
    let mut random = Random::new(8);
    let rss = rss(&Key::MICROSOFT, 128, UdpFields::Two);
    let wanted: SlotSet = (0..128).filter(|s| s % 2 == 0).collect();
    let solver = HomePorts::new(&rss, &wanted);
    let (local, first) = addresses(&mut random, false);
    let mut set = solver.to(local, first, Protocol::TCP).unwrap().all_free(1..=65535);
    let mut seen = HashSet::new();
    for _ in 0..5000 {
        let (_, remote) = addresses(&mut random, false);
        let ports = solver.to(local, remote, Protocol::TCP).unwrap();
        let port = ports.pick(random.next() as u32, &mut set).unwrap();
        assert!(seen.insert(port) && ports.contains(port));
    }
    assert_eq!(set.free(), 65535 - 5000);
}

#[test]
fn without_ports_in_the_hash_all_or_none() {
    let mut random = Random::new(9);
    let rss = rss(&Key::MICROSOFT, 128, UdpFields::Two);
    let wanted: SlotSet = (0..64).collect();
    let solver = HomePorts::new(&rss, &wanted);
    for _ in 0..50 {
        let (local, remote) = addresses(&mut random, true);
        let ports = solver.to(local, remote, Protocol::UDP).unwrap();
        let slot = rss.steer(&Flow::new(remote, SocketAddr::new(local, 0), Protocol::UDP)).slot;
        assert_eq!(ports.len(), if slot < 64 { 65536 } else { 0 });
        let mut set = ports.all_free(49152..=65535);
        assert_eq!(ports.pick(5, &mut set).is_some(), slot < 64);
    }
}

#[test]
fn ports_of_the_callers_own_book() {
    let mut random = Random::new(10);
    let rss = rss(&Key::MICROSOFT, 128, UdpFields::Two);
    let solver = HomePorts::new(&rss, &[3].into_iter().collect());
    let (local, remote) = addresses(&mut random, false);
    let ports = solver.to(local, remote, Protocol::TCP).unwrap();
    let keep = ports.nth(17).unwrap();
    let count = ports.len() as u32;
    for first in [0, 17, 18, count - 1, count + 5, random.next() as u32] {
        let passed = (17 + count - first % count) % count;
        assert_eq!(ports.pick_unused(first, |port| port != keep), Some((keep, passed)));
    }
    assert_eq!(ports.pick_unused(0, |_| true), None);
}

#[test]
fn what_is_not_hashed_has_no_home() {
    let mut rss = rss(&Key::MICROSOFT, 128, UdpFields::Two);
    rss.config.ipv6 = false;
    let solver = HomePorts::new(&rss, &[3].into_iter().collect());
    let (v4, v6) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
    let to = |a, b: &str, p| solver.to(a, b.parse().unwrap(), p).err();
    assert_eq!(to(v4, "[::1]:5", Protocol::TCP), Some(HomePortsError::Families));
    assert_eq!(to(v6, "[::1]:5", Protocol::UDP), Some(HomePortsError::NotHashed));
    assert_eq!(to(v6, "[::1]:5", Protocol::TCP), None);
}
