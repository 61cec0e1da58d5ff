//! Whether the queues can be those of an affine card. This is tested before the whole table is learned.
//!
//! The slot of an affine card is at most eleven bits, since tables have at most 2048 slots. So of any twelve directions some sum changes none
//! of these bits: every packet arrives on the same queue with that sum and without it. Two hundred points of the space that twelve directions
//! span contain some pairs for each of its 4095 sums. If each sum has pairs on different queues, no eleven affine bits determine
//! the queue. Each point is chosen from some random ones so that its pairs tell of sums that are still open.
//!
//! ```text
//!   points x of base + span(d1 ... d12)     for each sum s: pairs x, x + s     all on equal queues for some s?
//! ```
//!
//! If there are few queues and most packets arrive on one of them, a sum may look so by chance. The answer is then "perhaps", and learning goes on.

use super::LearnError;
use super::asker::Asker;
use super::space::{Bytes, MAX_DIRECTIONS, Space, plus};

/// Most points that are probed in addition to those of the table.
const POINTS: usize = 400;
/// Points that are probed at once. The next ones depend on what these tell.
const AT_ONCE: usize = 24;
/// Random points of which the best is probed.
const CANDIDATES: usize = 16;
/// Pairs of a sum that are needed to judge it if answers are doubtful.
const PAIRS: usize = 6;

