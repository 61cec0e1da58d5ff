//! The switch asks itself: when, whom, and when it leaves that to another.

use super::*;
use flowlane_stack::wire::{Ipv4Header, Ipv6Header, MldQuery};
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

const VLANS: &str = "vlan_mode dot1q querier on query_interval 100 vlangroup 10 members 0,1";

/// The questions of the first seconds, with the second of each.
fn asked(s: &mut Snoop, until: u64) -> Vec<(u64, Question)> {
    asked_since(s, 0, until)
}

fn asked_since(s: &mut Snoop, since: u64, until: u64) -> Vec<(u64, Question)> {
    let mut all = Vec::new();
    while s.deadline() <= at(until) {
        let now = s.deadline().max(at(since));
        s.expire(now);
        all.extend(s.ask(now).map(|q| (now.as_millis() / 1000 - 1000, q)));
    }
    all
}

fn is_general(q: &Question) -> bool {
    q.group.is_unspecified() && q.port.is_none()
}

#[test]
fn every_vlan_and_family_is_asked_in_rounds_two_of_them_quick() {
    let mut s = snoop(VLANS);
    let all = asked(&mut s, 260);
    assert!(all.iter().all(|(_, q)| is_general(q)));
    let of = |vid, v4| {
        let of = all.iter().filter(|(_, q)| (q.vid, q.group.is_ipv4()) == (vid, v4));
        of.map(|(second, _)| *second).collect::<Vec<_>>()
    };
    for side in [(1, true), (1, false), (10, true), (10, false)] {
        assert_eq!(of(side.0, side.1), [0, 25, 50, 150, 250], "{side:?}");
    }
    assert_eq!(all.len(), 20);
    // A link that comes up begins a quick round, and a flapping one no more than that.
    (0..100).for_each(|_| s.link_up());
    let all = asked_since(&mut s, 300, 330);
    assert_eq!(all.iter().filter(|(_, q)| (q.vid, q.group.is_ipv4()) == (10, true)).count(), 2);
    let mut sides = std::collections::BTreeSet::new();
    for n in 0..8 {
        s.link_up();
        let now = s.deadline().max(at(330) + Duration::from_millis(200 * n));
        sides.extend(s.ask(now).map(|q| (q.vid, q.group.is_ipv4())));
    }
    assert_eq!(sides.len(), 4, "flaps do not keep it from the others");
    // The same configuration once more, and one with another VLAN.
    s.configure(&config(VLANS), at(331));
    assert!(s.deadline() > at(331));
    s.configure(&config(&format!("{VLANS} vlangroup 20 members 2")), at(331));
    assert_eq!(s.queriers().map(|q| q.vlan).collect::<Vec<_>>(), [1, 1, 10, 10, 20, 20]);
    assert!(s.deadline() <= at(331));
    for off in ["", "vlan_mode dot1q"] {
        s.configure(&config(off), at(332));
        assert_eq!((s.deadline(), s.ask(at(999)), s.queriers().count()), (Time::MAX, None, 0));
    }
}

/// Thousands of VLANs are no burst.
#[test]
fn a_round_is_spread_over_its_interval() {
    let mut words = VLANS.to_owned();
    for vid in 100..2100 {
        words += &format!(" vlangroup {vid} members 0");
    }
    let mut s = snoop(&words);
    let all = asked(&mut s, 40);
    let most = (0..40).map(|second| all.iter().filter(|(at, _)| *at == second).count()).max();
    assert!(all.len() > 4000 && most.unwrap() < 200, "{} {most:?}", all.len());
}

