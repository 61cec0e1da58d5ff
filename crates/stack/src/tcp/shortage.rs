//! There is memory again: windows that had to stay shut are opened, and writers that wait for memory are woken, in turn. What a lane
//! counts as memory, and its levels, are in `lane/memory.rs`, those who wait in `lane/waits.rs`.

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::connection::{Flags, Lists};
use crate::tcp::lane::memory::PORTION;

/// Writers over their share that are passed by in search of one that is not.
const PASSED_BY: usize = 8;

impl Tcp {
    /// Opens the windows that were closed for lack of memory, as far as there is memory now. Nothing else does, unless the peers probe.
    #[cold]
    pub(crate) fn open_windows(&mut self, cx: &Cx<'_>) {
        self.feed_starved();
        if self.core.is_full(cx) {
            self.core.open_later(cx.now, &self.connections);
            return;
        }
        for _ in 0..self.core.windows_to_open(cx.now) {
            let Some(id) = self.core.next_narrowed() else { return };
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.set_in_narrowed(false);
            // Where there is still no memory it goes back on the list.
            // Guard: no `c.window_opened(&mut self.core, cx);` fails scarcity::a_window_reopens
            c.window_opened(&mut self.core, cx);
            if c.is_in(Lists::LINKED) {
                self.core.settle(c);
            }
        }
    }

    /// Wakes those who wait for memory, in turn, as far as there is some.
    #[inline]
    pub(crate) fn feed_starved(&mut self) {
        if self.core.has_starved() {
            self.feed();
        }
    }

    #[cold]
    fn feed(&mut self) {
        let core = &mut self.core;
        core.regain_blocks();
        let mut free = core.left_below_tight();
        let mut passed_by = 0;
        core.sift_starved(&self.connections);
        while let Some(id) = core.first_starved() {
            if let Some(c) = self.connections.get_mut(id) {
                // Nobody writes to one that was closed.
                let starved = c.is_in(Lists::STARVED) && !c.has(Flags::DETACHED);
                if starved && free < PORTION {
                    return;
                }
                let (has, empty) =
                    c.tx.get().map_or((0, true), |tx| (tx.data.capacity(), tx.data.is_empty()));
                if starved && core.may_add(has, empty, PORTION) < PORTION {
                    // Its turn comes again when the others have had theirs.
                    core.pass_by_first();
                    passed_by += 1;
                    if passed_by >= PASSED_BY.min(core.starved()) {
                        return;
                    }
                    continue;
                }
                c.leave_starved();
                if starved {
                    free -= PORTION;
                    c.wake_write();
                }
            }
            core.feed_first();
        }
    }
}
