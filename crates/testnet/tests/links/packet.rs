//! Kernel peers against AF_PACKET queues.

use crate::common::*;
use flowlane_sys::bpf::claim::Tags;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::error::Error;
use flowlane_sys::frame::{Checksum, Frame, FrameMemory, Segmentation};
use flowlane_sys::netdev::Interface;
use flowlane_sys::packet::{self, PacketOptions, RawSender};
use flowlane_sys::queue::Queue;
use flowlane_testnet::{Card, CardConfig, MICROSOFT_KEY};
use std::time::{Duration, Instant};

#[test]
fn datagrams_of_both_families_come_back_on_the_socket_that_toeplitz_says() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("pkt", 1)).unwrap();
    let mut options = PacketOptions::new(card.near_interface(), 4, claims());
    options.steering = Some(SteeringRules {
        key: MICROSOFT_KEY.to_vec(),
        table: (0..128).map(|slot| slot % 4).collect(),
        udp_ports: true,
    });
    reflect_and_check(&card, 4, |_| packet::open(&options).unwrap());
}

#[test]
fn what_cannot_be_opened_says_why() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("perr", 1)).unwrap();
    let open = |name: &str, queues| {
        card.in_near(|| packet::open(&PacketOptions::new(name, queues, claims()))).unwrap()
    };
    assert!(matches!(open("nothere0", 1).unwrap_err(), Error::NoSuchInterface { .. }));
    assert!(matches!(open(card.near_interface(), 0).unwrap_err(), Error::Invalid(_)));
    let one = open(card.near_interface(), 2).unwrap();
    let again = open(card.near_interface(), 2).unwrap_err();
    assert!(
        matches!(&again, Error::AddressBusy { owner: Some(pid), .. } if *pid == std::process::id()),
        "{again}"
    );
    let others = PacketOptions::new(card.near_interface(), 2, vec![("10.11.2.9".parse().unwrap(), 32)]);
    let other = card.in_near(|| packet::open(&others)).unwrap().unwrap();
    drop(one);
    drop((open(card.near_interface(), 2).unwrap(), other));
}

#[test]
fn packets_from_another_ring_are_seen_and_steered() {
    if skip() {
        return;
    }
    // What a ring sends has little more than its Ethernet header in the kernel's buffer proper; the rest lies in pages.
    let card = Card::new(&CardConfig::for_test("pfrag", 1)).unwrap();
    let mut options = PacketOptions::new(card.near_interface(), 2, claims());
    options.steering =
        Some(SteeringRules { key: MICROSOFT_KEY.to_vec(), table: vec![0, 1], udp_ports: true });
    let mut near = card.in_near(|| packet::open(&options)).unwrap().unwrap();
    let mut far = card
        .far()
        .run(|| packet::open(&PacketOptions::new(card.far_interface(), 1, Vec::new())))
        .unwrap()
        .unwrap();
    let memory = memory(1);
    let pool = memory.attach(0).unwrap();
    let mut seen = [0, 0];
    for port in 0..64u8 {
        let mut bytes = [card.near_mac(), card.far_mac()].concat();
        bytes.extend([8, 0, 0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0, 10, 11, 2, 1, 10, 11, 2, 2, 9, port]);
        bytes.resize(114, 0);
        let hash = toeplitz(&MICROSOFT_KEY, &bytes[26..38]);
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&bytes));
        assert_eq!(far[0].transmit(&mut vec![frame]), 1);
        assert!(far[0].flush());
        let queue = (hash & 1) as usize;
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while near[queue].receive(&pool, &mut got, 4) == 0 && Instant::now() < deadline {}
        assert_eq!(got.len(), 1, "port {port} on queue {queue}");
        assert_eq!(got[0].data(), bytes);
        seen[queue] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0);
}

/// A veth refuses what is longer than its far end's MTU, each time that it is sent; older kernels drop it there themselves. What is behind
/// such a packet is sent all the same, and it is counted.
#[test]
fn a_packet_that_is_always_refused_is_given_up() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("pmtu", 1)).unwrap();
    let options = PacketOptions::new(card.far_interface(), 1, Vec::new());
    let far = card.far().run(|| packet::open(&options).unwrap().remove(0)).unwrap();
    refused_packets_are_in_nobodys_way(&card, far, &memory(1));
}

/// `far` sends such packets, and others behind them.
pub(crate) fn refused_packets_are_in_nobodys_way(card: &Card, mut far: impl Queue, memory: &FrameMemory) {
    let options = PacketOptions::new(card.near_interface(), 1, claims());
    let mut near = card.in_near(|| packet::open(&options).unwrap().remove(0)).unwrap();
    let pool = memory.attach(0).unwrap();
    let datagram = |port: u8, len: usize| {
        let mut bytes = tagged(card, &[], port);
        bytes.resize(len, 0);
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&bytes));
        frame
    };
    let mut exchange = |mtu: u32| {
        card.near().unwrap().ip(&format!("link set {} mtu {mtu}", card.near_interface())).unwrap();
        let mut out = vec![datagram(1, 1000), datagram(2, 100), datagram(3, 1200), datagram(4, 100)];
        assert_eq!(far.transmit(&mut out), 4);
        let (mut got, deadline) = (Vec::new(), Instant::now() + flowlane_testnet::PATIENCE);
        let sent = |got: &[Frame]| got.last().is_some_and(|frame| frame.data()[35] == 4);
        while !far.flush() || !sent(&got) {
            assert!(Instant::now() < deadline, "{mtu}: {} came, {:?}", got.len(), far.stats());
            near.receive(&pool, &mut got, 4);
        }
        let ports: Vec<u8> = got.iter().map(|frame| frame.data()[35]).collect();
        (ports, far.stats().tx_failed)
    };
    assert_eq!(exchange(1500), (vec![1, 2, 3, 4], 0));
    let (ports, failed) = exchange(600);
    assert_eq!(ports, [2, 4]);
    // An older kernel does not tell anybody.
    let alone = || RawSender::open(&Interface::find(card.far_interface()).unwrap()).unwrap().send(&[0; 1000]);
    let is_told = card.far().run(alone).unwrap().is_err();
    assert_eq!(failed, if is_told { 2 } else { 0 });
    assert_eq!(exchange(600), (vec![2, 4], 2 * failed));
    assert_eq!(exchange(1500), (vec![1, 2, 3, 4], 2 * failed));
}

