//! A listener's early connections: those that may be used before their handshake is over (RFC 7413 §5.1).

use crate::time::Time;
use core::time::Duration;
use std::collections::VecDeque;

/// How long a pending connection that its peer has reset counts on: who forges SYNs makes the owners of the addresses reset
/// them, and must not get new room by that (RFC 7413 §5.1).
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// A listener's early connections.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// Handshakes of early connections under way.
    pending: u32,
    /// Until when those that were reset still count.
    resets: VecDeque<Time>,
}

impl Early {
    /// Whether one more may be begun.
    pub(crate) fn has_room(&mut self, now: Time, most: u32) -> bool {
        // Guard: `self.resets.front().is_some_and(|until| *until <= now)` as `false` fails
        // fast_open::resets_count
        while self.resets.front().is_some_and(|until| *until <= now) {
            self.resets.pop_front();
        }
        // Guard: `self.resets.len()` as `0` fails fast_open::resets_count
        (self.pending as usize).saturating_add(self.resets.len()) < most as usize
    }

    /// One has begun.
    pub(crate) fn begin(&mut self) {
        self.pending += 1;
    }

    /// The handshake of one is over.
    pub(crate) fn over(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// One was reset by its peer.
    pub(crate) fn was_reset(&mut self, now: Time) {
        self.resets.push_back(now + RESET_COUNTS);
    }

    /// Those that count now.
    pub(crate) fn count(&self) -> usize {
        self.pending as usize + self.resets.len()
    }
}
