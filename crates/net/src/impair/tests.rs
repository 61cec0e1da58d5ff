//! Impairments on a virtual clock: exact rates, delays as they are distributed, losses within what chance allows.

use super::segments::complete;
use super::*;
use flowlane_stack::wire::{IpProtocol, Sum};
use flowlane_sys::tun::HEADER;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Printed when a test fails: libtest shows what a failed test printed.
fn seed(number: u64) -> u64 {
    println!("seed {number}");
    number
}

fn impairer(rules: &Impairments, seed: u64) -> Impairer {
    Impairer::new(rules.clone(), seed, Arc::default())
}

fn chance(probability: f64) -> Chance {
    Chance::new(probability).unwrap()
}

/// A packet with its header and a number in it, `bytes` long without the header.
fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER + bytes];
    packet[HEADER + 14..HEADER + 22].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[HEADER + 14..HEADER + 22].try_into().unwrap())
}

/// Offers packet after packet at these times, and lets go each when it is due: (number, offered, left) in the order in which they leave.
fn run(impairer: &mut Impairer, times: impl Iterator<Item = u64>, bytes: usize) -> Vec<(u64, u64, u64)> {
    let mut left = Vec::new();
    let mut offered = Vec::new();
    let mut letting_go = |impairer: &mut Impairer, until: u64, offered: &[u64]| {
        while let Some(due) = impairer.next_due().filter(|due| *due <= until) {
            assert!(impairer.release(due.saturating_sub(1)).is_none(), "not before it is due");
            let (_, _, packet) = impairer.release(due).unwrap();
            let n = number(packet);
            left.push((n, offered[n as usize], due));
        }
    };
    let mut at_once = Vec::new();
    for (n, now) in times.enumerate() {
        letting_go(impairer, now, &offered);
        offered.push(now);
        let mut packet = numbered(n as u64, bytes);
        if let Fate::Pass(times) = impairer.offer(now, &mut packet, 0, bytes as u64) {
            at_once.extend((0..times).map(|_| (n as u64, now, now)));
        }
    }
    letting_go(impairer, u64::MAX, &offered);
    assert!(at_once.is_empty() || left.is_empty(), "these tests do one of both");
    left.append(&mut at_once);
    left
}

/// Whether so many of so many are what chance allows at this probability: five standard deviations, which chance exceeds once in a
/// million times, and never for one seed.
fn likely(hits: u64, of: u64, probability: f64) -> bool {
    let expected = of as f64 * probability;
    let deviation = (expected * (1.0 - probability)).sqrt();
    (hits as f64 - expected).abs() <= 5.0 * deviation
}

#[test]
fn a_rate_is_exact() {
    for (rate, bytes) in [(100_000_000, 1514), (10_000_000_000, 64), (1_000, 1514), (999_999_937, 333)] {
        let rules = Impairments { rate: Some(rate), ..Impairments::default() };
        let mut one = impairer(&rules, 1);
        const PACKETS: usize = 4000;
        let left = run(&mut one, std::iter::repeat_n(0, PACKETS), bytes);
        let exact = |packets: usize| (packets * bytes * 8) as f64 * 1e9 / rate as f64;
        assert_eq!(left.len(), PACKETS);
        for (n, (number, _, due)) in left.iter().enumerate() {
            assert_eq!(*number, n as u64);
            let off = *due as f64 - exact(n + 1);
            assert!((-5.0..=5.0).contains(&off), "{rate}: packet {n} is {off} ns off");
        }
        // A wire that was idle is none the richer.
        let (mut packet, late) = (numbered(0, bytes), 10 * exact(PACKETS) as u64);
        assert_eq!(one.offer(late, &mut packet, 0, bytes as u64), Fate::Held);
        let takes = one.next_due().unwrap() - late;
        assert!((takes as f64 - exact(1)).abs() <= 2.0, "{takes}");
    }
}

#[test]
fn senders_of_a_direction_share_its_rate() {
    let rules = Impairments { rate: Some(8_000_000), ..Impairments::default() };
    let wire: Arc<Wire> = Arc::default();
    let mut all: Vec<Impairer> = (0..4).map(|n| Impairer::new(rules.clone(), n, wire.clone())).collect();
    for round in 0..100 {
        for one in &mut all {
            assert_eq!(one.offer(0, &mut numbered(round, 1000), 0, 1000), Fate::Held);
        }
    }
    // 400 packets of a millisecond each.
    let last = all.iter_mut().map(|one| {
        let mut last = 0;
        while let Some((due, _, _)) = one.release(u64::MAX) {
            assert!(due > last);
            last = due;
        }
        last
    });
    assert_eq!(last.max(), Some(400_000_000));
}

