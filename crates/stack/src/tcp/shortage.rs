//! There is memory again: windows that had to stay shut are opened, and writers that wait for memory are woken, in turn. What a lane
//! counts as memory, and its levels, are in `lane/memory.rs`.

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::connection::Lists;
use crate::tcp::connection::deadlines::NEVER;
use crate::tcp::lane::memory::{LOOK_AGAIN, PORTION};
use crate::tcp::table::ConnId;

/// Connections whose windows are looked at in one go.
const LOOKS: usize = 1024;

/// Writers over their share that are passed by in search of one that is not.
const PASSED_BY: usize = 8;

impl Tcp {
    /// Opens the windows that were closed for lack of memory, as far as there is memory now. Nothing else does, unless the peers probe.
    #[cold]
    pub(crate) fn open_windows(&mut self, cx: &Cx<'_>) {
        self.feed_starved();
        if self.core.is_full(cx) {
            self.core.narrowed_at = cx.now + LOOK_AGAIN;
            if self.core.narrowed.len() > 2 * self.connections.len() + 64 {
                let connections = &self.connections;
                self.core.narrowed.retain(|id| connections.get(*id).is_some());
            }
            return;
        }
        let all = self.core.narrowed.len();
        let wait = !self.core.starved.is_empty() || all > LOOKS;
        self.core.narrowed_at = match wait {
            // There is much, and more of those who wait for it than can be looked at in one go.
            true if all > LOOKS && !self.core.is_pressed() => cx.now + LOOK_AGAIN / 20,
            true => cx.now + LOOK_AGAIN,
            false => NEVER,
        };
        for _ in 0..all.min(LOOKS) {
            let Some(id) = self.core.narrowed.pop_front() else { return };
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.set_in_narrowed(false);
            // Where there is still no memory it goes back on the list.
            c.window_opened(&mut self.core, cx);
            if c.is_in(Lists::LINKED) {
                self.core.settle(c);
            }
        }
    }

    /// Wakes those who wait for memory, in turn, as far as there is some.
    #[inline]
    pub(crate) fn feed_starved(&mut self) {
        if !self.core.starved.is_empty() {
            self.feed();
        }
    }

    #[cold]
    fn feed(&mut self) {
        let core = &mut self.core;
        core.memory -= core.blocks.look_again();
        let mut free = core.left_below_tight();
        let mut passed_by = 0;
        // Those that have gone, or got room of their own meanwhile, leave the list when they come to its front, and when
        // it has grown for their sake.
        if core.starved.len() > 2 * self.connections.len() + 64 {
            let connections = &self.connections;
            core.starved.retain(|id: &ConnId| connections.get(*id).is_some());
        }
        while let Some(&id) = core.starved.front() {
            if let Some(c) = self.connections.get_mut(id) {
                let starved = c.is_in(Lists::STARVED);
                if starved && free < PORTION {
                    return;
                }
                let (has, empty) =
                    c.tx.get().map_or((0, true), |tx| (tx.data.capacity(), tx.data.is_empty()));
                if starved && core.may_add(has, empty, PORTION) < PORTION {
                    // Its turn comes again when the others have had theirs.
                    core.starved.rotate_left(1);
                    passed_by += 1;
                    if passed_by >= PASSED_BY.min(core.starved.len()) {
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
            core.starved.pop_front();
        }
    }
}
