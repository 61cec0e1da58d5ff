//! Separate acknowledgements: one for each segment that is out of order, a duplicate, or fills a hole.
//!
//! RFC 5681 §4.2 requires an immediate acknowledgement of each: senders without SACK count duplicates, and senders with SACK need the
//! blocks of each (RFC 2018 §4, RFC 2883 §4). Output is pulled after a burst of input, so the content of each acknowledgement is saved
//! when its segment arrives. The last of them is an ordinary acknowledgement that is due ([`Flags::ACK_NOW`]) and marked
//! [`Lists::ALONE`]. When another segment arrives before it has been sent, it becomes an [`Answer`] with the number and the blocks before
//! that segment. Segments in order are acknowledged together.
//!
//! **Bounds.** A connection keeps at most [`MOST`] of them, as many as a link delivers in a burst; beyond that only the last is sent. The list
//! exists from a burst to the output after it, and counts as memory of the receive side.

use crate::tcp::Seq;
use crate::tcp::connection::ack_policy::{Answer, MOST};
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::{Connection, Flags, Lists};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::wire::{SackBlock, SackBlocks};

impl Connection {
    /// The segment at hand is answered by itself, after what is owed by now. To be called before it changes anything.
    pub(crate) fn answer_alone(&mut self, core: &mut Core) {
        // Guard: `self.has(Flags::ACK_NOW)` as `false` fails answers::each_segment_out_of_order_is_answered
        if self.has(Flags::ACK_NOW) {
            self.note_answer(core);
        }
        self.ack_at_once();
        self.set_answers_alone(true);
    }

    /// The segment at hand comes in order: it is not acknowledged together with one that is answered by itself.
    #[inline]
    pub(crate) fn end_answer(&mut self, core: &mut Core) {
        // Guard: `self.is_in(Lists::ALONE)` as `false` fails answers::holes_filled_in_one_burst
        if self.is_in(Lists::ALONE) {
            self.note_answer(core);
            self.ack_went_out();
            self.set_answers_alone(false);
        }
    }

    /// Without SACK a sender counts acknowledgements: a segment that the link merged from several is answered as often.
    pub(crate) fn answer_merged(&mut self, core: &mut Core, seg: &Segment) {
        // Guard: `!self.has(Flags::SACK)` as `true` fails answers::merged_segments_out_of_order_count_each
        if !self.has(Flags::SACK) {
            // Guard: `1..seg.merged.min(MOST as u32)` as `1..1` fails
            // answers::merged_segments_out_of_order_count_each
            for _ in 1..seg.merged.min(MOST as u32) {
                self.note_answer(core);
            }
        }
    }

    /// The acknowledgement that is due goes out as it stands now, whatever comes behind it.
    #[cold]
    fn note_answer(&mut self, core: &mut Core) {
        let mut rx = self.rx.take_or(|| core.inflow());
        let before = rx.holds();
        // Guard: `rx.owed().len() < MOST` as `true` fails answers::they_are_bounded
        // Guard: `rx.owed().len() < MOST` as `true` fails answers::
        if rx.owed().len() < MOST {
            // Guard: `self.sack_blocks(&mut rx, &mut core.stats.dsacks_sent)` as `SackBlocks::EMPTY` fails
            // answers::each_segment_out_of_order_is_answered
            let blocks = self.sack_blocks(&mut rx, &mut core.stats.dsacks_sent);
            // Guard: `self.rcv.nxt()` as `self.rcv.last_ack_sent()` fails answers::holes_filled_in_one_burst
            rx.owe(Answer { ack: self.rcv.nxt(), blocks });
            self.set_owes_answers(true);
        }
        // Guard: no `core.account(before, rx.holds());` fails answers::they_are_bounded
        // answers::they_wait_for_frames
        core.account(before, rx.holds());
        self.rx.put_back(rx);
    }

    /// The first answer that is owed. The one that is due is the last of them.
    pub(crate) fn first_answer(&mut self, core: &mut Core) -> Answer {
        match self.rx.take() {
            Some(mut rx) => {
                // Guard: `rx.owed().front()` as `rx.owed().back()` fails
                // answers::each_segment_out_of_order_is_answered
                let answer = rx.owed().front().copied().unwrap_or_else(|| Answer {
                    ack: self.rcv.nxt(),
                    blocks: self.sack_blocks(&mut rx, &mut core.stats.dsacks_sent),
                });
                self.rx.put_back(rx);
                answer
            }
            None => Answer { ack: self.rcv.nxt(), blocks: SackBlocks::EMPTY },
        }
    }

    /// The first answer that was noted has gone out.
    pub(crate) fn answered(&mut self, core: &mut Core) {
        let Some(rx) = self.rx.get_mut() else { return self.set_owes_answers(false) };
        let before = rx.holds();
        let last = rx.gave_answer();
        core.account(before, rx.holds());
        if last {
            // Guard: no `self.set_owes_answers(false);` fails tcp::tests::answers
            self.set_owes_answers(false);
        }
    }

    /// D-SACK first, then the ranges held (RFC 2883 §4, RFC 2018 §4), as many as there is room for. A FIN that came early is one
    /// number more of the range before it, or a range of its own.
    pub(crate) fn sack_blocks(&self, rx: &mut Inflow, dsacks: &mut u64) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        if !self.has(Flags::SACK) || rx.twice().is_none() && rx.fin().is_none() && rx.early.is_empty() {
            return blocks;
        }
        let mut room = if self.has(Flags::TIMESTAMPS) { 3 } else { 4 };
        if let Some((left, right)) = rx.take_twice() {
            blocks.push(SackBlock { left, right });
            *dsacks += 1;
            room -= 1;
        }
        if let Some(fin) = rx.fin().filter(|fin| rx.early.last_end() != Some(*fin)) {
            blocks.push(SackBlock { left: fin, right: fin + 1 });
            room -= 1;
        }
        let mut ranges = [(Seq(0), Seq(0)); 4];
        let n = rx.early.blocks(&mut ranges[..room]);
        for &(left, right) in &ranges[..n] {
            let fin = u32::from(rx.fin() == Some(right));
            blocks.push(SackBlock { left, right: right + fin });
        }
        blocks
    }
}
