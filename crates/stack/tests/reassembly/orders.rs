//! Fragments in every order, and those that are not quite right.

use flowlane_stack::reassembly::{ReassemblyConfig, Verdict};
use flowlane_stack::stats::DropReason;

use crate::kit::{Bench, Name, ecn, fragment, pattern, payload};

const FAMILIES: [bool; 2] = [false, true];

fn bench() -> Bench {
    Bench::new(ReassemblyConfig::default(), 256)
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for rest in permutations(n - 1) {
        for at in 0..n {
            let mut p = rest.clone();
            p.insert(at, n - 1);
            all.push(p);
        }
    }
    all
}

/// Every order of up to six fragments of different lengths gives the same bytes, delivered with the last to come.
#[test]
fn every_order_gives_the_same_datagram() {
    for v6 in FAMILIES {
        let mut b = bench();
        for n in 2..=6usize {
            let cuts: Vec<usize> = (0..n).map(|i| i * 8 + i * i * 8).chain([n * 8 + n * n * 8 - 5]).collect();
            let data = pattern(cuts[n], n as u32);
            for (id, order) in permutations(n).iter().enumerate() {
                let name = Name { v6, host: 1, id: id as u16 };
                for (turn, &i) in order.iter().enumerate() {
                    let whole = b.put(name, cuts[i] as u16, &data[cuts[i]..cuts[i + 1]], i + 1 < n);
                    assert_eq!(whole.as_ref(), (turn + 1 == n).then_some(&data), "{order:?}");
                }
            }
            b.check();
        }
        assert_eq!((b.r.pending(), b.r.fragments(), b.ip().reassembled), (0, 0, 2 + 6 + 24 + 120 + 720));
        assert_eq!(b.stats.drops.total(), 0);
    }
}

/// The fragments of many datagrams, of many hosts and both families, in one random order.
#[test]
fn interleaved_datagrams_do_not_mix() {
    let mut rng = flowlane_stack::rng::Rng::new(11);
    let mut b = Bench::new(ReassemblyConfig { fragments: 8192, bytes: 1 << 24, ..Default::default() }, 4096);
    for _ in 0..5 {
        let mut todo = Vec::new();
        for i in 0..300u32 {
            // The same identifications at many hosts, the same host with many identifications.
            let name = Name { v6: i % 3 == 0, host: i % 50 * 300, id: (i / 50) as u16 };
            let data = pattern(rng.below(4000) as usize + 9, i);
            let step = 8 * (1 + rng.below(100) as usize);
            let pieces = data.len().div_ceil(step.max(data.len().div_ceil(64).next_multiple_of(8)));
            let step = data.len().div_ceil(pieces).next_multiple_of(8);
            for at in (0..data.len()).step_by(step) {
                todo.push((name, at, data[at..data.len().min(at + step)].to_vec(), data.clone()));
            }
        }
        let (mut delivered, whole) = (0, todo.iter().filter(|t| t.1 == 0).count());
        while !todo.is_empty() {
            let (name, at, bytes, data) = todo.swap_remove(rng.below(todo.len() as u32) as usize);
            let more = at + bytes.len() < data.len();
            if !more && at == 0 {
                // A single piece is no fragment; the IP layer sends it another way, but it would be right.
                assert_eq!(b.put(name, 0, &bytes, false), Some(data));
                delivered += 1;
            } else if let Some(got) = b.put(name, at as u16, &bytes, more) {
                assert_eq!(got, data);
                delivered += 1;
            }
        }
        assert_eq!(delivered, whole, "{:?}", b.reasons());
        b.check();
    }
    assert_eq!((b.r.fragments(), b.stats.drops.total()), (0, 0));
}

#[test]
fn duplicates_are_dropped_alone() {
    for v6 in FAMILIES {
        let mut b = bench();
        let name = Name { v6, host: 1, id: 1 };
        let data = pattern(40, 1);
        for _ in 0..3 {
            assert_eq!(b.put(name, 0, &data[..16], true), None);
            assert_eq!(b.put(name, 32, &data[32..], false), None);
        }
        assert_eq!(b.stats.drops.get(DropReason::FragmentDuplicate), 4);
        assert_eq!(b.put(name, 16, &data[16..32], true), Some(data));
        b.check();
    }
}

