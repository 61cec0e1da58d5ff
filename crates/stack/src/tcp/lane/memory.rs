//! The memory of a lane's TCP: limits, shares, and waiting for memory.
//!
//! **Accounting.** Buffers count with all the memory that they hold, however few bytes are in them: a received frame with its whole buffer, a
//! copy with its blocks. The boxes and lists that organise them count as well, what few connections have (`connection/rare.rs`), and each
//! connection and TIME-WAIT record.
//!
//! **Levels.** One bound, `max_memory`, applies to all of it. Connections and records may use at most half; beyond that no new connection is
//! accepted. The rest is for buffers:
//!
//! ```text
//!   0              easy = 1/2             tight = 7/8     full
//!   ├────────────────┼───────────────────────┼─────────────┤
//!   │ what is asked  │ up to a fair share,   │ a segment   │ nothing
//!   │                │ received data copied  │ where there │
//!   │                │ out of its frame      │ is none     │
//! ```
//!
//! A fair share is a quarter of the buffers' memory divided by the number of connections, so all shares together stay below `tight`, and
//! a connection whose reader keeps up makes progress while others use all they may. Advertised windows follow the same levels. A window
//! that was advertised before and cannot be kept is closed: the data is dropped with its own counter and answered with a window of zero,
//! as Linux does, and a window update follows when there is memory again.
//!
//! Two lanes that are full of unsent data for each other would wait for ever for each other's acknowledgements. So a lane without memory
//! accepts one more segment, for one connection at a time that holds nothing ([`Spare`]); its acknowledgement frees memory at the other
//! end. Its bytes are the only ones beyond the bound.
//!
//! Frames have a separate bound, since a worker without frames cannot receive anything. A write that finds no memory waits in a queue for
//! the event that frees some; it is not tried again before.

use crate::packet::Cx;
use crate::tcp::connection::congestion::Model;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::flight::Flight;
use crate::tcp::connection::rare::PER_RARE;
use crate::tcp::connection::recv_buffer::{INFLOW, Inflow};
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::PER_FLOW;
use crate::tcp::lane::time_wait::PER_RECORD;
use crate::tcp::segment::Segment;
use crate::tcp::table::{ConnId, Slab};
use crate::time::Time;
use core::time::Duration;
use flowlane_sys::block::OwnedBytes;

/// Memory that must be free for one of those who wait: the smallest send buffer, and as much again.
pub(crate) const PORTION: usize = 4096;

/// Bytes of a connection: its place in the slab, in the table of tuples, on the wheel and in the lists of a lane, the totals of its
/// flow, and what stands aside.
pub(crate) const PER_CONNECTION: usize = {
    let held = Slab::<Connection>::ENTRY_SIZE + ASIDE + 26 + 24 + 4 + 2 * size_of::<ConnId>() + PER_FLOW;
    assert!(held <= 512);
    512
};
/// Of that what stands aside and is small: addresses of IPv6, and CUBIC's curve.
const ASIDE: usize = 48 + 32;

/// How far the memory of buffers may go; see the head of this file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Levels {
    easy: usize,
    tight: usize,
    full: usize,
    /// Bytes of connections and records for which these are.
    fixed: usize,
}

/// The one segment that a lane without memory takes.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// Whose window stands open for it, and until when it is promised to nobody else.
    promised: Option<(ConnId, Time)>,
    /// It waits to be read.
    taken: bool,
}

/// For how long the segment is promised to one connection.
const PROMISED: Duration = Duration::from_secs(1);

impl Core {
    /// A window that lack of memory would keep shut: open for the spare segment, if it can be promised to `c`.
    #[cold]
    pub(crate) fn promise_spare(&mut self, c: &Connection, cx: &Cx<'_>) -> u32 {
        let idle = c.rx.get().is_none_or(Inflow::is_empty) && c.state().may_receive();
        let others = self.spare.promised.is_some_and(|(id, until)| id != c.id() && cx.now < until);
        if self.spare.taken || others || !idle || c.has(Flags::DETACHED) || frames_left(cx, 8) {
            return 0;
        }
        self.spare.promised = Some((c.id(), cx.now + PROMISED));
        u32::from(c.mss.rcv())
    }

