mod querier;

use super::*;
use crate::config::{Change, PortConfig};
use flowlane_stack::wire::igmp::{self, GroupChange};
use flowlane_stack::wire::{IgmpMessage, mld};

use std::net::{Ipv4Addr, Ipv6Addr};

fn port(n: usize) -> PortId {
    PortId::new(n).unwrap()
}

fn set(ports: &[usize]) -> PortSet {
    ports.iter().map(|n| port(*n)).collect()
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn v4(group: &str) -> u64 {
    number(ip(group))
}

fn v6(group: &str) -> u64 {
    number(ip(group))
}

const QUERY: Heard = Heard::Query(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
const NAMELESS: Heard = Heard::Query(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// Snooping with these words.
fn snoop(words: &str) -> Snoop {
    let mut s = Snoop::new(Seed([1, 2, 3, 4]));
    s.configure(&config(words), at(0));
    s
}

fn config(words: &str) -> Config {
    let ports = (0..8).map(|n| PortConfig::new(&format!("p{n}"))).collect();
    Change::parse(&Config::new(ports), &format!("config snooping on {words}")).unwrap().config
}

fn at(second: u64) -> Time {
    Time::from_secs(1000 + second)
}

#[test]
fn a_group_goes_to_its_listeners_and_routers_and_without_a_router_everywhere() {
    let mut s = snoop("");
    let group = v4("239.1.2.3");
    s.heard(10, port(1), Heard::Join(group), at(0));
    assert_eq!(s.targets(10, group, at(0)), None, "no querier: nobody would repeat the reports");
    s.heard(10, port(7), NAMELESS, at(0));
    assert_eq!(s.targets(10, group, at(0)), None, "a query without an address is of no router");
    s.heard(10, port(7), QUERY, at(0));
    assert_eq!(s.targets(10, group, at(0)), Some(set(&[1, 7])));
    assert_eq!(s.targets(10, v4("239.1.2.4"), at(0)), Some(set(&[7])), "nobody listens");
    assert_eq!(s.targets(11, group, at(0)), None, "another VLAN");
    for all in [v4("224.0.0.251"), v6("ff02::1"), v6("ff02::1:ff00:1"), 0x0180_c200_000e] {
        assert_eq!(s.targets(10, all, at(0)), None);
    }
    assert_eq!(s.targets(10, v6("ff15::7"), at(0)), None, "a router of IPv4 asks for no groups of IPv6");
    s.expire(at(254));
    assert_eq!(s.targets(10, group, at(0)), Some(set(&[1, 7])));
    s.expire(at(255));
    assert_eq!(s.targets(10, group, at(0)), None);
    s.heard(10, port(7), QUERY, at(256));
    s.expire(at(259));
    assert_eq!(s.targets(10, group, at(0)), Some(set(&[1, 7])));
    s.expire(at(260));
    assert_eq!(s.targets(10, group, at(0)), Some(set(&[7])));
}

#[test]
fn who_leaves_is_asked_once_more_and_a_port_without_link_has_no_listeners() {
    let mut s = snoop("");
    let group = v6("ff15::1234");
    s.heard(0, port(7), Heard::Query(ip("fe80::1")), at(0));
    for n in 1..4 {
        s.heard(0, port(n), Heard::Join(group), at(0));
    }
    s.heard(0, port(1), Heard::Leave(ip("ff15::1234")), at(1));
    s.heard(0, port(2), Heard::Leave(ip("ff15::1234")), at(1));
    s.expire(at(2));
    s.heard(0, port(2), Heard::Join(group), at(2));
    s.expire(at(3));
    assert_eq!(s.targets(0, group, at(0)), Some(set(&[2, 3, 7])));
    s.flush(port(3));
    assert_eq!(s.targets(0, group, at(0)), Some(set(&[2, 7])));
    assert_eq!(s.all().count(), 2);
    s.flush(port(2));
    s.flush(port(7));
    assert_eq!((s.used, s.of_port.iter().sum::<u32>()), (0, 0));
}

/// A port has a share of the table; a full one floods what it does not have.
#[test]
fn strangers_cannot_fill_the_table_alone_and_a_full_one_floods() {
    let mut s = snoop("");
    s.heard(0, port(7), QUERY, at(0));
    let group = |n: u64| 0x0100_5e10_0000 + n;
    for n in 0..5000 {
        s.heard(0, port(0), Heard::Join(group(n)), at(0));
    }
    assert_eq!(s.used, 1 + GROUPS_OF_PORT as usize);
    assert_eq!(s.targets(0, group(4999), at(0)), Some(set(&[7])));
    for n in 0..5000 {
        s.heard(0, port(1 + n as usize % 5), Heard::Join(group(5000 + n)), at(0));
    }
    assert_eq!(s.used, GROUPS);
    assert_eq!(s.targets(0, group(77_000), at(0)), None);
    assert_eq!(s.targets(0, group(0), at(0)), Some(set(&[0, 7])));
    s.expire(at(300));
    assert_eq!(s.used, 0);
    s.heard(0, port(0), Heard::Join(group(1)), at(301));
    assert_eq!(s.used, 1, "what was freed is used again");
}

fn ipv4(src: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x46, 0xc0, 0, 24 + message.len() as u8, 0, 0, 0, 0, 1, 2, 0, 0];
    packet.extend_from_slice(&src);
    packet.extend_from_slice(&[224, 0, 0, 22, 0x94, 4, 0, 0]);
    let sum = flowlane_stack::wire::checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(message);
    packet
}

fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8 + message.len() as u8, 0, 1];
    packet.extend_from_slice(&src.octets());
    packet.extend_from_slice(&dst.octets());
    packet.extend_from_slice(&[58, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend_from_slice(message);
    packet
}

fn heard(kind: u16, packet: &[u8]) -> (Option<bool>, Vec<Heard>) {
    let mut all = Vec::new();
    let report = read(kind, packet, &mut |h| all.push(h));
    (report, all)
}

#[test]
fn messages_of_all_versions_are_read() {
    let mut b = [0; 200];
    let group: Ipv4Addr = "239.1.2.3".parse().unwrap();
    let n = IgmpMessage::Report { group }.emit(&mut b);
    assert_eq!(
        heard(0x0800, &ipv4([10, 0, 0, 1], &b[..n])),
        (Some(true), vec![Heard::Join(v4("239.1.2.3"))])
    );
    let n = igmp::emit_v1_report(group, &mut b);
    assert_eq!(
        heard(0x0800, &ipv4([10, 0, 0, 1], &b[..n])),
        (Some(true), vec![Heard::Join(v4("239.1.2.3"))])
    );
    let n = IgmpMessage::Leave { group }.emit(&mut b);
    assert_eq!(
        heard(0x0800, &ipv4([10, 0, 0, 1], &b[..n])),
        (Some(true), vec![Heard::Leave(ip("239.1.2.3"))])
    );
    let other = "239.9.9.9".parse().unwrap();
    let n = igmp::emit_v3_report(&[(group, GroupChange::Leave), (other, GroupChange::Join)], &mut b);
    let both = vec![Heard::Leave(ip("239.1.2.3")), Heard::Join(v4("239.9.9.9"))];
    assert_eq!(heard(0x0800, &ipv4([10, 0, 0, 1], &b[..n])), (Some(true), both));
    // A general query of version 2: type, 10 s, checksum, no group.
    let query = [0x11, 100, 0xee, 0x9b, 0, 0, 0, 0];
    assert_eq!(heard(0x0800, &ipv4([10, 0, 0, 1], &query)), (None, vec![QUERY]));
    assert_eq!(heard(0x0800, &ipv4([0; 4], &query)), (None, vec![NAMELESS]));
    let (src, dst): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), "ff02::16".parse().unwrap());
    let group: Ipv6Addr = "ff15::1234".parse().unwrap();
    let n = mld::emit_v1(src, dst, group, true, &mut b);
    assert_eq!(heard(0x86dd, &ipv6(src, dst, &b[..n])), (Some(false), vec![Heard::Leave(ip("ff15::1234"))]));
    let n = mld::emit_v2_report(src, dst, &[(group, GroupChange::Listening)], &mut b);
    let packet = ipv6(src, dst, &b[..n]);
    assert_eq!(heard(0x86dd, &packet), (Some(false), vec![Heard::Join(v6("ff15::1234"))]));
    for len in 0..packet.len() {
        assert_eq!(heard(0x86dd, &packet[..len]), (None, vec![]), "{len}");
    }
    let mut wrong = packet.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(heard(0x86dd, &wrong).0, None, "its checksum is wrong");
}
