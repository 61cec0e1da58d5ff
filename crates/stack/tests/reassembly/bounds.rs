//! Limits, timeouts and floods.

use std::time::Duration;

use flowlane_stack::reassembly::{Reassembly, ReassemblyConfig};
use flowlane_stack::rng::Rng;
use flowlane_stack::stats::DropReason;

use crate::kit::{Bench, Name, pattern};

fn name(host: u32, id: u16) -> Name {
    Name { v6: id % 2 == 1, host, id }
}

#[test]
fn one_fragment_more_may_complete_but_not_wait() {
    for v6 in [false, true] {
        let mut b = Bench::new(ReassemblyConfig { per_datagram: 4, ..Default::default() }, 64);
        let data = pattern(40, 1);
        let n = |id| Name { v6, host: 1, id };
        for i in [0, 1, 2, 3, 4u16] {
            let at = usize::from(i) * 8;
            let got = b.put(n(1), i * 8, &data[at..at + 8], i < 4);
            assert_eq!(got.is_some(), i == 4, "five where four may wait");
        }
        for i in 0..5u16 {
            assert_eq!(b.put(n(2), i * 8, &[0; 8], true), None);
        }
        assert_eq!(b.stats.drops.get(DropReason::FragmentTooMany), 5);
        assert_eq!(b.put(n(2), 40, &[0; 8], false), None);
        assert_eq!(b.stats.drops.get(DropReason::FragmentGivenUp), 1);
        assert_eq!(b.r.fragments(), 0);
        b.check();
    }
}

#[test]
fn time_runs_out_after_thirty_and_sixty_seconds() {
    let mut b = Bench::new(ReassemblyConfig::default(), 64);
    let start = b.now;
    let after = |ms| start + Duration::from_millis(ms);
    b.put(name(1, 2), 0, &[0; 8], true);
    b.put(name(1, 3), 8, &[0; 8], true);
    b.put(name(1, 4), 8, &[0; 8], true);
    assert_eq!(b.r.next_deadline(), Some(after(30_000)));
    b.now = after(29_999);
    // A later fragment does not prolong it.
    b.put(name(1, 2), 8, &[0; 8], true);
    assert!(b.r.expire(b.now, &mut b.stats).is_none());
    let first = b.r.expire(after(30_000), &mut b.stats).unwrap();
    assert!(!first.v6 && first.first.is_some() && first.header_len == 20);
    drop(first);
    let second = b.r.expire(after(30_000), &mut b.stats).unwrap();
    assert!(!second.v6 && second.first.is_none(), "its first fragment never came");
    assert!(b.r.expire(after(59_999), &mut b.stats).is_none());
    assert_eq!(b.r.next_deadline(), Some(after(60_000)));
    assert!(b.r.expire(after(60_000), &mut b.stats).is_some_and(|e| e.v6));
    assert_eq!((b.stats.ip.fragments_timeout, b.stats.ip6.fragments_timeout), (3, 1));
    assert_eq!(b.stats.drops.get(DropReason::FragmentTimeout), 4);
    assert_eq!((b.r.pending(), b.r.next_deadline()), (0, None));
    b.check();
}

/// What was given up for an overlap is remembered as long as it would have waited, and then goes silently.
#[test]
fn the_given_up_are_forgotten_in_silence() {
    let mut b = Bench::new(ReassemblyConfig::default(), 64);
    b.put(name(1, 2), 0, &[0; 16], true);
    b.put(name(1, 2), 8, &[0; 16], true);
    assert_eq!((b.r.pending(), b.r.fragments()), (1, 0));
    let expired = b.r.expire(b.now + Duration::from_secs(30), &mut b.stats).unwrap();
    assert!(expired.first.is_none());
    assert_eq!((b.r.pending(), b.stats.ip.fragments_timeout), (0, 0));
    b.check();
}