    /// Whether `rx`, which holds nothing, may take a segment of `len` bytes without memory.
    pub(crate) fn take_spare(&mut self, rx: &mut Inflow, len: usize, most: u16) -> bool {
        // Guard: `!self.spare.taken && rx.is_empty()` as `true` fails scarcity::one_segment_is_taken
        let may = !self.spare.taken && rx.is_empty() && len <= usize::from(most);
        if may {
            self.spare.taken = true;
            rx.set_spare(true);
        }
        may
    }

    /// What was taken in `rx` without memory has been read, or is not wanted any more.
    #[inline]
    pub(crate) fn give_spare(&mut self, rx: &mut Inflow) {
        if rx.is_spare() {
            rx.set_spare(false);
            self.spare = Spare::default();
        }
    }

    /// Bytes of all buffers, and of the boxes and lists that keep them in order.
    #[inline]
    pub(crate) fn buffer_memory(&self) -> usize {
        self.memory
    }

    /// Bytes of connections and TIME-WAIT records.
    #[inline]
    pub(crate) fn fixed_memory(&self) -> usize {
        self.fixed
    }

    /// Received data waits in as many bytes of frames as it may.
    #[inline]
    pub(crate) fn holds_most_frames(&self) -> bool {
        self.held >= self.config.max_held
    }

    /// Bytes of frames in which received data waits.
    #[cfg(test)]
    pub(crate) fn held_for_test(&self) -> usize {
        self.held
    }

    /// Copies bytes into a send buffer.
    pub(crate) fn copy_in(&mut self, tx: &mut Flight, bytes: &[u8]) {
        let before = tx.data.capacity();
        tx.data.push(bytes, &mut self.blocks);
        self.memory += tx.data.capacity() - before;
    }

    /// Puts bytes into a send buffer that stay where they are.
    pub(crate) fn refer_to(&mut self, tx: &mut Flight, bytes: OwnedBytes) {
        let before = tx.data.capacity();
        tx.data.push_owned(bytes);
        self.memory += tx.data.capacity() - before;
    }

    /// The first `bytes` of a send buffer are acknowledged.
    #[inline]
    pub(crate) fn consume(&mut self, tx: &mut Flight, bytes: u32) {
        // A FIN takes a number, and no byte.
        if bytes > 0 {
            self.memory -= tx.data.consume(bytes as usize, &mut self.blocks);
        }
    }

    /// A connection has this model from now on, in place of what it had.
    pub(crate) fn give_model(&mut self, c: &mut Connection, model: Model) {
        self.drop_model(c);
        self.memory += model.memory();
        c.set_model(Some(model));
    }

    /// A connection needs no model any more.
    #[inline]
    pub(crate) fn drop_model(&mut self, c: &mut Connection) {
        if let Some(bytes) = c.model().map(Model::memory) {
            c.set_model(None);
            self.memory -= bytes;
        }
    }

    /// What is rare of a connection counts if there is any of it.
    #[inline(always)]
    pub(crate) fn count_rare(&mut self, c: &mut Connection) {
        if c.fast.has(Marks::RARE_CHANGED) {
            self.recount_rare(c);
        }
    }

    #[cold]
    fn recount_rare(&mut self, c: &mut Connection) {
        c.fast.put(Marks::RARE_CHANGED, false);
        if c.has_rare() {
            self.memory += PER_RARE;
        } else {
            self.memory -= PER_RARE;
        }
    }

    /// A connection is over, and what is rare of it goes with it.
    pub(crate) fn forget_rare(&mut self, c: &Connection) {
        let counts = c.has_rare() != c.fast.has(Marks::RARE_CHANGED);
        // Guard: `counts` as `false` fails memory::what_is_rare_counts
        if counts {
            self.memory -= PER_RARE;
        }
    }

    /// The scoreboard of a send side has changed.
    #[inline]
    pub(crate) fn recount(&mut self, tx: &mut Flight) {
        tx.recount(&mut self.memory);
    }