/// The lowest address asks; one that has none yields to all; nobody hears a query of MLD from afar.
#[test]
fn whoever_has_the_lowest_address_asks_until_it_is_silent() {
    let words = "querier 10.0.0.5 query_interval 125";
    for (words, from, yields) in [
        (words, "10.0.0.9", false),
        (words, "10.0.0.5", false),
        (words, "0.0.0.0", false),
        (words, "10.0.0.4", true),
        ("querier on", "10.0.0.9", true),
        ("querier on", "0.0.0.0", false),
        (words, "fe80::1", true),
        (words, "febf:ffff::1", false),
        (words, "2001:db8::1", false),
        (words, "::", false),
    ] {
        let mut s = snoop(words);
        let v4 = ip(from).is_ipv4();
        s.heard(0, port(3), Heard::Query(ip(from)), at(100));
        let count = |s: &mut Snoop, until| {
            asked(s, until).iter().filter(|(second, q)| *second > 100 && q.group.is_ipv4() == v4).count()
        };
        let who = s.queriers().find(|q| q.v4 == v4).unwrap().other;
        assert_eq!(who, yields.then(|| ip(from)), "{words} {from}");
        let heard = count(&mut s, 354);
        assert_eq!(heard == 0, yields, "{words} {from}: {heard}");
        // 2 * 125 + 10 / 2 seconds of silence: the other is gone, and the switch asks at once.
        s.expire(at(355));
        assert!(s.queriers().all(|q| q.other.is_none()));
        assert_eq!(s.deadline() <= at(355), yields, "{words} {from}");
        assert_eq!(s.ask(at(355)).is_some(), yields);
    }
}

#[test]
fn groups_go_to_their_listeners_once_all_have_had_the_time_to_answer() {
    let mut s = snoop("querier on");
    let group = v4("239.1.2.3");
    // 125 / 4 seconds for the first round, 10 to answer.
    assert_eq!(s.targets(0, group, at(41)), None);
    s.heard(0, port(1), Heard::Join(group), at(5));
    assert_eq!(s.targets(0, group, at(42)), Some(set(&[1])));
    assert_eq!(s.targets(0, v4("239.1.2.4"), at(42)), Some(PortSet::NONE));
    assert_eq!(s.targets(0, v6("ff15::7"), at(42)), Some(PortSet::NONE));
    assert_eq!(s.targets(0, v4("224.0.0.251"), at(42)), None);
    assert_eq!(s.routers(0, true, at(42)), Some(PortSet::NONE), "a report is for nobody else");
    // Another asks, and is gone: the entries that it kept live on while the switch asks again.
    s.heard(0, port(6), QUERY, at(50));
    assert_eq!(s.targets(0, group, at(51)), Some(set(&[1, 6])));
    s.heard(0, port(1), Heard::Join(group), at(250));
    s.expire(at(305));
    assert_eq!(s.targets(0, group, at(305)), None, "nobody has been asked for long");
    assert_eq!(s.targets(0, group, at(317)), Some(set(&[1])));
    // The interval is that of the configuration: 2 * 20 + 10.
    let mut s = snoop("querier on query_interval 20");
    s.heard(0, port(1), Heard::Join(group), at(0));
    s.expire(at(49));
    assert_eq!(s.targets(0, group, at(49)), Some(set(&[1])));
    s.expire(at(50));
    assert_eq!(s.targets(0, group, at(50)), Some(PortSet::NONE));
    // Another way to divide the ports: everything is asked again first.
    s.clear();
    s.configure(&config("querier on query_interval 20"), at(60));
    assert_eq!(s.targets(0, group, at(61)), None);
}

#[test]
fn who_leaves_is_followed_by_two_questions_on_that_port() {
    let mut s = snoop("querier on");
    asked(&mut s, 99);
    let group = ip("239.1.2.3");
    s.heard(0, port(1), Heard::Leave(group), at(100));
    assert!(s.deadline() > at(100), "nobody listened there");
    for n in [1, 2] {
        s.heard(0, port(n), Heard::Join(number(group)), at(100));
        s.heard(0, port(n), Heard::Leave(group), at(100));
        s.heard(0, port(n), Heard::Leave(group), at(100));
    }
    let all: Vec<_> = asked(&mut s, 103).into_iter().filter(|(_, q)| !is_general(q)).collect();
    let question = |n| Question { vid: 0, group, port: Some(port(n)) };
    assert_eq!(all, [(100, question(1)), (100, question(2)), (101, question(1)), (101, question(2))]);
    // One is answered.
    s.heard(0, port(2), Heard::Join(number(group)), at(102));
    s.expire(at(103));
    assert_eq!(s.targets(0, number(group), at(103)), Some(set(&[2])));
    // Nobody asks for another querier's listeners.
    s.heard(0, port(6), QUERY, at(104));
    s.heard(0, port(2), Heard::Leave(group), at(105));
    assert!(asked(&mut s, 110).iter().all(|(_, q)| is_general(q) && !q.group.is_ipv4()));
}

