//! The longest burst that passes without loss, and the buffer that it shows: the back-to-back benchmark of RFC 9004, which updates RFC 2544 §26.4.
//!
//! A [`BurstSearch`] is one trial: it says how long the next burst is, and is told whether all of it came back. A length has failed when it failed
//! twice in a row (loss verification, RFC 9004 §5.4). A trial after the first begins where the one before it ended, and looks around there. [`FoundBursts`] has
//! what all trials came to.

mod found;
#[cfg(test)]
mod tests;
mod text;

pub use found::{FoundBursts, Spread, Trial};
pub use text::{line, summary};

/// How much longer the next burst of a first trial is as long as none has failed.
const GROWTH: f64 = 4.0;

/// A search for the longest burst that passes, in datagrams.
#[derive(Debug, Clone)]
pub struct BurstSearch {
    shortest: u64,
    longest: u64,
    within: f64,
    /// Where to begin, and how far from there the next is.
    start: Option<u64>,
    reach: f64,
    passed: Option<u64>,
    failed: Option<u64>,
    /// A length that failed once.
    again: Option<u64>,
}

impl BurstSearch {
    /// A search between two lengths, the first at least 1 and not above the second, that ends when the shortest that failed is not more than a
    /// datagram, or the share `within`, above the longest that passed. `start`: what another found.
    #[must_use]
    pub fn new((shortest, longest): (u64, u64), within: f64, start: Option<u64>) -> Self {
        let reach = if start.is_some() { 1.0 + 2.0 * within.max(0.001) } else { GROWTH };
        let start = start.map(|start| start.clamp(shortest, longest));
        Self { shortest, longest, within, start, reach, passed: None, failed: None, again: None }
    }

    /// The length to try; `None` at the end.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        if self.again.is_some() {
            return self.again;
        }
        match (self.passed, self.failed) {
            (None, None) => Some(self.start.unwrap_or(self.shortest)),
            (Some(passed), None) => (passed < self.longest).then(|| self.up(passed)),
            (None, Some(failed)) => (failed > self.shortest).then(|| self.down(failed)),
            (Some(passed), Some(failed)) => {
                let step = ((passed as f64 * self.within) as u64).max(1);
                (failed > passed + step).then(|| match failed / passed.max(1) {
                    0..2 => passed + (failed - passed) / 2,
                    _ => ((passed as f64 * failed as f64).sqrt() as u64).clamp(passed + 1, failed - 1),
                })
            }
        }
    }

    fn up(&self, passed: u64) -> u64 {
        ((passed as f64 * self.reach) as u64).clamp(passed + 1, self.longest)
    }

    fn down(&self, failed: u64) -> u64 {
        ((failed as f64 / self.reach) as u64).clamp(self.shortest, failed - 1)
    }

    /// Notes whether all of a burst came back whose length [`Self::length`] gave.
    pub fn tell(&mut self, length: u64, passes: bool) {
        let second = self.again.take() == Some(length);
        // Guard: `!passes && !second` as `false` fails find::burst::tests::a_loss_is_verified
        if !passes && !second {
            self.again = Some(length);
            return;
        }
        if passes {
            self.passed = Some(length);
        } else {
            self.failed = Some(length);
        }
        if self.start.is_some() {
            // Away from where it began in ever longer steps.
            self.reach *= self.reach;
        }
    }

    /// The longest that passed, and the shortest that failed.
    #[must_use]
    pub fn bounds(&self) -> (Option<u64>, Option<u64>) {
        (self.passed, self.failed)
    }
}