/// Whether some sum of the space's directions and a few more possibly changes no queue.
pub(super) fn is_there(asker: &mut Asker<'_>, space: &Space, free: &Bytes) -> Result<bool, LearnError> {
    let known = space.table.len();
    let more: Vec<Bytes> = (known.ilog2() as usize..=MAX_DIRECTIONS)
        .map(|_| core::array::from_fn(|i| asker.random.next() as u8 & free[i]))
        .collect();
    let all = known << more.len();
    let mut points: Vec<(usize, u16)> = space.table.iter().copied().enumerate().collect();
    let mut sums = Sums { seen: vec![(0, 0); all], doubtful: space.manner.lead > 1 };
    while points.len() < known + POINTS {
        let mut asked: Vec<usize> = Vec::with_capacity(AT_ONCE);
        let mut tuples = Vec::with_capacity(AT_ONCE);
        for _ in 0..4 * AT_ONCE {
            if asked.len() == AT_ONCE.min(known + POINTS - points.len()) {
                break;
            }
            let worth = |sum: &usize| points.iter().filter(|(at, _)| sums.is_open(at ^ sum, known)).count();
            let drawn: Vec<usize> =
                (0..CANDIDATES).map(|_| known + asker.random.below(all - known)).collect();
            let Some(sum) = drawn.into_iter().max_by_key(worth) else { break };
            let added = more.iter().enumerate().filter(|(i, _)| (sum / known) >> i & 1 == 1);
            let point =
                added.fold(space.point((sum % known) as u32), |point, (_, direction)| plus(point, direction));
            let new = !asked.contains(&sum) && !points.iter().any(|(at, _)| *at == sum);
            if let Some(tuple) = space.tuple(&point).filter(|_| new) {
                asked.push(sum);
                tuples.push(tuple);
            }
        }
        if asked.is_empty() {
            break;
        }
        let told = asker.queues(&tuples, space.manner.lead, "whether any affine rule fits")?;
        for point in asked.into_iter().zip(told) {
            points.iter().for_each(|other| sums.add(point, *other));
            points.push(point);
        }
        // Sums of the space's own directions change queues, otherwise they would not be in the space.
        if !(known..all).any(|sum| sums.is_open(sum, known)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// For each sum, the pairs of points that differ by it, and how many of them are on different queues.
struct Sums {
    seen: Vec<(u16, u16)>,
    doubtful: bool,
}

impl Sums {
    fn add(&mut self, (at, queue): (usize, u16), (other, others): (usize, u16)) {
        let (pairs, differ) = &mut self.seen[at ^ other];
        *pairs += 1;
        *differ += u16::from(queue != others);
    }

    /// Whether this sum may change no queue. Two pairs on different queues show that it does. One pair in sixteen may contain a wrong answer; if
    /// answers are doubtful, one in eight.
    fn is_open(&self, sum: usize, known: usize) -> bool {
        let (pairs, differ) = (usize::from(self.seen[sum].0), usize::from(self.seen[sum].1));
        let (allowed, least) = if self.doubtful { (8, PAIRS) } else { (16, 2) };
        // Guard: `(pairs < least || differ < 2 || allowed * differ <= pairs)` as `true` fails
        // what_is_not_affine_shows_early
        // Guard: `(pairs < least || differ < 2 || allowed * differ <= pairs)` as `false` fails
        // affine_cards_are_taken_for_affine
        sum >= known && (pairs < least || differ < 2 || allowed * differ <= pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::space::Manner;
    use super::super::{Answer, Options};
    use super::*;
    use crate::emulated::{Card, CardOptions};
    use crate::random::Random;
    use crate::{Arrangement, Flow, PacketKind, UdpFields};

    /// The answer for a card when the table of its space has 128 sums, and how many probes it took.
    fn asked(name: &str, slots: usize, queues: u16, seed: u64) -> (bool, usize) {
        let mut card = Card::new(name, &CardOptions { seed, slots, queues, udp: UdpFields::Four }).unwrap();
        let mut oracle = |flows: &[Flow]| {
            flows.iter().map(|flow| Some(Answer { hash: None, queue: card.receive(flow).queue })).collect()
        };
        let mut asker = Asker::new(&mut oracle, seed, Options::new(1).probes);
        let mut random = Random::new(seed + 1000);
        let mut free = [0xff; 36];
        free[12..].fill(0);
        let mut bytes = || {
            let mut bytes = random.bytes::<36>();
            bytes[12..].fill(0);
            bytes
        };
        let manner = Manner { arrangement: Arrangement::Plain, lead: 1 };
        let mut space = Space::new(&mut asker, PacketKind::TcpIpv4, manner, bytes()).unwrap();
        (0..7).for_each(|_| space.grow(&mut asker, bytes()).unwrap());
        let before = asker.asked;
        (is_there(&mut asker, &space, &free).unwrap(), asker.asked - before)
    }

    /// The largest table takes eleven bits, so a twelfth direction is refused.
    #[test]
    fn the_largest_space() {
        let mut card = Card::new("jhash", &CardOptions::default()).unwrap();
        let mut oracle = |flows: &[Flow]| {
            flows.iter().map(|flow| Some(Answer { hash: None, queue: card.receive(flow).queue })).collect()
        };
        let mut asker = Asker::new(&mut oracle, 1, 10_000);
        let manner = Manner { arrangement: Arrangement::Plain, lead: 1 };
        let mut random = Random::new(1);
        let mut bytes = || {
            let mut bytes = random.bytes::<36>();
            bytes[12..].fill(0);
            bytes
        };
        let mut space = Space::new(&mut asker, PacketKind::TcpIpv4, manner, bytes()).unwrap();
        (0..MAX_DIRECTIONS).for_each(|_| space.grow(&mut asker, bytes()).unwrap());
        let error = space.grow(&mut asker, bytes()).unwrap_err();
        assert!(matches!(error, LearnError::NotAffineQueues { .. }), "{error}");
    }

    /// Where no affine rule fits, that shows long before all points are probed.
    #[test]
    fn what_is_not_affine_shows_early() {
        for (seed, queues) in (1..8).flat_map(|seed| [2, 4, 16].map(|queues| (seed, queues))) {
            let (there, probes) = asked("jhash", 128, queues, seed);
            // Pairs of two queues are on different ones half of the time only.
            let most = if queues == 2 { POINTS } else { 264 };
            assert!(!there && probes <= most, "{queues} queues, seed {seed}: {probes}");
        }
    }

    /// An affine card is never taken for one that is not, even with the largest table of any content.
    #[test]
    fn affine_cards_are_taken_for_affine() {
        for seed in 1..8 {
            for (name, slots, queues) in [
                ("random-table", 2048, 2),
                ("random-table", 2048, 16),
                ("random", 2048, 7),
                ("crc32c", 256, 4),
            ] {
                assert_eq!(asked(name, slots, queues, seed), (true, POINTS), "{name}, seed {seed}");
            }
        }
    }
}