/// What strangers leave costs a bounded list; what finds no room there stays until it is forgotten with the others.
#[test]
fn a_leave_that_finds_no_room_is_ignored() {
    let mut s = snoop("querier on");
    asked(&mut s, 99);
    let group = |n: u8| IpAddr::V4(Ipv4Addr::new(239, 1, 2, n));
    for n in 0..100 {
        s.heard(0, port(1), Heard::Join(number(group(n))), at(100));
        s.heard(0, port(1), Heard::Leave(group(n)), at(100));
    }
    s.expire(at(103));
    let left = (0..100).filter(|n| s.targets(0, number(group(*n)), at(103)) == Some(set(&[1]))).count();
    assert_eq!(left, 100 - 64);
    // An instance that sends none has room again, too.
    s.heard(0, port(1), Heard::Leave(group(99)), at(104));
    s.expire(at(107));
    assert_eq!(s.targets(0, number(group(99)), at(107)), Some(PortSet::NONE));
}

#[test]
fn queries_are_what_the_standards_say() {
    let memory =
        MemoryConfig { frames_per_home: 8, lock: false, huge_pages: false, ..MemoryConfig::default() };
    let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
    for (words, versions) in [("", (3, 2)), (" igmp 2 mld 1", (2, 1))] {
        let s = snoop(&format!("querier 10.0.0.5 query_interval 60{words}"));
        for (group, dst) in [("0.0.0.0", "224.0.0.1"), ("239.1.2.3", "239.1.2.3")] {
            let question = Question { vid: 10, group: ip(group), port: None };
            let frame = s.query(question, port(2), &pool).unwrap();
            let data = frame.data();
            assert_eq!((&data[..6], data.len() >= 60), (&number(ip(dst)).to_be_bytes()[2..], true));
            assert_eq!((data[6] & 3, data[11], &data[12..14]), (2, 2, &[8, 0][..]));
            let (header, payload) = Ipv4Header::parse(&data[14..]).unwrap();
            assert_eq!((header.src.into(), header.dst.into()), (ip("10.0.0.5"), ip(dst)));
            assert_eq!((header.ttl, header.options.router_alert), (1, true));
            let (message, _) = IgmpMessage::parse(&data[14..][payload]).unwrap();
            let IgmpMessage::Query { group: of, max_response, version, interval, .. } = message else {
                panic!("{message:?}")
            };
            let response = if ip(group).is_unspecified() { 10 } else { 1 };
            assert_eq!((ip(group), max_response.as_secs(), version), (of.into(), response, versions.0));
            assert_eq!(interval.as_secs(), if version == 3 { 60 } else { 0 });
        }
        for (group, dst) in [("::", "ff02::1"), ("ff15::7", "ff15::7")] {
            let frame = s.query(Question { vid: 10, group: ip(group), port: None }, port(2), &pool).unwrap();
            let data = frame.data();
            assert_eq!((&data[..6], &data[12..14]), (&number(ip(dst)).to_be_bytes()[2..], &[0x86, 0xdd][..]));
            let (header, payload) = Ipv6Header::parse(&data[14..]).unwrap();
            assert!(header.src.is_unicast_link_local() && header.hop_limit == 1);
            // Its checksum is right, and it is what a switch would read.
            assert_eq!(heard(0x86dd, &data[14..]), (None, vec![Heard::Query(header.src.into())]));
            let query = MldQuery::parse(&data[14..][payload][8..]).unwrap().unwrap();
            let response = if ip(group).is_unspecified() { 10 } else { 1 };
            assert_eq!((ip(group), query.version), (query.group.into(), versions.1));
            assert_eq!(query.max_response.as_secs(), response);
        }
    }
}
