//! Routers that advertise themselves, and those that only pretend.

use std::net::Ipv6Addr;
use std::time::Duration;

use flowlane_stack::SendError;
use flowlane_stack::stats::DropReason;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::{NdpMessage, NdpOptions, PrefixInformation};

use crate::net::{Net, Plan, end, ip};
use crate::strangers::{frame, ndp};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const US: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const FAR: &str = "[2001:db8:5::1]:7";

/// A host of four lanes on a link with others, after its addresses are its own.
fn up() -> Net {
    let us = Plan { buckets: 4, ..Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]) };
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &us);
    for lane in &mut net.b.lanes {
        lane.link_up(net.now, &net.pool, 0);
    }
    wait(&mut net, 10);
    net
}

/// Seconds pass; what B sends in them.
pub(crate) fn wait(net: &mut Net, seconds: u64) -> Vec<Vec<u8>> {
    listen(net, Duration::from_secs(seconds))
}

/// Time passes; what B sends in it. Its timers fire as they fall due.
pub(crate) fn listen(net: &mut Net, time: Duration) -> Vec<Vec<u8>> {
    let end = net.now + time;
    let mut all = Vec::new();
    loop {
        all.extend(net.b.output(net.now, &net.pool).iter().map(|f| f.data().to_vec()));
        match net.b.lanes.iter().filter_map(flowlane_stack::Lane::poll_at).min() {
            Some(at) if at <= end => net.now = net.now.max(at),
            _ => break,
        }
        for lane in &mut net.b.lanes {
            lane.on_timer(net.now, &net.pool);
        }
    }
    net.now = end;
    all
}

fn give(net: &mut Net, packet: &[u8]) {
    let f = frame(net, packet);
    net.b.input(net.now, &net.pool, f);
    net.b.settle(net.now, &net.pool);
}

fn prefix(prefix: &str, valid_lifetime: u32) -> PrefixInformation {
    let prefix = prefix.parse().unwrap();
    let (on_link, autonomous, preferred_lifetime) = (true, true, 0);
    PrefixInformation { prefix, prefix_len: 64, on_link, autonomous, valid_lifetime, preferred_lifetime }
}

fn advertisement(src: Ipv6Addr, lifetime: u16, options: NdpOptions) -> Vec<u8> {
    let message = NdpMessage::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        lifetime,
        reachable_time: 0,
        retrans_timer: 0,
        options,
    };
    ndp(src, ALL_NODES, &message)
}

fn redirect(src: Ipv6Addr, target: Ipv6Addr, destination: &str) -> Vec<u8> {
    let options = NdpOptions::default();
    let message = NdpMessage::Redirect { target, destination: destination.parse().unwrap(), options };
    ndp(src, US, &message)
}

/// For whose Ethernet address each lane asks when it sends to `to`; none if there is no route.
fn asked_for(net: &mut Net, lane: usize, to: &str) -> Option<Ipv6Addr> {
    wait(net, 10);
    let s = net.b.lanes[lane].udp_bind(Bind::default()).unwrap();
    let sent = net.b.lanes[lane].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to)));
    assert!(net.b.lanes[lane].udp_close(s));
    if sent == Err(SendError::NoRoute) {
        return None;
    }
    assert_eq!(sent, Ok(()), "{to}");
    let out = net.b.output(net.now, &net.pool);
    let asks = out
        .iter()
        .map(flowlane_sys::frame::Frame::data)
        .find(|f| f[12..14] == [0x86, 0xdd] && f[54] == 135)
        .unwrap();
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(&asks[62..78]).unwrap()))
}

#[test]
fn a_default_route_and_its_end_are_known_to_every_lane() {
    let mut net = up();
    assert_eq!(asked_for(&mut net, 0, FAR), None);
    let options = NdpOptions {
        mtu: Some(1400),
        prefixes: [Some(prefix("2001:db8:7::", 300)), None, None, None],
        ..NdpOptions::default()
    };
    give(&mut net, &advertisement(ROUTER, 1800, options));
    for lane in 0..4 {
        assert_eq!(asked_for(&mut net, lane, FAR), Some(ROUTER));
        let near: Ipv6Addr = "2001:db8:7::99".parse().unwrap();
        assert_eq!(asked_for(&mut net, lane, "[2001:db8:7::99]:7"), Some(near), "on the link");
        assert_eq!(net.b.lanes[lane].max_payload(ip("2001:db8:5::1")), Ok(1400 - 48));
        assert_eq!(net.b.lanes[lane].max_payload(ip("10.0.0.1")), Ok(1500 - 28));
    }
    // The prefix ends before the router does.
    wait(&mut net, 300);
    assert_eq!(asked_for(&mut net, 1, "[2001:db8:7::99]:7"), Some(ROUTER));
    give(&mut net, &advertisement(ROUTER, 0, NdpOptions::default()));
    for lane in 0..4 {
        assert_eq!(asked_for(&mut net, lane, FAR), None, "it is no router any more");
    }
    give(&mut net, &advertisement(ROUTER, 60, NdpOptions::default()));
    wait(&mut net, 60);
    assert_eq!(asked_for(&mut net, 2, FAR), None, "not heard of for too long");
}

