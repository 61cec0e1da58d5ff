//! What RACK (RFC 8985) knows: of the flight, and of the path's reordering.

use super::Recovery;
use crate::tcp::Seq;
use crate::tcp::connection::scoreboard::{Delivered, EVER_RETRANS, LOST, RETRANS, SACKED, Scoreboard};
use crate::time::Time;
use core::time::Duration;

/// RACK (RFC 8985 §5.3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rack {
    /// RACK.xmit_ts; `None` before the first delivery.
    xmit: Option<Time>,
    /// RACK.end_seq.
    end: Seq,
    /// RACK.rtt, nanoseconds.
    rtt_ns: u64,
    /// RACK.dsack_round.
    pub(super) dsack_round: Option<Seq>,
}

/// What RACK has learnt of the path's reordering; it outlives the flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reordering {
    /// RACK.reordering_seen.
    seen: bool,
    /// The furthest a segment came behind later ones, segments.
    degree: u8,
    /// RACK.reo_wnd_mult - 1.
    more: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
}

impl Reordering {
    /// The furthest a segment came behind later ones, segments.
    pub(crate) const fn degree(self) -> u8 {
        self.degree
    }

    /// Whether any was.
    pub(crate) const fn is_seen(self) -> bool {
        self.seen
    }

    /// A segment came so many segments behind later ones (RFC 8985 §6.2, step 3).
    pub(crate) fn saw(&mut self, segments: u32) {
        self.seen = true;
        self.degree = self.degree.max(segments.min(255) as u8);
    }

    /// A D-SACK in a new round: the reordering window was too narrow (RFC 8985 §6.2, step 4).
    pub(crate) fn widen(&mut self) {
        self.more = self.more.saturating_add(1);
        self.persist = REO_WND_PERSIST;
    }

    /// A recovery is over: a widened reordering window is tried for some of them (RFC 8985 §6.2).
    pub(crate) fn end_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.more = 0;
        }
    }

    /// RACK.reo_wnd for this least round-trip time, microseconds both.
    pub(crate) fn window(self, min_rtt_us: u32) -> u64 {
        u64::from(min_rtt_us) * (u64::from(self.more) + 1) / 4
    }
}

impl Recovery {
    /// Something was delivered (RFC 8985 §6.2, steps 1 and 2). Which measurements are to be believed was decided when it was taken
    /// off the scoreboard.
    pub(crate) fn delivered(&mut self, delivered: &Delivered, now: Time) {
        let rack = &mut self.rack;
        // The most recently sent segment that has been delivered.
        if let Some((at, end)) = delivered.newest {
            if rack.xmit.is_none_or(|xmit| at > xmit || at == xmit && end > rack.end) {
                rack.xmit = Some(at);
                rack.end = end;
            }
        }
        // RACK.rtt is that of the segment delivered last, which need not be the one sent last.
        if let Some(at) = delivered.latest {
            // Guard: no `rack.rtt_ns = now.saturating_duration_since(at).as_nanos() as u64;` fails
            // loss::the_segment_delivered_last
            rack.rtt_ns = now.saturating_duration_since(at).as_nanos() as u64;
        }
    }

    /// Whether an acknowledgement, with a D-SACK or without, is the first with one in a round (RFC 8985 §6.2, step 4).
    pub(crate) fn begins_dsack_round(&mut self, una: Seq, nxt: Seq, dsack: bool) -> bool {
        let rack = &mut self.rack;
        if rack.dsack_round.is_some_and(|round| una >= round) {
            rack.dsack_round = None;
        }
        let begins = dsack && rack.dsack_round.is_none();
        if begins {
            rack.dsack_round = Some(nxt);
        }
        begins
    }

    /// RFC 8985 §6.2, step 5 (`RACK_detect_loss`): marks losses; how long the last of those still within the reordering window has
    /// left. `None` before the first delivery.
    pub(crate) fn detect_losses(
        &self,
        board: &mut Scoreboard,
        window: Duration,
        now: Time,
    ) -> Option<Duration> {
        let xmit = self.rack.xmit?;
        let (end, rtt) = (self.rack.end, Duration::from_nanos(self.rack.rtt_ns));
        let mut wait = Duration::ZERO;
        for index in 0..board.len() {
            let Some(&sent) = board.get(index) else { break };
            // Guard: `sent.at < xmit || sent.at == xmit && sent.end() < end` as `false` fails
            // loss::a_lost_retransmission
            let before = sent.at < xmit || sent.at == xmit && sent.end() < end;
            if !before {
                // Records never sent again are in order of time; behind the last that was, nothing can be older.
                if !sent.is(EVER_RETRANS) && sent.seq >= board.rexmit_high() {
                    break;
                }
                continue;
            }
            if sent.is(SACKED) || sent.flags & (LOST | RETRANS) == LOST {
                continue;
            }
            let left = (sent.at + rtt + window).saturating_duration_since(now);
            // Guard: `left.is_zero()` as `true` fails loss::reordering_gets
            if left.is_zero() {
                board.mark_lost(index);
            } else {
                wait = wait.max(left);
            }
        }
        Some(wait)
    }
}

/// Rounds for which a widened reordering window lasts (RFC 8985 §6.2).
const REO_WND_PERSIST: u8 = 16;
