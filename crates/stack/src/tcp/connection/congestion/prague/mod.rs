//! Prague (draft-briscoe-iccrg-prague-congestion-control): how much a window is reduced follows from how many packets were marked.
//!
//! Queues of L4S (RFC 9330) mark early, at a millisecond of waiting or less, and the sender answers a little each round instead of much
//! once in a while, so that the queue stays short and the path full. It needs accurate ECN (RFC 9768), by which the peer tells how many packets
//! came marked; without that a connection has CUBIC.
//!
//! | what | how | draft |
//! |---|---|---|
//! | the share of packets that are marked | a moving average over rounds, by a sixteenth ([`share`]; DCTCP's, RFC 8257 §3.3) | §2.3.2 |
//! | a mark | the window is less by half of that share, once a round; nothing takes that back | §2.4.2 |
//! | no mark | one segment more for each window, by what was not marked, also in a round with a reduction | §2.4.3 |
//! | rounds | a virtual one is 25 ms at least: shorter paths grow, and are reduced, as if they had that | §2.4.4 |
//! | a loss | as NewReno answers it: the window is halved (RFC 9331 §4.3); `recovery` does that | §2.4.1 |
//! | slow start | as with the others, until the first mark, which is taken for a share of one | §2.4.5 |
//! | sending | paced at 1.2 times the window a round trip, twice that in slow start, in bursts of a quarter of a millisecond | §2.5.1 |
//!
//! Volumes are bytes, times microseconds, shares parts of [`ONE`]. Integers throughout, and nothing that a peer can say makes a share more
//! than one, or a window less than two segments.
//!
//! A queue of classic ECN marks late, and other senders halve their windows for each mark of it (RFC 9331 §4.3). One seems to be on the way
//! where rounds with marks are such in which much waited. Each is told of ([`Answer::deep`]), and after [`CLASSIC_ROUNDS`] more than of the others a
//! mark is answered as a loss is. Where the queue was never empty since the connection began, that is not seen.
//!
//! Not done: windows below two segments, which tiny round trips would need (RFC 9331 §4.3).

mod share;
#[cfg(test)]
mod tests;

use crate::tcp::Seq;
use crate::tcp::connection::congestion::pace::Pace;
use crate::time::Time;
pub(crate) use share::ONE;
use share::Share;

/// A virtual round is at least this long.
const VIRTUAL_ROUND_US: u64 = 25_000;
/// What of the pacing rate goes at once.
const QUANTUM_MICROS: u64 = 250;
/// The pace, in percent of a window in a round trip.
const PACE_PERCENT: u64 = 120;
const SLOW_START_PACE_PERCENT: u64 = 200;
/// The round trip before one is measured.
const UNKNOWN_RTT_US: u64 = 1000;
/// Queues of L4S mark far below this. Who is marked where so much waits is marked by a queue of classic ECN, or stands in another as well.
const DEEP_US: u32 = 10_000;
/// So many more of these rounds than of others with marks are a queue of classic ECN; twice as many are as far as they count.
const CLASSIC_ROUNDS: u8 = 32;

/// The connection at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now: Time,
    pub(crate) una: Seq,
    pub(crate) nxt: Seq,
    /// Bytes of data in a full segment.
    pub(crate) smss: u32,
    pub(crate) cwnd: u32,
    /// Smoothed and least round-trip time, microseconds; 0 before the first measurement.
    pub(crate) srtt_us: u32,
    pub(crate) min_rtt_us: u32,
    /// The window is beyond slow start, was used, and nothing is being repaired.
    pub(crate) may_grow: bool,
    /// Losses are being repaired, for which the window was reduced.
    pub(crate) in_loss_recovery: bool,
}

impl At {
    /// A virtual round, microseconds.
    fn virtual_round(&self) -> u64 {
        // Guard: `.max(VIRTUAL_ROUND_US)` as `.max(1)` fails prague::tests::growth prague::flows_of_different
        u64::from(self.srtt_us).max(VIRTUAL_ROUND_US)
    }
}

/// What follows from an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// The window grows by so many bytes.
    pub(crate) more: u32,
    /// The window is less by this share of it, parts of [`ONE`].
    pub(crate) cut: Option<u32>,
    /// It would be less by this share if it were not for a loss. If that turns out to have been none, this is what is left of the reduction.
    pub(crate) owed: Option<u32>,
    /// A round is over in which packets were marked while far more waited than in a queue of L4S.
    pub(crate) deep: bool,
}

/// What one connection knows of marks.
#[derive(Debug)]
pub(crate) struct Prague {
    pace: Pace,
    share: Share,
    /// The round over which the share is measured: it ends when this is acknowledged, and a virtual round after it began.
    round: (Seq, Time),
    /// Of the last acknowledgements that were not looked at yet: bytes that were not marked, and whether any were.
    unmarked: u32,
    marked: bool,
    /// The window was reduced, and until this is acknowledged and a virtual round is over since then it is not reduced for marks again.
    reduced: Option<(Seq, Time)>,
    /// For a loss, and no mark has come since.
    for_loss: bool,
    /// Rounds with marks in which much waited, less those in which it did not.
    deep_rounds: u8,
    /// Losses were being repaired at the last acknowledgement.
    in_loss_recovery: bool,
    /// What the window has grown by beyond whole bytes, parts of 2^32.
    part: u32,
}

