//! Finding neighbours: ARP, neighbour discovery, echo.

use std::time::Duration;

use flowlane_stack::stats::DropReason;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::icmpv4::Icmpv4Message;
use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr,
};
use flowlane_sys::frame::{Frame, Pool};

use crate::net::{Net, Plan, end, ip};

pub(crate) fn arp(pool: &Pool, dst: MacAddr, packet: &ArpPacket) -> Frame {
    let mut frame = pool.alloc().unwrap();
    packet.emit(frame.push_back(28).unwrap());
    let header = EthernetHeader { dst, src: packet.sender_mac, ethertype: EtherType::ARP, vlan: None };
    header.emit(frame.push_front(14).unwrap());
    frame
}

#[test]
fn packets_wait_for_a_neighbour_who_comes_late() {
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &Plan::new(2, &["10.0.0.2/24"]));
    let heard = net.b.bind_all(7)[0];
    let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    net.a.lanes[0].udp_send(net.now, &net.pool, s, b"wait", None, Some(end("10.0.0.2:7"))).unwrap();
    let lost = net.a.output(net.now, &net.pool);
    assert_eq!(lost.len(), 1, "one request, and the datagram waits");
    drop(lost);
    net.pass(Duration::from_millis(999));
    assert_eq!(net.frames, 0);
    net.pass(Duration::from_millis(2));
    assert!(net.b.lanes[0].udp_receive(heard).is_some(), "the second request was answered");
}

#[test]
fn a_neighbour_who_never_answers_is_given_up_after_three_requests() {
    for to in ["10.0.0.77:7", "[fd00::77]:7"] {
        let mut net = Net::new(
            &Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]),
            &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]),
        );
        let free = net.pool.free();
        let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
        net.a.lanes[0].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to))).unwrap();
        net.run();
        net.pass(Duration::from_secs(10));
        let stats = net.a.lanes[0].stats();
        assert_eq!((stats.arp.requests_sent, stats.arp.timed_out), (3, 1));
        assert_eq!(stats.drops.get(DropReason::NoNeighbour), 1);
        assert_eq!(net.pool.free(), free);
    }
}

#[test]
fn one_lane_learns_and_all_know() {
    let mut many = Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    many.buckets = 8;
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &many);
        let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
        net.a.lanes[0].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to))).unwrap();
        net.run();
        for lane in &net.b.lanes {
            assert!(lane.neighbours().any(|(_, _, mac)| mac == net.a.mac), "{to}");
        }
    }
}

#[test]
fn claimed_networks_answer_for_every_address() {
    let mut many = Plan::new(2, &["10.0.0.2/24"]);
    many.claimed = vec!["10.0.0.128/25", "10.7.0.0/16"];
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/8"]), &many);
    let heard = net.b.lanes[0].udp_bind(Bind { any_port: true, ..Bind::default() }).unwrap();
    let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    for to in ["10.0.0.200:1", "10.7.255.255:2", "10.7.0.0:3"] {
        net.a.lanes[0].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to))).unwrap();
        net.run();
        assert_eq!(net.b.lanes[0].udp_receive(heard).unwrap().destination, end(to));
    }
    net.a.lanes[0].udp_send(net.now, &net.pool, s, b"?", None, Some(end("10.8.0.0:3"))).unwrap();
    net.run();
    assert!(net.b.lanes[0].udp_receive(heard).is_none());
}

