//! Datagrams on the fast path, in bursts and batches, beside the same one by one and on the slow path.

use std::sync::Arc;

use flowlane_rss::{Bucket, Key, Rss};
use flowlane_sys::frame::{Checksum, Pool};

use crate::address::Endpoint;
use crate::lane::Unsent;
use crate::rng::Rng;
use crate::testing::{self, frame};
use crate::time::Time;
use crate::udp::{Bind, Datagram, UdpHandle};
use crate::wire::{ArpOperation, ArpPacket, EtherType, EthernetHeader, IpProtocol, MacAddr, Sum};
use crate::{Class, Lane, LaneConfig, Route};

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const NOW: Time = Time::from_secs(1);

/// A host with the fast path or without, whose link computes checksums or not. It knows its gateway, 10.0.0.1.
fn lane(pool: &Pool, short: bool, offload: bool) -> Lane {
    let mut interface = testing::interface(2);
    interface.offload.checksum = offload;
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let gateway = Some("10.0.0.1".parse().unwrap());
    let routes = vec![Route { prefix: "0.0.0.0/0".parse().unwrap(), gateway, interface: 0 }];
    let mut lane =
        Lane::new(&LaneConfig { routes, ..LaneConfig::new(Bucket(0), rss, vec![interface], [1, 2, 3, 4]) });
    if !short {
        lane.ip.interfaces[0].fast = None;
    }
    let mut asks = vec![0; 42];
    let to_all = EthernetHeader { dst: MacAddr::BROADCAST, src: PEER, ethertype: EtherType::ARP, vlan: None };
    to_all.emit(&mut asks);
    let arp = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: PEER,
        sender_ip: [10, 0, 0, 1].into(),
        target_mac: MacAddr::ZERO,
        target_ip: [10, 0, 0, 2].into(),
    };
    arp.emit(&mut asks[14..]);
    lane.input(NOW, pool, frame(pool, &asks), Class::Ethernet);
    while lane.poll_output(NOW, pool).is_some() {}
    lane
}

/// Makes the checksums of the headers right.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < 42 {
        return;
    }
    bytes[24..26].fill(0);
    let sum = crate::wire::checksum::checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    let v4 = |at: usize| core::net::Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let pseudo = Sum::pseudo_v4(v4(26), v4(30), IpProtocol::UDP, (bytes.len() - 34) as u16);
    crate::wire::udp::fill_checksum(pseudo, &mut bytes[34..]);
}

/// A datagram from a peer behind the gateway, or the gateway itself.
fn datagram(src: [u8; 4], sport: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = testing::datagram(
        u32::from_be_bytes(src),
        sport,
        u32::from_be_bytes([10, 0, 0, 2]),
        7,
        payload.len() as u16,
    );
    bytes[0..6].copy_from_slice(&US.0);
    bytes[6..12].copy_from_slice(&PEER.0);
    bytes[42..].copy_from_slice(payload);
    repair(&mut bytes);
    bytes
}

/// Both ends, traffic class and payload of a datagram.
type Came = (Endpoint, Endpoint, u8, Vec<u8>);

/// What came to each socket, and the counters.
fn received(lane: &mut Lane, sockets: &[UdpHandle]) -> (Vec<Vec<Came>>, String) {
    let one = |d: Datagram| (d.source, d.destination, d.traffic_class, d.payload().to_vec());
    let all = |socket: &UdpHandle| std::iter::from_fn(|| lane.udp_receive(*socket)).map(one).collect();
    let came = sockets.iter().map(all).collect();
    (came, format!("{:?}", lane.stats()))
}

