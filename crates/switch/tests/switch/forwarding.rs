//! The switch frame by frame: a table of modes, tags, port VLANs and members, and each refusal by its name.

use crate::common;

use common::{ALL, Bench, config, frame, mac, port};
use flowlane_switch::Drop;

const C: u16 = 0x8100;
const S: u16 = 0x88a8;

/// One row: configuration, the port and the tags of a frame to everybody; the ports it leaves by, each with its tags.
type Row<'a> = (&'a str, usize, &'a [(u16, u16)], &'a [(usize, &'a [(u16, u16)])]);

#[test]
#[rustfmt::skip]
fn every_mode_tag_and_member_as_in_the_table() {
    let plain = "";
    let groups = "config vlan_mode port vlangroup 0 members 1 vlangroup 1 members 0,2 vlangroup 2 members empty";
    // p0 untagged 10, p1 untagged 20, p2 a trunk of both with untagged 10, p3 a trunk of both, tagged only.
    let dot1q = "config vlan_mode dot1q vlangroup 1 members none vlangroup 10 members 0,2,3t vlangroup 20 members 1,2t,3t \
                 port 0 pvid 10 port 1 pvid 20 port 2 pvid 10 port 3 pvid 0";
    let loose = "config vlan_mode dot1q vlangroup 10 members 0,1t vlangroup 20 members 1t,2 port 0 pvid 10 -ingress port 2 pvid 20";
    let flags = "config vlan_mode dot1q vlangroup 10 members 0,1,2t port 0 pvid 10 port 1 pvid 10 addtag droptagged \
                 port 2 pvid 10 striptag dropuntagged";
    let tunnel = "config vlan_mode dot1q vlangroup 10 members 0,1t,2 port 0 pvid 10 doubletag port 1 pvid 10 port 2 pvid 10";
    let qinq = "config vlan_mode qinq vlangroup 10 members 0,1t,2 port 0 pvid 10 port 1 pvid 10 port 2 pvid 10";
    let pcp = "config vlan_mode dot1q vlangroup 10 members 0,1t port 0 pvid 10 priority 3 priorities 7,1,2,3,4,5,6,0";
    let rows: &[Row<'_>] = &[
        (plain, 0, &[], &[(1, &[]), (2, &[])]),
        (plain, 0, &[(C, 7)], &[(1, &[(C, 7)]), (2, &[(C, 7)])]),
        (plain, 2, &[(S, 7), (C, 8)], &[(0, &[(S, 7), (C, 8)]), (1, &[(S, 7), (C, 8)])]),
        (groups, 0, &[(C, 7)], &[(1, &[(C, 7)])]),
        (groups, 1, &[], &[(0, &[]), (2, &[])]),
        (groups, 2, &[], &[]),
        (dot1q, 0, &[], &[(2, &[]), (3, &[(C, 10)])]),
        (dot1q, 0, &[(C, 0)], &[(2, &[]), (3, &[(C, 10)])]),
        (dot1q, 0, &[(C, 0xa000)], &[(2, &[]), (3, &[(C, 0xa00a)])]),
        (dot1q, 0, &[(C, 10)], &[(2, &[]), (3, &[(C, 10)])]),
        (dot1q, 0, &[(C, 20)], &[]),
        (dot1q, 0, &[(C, 30)], &[]),
        (dot1q, 0, &[(C, 4095)], &[]),
        (dot1q, 1, &[], &[(2, &[(C, 20)]), (3, &[(C, 20)])]),
        (dot1q, 2, &[], &[(0, &[]), (3, &[(C, 10)])]),
        (dot1q, 2, &[(C, 20)], &[(1, &[]), (3, &[(C, 20)])]),
        (dot1q, 3, &[], &[]),
        (dot1q, 3, &[(C, 0)], &[]),
        (dot1q, 3, &[(C, 0x3014)], &[(1, &[]), (2, &[(C, 0x3014)])]),
        // A service tag is payload in dot1q.
        (dot1q, 0, &[(S, 20)], &[(2, &[(S, 20)]), (3, &[(C, 10), (S, 20)])]),
        (dot1q, 3, &[(C, 10), (C, 5)], &[(0, &[(C, 5)]), (2, &[(C, 5)])]),
        (loose, 0, &[(C, 20)], &[(1, &[(C, 20)]), (2, &[])]),
        (flags, 0, &[], &[(1, &[(C, 10)]), (2, &[])]),
        (flags, 1, &[(C, 10)], &[]),
        (flags, 1, &[(C, 0)], &[(0, &[]), (2, &[])]),
        (flags, 2, &[], &[]),
        (flags, 2, &[(C, 0)], &[]),
        (flags, 2, &[(C, 10)], &[(0, &[]), (1, &[(C, 10)])]),
        (tunnel, 0, &[(C, 99)], &[(1, &[(C, 10), (C, 99)]), (2, &[(C, 99)])]),
        (tunnel, 0, &[(C, 0)], &[(1, &[(C, 10), (C, 0)]), (2, &[(C, 0)])]),
        (tunnel, 1, &[(C, 10), (C, 99)], &[(0, &[(C, 99)]), (2, &[(C, 99)])]),
        (qinq, 0, &[(C, 99)], &[(1, &[(S, 10), (C, 99)]), (2, &[(C, 99)])]),
        (qinq, 1, &[(S, 10), (C, 99)], &[(0, &[(C, 99)]), (2, &[(C, 99)])]),
        (qinq, 1, &[(S, 11)], &[]),
        (pcp, 0, &[], &[(1, &[(C, 0x600a)])]),
        (pcp, 0, &[(C, 0x0000)], &[(1, &[(C, 0xe00a)])]),
        (pcp, 0, &[(C, 0xf00a)], &[(1, &[(C, 0x100a)])]),
    ];
    for (number, (words, from, tags, expected)) in rows.iter().enumerate() {
        for (dst, kind) in [(ALL, "broadcast"), (mac(99), "unknown"), ([1, 0, 0x5e, 1, 1, 1], "group")] {
            for payload in [46, 1400] {
                let ports = if words.contains("p3") || words.contains("port 3") { 4 } else { 3 };
                let mut bench = Bench::words(ports, words);
                let sent = bench.send(*from, &frame(dst, mac(1), tags, payload));
                let expected: Vec<_> =
                    expected.iter().map(|(to, tags)| (*to, frame(dst, mac(1), tags, payload))).collect();
                assert_eq!(sent, expected, "row {number}, {kind}: {words}, {tags:x?} on {from}");
                // The same with the tag where the kernel keeps it.
                if let [(C, tci), rest @ ..] = tags {
                    // Copies come from the pool that the thread attached first.
                    drop(bench);
                    let mut bench = Bench::words(ports, words);
                    let mut beside = bench.frame(&frame(dst, mac(1), rest, payload));
                    beside.meta_mut().vlan = Some(*tci);
                    assert_eq!(bench.forward(*from, beside), expected, "row {number}: tag beside the data");
                }
            }
        }
    }
}

#[test]
fn a_station_gets_its_frames_alone_and_in_its_vlan() {
    let mut b = Bench::words(
        4,
        "config vlan_mode dot1q vlangroup 10 members 0,1,2 vlangroup 20 members 3,1t,2t port 0 pvid 10 port 3 pvid 20",
    );
    b.change("port 1 pvid 10 port 2 pvid 10");
    b.send(1, &frame(ALL, mac(1), &[], 46));
    assert_eq!(b.send(0, &frame(mac(1), mac(7), &[], 46)), [(1, frame(mac(1), mac(7), &[], 46))]);
    // The same address in the other VLAN is unknown.
    assert_eq!(b.send(3, &frame(mac(1), mac(8), &[], 46)).len(), 2);
    b.send(1, &frame(mac(8), mac(1), &[(C, 20)], 46));
    assert_eq!(b.send(3, &frame(mac(1), mac(8), &[], 46)), [(1, frame(mac(1), mac(8), &[(C, 20)], 46))]);
    // Nothing goes back where it came from.
    assert!(b.send(1, &frame(mac(1), mac(9), &[], 46)).is_empty());
    assert_eq!(b.switch.counters(port(1)).dropped(Drop::Local), 1);
    b.change("config learning shared");
    assert_eq!(b.switch.known(None), 0);
    b.send(1, &frame(ALL, mac(1), &[], 46));
    assert_eq!(b.send(3, &frame(mac(1), mac(8), &[], 46)), [(1, frame(mac(1), mac(8), &[(C, 20)], 46))]);
}

#[test]
fn every_refusal_has_its_name() {
    let words = "config vlan_mode dot1q vlangroup 10 members 0,1,2t,3 vlangroup 20 members 4 port 0 pvid 10 port 1 pvid 0 \
                 port 2 pvid 10 droptagged port 3 pvid 10 dropuntagged port 4 pvid 20 fdb static 02:00:00:00:00:63 vlan 10 port 1";
    let mut b = Bench::words(5, words);
    let reserved = |last| [1, 0x80, 0xc2, 0, 0, last];
    let cases = [
        (0, vec![1; 13], Drop::Short),
        (0, [frame(ALL, mac(1), &[(C, 10)], 0)[..16].to_vec()].concat(), Drop::Short),
        (0, frame(ALL, [3, 0, 0, 0, 0, 1], &[], 46), Drop::BadSource),
        (0, frame(ALL, [0; 6], &[], 46), Drop::BadSource),
        (0, frame(reserved(0), mac(1), &[], 46), Drop::Reserved),
        (0, frame(reserved(14), mac(1), &[], 46), Drop::Reserved),
        (0, frame(reserved(1), mac(1), &[], 46), Drop::Pause),
        (0, frame(ALL, mac(1), &[], 9300), Drop::Giant),
        (1, frame(ALL, mac(2), &[], 46), Drop::NoPvid),
        (0, frame(ALL, mac(1), &[(C, 11)], 46), Drop::NoVlan),
        (0, frame(ALL, mac(1), &[(C, 20)], 46), Drop::NotMember),
        (2, frame(ALL, mac(2), &[(C, 10)], 46), Drop::Tagged),
        (3, frame(ALL, mac(2), &[], 46), Drop::Untagged),
        (4, frame(ALL, mac(2), &[], 46), Drop::Nowhere),
        (0, frame(ALL, mac(0x63), &[], 46), Drop::StaticElsewhere),
    ];
    for (from, bytes, why) in cases {
        let before = b.switch.counters(port(from)).dropped(why);
        assert!(b.send(from, &bytes).is_empty(), "{why:?}");
        assert_eq!(b.switch.counters(port(from)).dropped(why), before + 1, "{why:?}");
    }
    b.change("config reserved pass");
    assert_eq!(b.send(0, &frame(reserved(0), mac(1), &[], 46)).len(), 3);
    assert!(b.send(0, &frame(reserved(1), mac(1), &[], 46)).is_empty(), "PAUSE is for one wire");
    // Longer than a port's MTU: only that port does without. The VLAN's tag does not count.
    b.change("port 1 mtu 100 port 2 mtu 9000 port 3 mtu 99");
    let sent: Vec<_> = b.send(0, &frame(ALL, mac(1), &[], 100)).into_iter().map(|(to, _)| to).collect();
    assert_eq!((sent, b.switch.counters(port(3)).dropped(Drop::Oversize)), (vec![1, 2], 1));
    assert_eq!(b.send(0, &frame(ALL, mac(1), &[(C, 10)], 100)).len(), 2);
    let jumbo = frame(ALL, mac(1), &[], 9000);
    assert_eq!(b.send(0, &jumbo), [(2, frame(ALL, mac(1), &[(C, 10)], 9000))]);
    b.change("port 3 pvid 10 -dropuntagged");
    b.switch.set_link(port(1), false);
    assert!(b.send(1, &frame(ALL, mac(2), &[(C, 10)], 46)).is_empty());
    assert_eq!(b.switch.counters(port(1)).dropped(Drop::LinkDown), 1);
    b.send(3, &frame(ALL, mac(3), &[], 46));
    assert!(b.send(3, &frame(mac(0x63), mac(3), &[], 46)).is_empty());
    assert_eq!(
        b.switch.counters(port(3)).dropped(Drop::NotReachable),
        1,
        "the port of a static address is down"
    );
}

#[test]
fn jumbo_frames_are_copied_whole() {
    let mut b = Bench::words(3, "port 0 mtu 9216 port 1 mtu 9216 port 2 mtu 9216");
    for payload in [1700, 1778, 1779, 2048, 4000, 9216] {
        let bytes = frame(ALL, mac(1), &[], payload);
        assert_eq!(b.send(0, &bytes), [(1, bytes.clone()), (2, bytes)], "{payload}");
    }
    assert_eq!(b.pool.free(), 1024, "all frames are back");
}

/// A packet of TCP that a link cuts is as long as its segments.
#[test]
fn segments_are_measured_and_not_the_packet() {
    let mut b = Bench::words(2, "");
    let mut bytes = frame(ALL, mac(1), &[], 5000);
    bytes[14] = 0x45;
    bytes[14 + 20 + 12] = 0x80;
    for (size, mtu, fits) in [(1448, 1500, true), (1449, 1500, false), (1448, 1499, false)] {
        let mut packet = b.frame(&bytes);
        packet.meta_mut().segmentation = flowlane_sys::frame::Segmentation::TcpV4;
        packet.meta_mut().segment_size = size;
        b.switch.set_link_mtu(port(1), mtu);
        assert_eq!(b.forward(0, packet).len(), usize::from(fits), "{size} {mtu}");
    }
    b.switch.set_link_mtu(port(1), 9000);
    assert_eq!(b.send(0, &frame(ALL, mac(1), &[], 1501)).len(), 0, "the port's own MTU is shorter");
}

#[test]
fn a_ports_link_takes_its_addresses_along_and_no_others() {
    let mut b = Bench::words(3, "");
    for n in 0..3 {
        b.send(n, &frame(ALL, mac(n as u8), &[], 46));
        b.send(n, &frame(ALL, mac(n as u8 + 10), &[], 46));
    }
    b.switch.set_link(port(1), false);
    assert_eq!([0, 1, 2].map(|n| b.switch.known(Some(port(n)))), [2, 0, 2]);
    assert_eq!(b.send(0, &frame(mac(2), mac(0), &[], 46)).len(), 1, "still known");
    assert_eq!(
        b.send(0, &frame(mac(1), mac(0), &[], 46)),
        [(2, frame(mac(1), mac(0), &[], 46))],
        "flooded to who is up"
    );
    b.switch.set_link(port(1), true);
    assert_eq!(b.send(0, &frame(mac(1), mac(0), &[], 46)).len(), 2);
}

#[test]
fn floods_are_limited_each_kind_for_itself() {
    let mut b = Bench::words(2, "port 0 storm broadcast 10 storm unknown 20 storm multicast 30");
    let count =
        |b: &mut Bench, dst| (0..100).filter(|_| !b.send(0, &frame(dst, mac(1), &[], 46)).is_empty()).count();
    assert_eq!(count(&mut b, ALL), 1, "a tenth of a second's worth");
    assert_eq!(count(&mut b, mac(99)), 2);
    assert_eq!(count(&mut b, [1, 0, 0x5e, 1, 1, 1]), 3);
    let c = b.switch.counters(port(0));
    let drops = [Drop::StormBroadcast, Drop::StormUnknown, Drop::StormMulticast].map(|why| c.dropped(why));
    assert_eq!((drops, c.flood_broadcast, c.flood_unknown, c.flood_multicast), ([99, 98, 97], 1, 2, 3));
    b.send(1, &frame(ALL, mac(99), &[], 46));
    assert_eq!(count(&mut b, mac(99)), 100, "known: no flood");
}

#[test]
fn moves_are_counted_named_and_limited() {
    let mut b = Bench::words(3, "config moves 10");
    b.send(1, &frame(ALL, mac(1), &[], 46));
    b.send(2, &frame(ALL, mac(1), &[], 46));
    assert!(
        b.send(0, &frame(mac(1), mac(5), &[], 46)).iter().all(|(to, _)| *to == 2),
        "where it was seen last"
    );
    let c = b.switch.counters(port(2));
    assert_eq!((c.moved, c.moves_refused), (1, 0));
    let event = b.switch.next_event().unwrap();
    assert!(format!("{event:?}").contains("02:00:00:00:00:01, from: port 1, to: port 2"), "{event:?}");
    for _ in 0..10 {
        b.send(1, &frame(ALL, mac(1), &[], 46));
        b.send(2, &frame(ALL, mac(1), &[], 46));
    }
    let c = b.switch.counters(port(2));
    assert_eq!((c.moved, c.moves_refused), (1, 10), "one at once, of ten a second");
}

#[test]
fn the_first_address_locks_its_port_until_the_link_goes() {
    let mut b = Bench::words(2, "port 0 firstlock");
    assert_eq!(b.send(0, &frame(ALL, mac(1), &[], 46)).len(), 1);
    assert_eq!(b.send(0, &frame(ALL, mac(2), &[], 46)).len(), 0);
    assert_eq!(b.switch.counters(port(0)).dropped(Drop::Locked), 1);
    assert_eq!(b.switch.known(None), 1);
    b.switch.set_link(port(0), false);
    b.switch.set_link(port(0), true);
    assert_eq!(b.send(0, &frame(ALL, mac(2), &[], 46)).len(), 1);
}

#[test]
fn a_mirror_sees_frames_as_they_came_once_and_is_no_way_in() {
    let mut b = Bench::words(
        4,
        "config vlan_mode dot1q vlangroup 10 members 0,1,2t port 0 pvid 10 port 1 pvid 10 mirror from 1 vlan 10 to 3",
    );
    let bytes = frame(ALL, mac(1), &[], 46);
    let tagged = frame(ALL, mac(1), &[(C, 10)], 46);
    assert_eq!(b.send(0, &bytes), [(1, bytes.clone()), (2, tagged.clone()), (3, bytes.clone())]);
    assert_eq!(b.send(2, &tagged), [(0, bytes.clone()), (1, bytes.clone()), (3, tagged.clone())]);
    // A link that has the tag beside the data, as cards do.
    let mut beside = b.frame(&bytes);
    beside.meta_mut().vlan = Some(10);
    assert_eq!(b.forward(2, beside), [(0, bytes.clone()), (1, bytes), (3, tagged)]);
    assert_eq!(b.switch.counters(port(3)).mirrored, 3);
    assert!(b.send(3, &frame(ALL, mac(7), &[], 46)).is_empty());
    assert_eq!((b.switch.counters(port(3)).dropped(Drop::Monitor), b.switch.known(Some(port(3)))), (1, 0));
    b.change("mirror from 1 to 3 port 0 -ingress vlangroup 20 members 0,2 port 0 pvid 20 port 2 pvid 20");
    assert_eq!(b.send(0, &frame(ALL, mac(1), &[], 46)).len(), 1, "not by port 1, not in its VLAN");
}

#[test]
fn a_loop_is_found_and_blocked_on_one_side() {
    let mut b = Bench::words(3, "config block 5");
    let mut found = None;
    for _ in 0..40 {
        b.now += std::time::Duration::from_millis(100);
        b.switch.tick(b.now);
        b.switch.probe(b.now, &b.pool, &mut b.output);
        // Ports 1 and 2 are joined outside.
        for (to, bytes) in b.take() {
            match to {
                1 => drop(b.send(2, &bytes)),
                2 => drop(b.send(1, &bytes)),
                _ => {}
            }
        }
        found = found.or_else(|| b.switch.next_event());
    }
    assert_eq!(b.switch.blocked().len(), 1, "{found:?}");
    let blocked = b.switch.blocked().next().unwrap().index();
    assert!(b.send(0, &frame(ALL, mac(1), &[], 46)).iter().all(|(to, _)| *to != blocked));
    let before = b.switch.counters(port(blocked)).dropped(Drop::Blocked);
    assert!(b.send(blocked, &frame(ALL, mac(2), &[], 46)).is_empty());
    assert_eq!(b.switch.counters(port(blocked)).dropped(Drop::Blocked), before + 1);
    // The wire is taken away.
    b.now += std::time::Duration::from_secs(5);
    b.switch.tick(b.now);
    assert!(b.switch.blocked().is_empty());
    assert_eq!(b.send(0, &frame(ALL, mac(1), &[], 46)).len(), 2);
}

#[test]
fn what_one_instance_learns_the_others_know() {
    let words = "config snooping on port 2 firstlock";
    let mut one = Bench::words(3, words);
    let seed = flowlane_switch::Seed([5, 6, 7, 8]);
    one.switch = flowlane_switch::Switch::new(config(3, words), seed, 2, one.now).unwrap();
    (0..3).for_each(|n| one.switch.set_link(port(n), true));
    let mut two = Bench::words(3, words);
    one.send(1, &frame(ALL, mac(1), &[], 46));
    one.send(2, &frame(ALL, mac(2), &[], 46));
    for news in one.switch.news().drain(..) {
        two.switch.hear(news, two.now);
    }
    assert_eq!(two.send(0, &frame(mac(1), mac(7), &[], 46)), [(1, frame(mac(1), mac(7), &[], 46))]);
    assert!(two.send(2, &frame(ALL, mac(3), &[], 46)).is_empty(), "locked there too");
    assert_eq!((two.switch.news().len(), one.switch.lost_news()), (0, 0));
    one.send(1, &frame(ALL, mac(1), &[], 46));
    assert!(one.switch.news().is_empty(), "nothing new");
}

#[test]
fn memory_that_is_short_costs_copies_and_nothing_else() {
    let mut b = Bench::words(3, "");
    let bytes = frame(ALL, mac(1), &[], 46);
    let first = b.frame(&bytes);
    let held: Vec<_> = std::iter::from_fn(|| b.pool.alloc()).collect();
    assert_eq!(b.forward(0, first), [(2, bytes)]);
    assert_eq!(b.switch.counters(port(1)).dropped(Drop::NoFrame), 1);
    drop(held);
    let mut small = flowlane_switch::Output::new(3, 1);
    let mut two = vec![b.frame(&frame(ALL, mac(1), &[], 46)), b.frame(&frame(ALL, mac(1), &[], 46))];
    b.switch.forward(port(0), &mut two, b.now, &mut small);
    assert_eq!((small.port(port(1)).len(), b.switch.counters(port(1)).dropped(Drop::QueueFull)), (1, 1));
}

/// A report of IGMP's version 2, and the end of one, in a frame.
fn igmp(from: u8, message: flowlane_stack::wire::IgmpMessage) -> Vec<u8> {
    let mut bytes = [[1, 0, 0x5e, 1, 2, 3], mac(from)].concat();
    bytes.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, from, 239, 1, 2, 3]);
    let sum = flowlane_stack::wire::checksum::checksum(&bytes[14..]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut text = [0; 8];
    message.emit(&mut text);
    bytes.extend(text);
    bytes
}

/// What the switch asks itself until nothing is due: ports and frames.
fn asked(b: &mut Bench) -> Vec<(usize, Vec<u8>)> {
    let mut all = Vec::new();
    while b.switch.query_due() <= b.now {
        b.switch.query(b.now, &b.pool, &mut b.output);
        all.extend(b.take());
    }
    all
}

#[test]
fn a_switch_that_asks_sends_groups_to_those_who_answer() {
    use flowlane_stack::wire::IgmpMessage::{Leave, Report};
    let group = "239.1.2.3".parse().unwrap();
    let words = "config vlan_mode dot1q snooping on querier on query_interval 8 igmp 2 vlangroup 1 members none \
                 vlangroup 10 members 0,1t,2,3 port 0 pvid 10 port 1 pvid 0 port 2 pvid 10 port 3 pvid 10";
    let mut b = Bench::words(5, &words.replace("port 3", "port 4 pvid 0 port 3"));
    b.switch.set_link(port(3), false);
    let pool = b.pool.free();
    let mut all = asked(&mut b);
    b.now += std::time::Duration::from_secs(1);
    all.extend(asked(&mut b));
    // IGMP and MLD, to the members that are up, tagged where they are.
    let ports: Vec<_> = all.iter().map(|(to, _)| *to).collect();
    assert_eq!(ports, [0, 1, 2, 0, 1, 2]);
    assert!(all.iter().all(|(to, f)| (f[12..16] == [0x81, 0, 0xc0, 10]) == (*to == 1)), "{all:02x?}");
    assert_eq!([0, 3, 4].map(|n| b.switch.counters(port(n)).queries), [2, 0, 0]);
    // Nobody has had the time to answer: everywhere.
    let data = frame([1, 0, 0x5e, 1, 2, 3], mac(9), &[], 46);
    assert_eq!(b.send(2, &data).len(), 2);
    assert_eq!(b.send(0, &igmp(1, Report { group })).len(), 2);
    b.now += std::time::Duration::from_secs(6);
    b.switch.tick(b.now);
    assert_eq!(b.send(2, &data), [(0, data.clone())]);
    // A report is for a router, and there is none.
    assert!(b.send(2, &igmp(2, Report { group })).is_empty());
    assert_eq!(b.switch.counters(port(2)).dropped(Drop::Report), 1);
    asked(&mut b);
    // Who leaves is asked at once, on that port alone.
    b.send(2, &igmp(2, Leave { group }));
    let all = asked(&mut b);
    assert_eq!((all.len(), all[0].0, &all[0].1[30..34]), (1, 2, &[239, 1, 2, 3][..]), "{all:02x?}");
    b.now += std::time::Duration::from_secs(4);
    b.switch.tick(b.now);
    asked(&mut b);
    assert!(b.send(2, &data).len() == 1 && b.send(0, &data).is_empty());
    // Another switch asks that has an address: it is a router, and is left to it.
    let from = b.switch.queriers().find(|q| q.v4).unwrap();
    assert_eq!((from.vlan, from.other), (10, None));
    let query = [&[0x11, 100, 0xee, 0x9b], &[0u8; 4][..]].concat();
    let mut other = igmp(7, Report { group });
    other.truncate(34);
    other.extend(query);
    b.send(2, &other);
    assert_eq!(b.switch.queriers().find(|q| q.v4).unwrap().other, Some("10.0.0.7".parse().unwrap()));
    b.now += std::time::Duration::from_secs(9);
    assert!(asked(&mut b).iter().all(|(_, f)| f.windows(2).any(|k| k == [0x86, 0xdd])), "MLD alone");
    assert_eq!(b.pool.free(), pool);
}
