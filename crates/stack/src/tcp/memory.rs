//! The memory of a lane: who may have some, who waits for it, and who is told when there is some again.
//!
//! **What counts.** Buffers count with all the memory that they hold, however few bytes are in them: a received frame with its whole
//! buffer, a copy with its blocks. So do the boxes and lists that keep them in order, and each connection and TIME-WAIT record.
//!
//! **The levels.** One bound, `max_memory`, holds for all of it. Connections and records take at most half of it; beyond that no
//! stranger gets a connection any more. What they leave is for buffers:
//!
//! ```text
//!   0              easy = 1/2             tight = 7/8     full
//!   ├────────────────┼───────────────────────┼─────────────┤
//!   │ what is asked  │ up to a fair share,   │ a segment   │ nothing
//!   │                │ received data copied  │ where there │
//!   │                │ out of its frame      │ is none     │
//! ```
//!
//! A fair share is a quarter of the buffers' memory by the number of connections, so all shares together end below `tight`, and
//! a connection whose reader keeps up goes on while others hold all they may. The windows that are advertised follow the same
//! levels. A window that was promised before and cannot be kept is closed: the data is dropped under its name and answered with a
//! window of zero, as Linux does, and an announcement follows when there is memory again.
//!
//! Two lanes that are full of what they have to say to one another would wait for ever, each for the other's acknowledgements. So
//! one segment more is taken by a lane that has no memory left, for one connection at a time that holds nothing ([`Spare`]): what
//! it acknowledges frees memory at the other end. Its bytes are the only ones beyond the bound.
//!
//! Frames have a bound of their own beside it, since a worker without frames cannot receive anything at all. A write that
//! finds no memory waits for the event that frees some, in turn; it is not tried again before.

use super::connection::{Connection, Flags, Lists, NEVER};
use super::flight::Flight;
use super::flow_records::PER_FLOW;
use super::input::{Step, Stop};
use super::lane::Core;
use super::recv_buffer::Inflow;
use super::segment::Segment;
use super::table::{ConnId, Slab};
use super::time_wait::Record;
use super::{Seq, Tcp};
use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::time::Time;
use core::time::Duration;
use flowlane_sys::block::OwnedBytes;

/// Memory that must be free for one of those who wait: the smallest send buffer, and as much again.
const PORTION: usize = 4096;

/// How soon windows are looked at again that lack of memory kept shut.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Connections whose windows are looked at in one go.
const LOOKS: usize = 1024;

/// Writers over their share that are passed by in search of one that is not.
const PASSED_BY: usize = 8;

/// Bytes of a connection: its place in the slab, in the table of tuples, on the wheel and in the lists of a lane, the totals of its
/// flow, and what few have beside it.
pub(crate) const PER_CONNECTION: usize = 512;
const _: () = assert!(
    Slab::<Connection>::ENTRY_SIZE + 26 + 24 + 4 + 2 * size_of::<ConnId>() + PER_FLOW <= PER_CONNECTION
);

/// Bytes of a TIME-WAIT record: its places in the slab, in the table and in the queue of those that expire.
pub(crate) const PER_RECORD: usize = Slab::<Record>::ENTRY_SIZE + 64;

/// Bytes of a send side and of a receive side beside what is counted as it grows.
pub(crate) const FLIGHT: usize = size_of::<Flight>() + 192;
pub(crate) const INFLOW: usize = size_of::<Inflow>() + 192;

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
    fn take_spare(&mut self, rx: &mut Inflow, len: usize, most: u16) -> bool {
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

    /// Only who holds nothing gets something any more.
    pub(crate) fn is_tight(&self) -> bool {
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
        self.memory >= self.levels.full || frames_left(cx, 8)
    }

    /// Buffers do not grow any more.
    #[inline]
    pub(crate) fn is_scarce(&self, cx: &Cx<'_>) -> bool {
        self.is_pressed() || frames_left(cx, 2)
    }

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
    fn starve(&mut self, c: &mut Connection, now: Time) {
        self.stats.memory_waits += 1;
        // No event tells when the last frame of an acknowledged block goes, nor when others leave it a larger share.
        self.narrowed_at = self.narrowed_at.min(now + LOOK_AGAIN);
        c.set_starved(true);
        if !c.is_in(Lists::IN_STARVED) {
            c.set_in_starved();
            self.starved.push_back(c.id());
        }
    }
}