#[test]
fn what_does_not_fit_is_dropped_and_takes_none_of_the_wire() {
    let limit = 16 << 10;
    let rules = Impairments { rate: Some(8_000_000), limit, ..Impairments::default() };
    let mut one = impairer(&rules, 1);
    let fates: Vec<Fate> = (0..40).map(|n| one.offer(0, &mut numbered(n, 1000), 0, 1000)).collect();
    let held = fates.iter().filter(|fate| **fate == Fate::Held).count();
    // 1010 bytes are 1016 in the ring, with 16 before them.
    assert_eq!((held, one.waiting()), (limit / 1032, limit / 1032));
    assert!(fates[held..].iter().all(|fate| *fate == Fate::Full));
    assert_eq!(one.counts().full, 40 - held as u64);
    assert_eq!(one.release(1_000_000).map(|(due, _, _)| due), Some(1_000_000));
    assert_eq!(one.offer(1_000_000, &mut numbered(50, 1000), 0, 1000), Fate::Held);
    let mut last = 0;
    while let Some((due, _, _)) = one.release(u64::MAX) {
        last = due;
    }
    assert_eq!(last, (held as u64 + 1) * 1_000_000);
}

#[test]
fn delays_are_what_was_asked_for() {
    let seed = seed(0x5eed);
    let rules = Impairments { delay: 5_000_000, jitter: 1_000_000, ..Impairments::default() };
    // So far apart that none has to wait for another.
    let left = run(&mut impairer(&rules, seed), (0..20_000).map(|n| n * 3_000_000), 64);
    let mut delays: Vec<u64> = left.iter().map(|(_, offered, due)| due - offered).collect();
    delays.sort_unstable();
    assert_eq!(delays.len(), 20_000);
    assert!(delays[0] >= 4_000_000 && delays[19_999] <= 6_000_000);
    for share in [0.01, 0.25, 0.5, 0.75, 0.99] {
        let (is, should) = (delays[(share * 20_000.0) as usize] as f64, 4e6 + share * 2e6);
        assert!((is - should).abs() < 40_000.0, "quantile {share}: {is}, not {should}");
    }
    // Without jitter there is nothing to chance.
    let rules = Impairments { delay: 5_000_000, ..Impairments::default() };
    let left = run(&mut impairer(&rules, seed), (0..1000).map(|n| n * 1000), 64);
    assert!(left.iter().all(|(_, offered, due)| due - offered == 5_000_000));
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let seed = seed(77);
    let times = || (0..20_000u64).map(|n| n * 1000);
    let jitter = Impairments { delay: 5_000_000, jitter: 5_000_000, ..Impairments::default() };
    let left = run(&mut impairer(&jitter, seed), times(), 64);
    assert!(left.windows(2).all(|two| two[0].0 < two[1].0), "overtaken without being asked to");
    let rules = Impairments { reorder: chance(0.01), ..jitter };
    let mut one = impairer(&rules, seed);
    let left = run(&mut one, times(), 64);
    assert_eq!(left.len(), 20_000);
    let counts = one.counts();
    assert!(likely(counts.reordered, 20_000, 0.01), "{counts:?}");
    // Those that come after a later one are the ones that were chosen; the last few have nobody behind them.
    let mut highest = 0;
    let mut overtaken = 0;
    for (n, _, _) in &left {
        overtaken += u64::from(*n < highest);
        highest = highest.max(*n);
    }
    assert!((counts.reordered - 30..=counts.reordered).contains(&overtaken), "{overtaken} of {counts:?}");
}

