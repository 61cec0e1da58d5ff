//! Pairs where something is missing (the device, the name of a namespace), and several pairs that share a cycle of slots.

use super::kit::*;
use flowlane_testnet::Namespace;
use std::process::Command;

const EACH: u16 = 30;

/// Datagrams of many flows from A to B; all arrive.
fn flows([a, b, _]: &[Namespace; 3], base: u16) {
    let [from, to] = ADDRESSES[0];
    let sink = socket(b, to, base);
    assert!(answers(a, 0, 56, PATIENCE), "so that the neighbour is known");
    let sockets: Vec<_> = (1..=16).map(|flow| socket(a, from, base + flow)).collect();
    for n in 0..EACH {
        for socket in &sockets {
            socket.send_to(&n.to_be_bytes(), (to, base)).unwrap();
        }
        for _ in &sockets {
            sink.recv(&mut [0; 2]).unwrap();
        }
    }
}

/// A machine, or a container, without the device: one line, and nothing is left.
#[test]
fn without_the_device_it_says_so() {
    if !can() {
        return;
    }
    let [a, b, _] = namespaces("nodev");
    let up = format!(
        "mount -t tmpfs none /dev/net && exec {} epair up a b --netns-a {} --netns-b {}",
        env!("CARGO_BIN_EXE_flowlane"),
        a.name(),
        b.name()
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &up]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("/dev/net/tun"), "{said}");
    assert_eq!((state(&a, "a"), state(&b, "b")), ("gone", "gone"));
}

/// The name of an end's namespace is removed, as with a container that ends. The pair holds the namespace, so nothing else happens until it ends;
/// then both ends are gone.
#[test]
fn a_namespace_that_loses_its_name_lives_as_long_as_the_pair() {
    if !can() {
        return;
    }
    let mut pair = Pair::up("nsgone", "");
    assert!(answers(&pair.spaces[0], 0, 56, PATIENCE));
    let removed = Command::new("ip").args(["netns", "del", pair.spaces[1].name()]).status().unwrap();
    assert!(removed.success());
    assert!(answers(&pair.spaces[0], 0, 56, PATIENCE), "whoever is in there answers");
    assert_eq!(pair.ask("down"), "epair a and b is removed\n");
    assert_eq!(pair.end().0, Some(0));
    until(&pair.spaces[0], "a", "gone", "after down");
}

/// Four pairs in the four slots of a cycle, all at once: each sends in its own slot, as far as the machine lets it, and all of it arrives.
#[test]
fn several_pairs_share_a_cycle_of_slots() {
    if !can() {
        return;
    }
    let pairs: Vec<Pair> = (0..4)
        .map(|slot| {
            let more = format!("--slots 4x2ms --slot {slot} --guard 200us");
            Pair::up(&format!("slot{slot}"), &more)
        })
        .collect();
    std::thread::scope(|scope| {
        for spaces in pairs.iter().map(|pair| &pair.spaces) {
            scope.spawn(|| flows(spaces, 7500));
        }
    });
    for (slot, pair) in pairs.iter().enumerate() {
        let report = pair.report();
        for direction in &report.directions[..1] {
            let slots = direction.slots.clone().unwrap();
            assert_eq!(slots.inside + slots.outside, direction.total.packets, "slot {slot}: {slots:?}");
            assert!(slots.inside > slots.outside, "slot {slot}: {slots:?}");
            assert!(slots.used > 1, "slot {slot}: {slots:?}");
            assert_eq!(direction.total.dropped(), 0);
        }
    }
}
