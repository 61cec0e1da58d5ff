use super::*;
use crate::Class;
use crate::rng::Rng;
use crate::testing::{datagram, frame, interface, lane};
use flowlane_sys::frame::{Frame, Pool, Segmentation};
use key::{counted, look_closely, plain, plain_v6};
use std::collections::HashMap;

impl Top {
    /// As a lane counts a frame that has come.
    fn received(&mut self, now: Time, frame: &Frame, ethernet: bool) {
        if let Some((key, weight)) = counted(frame, ethernet, true) {
            self.count(now, key, weight, true);
        }
    }

    /// As a lane counts a frame that goes out.
    fn sent(&mut self, now: Time, frame: &Frame, ethernet: bool) {
        if let Some((key, weight)) = counted(frame, ethernet, false) {
            self.count(now, key, weight, false);
        }
    }
}

fn pool() -> Pool {
    crate::testing::pool(64)
}

const OURS: u32 = 0x0a00_0001;

fn top(flows: usize, idle: u64) -> Top {
    Top::new(&TopConfig { flows, idle: Duration::from_secs(idle), seed: [0x1234_5678_9abc_def1, 77] })
}

fn port(flow: &TopFlow) -> u16 {
    flow.remote.port
}

/// Every report against what really passed: counts are never too low, and too high by no more than said; a flow that is missing has had
/// no more than said. Most flows are small, some large, and they come and go.
#[test]
fn counts_are_within_their_bounds() {
    let pool = pool();
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut top = top(32, 5);
        // By port: packets, bytes, and the second of its last packet.
        let mut truth: HashMap<u16, (u64, u64, u64)> = HashMap::new();
        let (mut now, mut checked) = (Time::from_secs(1000), 0);
        for step in 0..30_000_u64 {
            now += Duration::from_millis(u64::from(rng.below(4)));
            if step % 5_000 == 4_999 {
                now += Duration::from_secs(7);
            }
            let second = now.as_nanos() / 1_000_000_000;
            // The smaller of two numbers, three times: small ones are frequent.
            let flow = (0..3).map(|_| rng.below(400)).min().unwrap() as u16 + 1;
            let size = if flow % 7 == 0 { 1000 } else { 10 };
            let out = rng.below(3) == 0;
            let (src, dst) = ((OURS + 1, flow), (OURS, 7));
            let ((a, b), (c, d)) = if out { (dst, src) } else { (src, dst) };
            let bytes = datagram(a, b, c, d, size);
            if out {
                top.sent(now, &frame(&pool, &bytes), true);
            } else {
                top.received(now, &frame(&pool, &bytes), true);
            }
            let known = truth.entry(flow).or_default();
            if second - known.2 > 5 {
                *known = (0, 0, 0);
            }
            *known = (known.0 + 1, known.1 + u64::from(size) + 28, second);
            if step % 500 != 250 {
                continue;
            }
            let report = top.report(now).unwrap();
            let alive: HashMap<u16, (u64, u64)> = truth
                .iter()
                .filter(|(_, t)| second - t.2 <= 5)
                .map(|(flow, t)| (*flow, (t.0, t.1)))
                .collect();
            for flow in &report.flows {
                let (packets, octets) = alive[&port(flow)];
                for (is, was) in [(flow.packets, packets), (flow.octets, octets)] {
                    assert!(is.count >= was && is.count - is.error <= was, "{is:?} {was} of {flow:?}");
                }
            }
            let listed: Vec<u16> = report.flows.iter().map(port).collect();
            for (flow, (packets, octets)) in alive.iter().filter(|(flow, _)| !listed.contains(flow)) {
                let most = (report.packets_elsewhere, report.octets_elsewhere);
                assert!(*packets <= most.0 && *octets <= most.1, "{flow}: {packets} {octets} {most:?}");
                checked += 1;
            }
            assert!(report.flows.len() <= 64 && report.room == 32);
        }
        assert!(checked > 1000, "flows were missing: {checked}");
    }
}