#[test]
fn routers_are_asked_for_until_one_is_heard() {
    let us = Plan { buckets: 2, ..Plan::new(2, &["fd00::2/64"]) };
    let solicitations = |heard: bool| {
        let mut net = Net::new(&Plan::new(1, &["fd00::1/64"]), &us);
        for lane in &mut net.b.lanes {
            lane.link_up(net.now, &net.pool, 0);
        }
        let mut all = wait(&mut net, 3);
        if heard {
            give(&mut net, &advertisement(ROUTER, 1800, NdpOptions::default()));
        }
        all.extend(wait(&mut net, 60));
        let asked = all.iter().filter(|f| f[12..14] == [0x86, 0xdd] && f[20] == 58 && f[54] == 133);
        asked.inspect(|f| assert_eq!(f[..6], [0x33, 0x33, 0, 0, 0, 2])).count()
    };
    assert_eq!((solicitations(false), solicitations(true)), (3, 1));
}

/// RFC 4861 sections 6.1.2 and 8.1.
#[test]
fn pretenders_are_not_believed() {
    let mut net = up();
    let options = NdpOptions::default();
    let stranger = "fd00::66".parse().unwrap();
    give(&mut net, &advertisement(stranger, 1800, options));
    let mut from_afar = advertisement(ROUTER, 1800, options);
    from_afar[7] = 254;
    give(&mut net, &from_afar);
    assert_eq!(asked_for(&mut net, 0, FAR), None);
    give(&mut net, &advertisement(ROUTER, 1800, NdpOptions { mtu: Some(1279), ..options }));
    assert_eq!(net.b.lanes[0].max_payload(ip("2001:db8:5::1")), Ok(1500 - 48), "less than any link has");
    let far = "2001:db8:5::1";
    give(&mut net, &redirect(OTHER, ROUTER, far));
    give(&mut net, &redirect(ROUTER, "2001:db8::1".parse().unwrap(), far));
    assert_eq!(asked_for(&mut net, 0, FAR), Some(ROUTER));
    let invalid: u64 = net.b.lanes.iter().map(|l| l.stats().drops.get(DropReason::NdpInvalid)).sum();
    assert_eq!(invalid, 4);
    // On a link in memory nobody is a router.
    let mut quiet = Net::new(&Plan::new(1, &["fd00::1/64"]), &Plan::new(2, &["fd00::2/64"]));
    give(&mut quiet, &advertisement(ROUTER, 1800, options));
    assert_eq!(quiet.b.lanes[0].stats().drops.get(DropReason::IcmpUnhandled), 1);
}

#[test]
fn a_redirect_of_the_router_in_use_is_followed_for_a_while() {
    let mut net = up();
    give(&mut net, &advertisement(ROUTER, 9000, NdpOptions::default()));
    give(&mut net, &redirect(ROUTER, OTHER, "2001:db8:5::1"));
    let direct: Ipv6Addr = "2001:db8:6::1".parse().unwrap();
    give(&mut net, &redirect(ROUTER, direct, "2001:db8:6::1"));
    for lane in 0..4 {
        assert_eq!(asked_for(&mut net, lane, FAR), Some(OTHER));
        assert_eq!(asked_for(&mut net, lane, "[2001:db8:6::1]:7"), Some(direct), "on the link itself");
        assert_eq!(asked_for(&mut net, lane, "[2001:db8:8::1]:7"), Some(ROUTER));
    }
    wait(&mut net, 600);
    assert_eq!(asked_for(&mut net, 3, FAR), Some(ROUTER));
}

/// What a liar on the link can make us remember is bounded, and so is what it costs.
#[test]
fn floods_of_routers_prefixes_and_redirects_are_bounded() {
    let mut net = up();
    for n in 0..2000u16 {
        if n % 10 == 0 {
            wait(&mut net, 1);
        }
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n);
        let prefixes = [0, 1, 2, 3].map(|m| Some(prefix(&format!("2001:db8:{n:x}:{m}::"), u32::MAX)));
        give(&mut net, &advertisement(router, 9000, NdpOptions { prefixes, ..NdpOptions::default() }));
    }
    let first = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, 0);
    assert_eq!(asked_for(&mut net, 0, "[2001:db8:f000::1]:7"), Some(first), "who came first stays");
    let kept = |net: &mut Net, n: u16| asked_for(net, 0, &format!("[2001:db8:{n:x}::9]:7")) != Some(first);
    assert!(kept(&mut net, 3) && !kept(&mut net, 4), "sixteen prefixes");
    for _ in 0..1000 {
        give(&mut net, &advertisement(first, 9000, NdpOptions::default()));
    }
    let limited: u64 = net.b.lanes.iter().map(|l| l.stats().drops.get(DropReason::RouterLimited)).sum();
    assert!(limited >= 900, "{limited}");
}
