//! Packets that nobody should send: counted under a name, survived, and every frame given back.

use flowlane_stack::SendError;
use flowlane_stack::stats::{DropReason, Figures};
use flowlane_stack::tcp;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::Malformed;
use flowlane_sys::frame::Frame;

use crate::net::{Net, Plan, end};

/// A good datagram from A to B, as bytes.
fn good(net: &mut Net, to: &str, payload: &[u8]) -> Vec<u8> {
    let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    net.a.lanes[0].udp_send(net.now, &net.pool, s, payload, None, Some(end(to))).unwrap();
    // The first exchange is ARP or neighbour discovery; the datagram follows.
    for _ in 0..4 {
        let out = net.a.output(net.now, &net.pool);
        for f in out {
            if f.data().len() > 60 && f.data().windows(payload.len()).any(|w| w == payload) {
                net.a.lanes[0].udp_close(s);
                return f.data().to_vec();
            }
            net.b.input(net.now, &net.pool, f);
        }
        for f in net.b.output(net.now, &net.pool) {
            net.a.input(net.now, &net.pool, f);
        }
    }
    panic!("no datagram came out");
}

fn frame(net: &Net, bytes: &[u8]) -> Frame {
    let mut f = net.pool.alloc().unwrap();
    assert!(f.extend_from_slice(bytes));
    f
}

fn net() -> Net {
    Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]))
}

#[test]
fn every_cut_and_every_flipped_bit_is_either_delivered_or_counted() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut net = net();
        let socket = net.b.bind_all(7)[0];
        let payload = [0x42u8; 64];
        let bytes = good(&mut net, to, &payload);
        let free = net.pool.free();
        let mut inputs: Vec<Vec<u8>> = (0..bytes.len()).map(|n| bytes[..n].to_vec()).collect();
        inputs.extend((0..bytes.len() * 8).map(|bit| {
            let mut b = bytes.clone();
            b[bit / 8] ^= 1 << (bit % 8);
            b
        }));
        let before = net.b.lanes[0].stats();
        let (mut delivered, mut answered) = (0, 0);
        let count = inputs.len() as u64;
        for bytes in inputs {
            let f = frame(&net, &bytes);
            net.b.input(net.now, &net.pool, f);
            answered += net.b.output(net.now, &net.pool).len() as u64;
            while let Some(d) = net.b.lanes[0].udp_receive(socket) {
                assert_eq!(d.payload(), payload, "a damaged payload was delivered");
                delivered += 1;
            }
        }
        let after = net.b.lanes[0].stats();
        let dropped = after.drops.total() - before.drops.total();
        assert_eq!(dropped + delivered, count, "{to}: every packet is accounted for");
        assert!(answered <= dropped);
        assert_eq!(net.pool.free(), free);
    }
}

