//! When a connection last answered a segment that ought not to come: see `challenge`.

/// When a connection last answered an unacceptable segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InvalidAnswers {
    /// Milliseconds; 0 for never.
    at_ms: u32,
}

impl InvalidAnswers {
    /// Whether one may be answered at `now`, `interval` behind the last, milliseconds; notes that it is.
    pub(crate) fn may_answer(&mut self, now: u32, interval: u32) -> bool {
        let now = now.max(1);
        // Guard: `< interval` as `< 0` fails attacks::challenges_are_limited
        if self.at_ms != 0 && now.wrapping_sub(self.at_ms) < interval {
            return false;
        }
        self.at_ms = now;
        true
    }
}
