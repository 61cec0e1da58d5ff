//! Giving memory back after a burst.
//!
//! A lane that has had a hundred thousand connections holds pages of connections, tables and lists for as many, and the allocator
//! holds all that buffers took. Once a burst is over, that is when the lane has needed less than half of its largest memory, or has a
//! whole page of connections too many, for [`QUIET`], it is given back. Off the path of packets: by the timer, at most once in [`QUIET`], and at
//! a cost that follows what is given back. Memory below [`WORTH`] is kept.

use super::Tcp;
use super::connection::NEVER;
use crate::time::Time;
use core::time::Duration;
use flowlane_sys::heap;

/// How long a burst must be over.
const QUIET: Duration = Duration::from_secs(1);
/// A largest memory of fewer bytes is no burst.
const WORTH: usize = 16 << 20;
/// Entries of a list that are kept.
const LIST: usize = 1024;

impl Tcp {
    /// A burst is over.
    #[inline]
    fn is_roomy(&self) -> bool {
        let core = &self.core;
        let less = core.peak >= WORTH && (core.memory + core.fixed) * 2 < core.peak;
        less || self.connections.has_spare_page() || core.table.is_roomy() || core.time_wait.is_roomy()
    }

    /// When the timer is to look; at once if there is something to be noted.
    #[inline]
    pub(super) fn trim_deadline(&self) -> Time {
        if self.is_roomy() && self.trim_at == NEVER { Time::ZERO } else { self.trim_at }
    }

    /// Gives memory back if it is time.
    #[inline]
    pub(super) fn perhaps_trim(&mut self, now: Time) {
        self.core.peak = self.core.peak.max(self.core.memory + self.core.fixed);
        if self.trim_at != NEVER || self.is_roomy() {
            self.trim(now);
        }
    }

    #[cold]
    fn trim(&mut self, now: Time) {
        if !self.is_roomy() {
            self.trim_at = NEVER;
        } else if self.trim_at == NEVER {
            self.trim_at = now + QUIET;
        } else if self.trim_at <= now {
            self.trim_at = NEVER;
            self.connections.trim();
            let core = &mut self.core;
            core.time_wait.trim();
            core.table.trim();
            core.ready.shrink_to(LIST);
            core.starved.shrink_to(LIST);
            core.narrowed.shrink_to(LIST);
            core.listeners.trim(LIST);
            if core.peak >= WORTH {
                heap::trim();
            }
            core.peak = core.memory + core.fixed;
        }
    }
}
