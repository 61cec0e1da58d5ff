//! The memory of a lane's buffers: who may have some, who waits for it, and who is told when there is some again.
//!
//! Send buffers are bytes of their own, receive buffers are the worker's frames. Two bounds hold, `max_memory` for both
//! and a share of the frames for the latter, since a worker without frames cannot receive anything at all. A write that
//! finds no memory waits for the event that frees some, in turn; it is not tried again before.

use super::connection::{Connection, Lists, NEVER};
use super::lane::Core;
use super::table::ConnId;
use super::{Seq, Tcp};
use crate::packet::Cx;
use crate::time::Time;
use core::time::Duration;
use flowlane_sys::block::OwnedBytes;

/// Memory that must be free for one of those who wait: the smallest send buffer, and as much again.
const PORTION: usize = 4096;

/// How soon windows are looked at again that lack of memory kept shut.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Core {
    /// Nothing may be promised any more: the buffers hold all they may, or so many of the worker's frames are in use that
    /// what is left must keep the links going.
    #[inline]
    pub(crate) fn is_full(&self, cx: &Cx<'_>) -> bool {
        self.memory >= self.config.max_memory || frames_left(cx, 8)
    }

    /// Buffers do not grow any more.
    #[inline]
    pub(crate) fn is_scarce(&self, cx: &Cx<'_>) -> bool {
        self.memory >= self.config.max_memory / 2 || frames_left(cx, 2)
    }

    /// The window of a connection could not be opened although its application has read: it is looked at again soon. The
    /// memory may be other lanes', or frames in other hands, so no event of this lane tells when it is back.
    #[cold]
    pub(crate) fn look_again(&mut self, c: &mut Connection, now: Time) {
        if !c.is_in(Lists::IN_NARROWED) {
            c.put_in(Lists::IN_NARROWED);
            self.narrowed.push_back(c.id);
            self.narrowed_at = self.narrowed_at.min(now + LOOK_AGAIN);
        }
    }

    /// Waits for memory.
    fn starve(&mut self, c: &mut Connection, now: Time) {
        self.stats.memory_waits += 1;
        if self.blocks.any_retired() {
            // No event tells when the last frame of an acknowledged block goes.
            self.narrowed_at = self.narrowed_at.min(now + LOOK_AGAIN);
        }
        c.put_in(Lists::STARVED);
        if !c.is_in(Lists::IN_STARVED) {
            c.put_in(Lists::IN_STARVED);
            self.starved.push_back(c.id);
        }
    }
}

/// Whether less than one frame in `share` of the worker's is free.
#[inline]
fn frames_left(cx: &Cx<'_>, share: usize) -> bool {
    let memory = cx.frames.memory();
    let few = |free: usize| free * share * memory.homes() < memory.count();
    few(cx.frames.free()) && {
        // Those that other workers sent home count as well; without this look a lane that takes no frames would shut its
        // windows for good.
        cx.frames.gather();
        few(cx.frames.free())
    }
}

impl Connection {
    /// Puts as many bytes into the send buffer as there is room and memory for; how many. What was taken of somebody's bytes is
    /// taken off them.
    pub(crate) fn take_for_sending(&mut self, core: &mut Core, now: Time, bytes: Source<'_>) -> usize {
        let wanted = bytes.len().min(self.room_to_write(core) as usize);
        if wanted == 0 {
            return 0;
        }
        let paused = self.unsent() == 0;
        let mut tx = match self.tx.take() {
            Some(tx) => tx,
            None => core.flight(),
        };
        core.memory -= core.blocks.look_again();
        let before = tx.data.capacity();
        let free = core.config.max_memory.saturating_sub(core.memory);
        let taken = match bytes {
            Source::Copied(bytes) => {
                let fits = tx.data.capacity_with(wanted) - before <= free;
                let n = if fits { wanted } else { wanted.min(tx.data.room()) };
                tx.data.push(&bytes[..n], &mut core.blocks);
                n
            }
            Source::Owned(bytes) => {
                let n = wanted.min(free);
                if n > 0 {
                    tx.data.push_owned(bytes.split_to(n));
                }
                n
            }
        };
        core.memory += tx.data.capacity() - before;
        if taken == 0 {
            if tx.data.is_empty() && tx.sent.is_empty() {
                core.give_flight(tx);
            } else {
                self.tx = Some(tx);
            }
            core.starve(self, now);
            return 0;
        }
        if paused {
            tx.burst = 0;
        }
        self.tx = Some(tx);
        self.take_out(Lists::STARVED);
        self.end_write(self.data_seq() + self.buffered());
        taken
    }
}

/// What an application writes.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// Bytes of its own, to be copied.
    Copied(&'a [u8]),
    /// Bytes that it gives away.
    Owned(&'a mut OwnedBytes),
}

impl Source<'_> {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Owned(bytes) => bytes.len(),
        }
    }
}

impl Connection {
    /// Bytes that a write may add. The send buffer's size is the bound, and if nobody has set it, also what is not sent yet.
    #[inline]
    pub(crate) fn room_to_write(&self, core: &Core) -> u32 {
        let room = self.send_limit.saturating_sub(self.buffered());
        if self.has_send_buffer_set() {
            room
        } else {
            room.min(core.config.max_unsent.saturating_sub(self.unsent()))
        }
    }

    /// Whether there is enough of it to be worth waking a writer.
    #[inline]
    pub(crate) fn has_room_to_write(&self, core: &Core) -> bool {
        self.buffered() < self.send_limit / 3 * 2
            && (self.unsent() < core.config.max_unsent / 3 * 2 || self.has_send_buffer_set())
    }

    /// Whether the application said how large its send buffer is to be.
    pub(super) fn has_send_buffer_set(&self) -> bool {
        self.options().is_some_and(|options| options.send_buffer.is_some())
    }

    /// Wakes whoever waits to write, if there is room.
    #[inline]
    pub(crate) fn wake_writer_with_room(&mut self, core: &Core) {
        if self.has_room_to_write(core) {
            self.wake_write();
        }
    }

    /// A write ends at `end`: PSH goes there. Where the one before it ended is forgotten if both make one burst, of up to half
    /// of the peer's largest window.
    #[inline]
    fn end_write(&mut self, end: Seq) {
        let old = core::mem::replace(&mut self.push_seq, end);
        let burst = (self.max_snd_wnd / 2).min(64 << 10);
        if old > self.snd_nxt && end.since(self.snd_nxt) > burst {
            if let Some(tx) = &mut self.tx {
                let from = tx.pushes.back().map_or(self.snd_nxt, |last| self.snd_nxt.max(*last));
                if end.since(from) > burst && tx.pushes.len() < MAX_PUSHES {
                    tx.pushes.push_back(old);
                }
            }
        }
    }
}

/// Ends of writes that are remembered, beside the last.
const MAX_PUSHES: usize = 256;

impl Tcp {
    /// Opens the windows that had to stay shut, as far as there is memory now: nobody else will, if the peers do not probe.
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
        let wait = !self.core.starved.is_empty() && self.core.blocks.any_retired();
        self.core.narrowed_at = if wait { cx.now + LOOK_AGAIN } else { NEVER };
        for _ in 0..self.core.narrowed.len() {
            let Some(id) = self.core.narrowed.pop_front() else { return };
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.take_out(Lists::IN_NARROWED);
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
        let most = core.config.max_memory;
        let mut free = (most - most / 8).saturating_sub(core.memory);
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
                c.take_out(Lists::IN_STARVED | Lists::STARVED);
                if starved {
                    free -= PORTION;
                    c.wake_write();
                }
            }
            core.starved.pop_front();
        }
    }
}