#[test]
fn chance_is_as_likely_as_it_says() {
    let seed = seed(4242);
    const PACKETS: u64 = 200_000;
    for probability in [0.001, 0.01, 0.5] {
        let rules = Impairments { loss: chance(probability), ..Impairments::default() };
        let mut one = impairer(&rules, seed);
        let left = run(&mut one, 0..PACKETS, 64);
        let lost = one.counts().lost;
        assert_eq!(left.len() as u64, PACKETS - lost);
        assert!(likely(lost, PACKETS, probability), "{lost} of {PACKETS} at {probability}");
        let rules = Impairments { duplicate: chance(probability), ..Impairments::default() };
        let mut one = impairer(&rules, seed);
        let left = run(&mut one, 0..PACKETS, 64);
        let twice = one.counts().duplicated;
        assert_eq!(left.len() as u64, PACKETS + twice);
        assert!(likely(twice, PACKETS, probability), "{twice} of {PACKETS} at {probability}");
    }
    let all = Impairments { loss: chance(1.0), ..Impairments::default() };
    assert!(run(&mut impairer(&all, seed), 0..1000, 64).is_empty());
    assert_eq!(run(&mut impairer(&Impairments::default(), seed), 0..1000, 64).len(), 1000);
    assert!(Chance::new(1.1).is_none() && Chance::new(-0.1).is_none() && Chance::new(f64::NAN).is_none());
}

#[test]
fn a_seed_repeats_a_run_and_another_does_not() {
    let rules = Impairments {
        loss: chance(0.1),
        duplicate: chance(0.1),
        reorder: chance(0.1),
        delay: 1_000_000,
        jitter: 900_000,
        ..Impairments::default()
    };
    let run = |seed| run(&mut impairer(&rules, seed), (0..2000).map(|n| n * 10_000), 100);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn what_waits_leaves_before_what_comes_when_nothing_is_asked_for_any_more() {
    let mut one = impairer(&Impairments { delay: 1_000_000, ..Impairments::default() }, 1);
    assert_eq!(one.offer(0, &mut numbered(1, 64), 0, 64), Fate::Held);
    one.set(10, Impairments::default(), Arc::default());
    // The one before it is due, but has not left.
    assert_eq!(one.offer(10, &mut numbered(2, 64), 0, 64), Fate::Held);
    for n in [1, 2] {
        assert_eq!(one.release(10).map(|(_, _, packet)| self::number(packet)), Some(n));
    }
    assert_eq!(one.offer(11, &mut numbered(3, 64), 0, 64), Fate::Pass(1));
}

/// Offers so many packets of 1250 bytes at the time 0.
fn waiting(rules: &Impairments, packets: u64) -> Impairer {
    let mut one = impairer(rules, 1);
    for n in 0..packets {
        assert_eq!(one.offer(0, &mut numbered(n, 1250), 0, 1250), Fate::Held);
    }
    one
}

/// What waits: its number, and when it leaves.
fn leaves(one: &mut Impairer) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| one.release(u64::MAX).map(|(due, _, packet)| (number(packet), due))).collect()
}

#[test]
fn what_waits_is_timed_anew_with_other_times() {
    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * SECOND;
    let rate = |rate| Impairments { rate: Some(rate), ..Impairments::default() };
    let delay = |delay| Impairments { delay, ..Impairments::default() };
    let jitter = Impairments { jitter: HOUR, ..Impairments::default() };
    let reorder = Impairments { reorder: chance(1.0), ..delay(HOUR) };
    let both = Impairments { delay: SECOND, ..rate(100_000) };
    // 1250 bytes take a second at 10 kbit/s. At 2.5 s there are two that have left where only a rate delays them.
    let now = 5 * SECOND / 2;
    let at = |first: u64, step: u64| (0..10).map(|n| (n, first + n * step)).collect::<Vec<_>>();
    for (what, before, after, expected) in [
        ("a rate is gone", rate(10_000), Impairments::default(), at(now, 0)),
        ("a delay is gone", delay(HOUR), Impairments::default(), at(now, 0)),
        ("jitter is gone", jitter, Impairments::default(), at(now, 0)),
        ("what was to be overtaken", reorder, Impairments::default(), at(now + OVERTAKEN, 0)),
        ("a faster line", rate(10_000), rate(100_000), at(now + SECOND / 10, SECOND / 10)),
        ("a shorter delay", delay(HOUR), delay(SECOND), at(now + SECOND, 0)),
        ("a rate for a delay", delay(HOUR), both.clone(), at(now + SECOND + SECOND / 10, SECOND / 10)),
        ("a slower line", rate(10_000), rate(1000), at(3 * SECOND, SECOND)),
        ("a longer delay", delay(10 * SECOND), delay(HOUR), at(10 * SECOND, 0)),
    ] {
        let mut one = waiting(&before, 12);
        for _ in 0..2 {
            let _ = one.release(u64::MAX);
        }
        one.set(now, after, Arc::default());
        let left: Vec<_> = leaves(&mut one).into_iter().map(|(n, due)| (n - 2, due)).collect();
        assert_eq!(left, expected, "{what}");
    }
    // What comes is behind them, and the wire is theirs no longer than they wait.
    let mut one = waiting(&rate(10_000), 2);
    one.set(0, rate(1000), Arc::default());
    assert_eq!(one.offer(0, &mut numbered(2, 1250), 0, 1250), Fate::Held);
    assert_eq!(leaves(&mut one), [(0, SECOND), (1, 2 * SECOND), (2, 12 * SECOND)]);
    // The same times: no packet leaves at another.
    let mut one = waiting(&both, 10);
    let wire = one.wire.clone();
    one.set(now, Impairments { loss: chance(0.5), ..both.clone() }, wire);
    assert_eq!(leaves(&mut one), at(SECOND + SECOND / 10, SECOND / 10));
}

