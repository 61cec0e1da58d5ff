//! The share of packets that are marked: DCTCP's estimator (RFC 8257 §3.3), as Prague has it.
//!
//! Before the first mark nothing is known of the path's queue, and the share is one, so that the first reduction is that of a loss. From then
//! on each round moves it by a sixteenth towards what that round had.

/// All packets.
pub(crate) const ONE: u32 = 1 << 20;
/// The share moves by one of 2^4.
const GAIN_SHIFT: u32 = 4;

/// The moving average, and what this round has had so far.
#[derive(Debug)]
pub(super) struct Share {
    /// The average times 2^4, so that what is left over of a step counts in the next.
    scaled: u32,
    /// A mark has come.
    seen: bool,
    packets: u32,
    marked: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self { scaled: ONE << GAIN_SHIFT, seen: false, packets: 0, marked: 0 }
    }
}

impl Share {
    /// Parts of [`ONE`].
    pub(super) fn get(&self) -> u32 {
        self.scaled >> GAIN_SHIFT
    }

    /// So many packets more are acknowledged, and so many more are said to have been marked.
    pub(super) fn count(&mut self, packets: u32, marked: u32) {
        self.packets = self.packets.saturating_add(packets);
        self.marked = self.marked.saturating_add(marked);
        self.seen |= marked > 0;
    }

    /// A round is over; whether any of its packets were marked.
    pub(super) fn end_round(&mut self) -> bool {
        let (packets, marked) = (self.packets, self.marked);
        if packets == 0 {
            // Marks that came alone count with the packets of the next.
            return false;
        }
        (self.packets, self.marked) = (0, 0);
        // Guard: `self.seen` as `true` fails share::tests::nothing_is_known
        if self.seen {
            // Guard: `marked.min(packets)` as `marked` fails share::tests::no_peer
            let now = (u64::from(marked.min(packets)) << 20) / u64::from(packets);
            // Guard: `self.scaled - (self.scaled >> GAIN_SHIFT) + now as u32` as `self.scaled` fails
            // share::tests::it_follows prague::the_share_is_that
            self.scaled = self.scaled - (self.scaled >> GAIN_SHIFT) + now as u32;
        }
        marked > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(share: &mut Share, rounds: usize, packets: u32, marked: u32) -> f64 {
        for _ in 0..rounds {
            share.count(packets, marked);
            share.end_round();
        }
        f64::from(share.get()) / f64::from(ONE)
    }

    /// RFC 8257 §3.3, step 6: alpha = alpha * (1 - g) + g * M, with g of a sixteenth.
    #[test]
    fn it_follows_the_marks_by_a_sixteenth() {
        let mut share = Share::default();
        assert!((after(&mut share, 1, 100, 20) - (1.0 - 0.8 / 16.0)).abs() < 1e-5);
        for marked in [20, 1, 100, 50, 0] {
            let alpha = after(&mut share, 200, 100, marked);
            assert!((alpha - f64::from(marked) / 100.0).abs() < 1e-4, "{alpha}, {marked} of 100");
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_mark() {
        let mut share = Share::default();
        assert!((after(&mut share, 100, 10, 0) - 1.0).abs() < 1e-9);
        assert!(after(&mut share, 1, 10, 1) < 1.0);
    }

    /// Counts that jump, and marks without packets: the share stays between none and all.
    #[test]
    fn no_peer_makes_it_more_than_all() {
        let mut share = Share::default();
        for (packets, marked) in
            [(1, u32::MAX), (0, 7), (u32::MAX, u32::MAX), (u32::MAX, 1), (0, 0), (1, 1), (1, 7)]
        {
            share.count(packets, marked);
            share.end_round();
            assert!(share.get() <= ONE, "{} after {marked} of {packets}", share.get());
        }
        assert!((after(&mut share, 300, 1, 7) - 1.0).abs() < 1e-5);
        assert!(after(&mut share, 300, 1, 0) < 1e-4);
    }
}
