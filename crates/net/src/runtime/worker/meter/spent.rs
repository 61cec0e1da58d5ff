//! Time spent on each lane.
//!
//! A worker reads the clock once a turn. The time of a turn is divided among the lanes that did something in it, by their frames and task
//! runs; a lane with only a timer or output counts as one unit. So a lane's time is exact in turns in which it was alone, and an estimate
//! in others.

use super::Lanes;

/// What lanes did in a turn.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// Each lane with its pieces of work.
    lanes: Vec<(u32, u32)>,
    total: u64,
}

impl Spent {
    /// A lane was looked after, having done so much.
    #[inline]
    pub(super) fn add(&mut self, lane: u32, work: u32) {
        let work = work.max(1);
        self.total += u64::from(work);
        self.lanes.push((lane, work));
    }

    /// Whether no lane did anything.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Shares the time of a turn out among the lanes of the turn.
    #[inline]
    pub(super) fn share_out(&mut self, nanos: u64, lanes: &mut Lanes) {
        let total = std::mem::take(&mut self.total);
        for (lane, work) in self.lanes.drain(..) {
            // A lane that has moved meanwhile takes nothing along.
            if let Some(slot) = lanes.get_mut(lane) {
                slot.counters.nanos += share(nanos, work, total);
            }
        }
    }
}

/// The share of one lane. A turn is short: its nanoseconds times the frames in it fit 64 bits.
fn share(nanos: u64, work: u32, total: u64) -> u64 {
    if u64::from(work) == total { nanos } else { nanos.saturating_mul(u64::from(work)) / total.max(1) }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        assert_eq!(share(1001, 7, 7), 1001);
        let shares: u64 = [1, 2, 5].iter().map(|work| share(1000, *work, 8)).sum();
        assert_eq!(shares, 1000);
    }
}