/// A packet of TCP or UDP segments as Linux sends it: its virtio-net header, checksum left undone.
fn to_be_cut(v6: bool, udp: bool, tag: bool, size: usize, data: usize) -> Vec<u8> {
    let ip = if tag { 18 } else { 14 };
    let transport = ip + if v6 { 40 } else { 20 };
    let head = transport + if udp { 8 } else { 32 };
    let mut packet = vec![0x11u8; head + data];
    for (n, byte) in packet[head..].iter_mut().enumerate() {
        *byte = (n * 7 % 251) as u8;
    }
    if tag {
        packet[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
    }
    let upper = (head - transport + data) as u32;
    let protocol = if udp { IpProtocol::UDP } else { IpProtocol::TCP };
    let sum = if v6 {
        packet[ip - 2..ip].copy_from_slice(&[0x86, 0xdd]);
        packet[ip] = 0x60;
        packet[ip + 4..ip + 6].copy_from_slice(&(upper as u16).to_be_bytes());
        packet[ip + 6] = protocol.0;
        Sum::pseudo_v6(address6(&packet, ip + 8), address6(&packet, ip + 24), protocol, upper)
    } else {
        packet[ip - 2..ip].copy_from_slice(&[8, 0]);
        packet[ip] = 0x45;
        packet[ip + 2..ip + 4].copy_from_slice(&(20 + upper as u16).to_be_bytes());
        packet[ip + 4..ip + 6].copy_from_slice(&[0xff, 0xff]);
        packet[ip + 9] = protocol.0;
        Sum::pseudo_v4(address4(&packet, ip + 12), address4(&packet, ip + 16), protocol, upper as u16)
    };
    let field = transport + if udp { 6 } else { 16 };
    if !udp {
        packet[transport + 4..transport + 8].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
        packet[transport + 12] = 0x80;
        packet[transport + 13] = 0x99; // CWR, ACK, PSH, FIN
    }
    packet[field..field + 2].copy_from_slice(&sum.fold().to_be_bytes());
    let mut header = vec![
        1,
        if udp {
            5
        } else if v6 {
            4
        } else {
            1
        },
    ];
    for number in [head, size, transport, field - transport] {
        header.extend((number as u16).to_ne_bytes());
    }
    [header, packet].concat()
}

fn address4(packet: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap())
}

