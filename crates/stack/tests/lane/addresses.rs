//! Addresses that come and go while a host runs, in all its lanes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_stack::tcp::{Failure, RecvError};
use flowlane_stack::time::Time;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::{NdpMessage, NdpOptions, PrefixInformation};
use flowlane_stack::{AddressNews, IpConfig, Lane, Slaac};

use crate::net::{Net, Plan, end, ip};
use crate::routers::wait;
use crate::strangers::{frame, ndp};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn up(addresses: &[&'static str], config: IpConfig) -> Net {
    let us = Plan { buckets: 4, ip: config, ..Plan::new(2, addresses) };
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &us);
    for lane in &mut net.b.lanes {
        lane.link_up(net.now, &net.pool, 0);
    }
    wait(&mut net, 10);
    net
}

fn advertise(net: &mut Net, lifetimes: (u32, u32), len: u8) {
    let info = PrefixInformation {
        prefix: "2001:db8:7::".parse().unwrap(),
        prefix_len: len,
        on_link: false,
        autonomous: true,
        valid_lifetime: lifetimes.0,
        preferred_lifetime: lifetimes.1,
    };
    let message = NdpMessage::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        lifetime: 1800,
        reachable_time: 0,
        retrans_timer: 0,
        options: NdpOptions { prefixes: [Some(info), None, None, None], ..NdpOptions::default() },
    };
    let f = frame(net, &ndp(ROUTER, ALL_NODES, &message));
    net.b.input(net.now, &net.pool, f);
    (0..3).for_each(|_| net.b.settle(net.now, &net.pool));
}

/// A frame as it comes from the link.
fn raw(net: &Net, bytes: &[u8]) -> flowlane_sys::frame::Frame {
    let mut frame = net.pool.alloc().unwrap();
    assert!(frame.extend_from_slice(bytes));
    frame
}

fn sources(net: &Net) -> Vec<Option<IpAddr>> {
    net.b.lanes.iter().map(|lane| lane.source_for(ip("2001:db8:5::1"))).collect()
}

fn slaac(how: Slaac) -> IpConfig {
    IpConfig { slaac: how, ..IpConfig::default() }
}

/// RFC 4862 section 5.5.3.
#[test]
fn an_address_of_an_advertised_prefix_is_every_lanes_until_it_ends() {
    let mut net = up(&[], slaac(Slaac::Eui64));
    advertise(&mut net, (300, 100), 64);
    let ours = ip("2001:db8:7::ff:fe00:2");
    assert_eq!(sources(&net), vec![Some(ours); 4]);
    assert!(net.b.lanes.iter().all(|lane| !lane.has_address(false)), "it is probed first");
    wait(&mut net, 10);
    assert!(net.b.lanes.iter().all(|lane| lane.has_address(false) && lane.is_local(ours)));
    // A shorter lifetime is not believed (e), a longer one is.
    advertise(&mut net, (1, 1), 64);
    wait(&mut net, 100);
    assert_eq!(sources(&net), vec![Some(ours); 4]);
    advertise(&mut net, (600, 100), 64);
    wait(&mut net, 500);
    assert_eq!(sources(&net), vec![Some(ours); 4]);
    wait(&mut net, 101);
    assert_eq!(sources(&net), vec![None; 4]);
    assert!(net.b.lanes.iter().all(|lane| !lane.is_local(ours)));
}

#[test]
fn what_is_no_prefix_for_addresses_makes_none() {
    let mut net = up(&[], slaac(Slaac::Eui64));
    advertise(&mut net, (300, 301), 64);
    advertise(&mut net, (300, 100), 63);
    advertise(&mut net, (0, 0), 64);
    assert_eq!(sources(&net), vec![None; 4]);
    let mut net = up(&[], IpConfig::default());
    advertise(&mut net, (300, 100), 64);
    assert_eq!(sources(&net), vec![None; 4], "nobody asked for one");
}

/// RFC 4862 section 5.5.4: for new connections others are preferred.
#[test]
fn a_deprecated_address_is_a_source_only_if_there_is_no_other() {
    let mut net = up(&[], slaac(Slaac::Eui64));
    advertise(&mut net, (3000, 100), 64);
    let made = net.b.lanes[1].source_for(ip("2001:db8:5::1"));
    let now = net.now;
    net.b.lanes[0].give_address(now, 0, "2001:db8:9::2/128".parse().unwrap(), Time::MAX);
    (0..3).for_each(|_| net.b.settle(now, &net.pool));
    assert_eq!(sources(&net), vec![made; 4]);
    wait(&mut net, 101);
    assert_eq!(sources(&net), vec![Some(ip("2001:db8:9::2")); 4]);
}