#[test]
fn a_network_beyond_its_share_loses_its_own_oldest() {
    let config = ReassemblyConfig { fragments: 400, datagrams: 400, per_datagram: 16, ..Default::default() };
    let mut b = Bench::new(config, 512);
    b.put(name(7 << 8, 1), 0, &[7; 8], true);
    for id in 0..300 {
        b.put(Name { v6: false, host: u32::from(id) % 256, id }, 0, &[0; 8], true);
    }
    assert_eq!(b.r.fragments(), 101);
    assert_eq!(b.stats.drops.get(DropReason::FragmentSourceFull), 200);
    assert_eq!(b.stats.ip.fragments_overflow, 200);
    // The other network's datagram, older than all of them, is still there; so is the last of the greedy one's.
    assert_eq!(b.put(name(7 << 8, 1), 8, &[7; 8], false), Some(vec![7; 16]));
    assert!(b.put(Name { v6: false, host: 299 % 256, id: 299 }, 8, &[0; 8], false).is_some());
    assert!(b.put(Name { v6: false, host: 199, id: 199 }, 8, &[0; 8], false).is_none(), "pushed out");
    b.check();
}

#[test]
fn bytes_are_bounded_too() {
    let config = ReassemblyConfig { bytes: 20 * 2048, ..Default::default() };
    let mut b = Bench::new(config, 64);
    for host in 0..40 {
        b.put(name(host << 8, 1), 0, &[0; 8], true);
        assert!(b.r.bytes() <= config.bytes);
    }
    assert_eq!(b.stats.drops.get(DropReason::FragmentEvicted), 20);
    b.check();
}

#[test]
fn limits_of_zero_refuse_everything_and_of_one_still_work() {
    for (datagrams, fragments, bytes) in [(0, 10, 1 << 20), (10, 0, 1 << 20), (10, 10, 0)] {
        let mut b = Bench::new(ReassemblyConfig { datagrams, fragments, bytes, ..Default::default() }, 16);
        for id in 0..8 {
            assert_eq!(b.put(name(1, id), 0, &[0; 8], true), None);
            b.check();
        }
        assert_eq!(b.r.fragments(), 0);
    }
    let mut b = Bench::new(ReassemblyConfig { datagrams: 1, fragments: 1, ..Default::default() }, 16);
    for id in 0..8 {
        assert_eq!(b.put(name(1, id), 0, &[0; 8], true), None);
        b.check();
    }
    assert_eq!(b.put(name(1, 7), 8, &[0; 8], false), Some(vec![0; 16]));
    b.check();
}

/// A million invented beginnings, while four networks send datagrams in two fragments with 300 invented ones between.
/// All of them complete, and memory stays where it was.
#[test]
fn a_flood_from_everywhere_pushes_out_only_itself() {
    // Time stands still here: no budget for strangers would come back.
    let config = ReassemblyConfig { strangers: u32::MAX, ..ReassemblyConfig::default() };
    let mut b = Bench::new(config, 2048);
    let mut rng = Rng::new(5);
    let data = pattern(2000, 3);
    let mut flood = |b: &mut Bench, n: usize| {
        for _ in 0..n {
            let who = Name { v6: rng.below(2) == 0, host: rng.next_u32() >> 8, id: rng.below(65_536) as u16 };
            b.put(who, 0, &data[..8], true);
        }
    };
    flood(&mut b, 100_000);
    let footprint = b.r.footprint();
    let (mut sent, mut got) = (0, 0);
    for round in 0..800u16 {
        for host in 0..4u32 {
            let who = Name { v6: host % 2 == 1, host: host << 8 | 1, id: round };
            assert_eq!(b.put(who, 0, &data[..1000], true), None);
            flood(&mut b, 300);
            sent += 1;
            got += u32::from(b.put(who, 1000, &data[1000..], false).as_ref() == Some(&data));
        }
        assert!(b.r.fragments() <= config.fragments && b.r.pending() <= config.datagrams);
        assert!(b.r.bytes() <= config.bytes);
    }
    assert_eq!(got, sent, "{:?}", b.reasons());
    assert!(b.r.footprint() < footprint + 1024, "no more memory than in the beginning");
    b.check();
    // Proven networks wait out any amount of it.
    let who = Name { v6: false, host: 1, id: 60_000 };
    b.put(who, 0, &data[..1000], true);
    flood(&mut b, 200_000);
    assert_eq!(b.put(who, 1000, &data[1000..], false).as_ref(), Some(&data));
    // An unproven one does not: it is one of the invented, for all that can be told.
    let who = Name { v6: false, host: 77 << 8, id: 60_000 };
    b.put(who, 0, &data[..1000], true);
    flood(&mut b, 200_000);
    assert_eq!(b.put(who, 1000, &data[1000..], false), None);
    b.check();
}