/// A datagram, one that differs from it by any bit, with right checksums or without, by its length or its family, and it again: a burst takes
/// them as one would be taken after the other, by the fast path or the slow one.
#[test]
fn what_follows_in_a_burst_is_judged_as_what_comes_alone() {
    let pool = testing::pool(64);
    let good = datagram([10, 0, 0, 1], 9, &[7; 33]);
    let mut others: Vec<Vec<u8>> = Vec::new();
    for bit in 0..(42 + 2) * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        others.push(bytes.clone());
        repair(&mut bytes);
        others.push(bytes);
    }
    others.extend((0..good.len()).map(|len| good[..len].to_vec()));
    others.push([&good[..], &[0; 7]].concat());
    others.push(datagram([11, 0, 0, 1], 9, &[7; 33]));
    let mut no_checksum = good.clone();
    no_checksum[40..42].fill(0);
    others.push(no_checksum);
    let mut delivered = 0;
    for other in others {
        let result = [(true, true), (true, false), (false, false)].map(|(short, burst)| {
            let mut lane = lane(&pool, short, false);
            let connected = Bind {
                local_ip: Some([10, 0, 0, 2].into()),
                remote: Some(Endpoint::new([10, 0, 0, 1].into(), 9)),
                ..Bind::port(6)
            };
            let binds = [Bind::port(7), Bind::port(6), Bind::port(5), Bind::port(3), connected];
            let sockets = binds.map(|bind| lane.udp_bind(bind).unwrap());
            let frames = [&good, &other, &good].map(|bytes| frame(&pool, bytes));
            if burst {
                lane.input_burst(NOW, &pool, frames.into_iter());
                lane.end_burst(NOW, &pool);
            } else {
                frames.into_iter().for_each(|frame| lane.input(NOW, &pool, frame, Class::Ethernet));
            }
            received(&mut lane, &sockets)
        });
        assert_eq!(result[0], result[1], "{other:02x?}");
        assert_eq!(result[1], result[2], "{other:02x?}");
        let all = result[0].0.iter().map(Vec::len).sum::<usize>();
        assert!(all >= 2, "the good ones came: {other:02x?}");
        delivered += all - 2;
    }
    assert!(delivered > 50, "some of the others are as good: {delivered}");
    assert_eq!(pool.free(), 64);
}

/// A socket's room ends within a burst as it does otherwise.
#[test]
fn a_burst_finds_no_more_room_than_there_is() {
    let pool = testing::pool(64);
    let result = [true, false].map(|burst| {
        let mut lane = lane(&pool, true, false);
        let socket = lane.udp_bind(Bind { queue: Some(3), ..Bind::port(7) }).unwrap();
        let frames = (0..9).map(|n| frame(&pool, &datagram([10, 0, 0, 1], 9, &[n; 4])));
        if burst {
            lane.input_burst(NOW, &pool, frames);
        } else {
            frames.for_each(|frame| lane.input(NOW, &pool, frame, Class::Ethernet));
        }
        received(&mut lane, &[socket])
    });
    assert_eq!(result[0].0[0].len(), 3);
    assert_eq!(result[0], result[1]);
}

/// Answers of a batch, to several peers and of all lengths, with payloads that stayed, changed or became shorter: the same frames as by the slow
/// path, and checksums that are right. `offload`: the link computes them; `verified`: it has checked those that came.
fn answers(pool: &Pool, short: bool, offload: bool, verified: bool) -> (Vec<Vec<u8>>, String) {
    let mut lane = lane(pool, short, offload);
    let socket = lane.udp_bind(Bind::port(7)).unwrap();
    let mut rng = Rng::new(5);
    // The first is sent the slow way, which finds the next hop.
    for n in 0..120u32 {
        let len = [0, 1, 8, 33, 64, 64, 64, 300][n as usize % 8];
        // Every fourth adds up to nothing.
        let byte = |_| if n % 4 == 0 { 0 } else { rng.next_u32() as u8 };
        let payload: Vec<u8> = (0..len).map(byte).collect();
        let peer = [11, 0, 0, (n / 6) as u8];
        let mut frame = frame(pool, &datagram(peer, 1000 + n as u16 / 9, &payload));
        if verified {
            frame.meta_mut().checksum = Checksum::Verified;
        }
        lane.input_burst(NOW, pool, std::iter::once(frame));
    }
    let mut batch = Vec::new();
    assert_eq!(lane.udp_receive_batch(socket, &mut batch, 200), 120);
    for (n, datagram) in batch.iter_mut().enumerate() {
        match n % 10 {
            3 => datagram.payload_mut().fill(n as u8),
            5 => datagram.truncate(datagram.len() / 2),
            7 => drop(datagram.frame_mut().push_back(3).map(|more| more.fill(n as u8))),
            _ => {}
        }
    }
    let (sent, left) = lane.udp_reply_batch(NOW, pool, socket, &mut batch.drain(..));
    assert_eq!((sent, left.is_none()), (120, true));
    let out = std::iter::from_fn(|| lane.poll_output(NOW, pool));
    let out = out.map(|frame| {
        assert_eq!(frame.meta().checksum, if offload { Checksum::Partial } else { Checksum::InPacket });
        frame.data().to_vec()
    });
    (out.collect(), format!("{:?}", lane.stats()))
}

