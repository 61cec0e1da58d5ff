//! Whether one other lane has the keys of most requests of a connection, so that the connection is better off there.
//!
//! A weighted majority vote: a request for a key of the candidate adds one, any other takes three. So the weight grows for a lane that has more than
//! three of four requests, and stays near zero for a client whose keys are spread. A connection that has moved needs twice the weight before it moves
//! again, so one whose keys change all the time moves once in thousands of requests, and a move costs less than ten of them.

/// Requests before the first move, and most before any.
const FIRST: u16 = 64;
const LAST: u16 = 4096;
/// What a request of another lane takes.
const OTHER: u16 = 3;

/// The vote of one connection. By default it decides nothing.
#[derive(Debug, Default)]
pub(crate) struct Majority {
    to: u16,
    weight: u16,
    /// What is enough to move; 0: nothing is.
    enough: u16,
}

impl Majority {
    /// Of a connection that may move.
    pub(crate) fn free() -> Self {
        Self { enough: FIRST, ..Self::default() }
    }

    /// A request for a key of the connection's own lane.
    #[inline]
    pub(crate) fn here(&mut self) {
        if self.weight > 0 {
            self.weight = self.weight.saturating_sub(OTHER);
        }
    }

    /// A request for a key of another lane.
    #[inline]
    pub(crate) fn there(&mut self, lane: usize) {
        if self.enough == 0 {
            return;
        }
        let lane = lane as u16;
        // Guard: `lane == self.to` as `true` fails server::majority::tests::one_whose_keys_are_spread
        if lane == self.to {
            self.weight = self.enough.min(self.weight + 1);
            return;
        }
        self.weight = self.weight.saturating_sub(OTHER);
        if self.weight == 0 {
            (self.to, self.weight) = (lane, 1);
        }
    }

    /// The lane that the connection is to move to.
    pub(crate) fn far(&self) -> Option<usize> {
        (self.enough > 0 && self.weight >= self.enough).then_some(usize::from(self.to))
    }

    /// It has moved.
    pub(crate) fn moved(&mut self) {
        // Guard: `LAST.min(2 * self.enough)` as `self.enough` fails
        // server::majority::tests::one_whose_keys_change
        (self.weight, self.enough) = (0, LAST.min(2 * self.enough));
    }

    /// It cannot move.
    pub(crate) fn stay(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: [u32; 0] = [];

    /// How many of a hundred thousand requests a connection moves after, which asks lane `of(n)` the `n`-th time and begins in lane 0.
    fn moves(of: impl Fn(u32) -> usize) -> Vec<u32> {
        let (mut majority, mut at, mut moves) = (Majority::free(), 0, Vec::new());
        for n in 0..100_000 {
            match of(n) {
                lane if lane == at => majority.here(),
                lane => majority.there(lane),
            }
            if let Some(to) = majority.far() {
                (at, _) = (to, moves.push(n));
                majority.moved();
            }
        }
        moves
    }

    /// A number from 0 to 99 that looks like chance.
    fn chance(n: u32) -> u32 {
        let mixed = u64::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as u32 % 100
    }

    #[test]
    fn one_moves_to_where_its_keys_are_and_stays() {
        assert_eq!(moves(|_| 3), [63]);
        assert_eq!(moves(|_| 0), NEVER);
        let most = moves(|n| if chance(n) < 90 { 3 } else { 1 });
        assert!(most.len() == 1 && most[0] < 400, "{most:?}");
    }

    #[test]
    fn one_whose_keys_are_spread_stays() {
        assert_eq!(moves(|n| chance(n) as usize % 2), NEVER);
        assert_eq!(moves(|n| chance(n) as usize % 4), NEVER);
        assert_eq!(moves(|n| n as usize % 4), NEVER);
        assert_eq!(moves(|n| if chance(n) < 70 { 1 } else { 0 }), NEVER, "seven of ten are too few");
    }

    #[test]
    fn one_whose_keys_change_moves_less_and_less() {
        let often = moves(|n| n as usize / 100 % 2);
        assert_eq!(often.len(), 1, "{often:?}");
        let now_and_then = moves(|n| n as usize / 10_000 % 2);
        let apart: Vec<u32> = now_and_then.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(
            (8..=10).contains(&now_and_then.len()) && apart.iter().all(|n| *n > 5_000),
            "{now_and_then:?}"
        );
    }

    #[test]
    fn one_that_cannot_move_does_not() {
        let mut majority = Majority::default();
        (0..100).for_each(|_| majority.there(1));
        assert_eq!(majority.far(), None);
        let mut majority = Majority::free();
        (0..100).for_each(|_| majority.there(1));
        assert_eq!(majority.far(), Some(1));
        majority.stay();
        (0..10_000).for_each(|_| majority.there(1));
        assert_eq!(majority.far(), None);
    }
}