#[test]
fn each_fault_has_its_own_counter() {
    let mut net = net();
    net.b.bind_all(7);
    let v4 = good(&mut net, "10.0.0.2:7", &[1; 64]);
    let v6 = good(&mut net, "[fd00::2]:7", &[1; 64]);
    let mut expect = |bytes: Vec<u8>, reason: DropReason| {
        let before = net.b.lanes[0].stats().drops.get(reason);
        let f = frame(&net, &bytes);
        net.b.input(net.now, &net.pool, f);
        net.b.output(net.now, &net.pool);
        assert_eq!(net.b.lanes[0].stats().drops.get(reason), before + 1, "{reason:?}");
    };
    let with = |bytes: &[u8], changes: &[(usize, u8)]| {
        let mut b = bytes.to_vec();
        for (at, value) in changes {
            b[*at] = *value;
        }
        // Put the IPv4 header checksum right again.
        if b[12..14] == [8, 0] {
            b[24..26].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(&b[14..34]);
            b[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        b
    };
    expect(with(&v4, &[(5, 9)]), DropReason::OtherHost);
    expect(with(&v4, &[(12, 0x88), (13, 0xb5)]), DropReason::UnknownEtherType);
    expect(with(&v4, &[(33, 9)]), DropReason::NotOurAddress);
    expect(with(&v4, &[(26, 127)]), DropReason::BadSource);
    expect(with(&v4, &[(26, 224)]), DropReason::BadSource);
    expect(with(&v4, &[(26, 10), (27, 0), (28, 0), (29, 2)]), DropReason::BadSource);
    expect(with(&v4, &[(20, 0x20), (17, 91)]), DropReason::FragmentInvalid);
    expect(with(&v4, &[(23, 200)]), DropReason::UnknownProtocol);
    expect(with(&v4, &[(50, 0xff)]), DropReason::UdpChecksum);
    expect(with(&v4, &[(37, 8), (40, 0), (41, 0)]), DropReason::UdpNoSocket);
    expect(with(&v6, &[(60, 0), (61, 0)]), DropReason::UdpNoChecksum);
    expect(with(&v6, &[(22, 0xff), (23, 0)]), DropReason::BadSource);
    expect(with(&v6, &[(20, 200)]), DropReason::UnknownProtocol);
    // A datagram is no segment, by the length its header claims.
    let f = frame(&net, &with(&v4, &[(23, 6)]));
    net.b.input(net.now, &net.pool, f);
    assert_eq!(net.b.lanes[0].stats().tcp.dropped(tcp::DropReason::BadHeaderLength), 1);
    let malformed = |net: &mut Net, bytes: Vec<u8>, reason: Malformed| {
        let f = frame(net, &bytes);
        net.b.input(net.now, &net.pool, f);
        assert_eq!(net.b.lanes[0].stats().drops.get_malformed(reason), 1, "{reason:?}");
    };
    malformed(&mut net, v4[..13].to_vec(), Malformed::EthernetShort);
    malformed(&mut net, v4[..30].to_vec(), Malformed::Ipv4Short);
    malformed(&mut net, with(&v4, &[(39, 200)]), Malformed::UdpLength);
    malformed(&mut net, v6[..60].to_vec(), Malformed::Ipv6PayloadLength);
}

/// A checksum of zero means "none" in IPv4: such a datagram is delivered, and counted.
#[test]
fn datagrams_without_checksum_are_delivered_over_ipv4() {
    let mut net = net();
    let socket = net.b.bind_all(7)[0];
    let mut v4 = good(&mut net, "10.0.0.2:7", &[1; 64]);
    v4[40..42].fill(0);
    let f = frame(&net, &v4);
    net.b.input(net.now, &net.pool, f);
    assert!(net.b.lanes[0].udp_receive(socket).is_some());
    assert_eq!(net.b.lanes[0].stats().udp.no_checksum, 1);
}

/// Ethernet pads short frames; the padding is nobody's data.
#[test]
fn padding_is_not_payload() {
    let mut net = net();
    let socket = net.b.bind_all(7)[0];
    let mut bytes = good(&mut net, "10.0.0.2:7", &[1; 64]);
    bytes.extend([0xee; 40]);
    let f = frame(&net, &bytes);
    net.b.input(net.now, &net.pool, f);
    assert_eq!(net.b.lanes[0].udp_receive(socket).unwrap().payload(), [1; 64]);
}

#[test]
fn an_exhausted_pool_is_counted_and_survived() {
    let mut net = net();
    let echo = net.b.bind_all(7);
    let bytes = good(&mut net, "10.0.0.2:9", &[1; 64]);
    let last = frame(&net, &bytes);
    let hoard: Vec<_> = std::iter::from_fn(|| net.pool.alloc()).collect();
    net.b.input(net.now, &net.pool, last);
    assert_eq!(net.b.lanes[0].stats().drops.get(DropReason::NoFrame), 1, "the port unreachable");
    let rest: Vec<_> = std::iter::from_fn(|| net.pool.alloc()).collect();
    let lane = &mut net.b.lanes[0];
    let back = end("10.0.0.1:1");
    let send =
        |lane: &mut flowlane_stack::Lane| lane.udp_send(net.now, &net.pool, echo[0], b"x", None, Some(back));
    assert_eq!(send(lane), Err(SendError::NoFrame));
    drop(rest);
    drop(hoard);
    assert_eq!(send(lane), Ok(()));
}

#[test]
fn counters_have_distinct_names() {
    let mut names = std::collections::BTreeSet::new();
    let stats = flowlane_stack::stats::Drops::default();
    Figures::each(&stats, &mut |c| assert!(names.insert(c.name), "{} twice", c.name));
}

/// The fast path for plain UDP over IPv4 must not be told from the slow one: every cut and every flipped bit gives the
/// same deliveries and the same counters. A host on a VLAN whose link takes the tag off takes the slow path always.
#[test]
fn the_short_way_and_the_long_way_agree() {
    let mut short = net();
    let bytes = good(&mut short, "10.0.0.2:7", &[0x42; 64]);
    let tagged = Plan { vlan: Some(5), ..Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]) };
    let mut short = net();
    let mut long = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &tagged);
    let sockets = (short.b.bind_all(7)[0], long.b.bind_all(7)[0]);
    let cuts = (14..=bytes.len()).map(|n| bytes[..n].to_vec());
    // Not the EtherType: another type goes neither way.
    let flips = (0..bytes.len() * 8).filter(|bit| !(96..112).contains(bit)).map(|bit| {
        let mut b = bytes.clone();
        b[bit / 8] ^= 1 << (bit % 8);
        b
    });
    for input in cuts.chain(flips).chain([bytes.clone(), [&bytes[..], &[0; 9]].concat()]) {
        let f = frame(&short, &input);
        short.b.input(short.now, &short.pool, f);
        let mut f = frame(&long, &input);
        f.meta_mut().vlan = Some(5);
        long.b.input(long.now, &long.pool, f);
        let take = |net: &mut Net, socket| {
            let d = net.b.lanes[0].udp_receive(socket)?;
            Some((d.payload().to_vec(), d.source, d.destination, d.traffic_class, d.flow_hash()))
        };
        assert_eq!(take(&mut short, sockets.0), take(&mut long, sockets.1), "{input:02x?}");
        let (a, b) = (short.b.lanes[0].stats(), long.b.lanes[0].stats());
        assert_eq!(
            (a.ethernet.received, a.ethernet.received_bytes),
            (b.ethernet.received, b.ethernet.received_bytes)
        );
        assert_eq!((a.ip, a.udp, a.icmp, a.drops), (b.ip, b.udp, b.icmp, b.drops), "{input:02x?}");
    }
    assert!(short.b.lanes[0].stats().udp.delivered > 2);
}