    /// Takes back blocks of send buffers whose last frame is gone meanwhile. Nothing tells when that happens.
    #[inline]
    pub(crate) fn regain_blocks(&mut self) {
        self.memory -= self.blocks.look_again();
    }

    /// Notes the memory in use if it is the most of late; both.
    #[inline]
    pub(crate) fn note_peak(&mut self) -> (usize, usize) {
        let all = self.memory + self.fixed;
        self.peak = self.peak.max(all);
        (all, self.peak)
    }

    /// From now on the most memory of late is what is in use.
    pub(crate) fn forget_peak(&mut self) {
        self.peak = self.memory + self.fixed;
    }

    /// Whether the memory in use is another than at the last call.
    pub(crate) fn has_other_memory(&mut self) -> bool {
        let all = self.memory + self.fixed;
        core::mem::replace(&mut self.looked, all) != all
    }

    /// Shrinks tables and lists that were larger than they need to be, but for `least` entries of each list. There are `slots` places for
    /// connections.
    pub(crate) fn shrink(&mut self, slots: u32, least: usize) {
        self.flows.trim(slots);
        self.time_wait.trim();
        self.table.trim();
        self.ready.shrink_to(least);
        self.starved.shrink_to(least);
        self.narrowed.shrink_to(least);
        self.listeners.trim(least);
    }

    /// The number of connections has changed.
    #[inline]
    pub(crate) fn count_connections(&mut self, connections: usize) {
        self.connections = connections;
        self.count_fixed();
    }

    /// Their number, or that of TIME-WAIT records, has changed.
    #[inline]
    pub(crate) fn count_fixed(&mut self) {
        self.fixed = self.connections * PER_CONNECTION + self.time_wait.len() * PER_RECORD;
        // A little more or less of it makes no difference.
        if self.fixed.abs_diff(self.levels.fixed) > self.config.max_memory / 256 {
            self.set_levels();
        }
    }

    /// Connections and records leave so much for buffers.
    #[cold]
    pub(crate) fn set_levels(&mut self) {
        let fixed = self.fixed;
        self.peak = self.peak.max(self.memory + fixed);
        let most = self.config.max_memory;
        let full = most - fixed.min(most / 2);
        self.levels = Levels { easy: full / 2, tight: full - full / 8, full, fixed };
    }

    /// There is memory for another connection that a stranger begins.
    #[inline]
    pub(crate) fn may_connect(&self) -> bool {
        // Guard: `self.memory < self.levels.full && self.fixed < self.config.max_memory / 2` as `true` fails
        // bounds/receive::syns bounds/receive::connections_that
        self.memory < self.levels.full && self.fixed < self.config.max_memory / 2
    }