/// While there is no room, strangers come in by their budget and the rest goes at a glance; whoever finished one datagram
/// is no stranger any more.
#[test]
fn strangers_have_a_budget_while_there_is_no_room() {
    let mut b = Bench::new(ReassemblyConfig { strangers: 50_000, ..Default::default() }, 2048);
    let mut rng = Rng::new(5);
    let data = pattern(2000, 3);
    let mut got = Vec::new();
    for ms in 0..400u16 {
        b.now += Duration::from_millis(1);
        // An honest newcomer among a thousand a millisecond of whom fifty come in, at any place.
        let place = rng.below(1000);
        let who = Name { v6: false, host: 5 << 8, id: ms };
        for n in 0..1000 {
            // Once there is no room.
            if n == place && ms > 4 {
                b.put(who, 0, &data[..1000], true);
                got.push(b.put(who, 1000, &data[1000..], false).is_some());
            }
            let host = rng.next_u32() >> 8 | 1 << 23;
            b.put(Name { v6: false, host, id: ms }, 0, &data[..8], true);
        }
    }
    let first = got.iter().position(|g| *g).expect("it comes in at last");
    assert!(first > 0, "not at once, among so many");
    assert!(got[first..].iter().all(|g| *g), "and is never refused again");
    let glanced = b.stats.drops.get(DropReason::FragmentFlood);
    assert!((350_000..=385_000).contains(&glanced), "{glanced}");
    b.check();
}

/// Proven networks do not keep newcomers out: either side is sure of half.
#[test]
fn newcomers_have_half_the_room() {
    let config = ReassemblyConfig { fragments: 100, datagrams: 100, per_datagram: 8, ..Default::default() };
    let mut b = Bench::new(config, 256);
    for net in 0..20u32 {
        for id in 0..20u16 {
            let who = Name { v6: false, host: net << 8, id };
            b.put(who, 0, &[0; 8], true);
            if id == 0 {
                assert!(b.put(who, 8, &[0; 8], false).is_some());
            }
        }
    }
    assert_eq!(b.r.fragments(), 100);
    let newcomers: Vec<_> = (100..150u32).map(|net| Name { v6: true, host: net << 8, id: 1 }).collect();
    for who in &newcomers {
        b.put(*who, 0, &[0; 8], true);
    }
    for who in &newcomers {
        assert!(b.put(*who, 8, &[0; 8], false).is_some());
    }
    b.check();
}

/// What `docs/fragments.md` says of memory.
#[test]
fn bookkeeping_is_small() {
    let config =
        ReassemblyConfig { datagrams: 10_000, fragments: 10_000, bytes: 1 << 30, ..Default::default() };
    let mut b = Bench::new(config, 10_240);
    for host in 0..10_000 {
        b.put(name(host << 8, 2), 0, &[0; 8], true);
    }
    assert_eq!(b.r.fragments(), 10_000);
    let each = b.r.footprint() / 10_000;
    assert!(each <= 400, "{each} bytes a datagram");
    assert!(Reassembly::new(config, 1).footprint() < 64, "nothing is allocated before the first fragment");
}

/// A fragment of nothing would be a piece without a place, however its caller judged it.
#[test]
fn a_fragment_of_nothing_is_dropped() {
    for v6 in [false, true] {
        let mut b = Bench::new(ReassemblyConfig::default(), 64);
        let n = Name { v6, host: 1, id: 1 };
        assert_eq!(b.put(n, 0, &[], true), None);
        assert_eq!(b.put(n, 8, &[], false), None);
        assert_eq!((b.stats.drops.get(DropReason::FragmentInvalid), b.r.fragments()), (2, 0));
        b.check();
    }
}
