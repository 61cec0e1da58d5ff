//! What was before a reduction of the window. Whether it is taken back is decided in `recovery/undo.rs`.

use super::{AckReport, Phase, Recovery};
use crate::tcp::Seq;
use crate::tcp::connection::scoreboard::Scoreboard;
use crate::time::Time;

/// What was before an episode, and what has been sent again since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    /// SND.UNA when it began.
    marker: Seq,
    cwnd: u32,
    ssthresh: u32,
    /// Segments sent again of which no D-SACK has told.
    again: u32,
    /// Timestamp of the first of them.
    stamp: Option<u32>,
    /// When the retransmission timeout fired that RFC 5682 is about to judge.
    timeout: Option<Time>,
    /// New data is sent instead of what was deemed lost: the answer will tell.
    probing: bool,
}

impl Undo {
    /// Something is sent again, with this timestamp.
    pub(super) fn sent_again(&mut self, stamp: u32) {
        self.again += 1;
        self.stamp.get_or_insert(stamp);
    }

    /// The retransmission timer fired; with SACK the next acknowledgements may tell whether too early.
    pub(super) fn timed_out(&mut self, at: Option<Time>) {
        (self.timeout, self.probing) = (at, false);
    }

    /// Whether what was deemed lost waits for that.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        self.probing
    }

    /// Whether reports of what was sent again may still come.
    pub(crate) const fn awaits_reports(&self) -> bool {
        self.again > 0
    }

    /// The window and the threshold before the episode, bytes.
    pub(crate) const fn window(&self) -> (u32, u32) {
        (self.cwnd, self.ssthresh)
    }

    /// What was before is less by what packets that were marked since take off: no loss that was none takes that back.
    pub(crate) fn cut(&mut self, cut: impl Fn(u32) -> u32) {
        self.cwnd = cut(self.cwnd);
        // Slow start is over by a mark.
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }

    /// A D-SACK tells of this range; whether all that was sent again has now arrived twice.
    pub(crate) fn told_twice(&mut self, (left, right): (Seq, Seq), mss: u32) -> bool {
        // Guard: `self.again == 0` as `false` fails undo::nothing_was_sent_again
        if self.again == 0 || right <= self.marker {
            return false;
        }
        self.again = self.again.saturating_sub(right.since(left).div_ceil(mss));
        self.again == 0
    }
}

impl Recovery {
    /// An episode begins with a reduction of the window: SND.UNA, the window and the threshold before it.
    pub(crate) fn remember(&mut self, marker: Seq, (cwnd, ssthresh): (u32, u32)) {
        // A tail loss probe under way is one more.
        let again = self.probe.again();
        self.undo = Some(Undo { marker, cwnd, ssthresh, again, stamp: None, timeout: None, probing: false });
    }

    /// See [`Undo::cut`].
    pub(crate) fn cut_undo(&mut self, cut: impl Fn(u32) -> u32) {
        if let Some(undo) = &mut self.undo {
            undo.cut(cut);
        }
    }

    /// What was kept of the last episode counts again.
    pub(crate) fn restore(&mut self, undo: Undo) {
        self.undo = Some(undo);
    }

    /// F-RTO (RFC 5682 §3.1, the variant with SACK): whether something arrives that was sent before the timeout and never
    /// again, so that it was only late. If the first acknowledgement is for the retransmission, two segments of new data go
    /// out before anything else is sent again (step 2b), if there is `room`; a duplicate then says that the loss was real (2a, 3a).
    pub(crate) fn timeout_was_early(&mut self, report: &AckReport, una: Seq, room: bool) -> bool {
        let Some(undo) = self.undo.as_mut().filter(|_| self.phase == Phase::Loss) else { return false };
        let Some(at) = undo.timeout else { return false };
        // Guard: `report.delivered.rtt_from.is_some_and(|sent| sent < at)` as `false` fails
        // undo::the_timeout_came
        if report.delivered.rtt_from.is_some_and(|sent| sent < at) {
            return true;
        }
        if report.acked > 0 || report.duplicate || report.delivered.sacked > 0 {
            undo.probing = !undo.probing && report.acked > 0 && una < self.high_seq && room;
            undo.timeout = undo.timeout.filter(|_| undo.probing);
        }
        false
    }

    /// If this acknowledgement shows that nothing was lost, ends the episode; the window and the threshold before it. `early`: the
    /// timeout was.
    pub(crate) fn undo_needless(
        &mut self,
        board: &mut Scoreboard,
        report: &AckReport,
        (una, mss): (Seq, u32),
        early: bool,
    ) -> Option<(u32, u32)> {
        let undo = self.undo.as_mut()?;
        let mut needless = early | report.twice.is_some_and(|twice| undo.told_twice(twice, mss));
        // While others that were sent again are under way, one late original proves nothing about them.
        let over = una >= self.high_seq || board.retrans() == 0;
        let episode = self.phase == Phase::Loss || self.phase == Phase::Recovery && over;
        if let (true, Some(echo), Some(stamp)) = (report.acked > 0 && episode, report.echo, undo.stamp) {
            needless |= echo != 0 && (echo.wrapping_sub(stamp) as i32) < 0;
        }
        // Guard: `!needless` as `false` fails tcp::tests::undo tcp::tests::loss
        if !needless || report.ece {
            return None;
        }
        let window = undo.window();
        self.undo = None;
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            self.phase = Phase::Open;
            board.none_is_lost();
            self.forget_duplicates();
        }
        Some(window)
    }
}
