//! Limits on answers to segments that ought not to come.
//!
//! RFC 5961 §7 limits challenge ACKs. A fixed limit shared by all connections can be used to find out whether a
//! connection exists, so the budget of each second is drawn at random around the configured number; and every connection
//! answers at most one unacceptable segment without data per interval, so that two ends cannot keep each other busy.
//!
//! Resets to strangers have a budget of the same kind: whoever counts its own resets while it guesses at the ends of others'
//! connections would learn from a fixed number which guesses used none.

use super::connection::Connection;
use super::lane::Core;
use crate::packet::Cx;

/// What is left of this second's answers of one kind.
#[derive(Debug, Default)]
pub(crate) struct ChallengeBudget {
    second: u64,
    left: u32,
}

impl ChallengeBudget {
    pub(crate) fn take(&mut self, cx: &mut Cx<'_>, limit: u32) -> bool {
        let second = cx.now.as_nanos() / 1_000_000_000 + 1;
        if self.second != second {
            self.second = second;
            self.left = (limit / 2).saturating_add(cx.rng.below(limit.max(1)));
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

impl Connection {
    /// Sends a challenge ACK (RFC 5961 §3.2, §4.2, §5.2), if the limits allow.
    pub(crate) fn challenge(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
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

/// When a connection last answered an unacceptable segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InvalidAnswers {
    /// Milliseconds; 0 for never.
    at_ms: u32,
}

impl InvalidAnswers {
    /// Whether one may be answered at `now`, `interval` behind the last, milliseconds; notes that it is.
    fn may_answer(&mut self, now: u32, interval: u32) -> bool {
        let now = now.max(1);
        if self.at_ms != 0 && now.wrapping_sub(self.at_ms) < interval {
            return false;
        }
        self.at_ms = now;
        true
    }
}
