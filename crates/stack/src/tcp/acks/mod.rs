//! When what came is acknowledged (RFC 9293 §3.8.6.3, RFC 1122 §4.2.3.2, RFC 5681 §4.2).
//!
//! Data in order is acknowledged together: at once when more than a full segment is owed, else after a delay, so that data of ours
//! takes the acknowledgement along. At the start of a connection, while the peer's window is small, each segment is answered at
//! once. What comes out of order is answered segment by segment: see `answers`.

mod answers;

pub(crate) use answers::Answer;
#[cfg(test)]
pub(crate) use answers::MOST;

use super::connection::{Connection, Flags, State};
use super::lane::Core;
use super::segment::Segment;
use crate::packet::Cx;
use crate::time::Time;
use crate::wire::TcpFlags;

/// Acknowledgements sent at once at the start of a connection, while the peer's window is small.
const QUICK_ACKS: u8 = 16;

/// What decides when a connection acknowledges.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AckPolicy {
    /// Largest segment seen from the peer, bytes.
    seen: u16,
    /// Acknowledgements that may still go out at once.
    quick: u8,
    /// Data has come since data was last sent.
    unanswered: bool,
}

impl AckPolicy {
    /// Until the peer's SYN its segments are taken to have `seen` bytes.
    pub(crate) const fn new(seen: u16) -> Self {
        Self { seen, quick: 0, unanswered: false }
    }

    /// Largest segment seen from the peer, bytes.
    #[inline]
    pub(crate) const fn seen(self) -> u16 {
        self.seen
    }

    /// The peer's segments have `seen` bytes, until larger ones come.
    pub(crate) fn expect(&mut self, seen: u16) {
        self.seen = seen;
    }

    /// A segment of so many bytes came.
    #[inline]
    pub(crate) fn saw(&mut self, bytes: u16) {
        self.seen = self.seen.max(bytes);
    }

    /// The handshake is over: the peer's window is small.
    pub(crate) fn begin(&mut self) {
        self.quick = QUICK_ACKS;
    }

    /// Data goes out; whether it is the first since data came.
    #[inline]
    pub(crate) fn answers_data(&mut self) -> bool {
        core::mem::replace(&mut self.unanswered, false)
    }
}

impl Connection {
    /// An acknowledgement for a segment in order: now, or delayed (MUST-58, MUST-59).
    pub(super) fn schedule_ack(&mut self, core: &Core, cx: &Cx<'_>, seg: &Segment) {
        // A FIN behind the peer's part of a conversation: ours mostly follows, and one segment says both.
        let fin = seg.is(TcpFlags::FIN);
        let said = self.has(Flags::INTERACTIVE) || self.acks.quick < QUICK_ACKS;
        let farewell = fin && seg.len == 0 && said && self.state() == State::Established;
        self.acks.unanswered |= seg.len > 0;
        if self.rcv.owed() > u32::from(self.acks.seen) || fin && !farewell {
            self.acks.quick = self.acks.quick.saturating_sub(1);
            self.ack_at_once();
        } else if self.acks.quick > 0 && !self.has(Flags::INTERACTIVE) && !farewell {
            self.acks.quick -= 1;
            self.ack_at_once();
        } else if !self.has(Flags::ACK_NOW) && !self.timers.ack_is_delayed() {
            self.ack_later();
            self.timers.delay_ack(cx.now + core.config.delayed_ack);
        }
    }

    /// The delay is over.
    pub(super) fn ack_timer(&mut self) {
        if self.has(Flags::ACK_DELAYED) {
            self.answer_kept_waiting();
            self.ack_after_delay();
        }
    }

    /// Data goes out. An answer within the time of a delayed acknowledgement shows that the two sides converse.
    #[inline]
    pub(super) fn note_answer_to_data(&mut self, core: &Core, now: Time) {
        if self.acks.answers_data()
            && now.saturating_duration_since(self.heard_at()) < core.config.delayed_ack
        {
            self.set_interactive(true);
        }
    }

    /// A segment goes out that acknowledges everything: a delayed acknowledgement is not needed any more.
    pub(super) fn acknowledged_everything(&mut self) {
        self.rcv.ack_sent(self.rcv.nxt());
        self.set_answers_alone(false);
        self.acked_everything();
        self.timers.stop_ack();
    }
}