/// Not the same bytes again: no duplicate but an overlap. With IPv4's short identifications this also keeps two
/// datagrams that have the same one from being mixed (RFC 4963).
#[test]
fn a_duplicate_with_other_bytes_is_an_overlap() {
    for v6 in FAMILIES {
        let mut b = bench();
        let name = Name { v6, host: 1, id: 1 };
        b.put(name, 0, &[1; 16], true);
        b.put(name, 0, &[2; 16], true);
        assert_eq!(b.stats.drops.get(DropReason::FragmentOverlap), 2);
        assert_eq!(b.put(name, 16, &[1; 16], false), None);
        assert_eq!(b.put(name, 0, &[1; 16], true), None);
        assert_eq!(b.stats.drops.get(DropReason::FragmentGivenUp), 2);
        assert_eq!(b.r.fragments(), 0);
        b.check();
    }
}

#[test]
fn nothing_lies_past_the_end_and_there_is_one_end() {
    for v6 in FAMILIES {
        let mut b = bench();
        let name = Name { v6, host: 1, id: 1 };
        let data = pattern(48, 1);
        assert_eq!(b.put(name, 32, &data[32..], false), None);
        for (offset, len, more) in [(48, 8, true), (40, 16, true), (48, 8, false), (16, 8, false)] {
            assert_eq!(b.put(name, offset, &vec![0; len], more), None);
        }
        assert_eq!(b.stats.drops.get(DropReason::FragmentPastEnd), 4);
        // An end before what is held already.
        let other = Name { id: 2, ..name };
        assert_eq!(b.put(other, 32, &data[..8], true), None);
        assert_eq!(b.put(other, 0, &data[..16], false), None);
        assert_eq!(b.stats.drops.get(DropReason::FragmentPastEnd), 5);
        assert_eq!(b.put(name, 0, &data[..32], true), Some(data));
        b.check();
    }
}

#[test]
fn ecn_marks_survive() {
    for v6 in FAMILIES {
        let mut b = bench();
        let cases =
            [([2, 2], Some(2)), ([2, 3], Some(3)), ([3, 1], Some(3)), ([0, 2], Some(0)), ([0, 3], None)];
        for (id, (codes, want)) in cases.into_iter().enumerate() {
            for swapped in [false, true] {
                let name = Name { v6, host: u32::from(swapped), id: id as u16 };
                let mut parts = vec![
                    fragment(&b.pool, name, 0, &[1; 8], true, codes[0]),
                    fragment(&b.pool, name, 8, &[2; 8], false, codes[1]),
                ];
                if swapped {
                    parts.reverse();
                }
                let last = parts.pop().unwrap();
                assert!(matches!(b.give(parts.pop().unwrap()), Verdict::Held));
                let got = match b.give(last) {
                    Verdict::Whole(f) => {
                        assert_eq!(payload(name, &f).len(), 16);
                        Some(ecn(name, &f))
                    }
                    _ => None,
                };
                assert_eq!(got, want, "{codes:?}");
            }
        }
        assert_eq!(b.stats.drops.get(DropReason::FragmentEcn), 4);
        b.check();
    }
}

/// The longest datagrams there can be, and one byte more.
#[test]
fn a_packet_is_no_longer_than_its_length_field() {
    for (v6, most) in [(false, 65_535 - 20), (true, 65_535)] {
        for (len, fits) in [(most, true), (most + 1, false)] {
            let mut b = bench();
            let name = Name { v6, host: 1, id: 1 };
            let data = pattern(len, 1);
            let mut got = None;
            for at in (0..len).step_by(1480) {
                got = b.put(name, at as u16, &data[at..len.min(at + 1480)], at + 1480 < len);
            }
            assert_eq!(got.is_some_and(|g| g == data), fits, "{len}");
            b.check();
        }
    }
}