fn address6(packet: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap())
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[test]
fn a_packet_becomes_the_segments_that_a_card_would_make() {
    for n in 0..16 {
        let (v6, udp, tag, size) = (n & 1 > 0, n & 2 > 0, n & 4 > 0, if n & 8 > 0 { 1448 } else { 999 });
        let whole = to_be_cut(v6, udp, tag, size, 30_001);
        let offload = Offload::of(&whole).unwrap();
        let segments = 30_001usize.div_ceil(size);
        let (ip, transport) =
            (if tag { 18 } else { 14 }, if tag { 18 } else { 14 } + if v6 { 40 } else { 20 });
        let head = transport + if udp { 8 } else { 32 };
        assert_eq!((offload.segments(), offload.longest()), (segments, head + size));
        assert_eq!(offload.wire_bytes(), (segments * head + 30_001) as u64);
        let (mut cut, mut data, mut bytes) = (offload.cut(&whole), Vec::new(), 0);
        let mut into = vec![0; 2000];
        for number in 0..segments {
            let len = cut.next(&mut into).unwrap();
            bytes += (len - HEADER) as u64;
            let segment = &mut into[..len];
            assert!(Offload::of(segment).is_none());
            assert!(complete(segment), "its checksum can be completed");
            let segment = &segment[HEADER..];
            let upper = &segment[transport..];
            let protocol = IpProtocol(if udp { 17 } else { 6 });
            let pseudo = if v6 {
                assert_eq!(be16(segment, ip + 4), upper.len());
                Sum::pseudo_v6(
                    address6(segment, ip + 8),
                    address6(segment, ip + 24),
                    protocol,
                    upper.len() as u32,
                )
            } else {
                assert_eq!(be16(segment, ip + 2), 20 + upper.len());
                assert_eq!(be16(segment, ip + 4), (0xffff + number) & 0xffff);
                assert!(Sum::EMPTY.add_bytes(&segment[ip..ip + 20]).is_intact());
                Sum::pseudo_v4(
                    address4(segment, ip + 12),
                    address4(segment, ip + 16),
                    protocol,
                    upper.len() as u16,
                )
            };
            assert!(pseudo.add_bytes(upper).is_intact(), "its checksum is right");
            if udp {
                assert_eq!(be16(upper, 4), upper.len());
            } else {
                let at = u32::from_be_bytes(upper[4..8].try_into().unwrap());
                assert_eq!(at, 0xffff_ff00u32.wrapping_add((number * size) as u32));
                let (first, last) = (number == 0, number + 1 == segments);
                let flags = 0x10 | if first { 0x80 } else { 0 } | if last { 0x09 } else { 0 };
                assert_eq!(upper[13], flags, "segment {number}");
            }
            data.extend_from_slice(&segment[head..]);
        }
        assert!(cut.next(&mut into).is_none());
        assert_eq!(bytes, offload.wire_bytes());
        assert_eq!(data, whole[HEADER + head..]);
    }
}

#[test]
fn a_header_that_fits_no_packet_is_not_followed() {
    let good = to_be_cut(false, false, false, 1000, 5000);
    assert!(Offload::of(&good).is_some());
    let mut into = vec![0; 70_000];
    let mut all = |packet: &[u8]| {
        if let Some(offload) = Offload::of(packet) {
            let mut cut = offload.cut(packet);
            while cut.next(&mut into).is_some() {}
        }
        let mut packet = packet.to_vec();
        let _ = corrupt_or_not(&mut packet);
    };
    for len in 0..200 {
        all(&good[..len]); // must not panic
    }
    for at in (0..HEADER).chain(HEADER + 12..HEADER + 80) {
        for value in [0, 1, 5, 0x0f, 0x46, 0x60, 0x80, 0xff] {
            let mut strange = good.clone();
            strange[at] = value;
            all(&strange); // must not panic
        }
    }
    for (at, value) in [(0, 0), (6, 0), (4, 0)] {
        let mut bad = good.clone();
        bad[at] = value;
        bad[at + 1] = if at == 0 { bad[1] } else { 0 };
        assert!(Offload::of(&bad).is_none(), "byte {at}");
    }
}

fn corrupt_or_not(packet: &mut [u8]) -> bool {
    segments::corrupt(packet, &mut Rng::new(1))
}

#[test]
fn one_bit_is_wrong_and_the_checksum_shows_it() {
    let mut rng = Rng::new(seed(9));
    let cut = to_be_cut(true, false, false, 1400, 1400);
    let mut segment = vec![0; 2000];
    let len = Offload::of(&cut).unwrap().cut(&cut).next(&mut segment).unwrap();
    let mut right = segment[..len].to_vec();
    assert!(complete(&mut right));
    for _ in 0..1000 {
        let mut wrong = segment[..len].to_vec();
        assert!(segments::corrupt(&mut wrong, &mut rng));
        assert_eq!(wrong[..HEADER], [0; HEADER], "the receiver has to look");
        let bits: u32 = right.iter().zip(&wrong).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
        assert_eq!(right[..HEADER + 14], wrong[..HEADER + 14], "not in the Ethernet header");
    }
    // One that is to be segmented has no checksum to be wrong.
    assert!(!corrupt_or_not(&mut to_be_cut(true, false, false, 1400, 5000)));
}

