//! What the application writes: room and memory for it, where writes end, and who is woken when there is room again.

use crate::tcp::Seq;
use crate::tcp::connection::Connection;
use crate::tcp::lane::Core;
use crate::tcp::lane::memory::PORTION;
use crate::time::Time;
use flowlane_sys::block::OwnedBytes;

impl Connection {
    /// Puts as many bytes into the send buffer as there is room and memory for; how many. What was taken of somebody's bytes is
    /// taken off them.
    pub(crate) fn take_for_sending(&mut self, core: &mut Core, now: Time, bytes: Source<'_>) -> usize {
        let wanted = bytes.len().min(self.room_to_write(core) as usize);
        if wanted == 0 {
            return 0;
        }
        let paused = self.unsent() == 0;
        if paused && self.has_model() {
            self.was_out_of_data(core, now);
        }
        let mut tx = self.tx.take_or(|| core.flight());
        core.regain_blocks();
        let before = tx.data.capacity();
        let free = core.may_add(before, tx.data.is_empty(), PORTION);
        let taken = match bytes {
            Source::Copied(bytes) => {
                let n = if tx.data.capacity_with(wanted) - before <= free {
                    wanted
                } else {
                    tx.data.fits(wanted, free)
                };
                core.copy_in(&mut tx, &bytes[..n]);
                n
            }
            Source::Owned(bytes) => {
                let n = wanted.min(free);
                if n > 0 {
                    core.refer_to(&mut tx, bytes.split_to(n));
                }
                n
            }
        };
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
    pub(crate) fn has_send_buffer_set(&self) -> bool {
        self.options().is_some_and(|options| options.send_buffer.is_some())
    }

    /// Wakes the task that waits to write, if there is room.
    #[inline]
    pub(crate) fn wake_writer_with_room(&mut self, core: &Core) {
        if self.is_waited_for() && self.has_room_to_write(core) {
            self.wake_write();
        }
    }

    /// A write ends at `end`: PSH goes there. Where the one before it ended is forgotten if both make one burst, of up to half
    /// of the peer's largest window.
    #[inline]
    fn end_write(&mut self, end: Seq) {
        let nxt = self.snd.nxt();
        let burst = (self.snd.max_wnd() / 2).min(64 << 10);
        let Some(tx) = self.tx.get_mut() else { return };
        let Some(old) = tx.writes.end_at(Some(end)).filter(|old| *old > nxt) else { return };
        if end.since(nxt) > burst && end.since(tx.writes.last_push(nxt)) > burst {
            tx.writes.push_at(old);
        }
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