/// As long as no flow expires, a flow that is missing has had at most an eighth of what was counted in its set, by packets and by bytes, even if
/// those with most of the one have least of the other. And whoever has more than that is there.
#[test]
fn a_missing_flow_had_at_most_an_eighth() {
    let pool = pool();
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let mut top = top(8, 60);
        let mut truth: HashMap<u16, (u64, u64)> = HashMap::new();
        for step in 0..4000 {
            // Three with many small packets, five with few large ones, and newcomers of all sizes that come a few times.
            let (flow, size) = match rng.below(8) {
                0..=3 => (1 + rng.below(3) as u16, 0),
                4 => (4 + rng.below(5) as u16, 1400),
                _ => (100 + (step / 8) as u16 + rng.below(4) as u16, rng.below(200) as u16),
            };
            top.received(Time::from_secs(1), &frame(&pool, &datagram(OURS + 1, flow, OURS, 7, size)), true);
            let had = truth.entry(flow).or_default();
            *had = (had.0 + 1, had.1 + u64::from(size) + 28);
            if step % 50 != 49 {
                continue;
            }
            let report = top.report(Time::from_secs(1)).unwrap();
            let sums = truth.values().fold((0, 0), |sum, had| (sum.0 + had.0, sum.1 + had.1));
            assert_eq!(report.counted, TopTotals { packets: sums.0, octets: sums.1 });
            assert!(report.packets_elsewhere * 8 <= sums.0 && report.octets_elsewhere * 8 <= sums.1);
            let listed: Vec<u16> = report.flows.iter().map(port).collect();
            for (flow, had) in truth.iter().filter(|(flow, _)| !listed.contains(flow)) {
                assert!(had.0 * 8 <= sums.0 && had.1 * 8 <= sums.1, "{flow}: {had:?} of {sums:?}");
            }
            assert!(step < 2000 || (1..9).all(|flow| listed.contains(&flow)), "{listed:?}");
        }
    }
}

/// A flow that was put out comes back, while there is room again since others are idle: what it had is in the bound.
#[test]
fn who_was_put_out_comes_back_to_its_count() {
    let pool = pool();
    let mut top = top(8, 5);
    let mut send = |second, port, packets| {
        let bytes = datagram(OURS + 1, port, OURS, 7, 10);
        (0..packets).for_each(|_| top.received(Time::from_secs(second), &frame(&pool, &bytes), true));
    };
    (1..=7).for_each(|port| send(100, port, 20));
    (8..=16).for_each(|port| send(103, port, 10));
    send(104, 17, 1);
    send(106, 8, 1);
    let report = top.report(Time::from_secs(106)).unwrap();
    let back = report.flows.iter().find(|flow| port(flow) == 8).unwrap();
    assert_eq!((back.packets.count, back.packets.error), (11, 10));
    assert_eq!(report.flows.len(), 10, "the first seven are idle");
    assert_eq!(report.counted.packets, 7 * 20 + 9 * 10 + 2, "also of those that are gone");
}

/// A flow with a quarter of all packets among a hundred thousand others is first, and its count is nearly right.
#[test]
fn heavy_flows_are_found_among_very_many() {
    let pool = pool();
    let mut top = top(256, 60);
    let mut rng = Rng::new(3);
    let now = Time::from_secs(5);
    for step in 0..200_000_u32 {
        let (src, sport) = if step % 4 == 0 { (OURS + 9, 5) } else { (rng.next_u32() | 1 << 31, 6) };
        top.received(now, &frame(&pool, &datagram(src, sport, OURS, 7, 20)), true);
    }
    let report = top.report(now).unwrap();
    assert_eq!(report.counted, TopTotals { packets: 200_000, octets: 200_000 * 48 });
    let first = report.flows.iter().max_by_key(|flow| flow.packets.count).unwrap();
    assert_eq!((first.remote.port, first.local.port), (5, 7));
    let TopCount { count, error } = first.packets;
    assert!((50_000..50_000 + 10).contains(&(count)), "{count}");
    assert!(error < 10, "it was in the table from its beginning, or nearly so: {error}");
    // Packets are alike, so each of 32 sets of sixteen gives up a sixteenth of what it was given: 293 in the mean of those without the large one.
    assert!((250..450).contains(&report.packets_elsewhere), "{}", report.packets_elsewhere);
}

