//! Whether the queues can be those of an affine card. This is tested before the whole table is learned.
//!
//! The slot of an affine card is at most eleven bits, since tables have at most 2048 slots. So of any twelve directions some sum changes none
//! of these bits: every packet arrives on the same queue with that sum and without it. A few hundred points of the space that twelve directions
//! span contain some tens of pairs for each of its 4095 sums. If each sum has pairs on different queues, no eleven affine bits determine
//! the queue.
//!
//! ```text
//!   points x of base + span(d1 ... d12)     for each sum s: pairs x, x + s     all on equal queues for some s?
//! ```
//!
//! If there are few queues and most packets arrive on one of them, a sum may look so by chance. The answer is then "perhaps", and learning goes on.

use super::LearnError;
use super::asker::Asker;
use super::space::{Bytes, MAX_DIRECTIONS, Space, plus};

/// Points that are probed in addition to those of the table.
const POINTS: usize = 400;
/// Pairs of a sum that are needed to judge it.
const PAIRS: usize = 6;

/// Whether some sum of the space's directions and a few more possibly changes no queue.
pub(super) fn is_there(asker: &mut Asker<'_>, space: &Space, free: &Bytes) -> Result<bool, LearnError> {
    let known = space.table.len();
    let more: Vec<Bytes> = (known.ilog2() as usize..=MAX_DIRECTIONS)
        .map(|_| core::array::from_fn(|i| asker.random.next() as u8 & free[i]))
        .collect();
    let all = known << more.len();
    let mut queues: Vec<Option<u16>> = space.table.iter().copied().map(Some).collect();
    queues.resize(all, None);
    let mut sums: Vec<usize> = Vec::with_capacity(POINTS);
    let mut tuples = Vec::with_capacity(POINTS);
    for _ in 0..4 * POINTS {
        if sums.len() == POINTS {
            break;
        }
        let sum = known + asker.random.below(all - known);
        let added = more.iter().enumerate().filter(|(i, _)| (sum / known) >> i & 1 == 1);
        let point =
            added.fold(space.point((sum % known) as u32), |point, (_, direction)| plus(point, direction));
        if let Some(tuple) = space.tuple(&point).filter(|_| !sums.contains(&sum)) {
            sums.push(sum);
            tuples.push(tuple);
        }
    }
    let told = asker.queues(&tuples, space.manner.lead, "whether any affine rule fits")?;
    sums.iter().zip(told).for_each(|(&sum, queue)| queues[sum] = Some(queue));
    // One pair in sixteen may contain a wrong answer; if answers are doubtful, one in eight.
    let allowed = if space.manner.lead > 1 { 8 } else { 16 };
    // Sums of the space's own directions change queues, otherwise they would not be in the space.
    Ok((known..all).any(|sum| {
        let (pairs, differ) = pairs(&queues, sum);
        pairs < PAIRS || allowed * differ <= pairs
    }))
}

/// The pairs of known points that differ by this sum, and how many of them are on different queues.
fn pairs(queues: &[Option<u16>], sum: usize) -> (usize, usize) {
    let (mut pairs, mut differ) = (0, 0);
    for (at, queue) in queues.iter().enumerate().filter(|(at, _)| at & 1 << sum.ilog2() == 0) {
        if let (Some(one), Some(other)) = (queue, queues[at ^ sum]) {
            pairs += 1;
            differ += usize::from(*one != other);
        }
    }
    (pairs, differ)
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
