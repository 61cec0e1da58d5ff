//! Ways narrower than the link: learnt from routers, told to the other lanes, forgotten.

use std::time::Duration;

use flowlane_stack::tcp::ConnId;
use flowlane_stack::wire::{Icmpv4Message, IpProtocol, Ipv4Header, Ipv4Options};
use flowlane_sys::frame::Frame;

use crate::net::{Net, Plan, end, ip};

fn hosts() -> Net {
    let mut a = Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]);
    a.buckets = 4;
    Net::new(&a, &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]))
}

/// An ICMP error by B about a packet of A, with an MTU.
pub(crate) fn too_big(net: &Net, quoted: &Frame, mtu: u16) -> Frame {
    let mut f = net.pool.alloc().unwrap();
    let message = Icmpv4Message::Unreachable { code: 4, mtu };
    assert!(f.extend_from_slice(&[0; 8]));
    assert!(f.extend_from_slice(&quoted.data()[14..14 + 28]));
    message.emit(f.data_mut());
    let header = Ipv4Header {
        src: "10.0.0.2".parse().unwrap(),
        dst: "10.0.0.1".parse().unwrap(),
        protocol: IpProtocol::ICMP,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: f.len() as u16,
        options: Ipv4Options::default(),
    };
    header.emit(f.push_front(20).unwrap());
    let bytes = f.push_front(14).unwrap();
    bytes[..6].copy_from_slice(&quoted.data()[6..12]);
    bytes[6..12].copy_from_slice(&quoted.data()[..6]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    f
}

#[test]
fn datagrams_are_cut_for_the_way_by_every_lane_and_for_ten_minutes() {
    let mut net = hosts();
    let sockets = net.a.bind_all(9);
    let to = end("10.0.0.2:7");
    let send = |net: &mut Net, lane: usize| {
        let (now, socket) = (net.now, sockets[lane]);
        net.a.lanes[lane].udp_send(now, &net.pool, socket, &[7; 1400], None, Some(to)).unwrap();
    };
    // The neighbour must be known before anything leaves.
    send(&mut net, 0);
    net.run();
    send(&mut net, 0);
    let asked = net.a.output(net.now, &net.pool);
    assert_eq!(asked[0].len(), 1442);
    // Nobody believes what quotes no socket of ours.
    let mut strange = too_big(&net, &asked[0], 600);
    strange.data_mut()[14 + 20 + 8 + 21] ^= 1;
    net.a.input(net.now, &net.pool, strange);
    net.a.settle(net.now, &net.pool);
    assert_eq!(net.a.lanes[1].max_payload(ip("10.0.0.2")), Ok(1472));
    let told = too_big(&net, &asked[0], 1000);
    net.a.input(net.now, &net.pool, told);
    net.a.settle(net.now, &net.pool);
    for lane in &net.a.lanes {
        assert_eq!(lane.max_payload(ip("10.0.0.2")), Ok(972));
        assert_eq!(lane.max_payload(ip("10.0.0.3")), Ok(1472));
    }
    send(&mut net, 0);
    let cut = net.a.output(net.now, &net.pool);
    assert_eq!(cut.iter().map(Frame::len).collect::<Vec<_>>(), [14 + 996, 14 + 20 + 1408 - 976]);
    assert!(cut.iter().all(|f| f.data()[20] & 0x40 == 0), "without DF");
    // Nothing makes it smaller than anybody's network is.
    let absurd = too_big(&net, &asked[0], 68);
    net.a.input(net.now, &net.pool, absurd);
    net.a.settle(net.now, &net.pool);
    assert_eq!(net.a.lanes[3].max_payload(ip("10.0.0.2")), Ok(576 - 28));
    net.pass(Duration::from_secs(601));
    for lane in &net.a.lanes {
        assert_eq!(lane.max_payload(ip("10.0.0.2")), Ok(1472));
    }
}

/// The next IP packet that A sends; what it asks about its neighbour before is answered.
fn next_packet(net: &mut Net) -> Frame {
    for _ in 0..3 {
        let (packets, others): (Vec<_>, Vec<_>) =
            net.a.output(net.now, &net.pool).into_iter().partition(|f| f.data()[12..14] == [8, 0]);
        for frame in others {
            net.b.input(net.now, &net.pool, frame);
        }
        if let Some(packet) = packets.into_iter().next() {
            return packet;
        }
        for frame in net.b.output(net.now, &net.pool) {
            net.a.input(net.now, &net.pool, frame);
        }
    }
    panic!("A sends nothing")
}

/// A connection of the lane to 10.0.0.2:7 with the peer's handshake done, and the segment size its SYN announced.
fn connected(net: &mut Net, lane: usize) -> (ConnId, u16) {
    let id = net.connect(lane, "10.0.0.2:7").unwrap();
    let syn = next_packet(net);
    // The first option of a SYN is the segment size (RFC 9293 section 3.2).
    let announced = u16::from_be_bytes([syn.data()[14 + 20 + 22], syn.data()[14 + 20 + 23]]);
    net.b.input(net.now, &net.pool, syn);
    net.run();
    (id, announced)
}

fn path_of(net: &Net, lane: usize, id: ConnId) -> u16 {
    net.a.lanes[lane].tcp().info(id).unwrap().pmtu
}

/// The lane has one store of paths: datagrams are cut for what a connection has learnt, connections begin with what a datagram has
/// learnt, in every lane of the host and for ten minutes. What a SYN announces stays: the path back is another.
#[test]
fn what_one_transport_learns_every_transport_of_every_lane_knows() {
    let mut net = hosts();
    net.b.listen_all(7);
    let (first, announced) = connected(&mut net, 0);
    assert_eq!((path_of(&net, 0, first), announced), (1500, 1460));
    let now = net.now;
    net.a.lanes[0].with_tcp(now, &net.pool, |tcp, cx| tcp.send(cx, first, &[7; 1400])).unwrap();
    let sent = next_packet(&mut net);
    let told = too_big(&net, &sent, 1000);
    net.a.input(net.now, &net.pool, told);
    net.a.settle(net.now, &net.pool);
    assert_eq!(path_of(&net, 0, first), 1000);
    net.run();
    for lane in 0..4 {
        assert_eq!(net.a.lanes[lane].max_payload(ip("10.0.0.2")), Ok(972), "lane {lane}");
        let (id, announced) = connected(&mut net, lane);
        assert_eq!((path_of(&net, lane, id), announced), (1000, 1460), "lane {lane}");
    }
    net.pass(Duration::from_secs(601));
    let (id, _) = connected(&mut net, 1);
    assert_eq!(path_of(&net, 1, id), 1500);

    let socket = net.a.bind_all(9)[2];
    let now = net.now;
    net.a.lanes[2].udp_send(now, &net.pool, socket, &[7; 1400], None, Some(end("10.0.0.2:7"))).unwrap();
    let sent = next_packet(&mut net);
    let told = too_big(&net, &sent, 1100);
    net.a.input(net.now, &net.pool, told);
    net.a.settle(net.now, &net.pool);
    for lane in 0..4 {
        let (id, announced) = connected(&mut net, lane);
        assert_eq!((path_of(&net, lane, id), announced), (1100, 1460), "lane {lane}");
    }
}