/// Memory for a segment that is copied out of its frame, where nothing was before.
fn room_for(segment: u32) -> usize {
    INFLOW + (segment as usize).max(512)
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
    /// Under pressure: makes sure that the lane has room for what came in order. What waits for its turn gives way to it. If that
    /// does not help, the window is closed and the segment dropped.
    #[cold]
    pub(crate) fn make_room(&mut self, core: &mut Core, cx: &Cx<'_>, rx: &mut Inflow, seg: &Segment) -> Step {
        let Some(frame) = &seg.frame else { return Ok(()) };
        let len = seg.len as usize;
        let need = rx.growth(frame, len, true);
        // What is pruned here is taken off the lane's count by the caller, with all else that changes in `rx`.
        let before = rx.memory();
        loop {
            let pruned = before - rx.memory();
            let floor = room_for(u32::from(self.mss.rcv()));
            let room = core.may_add(rx.memory(), rx.is_empty(), floor) + pruned;
            if need <= room {
                return Ok(());
            }
            let Some(bytes) = rx.early.drop_last() else { break };
            core.stats.pruned_bytes += u64::from(bytes);
        }
        if !frames_left(cx, 8) && core.take_spare(rx, len, self.mss.rcv()) {
            return Ok(());
        }
        self.rcv.close_window();
        self.ack_at_once();
        core.stats.windows_closed += 1;
        core.look_again(self, cx.now);
        Err(Stop::Drop(DropReason::LaneMemory))
    }

    /// Puts as many bytes into the send buffer as there is room and memory for; how many. What was taken of somebody's bytes is
    /// taken off them.
    pub(crate) fn take_for_sending(&mut self, core: &mut Core, now: Time, bytes: Source<'_>) -> usize {
        let wanted = bytes.len().min(self.room_to_write(core) as usize);
        if wanted == 0 {
            return 0;
        }
        let paused = self.unsent() == 0;
        let mut tx = self.tx.take_or(|| core.flight());
        core.memory -= core.blocks.look_again();
        let before = tx.data.capacity();
        let free = core.may_add(before, tx.data.is_empty(), PORTION);
        let taken = match bytes {
            Source::Copied(bytes) => {
                let n = if tx.data.capacity_with(wanted) - before <= free {
                    wanted
                } else {
                    tx.data.fits(wanted, free)
                };
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
            if tx.data.is_empty() && tx.board.is_empty() {
                core.give_flight(tx);
            } else {
                self.tx.put_back(tx);
            }
            core.starve(self, now);
            return 0;
        }
        if paused {
            tx.set_burst(0);
        }
        self.tx.put_back(tx);
        self.set_starved(false);
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
        let room = self.snd.limit().saturating_sub(self.buffered());
        if self.has_send_buffer_set() {
            room
        } else {
            room.min(core.config.max_unsent.saturating_sub(self.unsent()))
        }
    }

    /// Whether there is enough of it to be worth waking a writer.
    #[inline]
    pub(crate) fn has_room_to_write(&self, core: &Core) -> bool {
        self.buffered() < self.snd.limit() / 3 * 2
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
        let old = self.snd.write_ends(end);
        let burst = (self.snd.max_wnd() / 2).min(64 << 10);
        if old > self.snd.nxt() && end.since(self.snd.nxt()) > burst {
            if let Some(tx) = self.tx.get_mut() {
                if end.since(tx.writes.last_push(self.snd.nxt())) > burst {
                    tx.writes.push_at(old);
                }
            }
        }
    }
}

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
        let mut free = core.levels.tight.saturating_sub(core.memory);
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