/// One flow only, both directions: exact, and one row.
#[test]
fn one_flow_is_exact() {
    let pool = pool();
    let mut top = top(8, 60);
    let now = Time::from_secs(5);
    for _ in 0..1000 {
        top.received(now, &frame(&pool, &datagram(OURS + 1, 5, OURS, 7, 100)), true);
    }
    for _ in 0..10 {
        top.sent(now, &frame(&pool, &datagram(OURS, 7, OURS + 1, 5, 0)), true);
    }
    let report = top.report(now).unwrap();
    let [flow] = report.flows[..] else { panic!("{report:?}") };
    assert_eq!(flow.packets, TopCount { count: 1010, error: 0 });
    assert_eq!(flow.octets, TopCount { count: 128_280, error: 0 });
    assert_eq!(flow.received, TopTotals { packets: 1000, octets: 128_000 });
    assert_eq!(flow.sent, TopTotals { packets: 10, octets: 280 });
    assert_eq!((report.packets_elsewhere, report.octets_elsewhere), (0, 0));
    assert_eq!((flow.since, flow.last, flow.protocol), (now, now, IpProtocol::UDP));
}

/// A flow that was silent for longer than `idle` is gone, one that was not stays; when it comes again it is new.
#[test]
fn idle_flows_are_forgotten() {
    let pool = pool();
    let mut top = top(8, 60);
    let send = |top: &mut Top, second: u64, sport: u16| {
        let frame = frame(&pool, &datagram(OURS + 1, sport, OURS, 7, 0));
        top.received(Time::from_secs(second), &frame, true);
    };
    (0..5).for_each(|_| send(&mut top, 100, 5));
    (100..160).for_each(|second| send(&mut top, second, 6));
    assert_eq!(top.report(Time::from_secs(160)).unwrap().flows.len(), 2);
    let left = top.report(Time::from_secs(161)).unwrap();
    assert_eq!(left.flows.iter().map(port).collect::<Vec<_>>(), [6]);
    send(&mut top, 162, 5);
    let again = top.report(Time::from_secs(162)).unwrap();
    let flow = again.flows.iter().find(|flow| port(flow) == 5).unwrap();
    assert_eq!((flow.packets, flow.since), (TopCount { count: 1, error: 0 }, Time::from_secs(162)));
    assert!(top.report(Time::from_secs(1000)).unwrap().flows.is_empty());
}

/// Idle flows leave set by set, whether or not somebody reads: a newcomer starts from nothing in a set whose flows are all idle, and its
/// own packets do not keep others.
#[test]
fn newcomers_take_the_place_of_idle_flows() {
    let pool = pool();
    let mut top = top(8, 3);
    let mut send = |second, port| {
        let bytes = datagram(OURS + 1, port, OURS, 7, 0);
        top.received(Time::from_secs(second), &frame(&pool, &bytes), true);
    };
    // The seventeenth puts one out; then all are idle, and no floor stands for anybody.
    (1..=17).for_each(|port| (0..9).for_each(|_| send(100, port)));
    (20..=26).for_each(|port| send(104, port));
    let report = top.report(Time::from_secs(104)).unwrap();
    let mut counts: Vec<(u16, TopCount)> =
        report.flows.iter().map(|flow| (port(flow), flow.packets)).collect();
    counts.sort_unstable_by_key(|(port, _)| *port);
    let all: Vec<(u16, TopCount)> = (20..=26).map(|port| (port, TopCount { count: 1, error: 0 })).collect();
    assert_eq!(counts, all);
}

/// Flows in turn, packet by packet, whose addresses differ in one byte only: each has its own count, also where tags are the same by chance.
#[test]
fn flows_in_turn_are_told_apart() {
    let pool = pool();
    let v6 = |byte: usize| {
        let mut bytes = vec![2; 12];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
        bytes.extend([0xfd; 32]);
        bytes[22 + byte * 2] = 1;
        bytes.extend([0, 5, 0, 7, 0, 8, 0, 0]);
        bytes
    };
    for seed in 0..20 {
        let mut top = Top::new(&TopConfig { flows: 8, ..TopConfig::new([seed, 77]) });
        for _ in 0..10 {
            (0..16).for_each(|byte| top.received(Time::from_secs(1), &frame(&pool, &v6(byte)), true));
        }
        let report = top.report(Time::from_secs(1)).unwrap();
        let counts: Vec<TopCount> = report.flows.iter().map(|flow| flow.packets).collect();
        assert_eq!(counts, [TopCount { count: 10, error: 0 }; 16]);
    }
}