#[test]
fn answers_of_a_batch_are_those_of_the_slow_path() {
    let pool = testing::pool(256);
    for (offload, verified) in [(false, false), (false, true), (true, false)] {
        let [short, long] = [true, false].map(|short| answers(&pool, short, offload, verified));
        assert_eq!(short.0.len(), 120);
        for (n, (short, long)) in short.0.iter().zip(&long.0).enumerate() {
            assert_eq!(short, long, "answer {n} with {offload} {verified}");
            assert_eq!(crate::wire::checksum::checksum(&short[14..34]), 0, "IP's checksum");
            let v4 =
                |at: usize| core::net::Ipv4Addr::new(short[at], short[at + 1], short[at + 2], short[at + 3]);
            let pseudo = Sum::pseudo_v4(v4(26), v4(30), IpProtocol::UDP, (short.len() - 34) as u16);
            assert!(offload || crate::wire::udp::intact(pseudo, &short[34..]), "UDP's checksum, {n}");
        }
        assert_eq!(short.1, long.1, "the same is counted");
    }
    assert_eq!(pool.free(), 256);
}

/// A batch for which the output queue has too little room: what is left is given back, and goes later, in order.
#[test]
fn a_batch_that_finds_no_room_waits_in_order() {
    let pool = testing::pool(4096);
    let mut lane = lane(&pool, true, false);
    let socket = lane.udp_bind(Bind { queue: Some(4000), ..Bind::port(7) }).unwrap();
    let frames = (0..2100u16).map(|n| frame(&pool, &datagram([11, 0, 0, 1], 9, &n.to_be_bytes())));
    lane.input_burst(NOW, &pool, frames);
    let mut batch = Vec::new();
    assert_eq!(lane.udp_receive_batch(socket, &mut batch, 3000), 2100);
    let mut batch = batch.drain(..);
    let (sent, left) = lane.udp_reply_batch(NOW, &pool, socket, &mut batch);
    let left = left.expect("no room");
    assert!((2000..2100).contains(&sent) && batch.len() == 2100 - sent - 1, "{sent}");
    let Err(Unsent { returned: Some(left), .. }) = lane.udp_reply(NOW, &pool, socket, left) else {
        panic!("there is no room yet");
    };
    let mut out = Vec::new();
    lane.drain_output(NOW, &pool, 100, &mut out);
    lane.drain_output(NOW, &pool, usize::MAX, &mut out);
    lane.udp_reply(NOW, &pool, socket, left).expect("there is room");
    let (rest, left) = lane.udp_reply_batch(NOW, &pool, socket, &mut batch);
    assert_eq!((rest, left.is_none()), (2100 - sent - 1, true));
    lane.drain_output(NOW, &pool, usize::MAX, &mut out);
    let numbers: Vec<u16> =
        out.iter().map(|frame| u16::from_be_bytes([frame.data()[42], frame.data()[43]])).collect();
    assert!(numbers.into_iter().eq(0..2100));
}