/// RFC 7217: the same each time, without the Ethernet address, and another if somebody has it.
#[test]
fn stable_identifiers_tell_nothing_and_give_way() {
    let made = |secret| {
        let mut net = up(&[], slaac(Slaac::Stable(secret)));
        advertise(&mut net, (u32::MAX, u32::MAX), 64);
        let first = net.b.lanes[3].source_for(ip("2001:db8:5::1")).unwrap();
        let IpAddr::V6(target) = first else { panic!("{first}") };
        let theirs = NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: false,
            overrides: true,
            target,
            options: NdpOptions { target: Some([2, 0, 0, 0, 0, 9].into_mac()), ..NdpOptions::default() },
        };
        let f = frame(&net, &ndp(target, ALL_NODES, &theirs));
        net.b.input(net.now, &net.pool, f);
        (0..3).for_each(|_| net.b.settle(net.now, &net.pool));
        let all = sources(&net);
        assert!(all.iter().all(|a| *a == all[0]), "{all:?}");
        (first, all[0])
    };
    let (one, again, other) = (made([1, 2]), made([1, 2]), made([1, 3]));
    assert_eq!(one, again);
    assert_ne!(one.0, other.0);
    assert_ne!(Some(one.0), one.1, "somebody has the first");
    assert!(one.1.is_some());
    assert!(!one.0.to_string().contains("ff:fe"), "{one:?}");
}

trait IntoMac {
    fn into_mac(self) -> flowlane_stack::wire::MacAddr;
}

impl IntoMac for [u8; 6] {
    fn into_mac(self) -> flowlane_stack::wire::MacAddr {
        flowlane_stack::wire::MacAddr(self)
    }
}

#[test]
fn what_used_an_address_that_is_lost_ends_by_name() {
    let mut net = up(&["10.0.0.2/24"], IpConfig::default());
    let now = net.now;
    net.b.lanes[0].give_address(now, 0, "10.9.0.2/24".parse().unwrap(), Time::MAX);
    net.b.lanes[0].give_router(0, Some(Ipv4Addr::new(10, 9, 0, 1)));
    (0..3).for_each(|_| net.b.settle(now, &net.pool));
    let mut lost = Vec::new();
    for lane in &mut net.b.lanes {
        assert!(lane.is_local(ip("10.9.0.2")));
        assert!(lane.max_payload(ip("10.200.0.1")).is_ok(), "by the router");
        let bound = Bind { local_ip: Some(ip("10.9.0.2")), ..Bind::port(7) };
        let (bound, any) = (lane.udp_bind(bound).unwrap(), lane.udp_bind(Bind::port(8)).unwrap());
        let peer = end("10.9.0.77:80");
        let connect = |lane: &mut Lane| {
            (1024..2048).find_map(|port| {
                let local = std::net::SocketAddr::from(([10, 9, 0, 2], port));
                let remote = std::net::SocketAddr::new(peer.ip, peer.port);
                lane.with_tcp(now, &net.pool, |tcp, cx| {
                    tcp.connect(cx, local, remote, &Default::default()).ok()
                })
            })
        };
        lost.push((bound, any, connect(lane)));
    }
    net.b.lanes[0].take_address(now, 0, ip("10.9.0.2"));
    net.b.lanes[0].give_router(0, None);
    (0..3).for_each(|_| net.b.settle(now, &net.pool));
    wait(&mut net, 0);
    for (lane, (bound, any, connection)) in net.b.lanes.iter_mut().zip(lost) {
        assert!(!lane.is_local(ip("10.9.0.2")) && lane.is_local(ip("10.0.0.2")));
        assert!(lane.max_payload(ip("10.200.0.1")).is_err() && lane.max_payload(ip("10.9.0.1")).is_err());
        assert!(!lane.udp_is_open(bound) && lane.udp_is_open(any));
        let connection = connection.expect("a connection");
        let read = lane.with_tcp(now, &net.pool, |tcp, cx| tcp.recv(cx, connection, &mut [0; 8]));
        assert_eq!(read, Err(RecvError::Failed(Failure::AddressLost)));
    }
}