/// The short ways of plain frames find what the long one does, whatever the header says.
#[test]
fn the_short_way_agrees_with_the_long_one() {
    let pool = pool();
    let (mut rng, mut taken) = (Rng::new(5), [0; 2]);
    for n in 0..6000 {
        let v6 = n % 2 == 1;
        let mut bytes = datagram(rng.next_u32(), rng.next_u32() as u16, OURS, 7, 30);
        if v6 {
            bytes.splice(12..34, [0x86, 0xdd, 0x60, 0, 0, 0, 0, 38, 17, 64]);
            bytes.splice(22..22, (0..32).map(|_| rng.next_u32() as u8));
        }
        if rng.below(2) == 0 {
            bytes[if v6 { 20 } else { 23 }] = 6;
        }
        for _ in 0..rng.below(3) {
            let at = 12 + rng.below(14) as usize;
            bytes[at] = [0, 1, 6, 17, 0x20, 0x45, 0x60, rng.next_u32() as u8][rng.below(8) as usize];
        }
        bytes.truncate(if v6 { 50 } else { 30 } + rng.below(43) as usize);
        let frame = frame(&pool, &bytes);
        for received in [false, true] {
            let short = if v6 { plain_v6(&frame, received) } else { plain(&frame, received) };
            let Some((key, octets)) = short else { continue };
            let short = (key, Weight { packets: 1, octets });
            assert_eq!(Some(short), look_closely(&frame, true, received), "{bytes:?}");
            taken[usize::from(v6)] += 1;
        }
    }
    assert!(taken.iter().all(|taken| *taken > 1000), "{taken:?}");
}