impl Prague {
    pub(crate) fn new(at: &At) -> Self {
        Self {
            pace: Pace::new(at.now, pace_rate(at, true), QUANTUM_MICROS, at.smss),
            share: Share::default(),
            round: (at.nxt, at.now),
            unmarked: 0,
            marked: false,
            reduced: None,
            for_loss: false,
            deep_rounds: 0,
            in_loss_recovery: false,
            part: 0,
        }
    }

    /// When the next burst may go.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The same, to be changed.
    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.pace
    }

    /// The share of packets that are marked, as it is reckoned with: parts of [`ONE`].
    pub(crate) fn share(&self) -> u32 {
        self.share.get()
    }

    /// `bytes` go out now.
    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.pace.sent(bytes);
    }

    /// The peer tells, and acknowledges so many packets with so many bytes, that so many packets more were marked.
    pub(crate) fn on_feedback(&mut self, packets: u32, bytes: u32, marked: u32) {
        self.share.count(packets, marked);
        let (all, of_them) = (u64::from(packets.max(1)), u64::from(marked.min(packets)));
        let unmarked = u64::from(bytes) - u64::from(bytes) * of_them / all;
        self.unmarked = self.unmarked.saturating_add(unmarked as u32);
        self.marked |= marked > 0;
    }

    /// An acknowledgement, after [`on_feedback`](Self::on_feedback) and after recovery has looked at it.
    pub(crate) fn on_ack(&mut self, at: &At) -> Answer {
        let mut answer = Answer::default();
        let virtual_round = at.virtual_round();
        let is_over = |(end, since): (Seq, Time)| {
            at.una >= end && u64::from(at.now.micros_since(since)) >= virtual_round
        };
        if is_over(self.round) {
            let any = self.share.end_round();
            self.round = (at.nxt, at.now);
            answer.deep = any && at.min_rtt_us > 0 && at.srtt_us.saturating_sub(at.min_rtt_us) > DEEP_US;
            if answer.deep {
                self.deep_rounds = (self.deep_rounds + 1).min(2 * CLASSIC_ROUNDS);
            } else if any {
                self.deep_rounds = self.deep_rounds.saturating_sub(1);
            }
        }
        self.reduced = self.reduced.filter(|reduced| !is_over(*reduced));
        // Guard: `at.in_loss_recovery && !self.in_loss_recovery` as `false` fails
        // prague::tests::no_second_reduction
        let loss = at.in_loss_recovery && !self.in_loss_recovery;
        self.in_loss_recovery = at.in_loss_recovery;
        if loss {
            self.reduced = Some((at.nxt, at.now));
            self.for_loss = true;
        }
        let unmarked = core::mem::take(&mut self.unmarked);
        // Guard: `at.may_grow` as `true` fails prague::tests::growth
        if at.may_grow {
            answer.more = self.growth(at, unmarked, virtual_round);
        }
        if core::mem::take(&mut self.marked) {
            // Guard: `self.deep_rounds >= CLASSIC_ROUNDS` as `false` fails prague::a_queue_of_classic_ecn
            let share = if self.deep_rounds >= CLASSIC_ROUNDS { ONE } else { self.share() };
            // Guard: `share / 2` as `0` fails prague::tests::once_a_round prague::the_first_mark
            let share = share / 2;
            // Guard: `self.reduced.is_none()` as `true` fails prague::tests::once_a_round
            if self.reduced.is_none() {
                self.reduced = Some((at.nxt, at.now));
                answer.cut = Some(share);
            } else if self.for_loss {
                answer.owed = Some(share);
            }
            self.for_loss = false;
        }
        answer
    }

    /// The last losses were none: marks may reduce the window at once.
    pub(crate) fn on_undo(&mut self) {
        // Guard: `self.for_loss` as `false` fails prague::tests::a_mark_after_a_loss
        if self.for_loss {
            (self.reduced, self.for_loss) = (None, false);
        }
    }

    /// The window is this now.
    pub(crate) fn set_pace(&mut self, at: &At, in_slow_start: bool) {
        self.pace.set_rate(pace_rate(at, in_slow_start));
        self.pace.set_quantum(QUANTUM_MICROS, at.smss);
    }

    /// Bytes by which the window grows for `unmarked` ones: a segment for each window, times the square of the round trip in virtual rounds. So
    /// short paths send no more than those of a virtual round where both are marked alike.
    fn growth(&mut self, at: &At, unmarked: u32, virtual_round: u64) -> u32 {
        let cwnd = u64::from(at.cwnd.max(1));
        let segments = (u64::from(unmarked).min(cwnd) << 32) / cwnd;
        let bytes = segments * u64::from(at.smss);
        let rounds = (u64::from(at.srtt_us.max(1)) << 20) / virtual_round;
        // At most 2^24, and for no path nothing.
        let slower = ((rounds * rounds) >> 16).max(1);
        let grown = (((bytes >> 12) * slower) >> 12) + u64::from(self.part);
        self.part = grown as u32;
        (grown >> 32) as u32
    }
}

/// Bytes a second at which a window is sent.
fn pace_rate(at: &At, in_slow_start: bool) -> u64 {
    let rtt = if at.srtt_us > 0 { u64::from(at.srtt_us) } else { UNKNOWN_RTT_US };
    let percent = if in_slow_start { SLOW_START_PACE_PERCENT } else { PACE_PERCENT };
    u64::from(at.cwnd) * 10_000 * percent / rtt
}
