//! Freeing memory after a burst.
//!
//! A lane that has had a hundred thousand connections still has pages of connections, tables and lists for as many, and the allocator
//! keeps the memory of the buffers. While a lane uses, or has used lately, [`WORTH`] bytes or more, its timer checks every [`QUIET`]
//! whether it needs less than half of its peak. Then the rest is freed, at a cost proportional to it. None of this is on the path of
//! packets.

use crate::tcp::Tcp;
use crate::tcp::connection::deadlines::NEVER;
use crate::time::Time;
use core::time::Duration;
use flowlane_sys::heap;

/// How often a lane looks.
const QUIET: Duration = Duration::from_secs(1);
/// How often while nothing changes.
const LONG_QUIET: Duration = Duration::from_secs(30);
/// A largest memory of fewer bytes is no burst.
const WORTH: usize = 4 << 20;
/// Entries of a list that are kept.
const LIST: usize = 1024;

impl Tcp {
    /// Gives memory back if it is time.
    #[inline]
    pub(super) fn perhaps_trim(&mut self, now: Time) {
        let (all, peak) = self.core.note_peak();
        if peak >= WORTH {
            self.look_at_memory(now, all, peak);
        }
    }

    #[cold]
    fn look_at_memory(&mut self, now: Time, all: usize, mut peak: usize) {
        if self.trim_at == NEVER {
            self.trim_at = now + QUIET;
        } else if self.trim_at <= now {
            let wait = if self.core.has_other_memory() { QUIET } else { LONG_QUIET };
            if all < peak / 2 {
                self.trim();
                self.core.forget_peak();
                peak = all;
            }
            self.trim_at = if peak >= WORTH { now + wait } else { NEVER };
        }
    }

    fn trim(&mut self) {
        // Guard: no `self.connections.trim();` fails bounds/receive::memory_is_given_back
        self.connections.trim();
        self.core.shrink(self.connections.slots(), LIST);
        // Guard: no `heap::trim();` fails bounds/receive::memory_is_given_back
        heap::trim();
    }
}