/// RFC 2131 section 4.1: without an address of ours, and whichever lane it comes to.
#[test]
fn a_servers_datagram_reaches_the_client_and_the_clients_has_no_source() {
    let datagram = |source: u8, dst: [u8; 4], port: u16| {
        let mut f = vec![0xff; 6];
        f.extend([2, 0, 0, 0, 0, source, 8, 0, 0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source]);
        f.extend(dst);
        let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f.extend([0, 67]);
        f.extend(port.to_be_bytes());
        f.extend([0, 11, 0, 0, b'h', b'e', b'y']);
        f
    };
    let asks = IpConfig { dhcp: true, ..IpConfig::default() };
    let mut net = up(&[], asks);
    let give = |net: &mut Net, bytes: &[u8]| {
        let f = raw(net, bytes);
        net.b.input(net.now, &net.pool, f);
        (0..3).for_each(|_| net.b.settle(net.now, &net.pool));
    };
    let elsewhere = (1..60).map(|source| datagram(source, [255; 4], 68));
    let mut count = 0;
    for bytes in elsewhere {
        give(&mut net, &bytes);
        let got = net.b.lanes[0].dhcp_next();
        assert_eq!(got.as_deref(), Some(&b"hey"[..]));
        count += 1;
    }
    assert_eq!(count, 59);
    // To the address that is offered, alone; not to another port.
    give(&mut net, &datagram(1, [10, 0, 0, 50], 68));
    assert!(net.b.lanes[0].dhcp_next().is_some());
    give(&mut net, &datagram(1, [255; 4], 69));
    assert!(net.b.lanes[0].dhcp_next().is_none());
    // A flood stays within a few.
    (0..100).for_each(|_| give(&mut net, &datagram(1, [255; 4], 68)));
    assert_eq!(std::iter::from_fn(|| net.b.lanes[0].dhcp_next()).count(), 8);
    let (now, none) = (net.now, (None, None));
    net.b.lanes[0].dhcp_send(now, &net.pool, 0, none, b"hello", false).unwrap();
    let out = net.b.output(now, &net.pool);
    let sent = out[0].data();
    assert_eq!((&sent[..6], &sent[26..34]), (&[0xff; 6][..], &[0, 0, 0, 0, 255, 255, 255, 255][..]));
    assert_eq!((&sent[34..38], &sent[42..]), (&[0, 68, 0, 67][..], &b"hello"[..]));
    // A host that asks nobody has no client.
    let mut net = up(&[], IpConfig::default());
    give(&mut net, &datagram(1, [255; 4], 68));
    assert!(net.b.lanes[0].dhcp_next().is_none());
}

#[test]
fn an_address_that_somebody_has_is_told_to_the_client() {
    let mut net = up(&[], IpConfig { dhcp: true, ..IpConfig::default() });
    assert_eq!(net.b.lanes[0].address_news(), None);
    let now = net.now;
    let give = |net: &mut Net, address: &str| {
        let now = net.now;
        net.b.lanes[0].give_address(now, 0, address.parse().unwrap(), now + Duration::from_secs(60));
        (0..3).for_each(|_| net.b.settle(now, &net.pool));
    };
    give(&mut net, "10.0.0.50/24");
    let mut arp = vec![0xff; 6];
    arp.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9, 10, 0, 0, 50]);
    arp.extend([0; 6]);
    arp.extend([10, 0, 0, 50]);
    let f = raw(&net, &arp);
    net.b.input(now, &net.pool, f);
    (0..3).for_each(|_| net.b.settle(now, &net.pool));
    let address = ip("10.0.0.50");
    assert_eq!(net.b.lanes[0].address_news(), Some(AddressNews::Duplicate { interface: 0, address }));
    assert!(net.b.lanes.iter().all(|lane| !lane.is_local(address)));
    give(&mut net, "10.0.0.51/24");
    wait(&mut net, 10);
    let address = ip("10.0.0.51");
    assert_eq!(net.b.lanes[0].address_news(), Some(AddressNews::Ready { interface: 0, address }));
    assert!(net.b.lanes.iter().all(|lane| lane.has_address(true)));
}