/// Bytes are those of IP: no padding, no more than there are, and all headers of what a link cuts.
#[test]
fn weights_are_those_of_the_wire() {
    let pool = pool();
    let bare = datagram(OURS + 1, 5, OURS, 7, 2);
    let of =
        |frame: &Frame| look_closely(frame, true, true).map(|(_, weight)| (weight.packets, weight.octets));
    assert_eq!(of(&frame(&pool, &bare)), Some((1, 30)));
    assert_eq!(of(&frame(&pool, &[&bare[..], &[0; 16]].concat())), Some((1, 30)), "padded");
    let mut lies = bare.clone();
    lies[16..18].copy_from_slice(&60_000_u16.to_be_bytes());
    assert_eq!(of(&frame(&pool, &lies)), Some((1, 30)), "longer than it is");
    let mut tagged = bare.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(of(&frame(&pool, &tagged)), Some((1, 30)));
    // A TCP segment of 1000 bytes that is cut into pieces of 300: four packets, each with 40 bytes of headers.
    let mut segment = datagram(OURS + 1, 5, OURS, 7, 1012);
    (segment[23], segment[46]) = (6, 0x50);
    let mut large = frame(&pool, &segment);
    (large.meta_mut().segmentation, large.meta_mut().segment_size) = (Segmentation::TcpV4, 300);
    assert_eq!(of(&large), Some((4, 1000 + 4 * 40)));
    assert_eq!(plain(&large, true), None);
    let mut v6 = vec![2; 12];
    v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    v6.extend([0xfd; 32]);
    v6.extend([0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
    let mut large = frame(&pool, &v6);
    assert!(plain_v6(&large, true).is_some());
    (large.meta_mut().segmentation, large.meta_mut().segment_size) = (Segmentation::TcpV6, 300);
    assert_eq!(plain_v6(&large, true), None);
    let (key, weight) = look_closely(&frame(&pool, &v6), true, true).unwrap();
    assert_eq!((weight.packets, weight.octets, key.protocol()), (1, 60, IpProtocol::TCP));
    let ends = key.ends();
    assert_eq!(
        (ends.0.port, ends.1.port, ends.0.ip.to_string()),
        (7, 5, "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd".into())
    );
    // Nothing else is counted: ICMP, ARP, and what is cut short, which is no flow or has no ports.
    let mut icmp = bare.clone();
    icmp[23] = 1;
    assert_eq!(of(&frame(&pool, &icmp)), None);
    for len in 0..bare.len() {
        let _ = of(&frame(&pool, &bare[..len]));
    }
    let mut fragment = bare.clone();
    fragment[20] = 0x20;
    let (key, _) = look_closely(&frame(&pool, &fragment), true, true).unwrap();
    assert!(key.is_fragment() && key.ends().0.port == 0);
    // A packet and its answer are of one flow; another's is not.
    let back = datagram(OURS, 7, OURS + 1, 5, 0);
    assert_eq!(
        look_closely(&frame(&pool, &bare), true, true).unwrap().0,
        look_closely(&frame(&pool, &back), true, false).unwrap().0
    );
    assert_ne!(
        look_closely(&frame(&pool, &bare), true, true).unwrap().0,
        look_closely(&frame(&pool, &back), true, true).unwrap().0
    );
}

/// Whoever does not know the seed cannot aim at a set: ports in a row, and addresses in a row, fall evenly.
#[test]
fn flows_fall_evenly() {
    let pool = pool();
    for seed in [[1, 2], [u64::MAX, 0x8000_0000_0000_0000], [0xdead_beef_0bad_cafe, 3]] {
        let mut sets = [[0_u32; 32]; 2];
        for n in 0..6400_u32 {
            for (which, bytes) in
                [datagram(OURS + 1, n as u16 + 1, OURS, 7, 0), datagram(n << 8, 5, OURS, 7, 0)]
                    .iter()
                    .enumerate()
            {
                let (key, _) = look_closely(&frame(&pool, bytes), true, true).unwrap();
                sets[which][key.hash(seed) as usize % 32] += 1;
            }
        }
        for set in sets.iter().flatten() {
            assert!((120..290).contains(set), "{set} of 200 on average, seed {seed:?}");
        }
    }
}

/// A lane counts what comes and what it sends, once each, and only while somebody watches.
#[test]
fn a_lane_counts_both_ways() {
    let pool = pool();
    let mut lane = lane(interface(1), [1, 2, 3, 4]);
    let now = Time::from_secs(1);
    let syn = {
        let mut bytes = datagram(OURS + 1, 5, OURS, 80, 12);
        bytes[23] = 6;
        bytes.truncate(54);
        bytes[38..54].copy_from_slice(&[0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0]);
        let mut ip = [0; 20];
        ip.copy_from_slice(&bytes[14..34]);
        let sum = crate::wire::Sum::EMPTY.add_header(&ip).finish();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let ends = (core::net::Ipv4Addr::from_bits(OURS + 1), core::net::Ipv4Addr::from_bits(OURS));
        let pseudo = crate::wire::Sum::pseudo_v4(ends.0, ends.1, IpProtocol::TCP, 20);
        crate::wire::tcp::fill_checksum(pseudo, &mut bytes[34..]);
        bytes
    };
    lane.input(now, &pool, frame(&pool, &syn), Class::Ethernet);
    assert_eq!(lane.top(now), None);
    lane.watch_top(Some(&TopConfig::new([1, 2])));
    assert!(lane.watches_top());
    // Its answer is a reset, behind a question for the neighbour, which is no flow.
    lane.input(now, &pool, frame(&pool, &syn), Class::Ethernet);
    let mut out = Vec::new();
    lane.drain_output(now, &pool, 64, &mut out);
    let report = lane.top(now).unwrap();
    let [flow] = report.flows[..] else { panic!("{report:?}") };
    assert_eq!(flow.received, TopTotals { packets: 1, octets: 40 });
    let resets = out.iter().filter(|f| f.data()[12..14] == [8, 0]).count() as u64;
    assert_eq!(flow.sent, TopTotals { packets: resets, octets: resets * 40 });
    // What another lane, or reassembly, hands over was counted when it came.
    let mut direct = frame(&pool, &syn);
    assert!(direct.trim_front(14));
    lane.input(now, &pool, direct, Class::IpDirect);
    assert_eq!(lane.top(now).unwrap().flows[0].received.packets, 1);
    lane.watch_top(None);
    assert_eq!(lane.top(now), None);
}
