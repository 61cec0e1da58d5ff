//! Input: a segment for a connection, step by step as in RFC 9293 §3.10.7.
//!
//! There is a file for each group of steps and a function for each step, in the RFC's order. A step passes the segment on, ends its
//! processing, or drops it for a named reason.

mod ack;
mod data;
mod opened;
mod room;
mod sequence;
mod syn_sent;

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::ecn;
use crate::tcp::error::Failure;
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::TcpFlags;

/// Why processing of a segment stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It has been dealt with.
    Done,
    /// It, or the rest of it, is dropped.
    Drop(DropReason),
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Stop::Drop(reason)
    }
}

/// One step's result.
pub(crate) type Step = Result<(), Stop>;

impl Connection {
    /// A segment for this connection.
    pub(crate) fn input(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) {
        ecn::count_marks(&mut core.stats, seg);
        let result = match self.state() {
            State::Closed => Err(Stop::Drop(DropReason::AfterClose)),
            State::SynSent => self.input_syn_sent(core, cx, seg),
            _ => self.input_synchronized(core, cx, seg),
        };
        if let Err(Stop::Drop(reason)) = result {
            core.stats.drop(reason);
        }
    }

    /// RFC 9293 §3.10.7.4.
    fn input_synchronized(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) -> Step {
        // A handshake's own SYN again, or the SYN-ACK of a simultaneous open: what is new is behind the SYN.
        if self.state() == State::SynReceived && seg.is(TcpFlags::SYN) && seg.seq == self.snd.wl1() {
            if !seg.is(TcpFlags::ACK) {
                core.stats.syncache_dupsyn += 1;
                // Guard: `self.accurate_asked_again(core, seg)` as `false` fails accurate::both_kinds
                if self.accurate_asked_again(core, seg) {
                    self.send_reset(core, cx);
                    core.kill(self, cx.now, FlowEnd::ResetByUs, Some(Failure::Reset));
                    return Err(Stop::Done);
                }
                if let Some(tx) = self.tx.get_mut() {
                    if !tx.board.is_empty() {
                        tx.board.mark_lost(0);
                    }
                }
                return Err(Stop::Done);
            }
            seg.seq += 1;
            seg.flags = seg.flags.without(TcpFlags::SYN);
            if self.uses_ecn() {
                self.syn_ack_came_again(seg);
                self.without_feedback(seg);
            }
            // The peer may wait for it: it has nothing else that tells it that its SYN-ACK arrived.
            self.ack_at_once();
            if self.has(Flags::SACK) {
                self.dsack(core, seg.seq - 1, seg.seq);
            }
        }
        self.check_paws(core, cx, seg)?;
        self.check_sequence(core, cx, seg)?;
        self.check_rst(core, cx, seg)?;
        self.check_syn(core, cx, seg)?;
        self.heard(cx.now);
        self.timers.end_probes();
        self.check_ack(core, cx, seg)?;
        self.update_ts_recent(seg);
        // Sixth, the URG bit. Urgent data itself is delivered in line, as RFC 6093 advises.
        if seg.is(TcpFlags::URG) {
            self.note_urgent(seg);
        }
        if self.uses_ecn() {
            self.count_received_marks(seg);
        }
        let data = self.take_data(core, cx, seg);
        self.note_congestion_marks(seg);
        self.check_fin(core, cx, seg);
        data
    }

    /// The peer reset the connection.
    pub(crate) fn was_reset(&mut self, core: &mut Core, now: Time) {
        core.stats.resets_received += 1;
        let failure = match self.state() {
            State::SynSent => Some(Failure::Refused),
            State::SynReceived => {
                core.stats.syncache_reset += 1;
                // Guard: `self.has(Flags::ACTIVE)` as `false` fails handshake::a_reset_ends_both_kinds
                Some(if self.has(Flags::ACTIVE) { Failure::Refused } else { Failure::Reset })
            }
            State::TimeWait => None,
            // In CLOSING and LAST-ACK too: what was written may not have arrived.
            _ => Some(Failure::Reset),
        };
        let end = if failure == Some(Failure::Refused) { FlowEnd::Refused } else { FlowEnd::ResetByPeer };
        core.kill(self, now, end, failure);
    }
}