/// A datagram to the near side behind these tags: (protocol, contents).
fn tagged(card: &Card, tags: &[(u16, u16)], port: u8) -> Vec<u8> {
    let mut bytes = [card.near_mac(), card.far_mac()].concat();
    for (protocol, contents) in tags {
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(contents.to_be_bytes());
    }
    bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 11, 2, 1, 10, 11, 2, 2, 9, port]);
    bytes.resize(100, 0);
    bytes
}

#[test]
fn only_packets_of_our_own_vlan_are_taken() {
    if skip() {
        return;
    }
    const C: u16 = 0x8100;
    const S: u16 = 0x88a8;
    let card = Card::new(&CardConfig::for_test("pvlan", 1)).unwrap();
    let memory = memory(1);
    let pool = memory.attach(0).unwrap();
    let mut far = card
        .far()
        .run(|| packet::open(&PacketOptions::new(card.far_interface(), 1, Vec::new())))
        .unwrap()
        .unwrap();
    let cases: [&[(u16, u16)]; 8] = [
        &[],
        &[(C, 78)],
        &[(C, 0xe000 | 78)],
        &[(C, 77)],
        &[(C, 0xa000)],
        &[(S, 78)],
        &[(C, 78), (C, 77)],
        &[(S, 78), (C, 78)],
    ];
    for (tags, taken) in
        [(Tags::Any, &[0, 1, 2, 3, 4][..]), (Tags::Untagged, &[0, 4][..]), (Tags::Vlan(78), &[1, 2][..])]
    {
        let options = PacketOptions { tags, ..PacketOptions::new(card.near_interface(), 1, claims()) };
        let mut near = card.in_near(|| packet::open(&options)).unwrap().unwrap();
        let mut out = Vec::new();
        for (i, case) in cases.iter().enumerate() {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&tagged(&card, case, i as u8)));
            out.push(frame);
        }
        assert_eq!(far[0].transmit(&mut out), cases.len());
        assert!(far[0].flush());
        let mut got = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while got.len() < taken.len() && Instant::now() < deadline {
            near[0].receive(&pool, &mut got, 16);
        }
        near[0].receive(&pool, &mut got, 16);
        let seen: Vec<usize> = got.iter().map(|frame| usize::from(frame.data()[35])).collect();
        assert_eq!(seen, taken, "{tags:?}");
        for frame in &got {
            let tag = cases[usize::from(frame.data()[35])].first().map(|tag| tag.1);
            assert_eq!(frame.meta().vlan, tag, "the tag is beside the packet");
        }
    }
}

/// Major and minor version of the running kernel.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[test]
fn datagrams_that_travelled_as_one_packet_come_asunder() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("pudp", 1)).unwrap();
    let memory = memory(1);
    let pool = memory.attach(0).unwrap();
    let mut near = card.in_near(|| packet::open(&PacketOptions::new("near0", 1, claims()))).unwrap().unwrap();
    let options = PacketOptions { offload: true, ..PacketOptions::new("far0", 1, Vec::new()) };
    let mut far = card.far().run(|| packet::open(&options)).unwrap().unwrap();
    // As a socket with `UDP_SEGMENT` sends it: the veth cuts nothing. VIRTIO_NET_HDR_GSO_UDP_L4 came with Linux 6.2.
    if kernel() < (6, 2) {
        flowlane_testnet::skipped(
            "skipped, because a packet socket takes no datagrams to be cut before Linux 6.2",
        );
        return;
    }
    let mut bytes = tagged(&card, &[], 7);
    bytes[14 + 2..14 + 4].copy_from_slice(&1528u16.to_be_bytes());
    bytes[34 + 4..34 + 6].copy_from_slice(&1508u16.to_be_bytes());
    bytes.truncate(42);
    bytes.extend((0..1500).map(|i| (i % 251) as u8));
    let mut frame = pool.alloc().unwrap();
    assert!(frame.extend_from_slice(&bytes));
    frame.meta_mut().checksum = Checksum::Partial;
    frame.meta_mut().segmentation = Segmentation::Udp;
    frame.meta_mut().segment_size = 400;
    assert_eq!(far[0].transmit(&mut vec![frame]), 1);
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(5);
    // One at a time: the others wait.
    while got.len() < 4 && Instant::now() < deadline {
        assert!(near[0].receive(&pool, &mut got, 1) <= 1);
        assert_eq!(near[0].ready(), (1..4).contains(&got.len()));
    }
    let payloads: Vec<&[u8]> = got.iter().map(|frame| &frame.data()[42..]).collect();
    assert_eq!(payloads, bytes[42..].chunks(400).collect::<Vec<_>>(), "{:?}", far[0].stats());
    assert_eq!(near[0].stats().rx_frames, 4);
}