    /// Nobody gets more than a fair share any more.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.memory >= self.levels.easy
    }

    /// The lane is short of memory, as it `was` or begins to be: to be told to people, so it ends a good deal below where it begins.
    pub(crate) fn is_in_shortage(&self, was: bool) -> bool {
        let easy = self.levels.easy;
        self.memory >= if was { easy - easy / 4 } else { easy }
    }

    /// Bytes before only who holds nothing gets something.
    pub(crate) fn left_below_tight(&self) -> usize {
        self.levels.tight.saturating_sub(self.memory)
    }

    /// Only who holds nothing gets something any more.
    pub(crate) fn is_tight(&self) -> bool {
        // Guard: `self.memory >= self.levels.tight` as `false` fails
        // bounds/send::answers_that_nobody_acknowledges
        self.memory >= self.levels.tight
    }

    /// Bytes that a side of a connection may add which holds `has`: nothing yet if it is `empty`, and then `floor` if possible.
    #[inline]
    pub(crate) fn may_add(&self, has: usize, empty: bool, floor: usize) -> usize {
        let Levels { easy, tight, full, .. } = self.levels;
        if self.memory < easy {
            tight - self.memory
        } else {
            self.may_add_little((tight, full), has, empty, floor)
        }
    }

    #[cold]
    fn may_add_little(&self, (tight, full): (usize, usize), has: usize, empty: bool, floor: usize) -> usize {
        let share = (full / 4 / self.connections.max(1)).saturating_sub(has);
        let share = share.min(tight.saturating_sub(self.memory));
        if empty { share.max(floor.min(full.saturating_sub(self.memory))) } else { share }
    }

    /// Bytes of payload for which a connection's window may stand open.
    #[inline]
    pub(crate) fn may_promise(&self, c: &Connection, cx: &Cx<'_>) -> u32 {
        if self.is_short(cx) { self.may_promise_little(c, cx) } else { u32::MAX }
    }

    /// Windows cannot open as far as each connection would have them.
    #[inline]
    pub(crate) fn is_short(&self, cx: &Cx<'_>) -> bool {
        self.is_pressed() || frames_left(cx, 8)
    }

    /// Most that a receive buffer which tunes itself may have: not even a single one is more than can be kept.
    pub(crate) fn most_buffer(&self) -> u32 {
        (self.levels.full / 8).clamp(2048, 1 << 30) as u32
    }

    #[cold]
    fn may_promise_little(&self, c: &Connection, cx: &Cx<'_>) -> u32 {
        if frames_left(cx, 8) {
            return 0;
        }
        let segment = u32::from(c.mss.rcv());
        match c.rx.get() {
            Some(rx) if !rx.is_empty() => (self.may_add(rx.memory(), false, 0) / 2).min(1 << 30) as u32,
            _ => self.little(segment),
        }
    }

    /// For a connection that holds nothing: half of its share, or a segment as long as there is room for one.
    fn little(&self, segment: u32) -> u32 {
        let room = self.may_add(0, true, room_for(segment));
        let half = (room / 2).min(1 << 30) as u32;
        if room >= room_for(segment) { half.max(segment) } else { 0 }
    }

    /// As [`may_promise`](Self::may_promise) for a connection that is not there yet, whose segments have `segment` bytes.
    pub(crate) fn may_promise_first(&self, cx: &Cx<'_>, segment: u32) -> u32 {
        if frames_left(cx, 8) {
            return 0;
        }
        if self.is_pressed() { self.little(segment) } else { self.most_buffer() }
    }

    /// Under pressure: whether a segment before its turn may wait in `rx`.
    #[cold]
    pub(crate) fn may_hold_early(&self, rx: &Inflow, seg: &Segment) -> bool {
        let frames = seg.frame.as_ref().map_or(0, |frame| frame.chunks().count() * frame.capacity());
        frames <= self.may_add(rx.memory(), false, 0)
    }

    /// Nothing that can wait is taken any more: the buffers hold all they may, or so many of the worker's frames are in use that
    /// what is left must keep the links going.
    #[inline]
    pub(crate) fn is_full(&self, cx: &Cx<'_>) -> bool {
        // Guard: `frames_left(cx, 8)` as `false` fails tcp::tests::scarcity tcp::tests::memory
        // tcp::tests::data
        self.memory >= self.levels.full || frames_left(cx, 8)
    }

    /// Buffers do not grow any more.
    #[inline]
    pub(crate) fn is_scarce(&self, cx: &Cx<'_>) -> bool {
        self.is_pressed() || frames_left(cx, 2)
    }
}

/// Memory for a segment that is copied out of its frame, where nothing was before.
pub(crate) fn room_for(segment: u32) -> usize {
    INFLOW + (segment as usize).max(512)
}

/// Whether less than one frame in `share` of the worker's is free.
#[inline]
pub(crate) fn frames_left(cx: &Cx<'_>, share: usize) -> bool {
    let memory = cx.frames.memory();
    let few = |free: usize| free * share * memory.homes() < memory.count();
    // Guard: `few(cx.frames.free())` as `false` fails scarcity::frames_are_kept
    few(cx.frames.free()) && {
        // Those that other workers sent home count as well; without this look a lane that takes no frames would shut its
        // windows for good.
        cx.frames.gather();
        few(cx.frames.free())
    }
}
