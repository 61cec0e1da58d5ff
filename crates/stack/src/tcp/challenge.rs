//! Limits on answers to unacceptable segments.
//!
//! RFC 5961 §7 limits challenge ACKs. A fixed limit shared by all connections can be used to find out whether a
//! connection exists, so the budget of each second is drawn at random around the configured number; and every connection
//! answers at most one unacceptable segment without data per interval, so that two ends cannot keep each other busy.
//!
//! Resets to unknown peers have a budget of the same kind: with a fixed number, an attacker that guesses the endpoints of connections
//! could count its own resets and learn which guesses were right.

use crate::packet::Cx;
use crate::tcp::connection::Connection;
use crate::tcp::lane::Core;

impl Connection {
    /// Sends a challenge ACK (RFC 5961 §3.2, §4.2, §5.2), if the limits allow.
    pub(crate) fn challenge(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        // Guard: `!self.may_answer_invalid(core, cx)` as `false` fails attacks::challenges_are_limited
        if !self.may_answer_invalid(core, cx) {
            core.stats.challenge_acks_limited += 1;
            return;
        }
        if core.challenge.take(cx, core.config.challenge_acks_per_second) {
            core.stats.challenge_acks_sent += 1;
            self.ack_at_once();
        } else {
            core.stats.challenge_acks_limited += 1;
        }
    }

    /// Whether this connection may answer an unacceptable segment now; notes that it did.
    pub(crate) fn may_answer_invalid(&mut self, core: &Core, cx: &Cx<'_>) -> bool {
        let interval = core.config.invalid_ack_interval.as_millis() as u32;
        self.invalid.may_answer(cx.now.as_millis() as u32, interval)
    }
}