#[test]
fn strangers_and_impostors_are_not_believed() {
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &Plan::new(2, &["10.0.0.2/24"]));
    let request = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: MacAddr([2, 9, 9, 9, 9, 9]),
        sender_ip: [172, 16, 0, 1].into(),
        target_mac: MacAddr::ZERO,
        target_ip: [10, 0, 0, 2].into(),
    };
    let mut give = |packet: ArpPacket| {
        let frame = arp(&net.pool, MacAddr::BROADCAST, &packet);
        net.b.input(net.now, &net.pool, frame);
        let out = net.b.output(net.now, &net.pool).len();
        (out, net.b.lanes[0].neighbours().count())
    };
    assert_eq!(give(request), (1, 0), "not of our networks: answered, and nothing is learnt");
    let reply = ArpPacket { operation: ArpOperation::Reply, ..request };
    assert_eq!(give(reply), (0, 0), "not of our networks");
    assert_eq!(give(ArpPacket { sender_ip: [10, 0, 0, 2].into(), ..request }), (0, 0), "our own address");
    assert_eq!(
        give(ArpPacket { sender_mac: MacAddr::BROADCAST, sender_ip: [10, 0, 0, 3].into(), ..request }),
        (0, 0)
    );
    let elsewhere = ArpPacket { sender_ip: [10, 0, 0, 3].into(), target_ip: [10, 0, 0, 4].into(), ..request };
    assert_eq!(give(elsewhere), (0, 0), "not for us: nothing is learnt");
    let unasked = ArpPacket { operation: ArpOperation::Reply, sender_ip: [10, 0, 0, 3].into(), ..request };
    assert_eq!(give(unasked), (0, 0), "a reply that nobody asked for");
    assert_eq!(give(ArpPacket { sender_ip: [0, 0, 0, 0].into(), ..request }), (1, 0), "a probe is answered");
    assert_eq!(give(ArpPacket { sender_ip: [10, 0, 0, 3].into(), ..request }), (1, 1));
    let drops = &net.b.lanes[0].stats().drops;
    assert_eq!(drops.get(DropReason::ArpStranger), 2);
    assert_eq!(drops.get(DropReason::AddressConflict), 1);
    assert_eq!(drops.get(DropReason::ArpNotForUs), 1);
}

#[test]
fn echo_requests_are_answered_but_not_to_all() {
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &Plan::new(2, &["10.0.0.2/24"]));
    let ask = |pool: &Pool, dst: [u8; 4], mac: MacAddr| {
        let mut frame = pool.alloc().unwrap();
        let message = frame.push_back(8 + 56).unwrap();
        message[8..].fill(0x5a);
        Icmpv4Message::EchoRequest { ident: 7, seq: 1 }.emit(message);
        let header = Ipv4Header {
            src: [10, 0, 0, 1].into(),
            dst: dst.into(),
            protocol: IpProtocol::ICMP,
            ttl: 64,
            tos: 0,
            identification: 1,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            payload_len: 64,
            options: Ipv4Options::default(),
        };
        header.emit(frame.push_front(20).unwrap());
        let src = MacAddr([2, 0, 0, 0, 0, 1]);
        let ethernet = EthernetHeader { dst: mac, src, ethertype: EtherType::IPV4, vlan: None };
        ethernet.emit(frame.push_front(14).unwrap());
        frame
    };
    let frame = ask(&net.pool, [10, 0, 0, 2], net.b.mac);
    net.b.input(net.now, &net.pool, frame);
    net.run();
    assert_eq!(net.b.lanes[0].stats().icmp.echo_replies_sent, 1);
    // Nobody asked on the other side, which is how it is counted; the reply arrived intact.
    assert_eq!(net.a.lanes[0].stats().icmp.received, 1);
    assert_eq!(net.a.lanes[0].stats().icmp.bad_checksum, 0);
    let frame = ask(&net.pool, [10, 0, 0, 255], MacAddr::BROADCAST);
    net.b.input(net.now, &net.pool, frame);
    net.run();
    assert_eq!(net.b.lanes[0].stats().icmp.echo_replies_sent, 1);
    assert_eq!(net.b.lanes[0].stats().drops.get(DropReason::IcmpBroadcast), 1);
    assert!(net.b.lanes[0].is_local(ip("10.0.0.2")));
}

/// The answer comes to the lane of its own flow, or to bucket 0; the lane that asked gets it all the same.
#[test]
fn every_lane_gets_the_answer_it_asked_for() {
    let mut many = Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]);
    many.buckets = 8;
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        for lane in 0..8 {
            let mut net = Net::new(&many, &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]));
            let heard = net.b.bind_all(7)[0];
            let s = net.a.lanes[lane].udp_bind(Bind::default()).unwrap();
            net.a.lanes[lane].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to))).unwrap();
            net.run();
            assert!(net.b.lanes[0].udp_receive(heard).is_some(), "lane {lane}, {to}");
        }
    }
}