#[test]
fn packets_are_cut_where_each_segment_has_a_fate_of_its_own() {
    let none = Impairments { delay: 5, jitter: 3, ..Impairments::default() };
    assert!(!none.cuts(65_536));
    for rules in [
        Impairments { loss: chance(0.1), ..none.clone() },
        Impairments { corrupt: chance(0.1), ..none.clone() },
        Impairments { duplicate: chance(0.1), ..none.clone() },
        Impairments { reorder: chance(0.1), ..none.clone() },
        Impairments { rate: Some(100_000_000), ..none.clone() },
    ] {
        assert!(rules.cuts(65_536), "{rules:?}");
    }
    // At a gigabit a packet of 64 KiB takes half a millisecond.
    assert!(!Impairments { rate: Some(1_000_000_000), ..none }.cuts(65_536));
}

const MS: u64 = 1_000_000;

#[test]
fn windows_of_a_cycle() {
    let cycle: Cycle = "8x2ms".parse().unwrap();
    assert_eq!((cycle.slots, cycle.length), (8, 2 * MS));
    let slots = Slots::new(cycle, 3, 100_000).unwrap();
    let epoch = 1_700_000_000_000 * MS - 1_700_000_000_000 * MS % (16 * MS);
    for (at, opens) in [(0, 6), (6 * MS - 1, 6), (6 * MS, 6), (8 * MS - 100_001, 6), (8 * MS - 100_000, 22)] {
        let Window { opens: is, closes, ends } = slots.window(epoch + at);
        assert_eq!(is, epoch + opens * MS, "at {at}");
        assert_eq!((closes, ends), (is + 2 * MS - 100_000, is + 2 * MS));
    }
    assert!(!slots.holds(epoch + 6 * MS - 1) && slots.holds(epoch + 6 * MS));
    assert!(slots.holds(epoch + 8 * MS - 1) && !slots.holds(epoch + 8 * MS));
    // Every moment is in exactly one slot, and every window in its own.
    let all: Vec<Slots> = (0..8).map(|n| Slots::new(cycle, n, 100_000).unwrap()).collect();
    for at in (0..40 * MS).step_by(12_345) {
        assert_eq!(all.iter().filter(|slots| slots.holds(epoch + at)).count(), 1);
        for slots in &all {
            let window = slots.window(epoch + at);
            assert!(window.closes > epoch + at && window.opens < epoch + at + 18 * MS);
            assert!(slots.holds(window.opens) && slots.holds(window.closes - 1));
        }
    }
    for bad in ["", "8", "x2ms", "8x", "0x2ms", "8x0ms", "8x2", "8x2h", "-1x2ms", "99999x99999s", "8x2ms8"] {
        assert!(bad.parse::<Cycle>().is_err(), "{bad}");
    }
    assert!(Slots::new(cycle, 8, 0).is_err() && Slots::new(cycle, 0, 2 * MS).is_err());
    assert_eq!(Cycle::new(3, 1500).unwrap().to_string(), "3x1500ns");
}

#[test]
fn what_is_sent_outside_of_its_slot_is_counted() {
    let slots = Slots::new(Cycle::new(4, MS).unwrap(), 1, 0).unwrap();
    let mut edges = Edges::default();
    // Waited, and was 30 us late; came in the slot; begun in it and done after it; sent in another's.
    edges.sent(&slots, MS / 2, MS + 30_000, MS + 31_000);
    edges.sent(&slots, MS + 40_000, MS + 40_000, MS + 41_000);
    edges.sent(&slots, MS, 2 * MS - 1, 2 * MS);
    edges.sent(&slots, MS, 2 * MS + 5, 2 * MS + 6);
    // The next slot: nothing had waited.
    edges.sent(&slots, 5 * MS + 10, 5 * MS + 20, 5 * MS + 30);
    let counts = edges.counts();
    assert_eq!((counts.inside, counts.outside, counts.used), (3, 2, 2));
    assert_eq!(counts.latest, 30_000);
    assert_eq!(edges.late().counts().iter().sum::<u64>(), 1);
    assert_eq!(edges.quantile(0.5), Some(32));
    assert_eq!(Edges::default().quantile(0.5), None);
    let mut both = edges.clone();
    both.add(&edges);
    assert_eq!((both.counts().inside, both.counts().outside), (6, 4));
}

#[test]
fn a_packet_of_more_segments_than_linux_sends_is_left_as_it_is() {
    let whole = to_be_cut(false, false, false, 8, 40_000);
    assert_eq!(Offload::of(&whole), None, "5000 segments");
    assert!(Offload::of(&to_be_cut(false, false, false, 10, 40_000)).is_some());
}
