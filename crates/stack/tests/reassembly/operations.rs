//! Any operations in any order, under limits so tight that everything happens: what always holds is looked at after
//! each, and the bytes of what is delivered are right.

use std::time::Duration;

use flowlane_stack::reassembly::{ReassemblyConfig, Verdict};
use flowlane_stack::rng::Rng;

use crate::kit::{Bench, Name, fragment, pattern, payload};

/// The datagram of a name: its bytes follow from its name, so that any fragment can be checked.
fn datagram(name: Name) -> Vec<u8> {
    let len = 100 + (u32::from(name.id).wrapping_mul(977) ^ name.host) as usize % 400;
    pattern(len, name.host ^ u32::from(name.id) << 8)
}

fn run(seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let config = ReassemblyConfig {
        datagrams: 1 + rng.below(40) as usize,
        fragments: 1 + rng.below(80) as usize,
        bytes: (1 + rng.below(100) as usize) * 2048,
        per_datagram: 1 + rng.below(12) as usize,
        ..Default::default()
    };
    let mut b = Bench::new(config, 256);
    let (mut whole, mut damaged) = (0, 0);
    for _ in 0..4000 {
        match rng.below(20) {
            0 => b.now += Duration::from_millis(u64::from(rng.below(8000))),
            1 => {
                let deadline = b.r.next_deadline();
                let expired = b.r.expire(b.now, &mut b.stats);
                assert_eq!(expired.is_some(), deadline.is_some_and(|d| d <= b.now));
            }
            _ => {
                let name = Name { v6: rng.below(2) == 0, host: rng.below(6) * 130, id: rng.below(8) as u16 };
                let data = datagram(name);
                let at = rng.below(data.len() as u32 / 8) as usize * 8;
                let step = [24, 64, 104][rng.below(3) as usize];
                // Mostly on a common grid, so that datagrams complete.
                let at = if rng.below(8) > 0 { at / 104 * 104 } else { at };
                let step = if rng.below(16) > 0 { 104 } else { step };
                let end = data.len().min(at + step);
                let mut bytes = data[at..end].to_vec();
                let bad = rng.below(200) == 0;
                if bad {
                    bytes[0] ^= 1;
                    damaged += 1;
                }
                let f = fragment(&b.pool, name, at as u16, &bytes, end < data.len(), 2);
                if let Verdict::Whole(frame) = b.give(f) {
                    whole += 1;
                    let got = payload(name, &frame);
                    let wrong = got.iter().zip(&data).filter(|(a, b)| a != b).count() as u64;
                    assert!(got.len() == data.len() && wrong <= damaged);
                }
            }
        }
        b.check();
        assert!(b.r.fragments() <= config.fragments && b.r.pending() <= config.datagrams);
        assert!(b.r.bytes() <= config.bytes);
    }
    // In the end everything expires and every frame is back.
    b.now += Duration::from_secs(61);
    while b.r.expire(b.now, &mut b.stats).is_some() {}
    assert_eq!((b.r.pending(), b.r.fragments(), b.r.bytes()), (0, 0, 0));
    b.check();
    (whole, b.stats.drops.total())
}

#[test]
fn any_operations_in_any_order() {
    let (mut whole, mut dropped) = (0, 0);
    for seed in 0..60 {
        let (w, d) = run(seed);
        whole += w;
        dropped += d;
    }
    assert!(whole > 4000 && dropped > 10_000, "the test tests something: {whole} whole, {dropped} dropped");
}
