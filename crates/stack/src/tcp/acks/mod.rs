//! When received data is acknowledged (RFC 9293 §3.8.6.3, RFC 1122 §4.2.3.2, RFC 5681 §4.2).
//!
//! Data in order is acknowledged together: at once for more than a full segment, else after a delay, so that the acknowledgement can go
//! with our data. At the start of a connection, while the peer's window is small, each segment is acknowledged at once. Segments out of
//! order are acknowledged one by one: see `answers`.

mod answers;

use crate::packet::Cx;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::TcpFlags;

impl Connection {
    /// An acknowledgement for a segment in order: now, or delayed (MUST-58, MUST-59).
    pub(super) fn schedule_ack(&mut self, core: &Core, cx: &Cx<'_>, seg: &Segment) {
        // A FIN behind the peer's part of a conversation: ours mostly follows, and one segment says both.
        let fin = seg.is(TcpFlags::FIN);
        let said = self.has(Flags::INTERACTIVE) || self.acks.was_quick();
        let farewell = fin && seg.len == 0 && said && self.state() == State::Established;
        self.acks.received(seg.len);
        // Guard: `self.rcv.owed() > u32::from(self.acks.seen())` as `false` fails tcp::tests::data
        // tcp::tests::coalesce
        let due = self.rcv.owed() > u32::from(self.acks.seen()) || fin && !farewell;
        // Guard: `self.acks.is_quick() && !self.has(Flags::INTERACTIVE) && !farewell` as `false` fails
        // data::acknowledgements_are_quick
        let quick = self.acks.is_quick() && !self.has(Flags::INTERACTIVE) && !farewell;
        if due || quick {
            self.acks.acked_at_once();
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