/// IEEE 802.1Q, 802.1ad: of two tags, neither says where the packet belongs, wherever the outer one is kept.
#[test]
fn a_packet_with_two_tags_or_a_providers_is_on_no_network_of_ours() {
    const C: [u8; 2] = [0x81, 0x00];
    const S: [u8; 2] = [0x88, 0xa8];
    let plain = good(&mut net(), "10.0.0.2:7", &[0x42; 64]);
    let with = |tags: &[([u8; 2], u16)]| {
        let tags = tags.iter().flat_map(|(kind, tci)| [*kind, tci.to_be_bytes()].concat());
        [&plain[..12], &tags.collect::<Vec<u8>>(), &plain[12..]].concat()
    };
    for vlan in [None, Some(77), Some(78)] {
        // Tags in the packet, the one beside it, and the VLAN that it came from, if it is one that there can be.
        for (tags, beside, from) in [
            (&[][..], None, Some(None)),
            (&[], Some(78), Some(Some(78))),
            (&[], Some(0xe04e), Some(Some(78))),
            (&[], Some(0x6000), Some(None)),
            (&[(C, 78)], None, Some(Some(78))),
            (&[(C, 0x6000)], None, Some(None)),
            (&[(C, 77)], Some(0x6000), Some(Some(77))),
            (&[(C, 77)], Some(78), None),
            (&[(C, 78), (C, 77)], None, None),
            (&[(S, 78)], None, None),
            (&[(S, 78), (C, 77)], None, None),
            (&[(C, 77), (S, 78)], None, None),
        ] {
            let mut net =
                Net::new(&Plan::new(1, &["10.0.0.1/24"]), &Plan { vlan, ..Plan::new(2, &["10.0.0.2/24"]) });
            net.b.bind_all(7);
            let mut f = frame(&net, &with(tags));
            f.meta_mut().vlan = beside;
            net.b.input(net.now, &net.pool, f);
            let stats = net.b.lanes[0].stats();
            let ours = from == Some(vlan);
            assert_eq!(stats.udp.delivered, u64::from(ours), "{tags:x?} {beside:?} on {vlan:?}");
            let dropped = stats.drops.get(DropReason::VlanMismatch);
            assert_eq!(dropped, u64::from(!ours), "{tags:x?} {beside:?} on {vlan:?}");
        }
    }
}
