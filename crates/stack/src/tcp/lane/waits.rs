//! Who waits for memory: writers that found none, and windows that could not be opened. Both lists are in turn. Those that are gone leave
//! them when they come to the front, and when a list has grown for their sake.

use crate::tcp::connection::deadlines::NEVER;
use crate::tcp::connection::{Connection, Flags, Lists};
use crate::tcp::lane::Core;
use crate::tcp::table::{ConnId, Slab};
use crate::time::Time;
use core::time::Duration;
use std::collections::VecDeque;

/// How soon windows are looked at again that lack of memory kept shut.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Connections whose windows are looked at in one go.
const LOOKS: usize = 1024;

impl Core {
    /// The window of a connection could not be opened although its application has read: it is looked at again soon. The
    /// memory may be other lanes', or frames in other hands, so no event of this lane tells when it is back.
    #[cold]
    pub(crate) fn look_again(&mut self, c: &mut Connection, now: Time) {
        if !c.is_in(Lists::IN_NARROWED) {
            c.set_in_narrowed(true);
            self.narrowed.push_back(c.id());
            self.narrowed_at = self.narrowed_at.min(now + LOOK_AGAIN);
        }
    }

    /// Waits for memory.
    pub(crate) fn starve(&mut self, c: &mut Connection, now: Time) {
        self.stats.memory_waits += 1;
        // No event tells when the last frame of an acknowledged block goes, nor when others leave it a larger share.
        self.narrowed_at = self.narrowed_at.min(now + LOOK_AGAIN);
        c.set_starved(true);
        if !c.is_in(Lists::IN_STARVED) {
            c.set_in_starved();
            self.starved.push_back(c.id());
        }
    }

    /// When windows are looked at again; [`NEVER`] if none waits.
    #[inline]
    pub(crate) fn looks_again_at(&self) -> Time {
        self.narrowed_at
    }

    /// No window can be opened now: all wait on. Who was closed by the application waits for nothing, so a lane that is full of what closed
    /// connections still have to send sleeps until their peers say something.
    pub(crate) fn open_later(&mut self, now: Time, connections: &Slab<Connection>) {
        let waits = |id: &ConnId| connections.get(*id).is_some_and(|c| !c.has(Flags::DETACHED));
        while self.narrowed.front().is_some_and(|id| !waits(id)) {
            self.narrowed.pop_front();
        }
        sift(&mut self.narrowed, connections);
        let nobody = self.narrowed.is_empty() && self.starved.is_empty();
        // Guard: `nobody` as `false` fails scarcity::a_lane_full_of_what_the_closed_left
        self.narrowed_at = if nobody { NEVER } else { now + LOOK_AGAIN };
    }

    /// How many windows to look at now; the rest is looked at again later.
    pub(crate) fn windows_to_open(&mut self, now: Time) -> usize {
        let all = self.narrowed.len();
        let wait = !self.starved.is_empty() || all > LOOKS;
        self.narrowed_at = match wait {
            // There is much, and more of those who wait for it than can be looked at in one go.
            true if all > LOOKS && !self.is_pressed() => now + LOOK_AGAIN / 20,
            true => now + LOOK_AGAIN,
            false => NEVER,
        };
        all.min(LOOKS)
    }

    /// Takes the next off the list of those whose windows are to be opened.
    pub(crate) fn next_narrowed(&mut self) -> Option<ConnId> {
        self.narrowed.pop_front()
    }

    /// Whether a writer waits.
    #[inline]
    pub(crate) fn has_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Places in the list of writers.
    pub(crate) fn starved(&self) -> usize {
        self.starved.len()
    }

    /// Takes those writers off the list that are gone, if there are many.
    pub(crate) fn sift_starved(&mut self, connections: &Slab<Connection>) {
        sift(&mut self.starved, connections);
    }

    /// The writer whose turn it is.
    pub(crate) fn first_starved(&self) -> Option<ConnId> {
        self.starved.front().copied()
    }

    /// The writer whose turn it is waits no more.
    pub(crate) fn feed_first(&mut self) {
        self.starved.pop_front();
    }

    /// The writer whose turn it is goes to the end of the list.
    pub(crate) fn pass_by_first(&mut self) {
        self.starved.rotate_left(1);
    }
}

fn sift(list: &mut VecDeque<ConnId>, connections: &Slab<Connection>) {
    if list.len() > 2 * connections.len() + 64 {
        list.retain(|id| connections.get(*id).is_some());
    }
}
