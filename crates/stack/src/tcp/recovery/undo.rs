//! A reduction that was made for nothing is taken back.
//!
//! Segments that were only late look lost. Three things show it: an acknowledgement that echoes a timestamp from before the
//! first retransmission answers an original (Eifel, RFC 3522 and RFC 4015), D-SACKs for everything that was sent again say that
//! all of it had arrived (RFC 3708), and after a timeout originals still arrive (F-RTO, RFC 5682). Then the congestion window and
//! the threshold are what they were before, as in Linux, and what was deemed lost is on its way.
//!
//! A D-SACK that comes when nothing is outstanding any more counts, too: at the end of an answer it mostly does.

use super::Phase;
use crate::tcp::Seq;
use crate::tcp::connection::Connection;
use crate::tcp::input::AckReport;
use crate::tcp::lane::Core;
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
    pub(crate) fn sent_again(&mut self, stamp: u32) {
        self.again += 1;
        self.stamp.get_or_insert(stamp);
    }

    /// The retransmission timer fired; with SACK the next acknowledgements may tell whether too early.
    pub(crate) fn timed_out(&mut self, at: Option<Time>) {
        (self.timeout, self.probing) = (at, false);
    }

    /// Whether what was deemed lost waits for that.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.probing
    }

    /// A D-SACK tells of this range; whether all that was sent again has now arrived twice.
    fn told_twice(&mut self, (left, right): (Seq, Seq), mss: u32) -> bool {
        if self.again == 0 || right <= self.marker {
            return false;
        }
        self.again = self.again.saturating_sub(right.since(left).div_ceil(mss));
        self.again == 0
    }
}

impl Connection {
    /// An episode begins with a reduction of the window: what it was.
    pub(crate) fn remember_window(&mut self) {
        let (marker, cwnd, ssthresh) = (self.snd.una(), self.congestion.cwnd(), self.congestion.ssthresh());
        if let Some(tx) = self.tx.get_mut() {
            // A tail loss probe under way is one more.
            let again = u32::from(tx.recovery.tlp_end.is_some() && tx.recovery.tlp_is_retrans);
            tx.recovery.undo =
                Some(Undo { marker, cwnd, ssthresh, again, stamp: None, timeout: None, probing: false });
        }
        self.forget_undo();
    }

    /// Everything has arrived; reports of what came twice may still be under way, for as long as a timeout takes.
    #[cold]
    pub(crate) fn keep_undo(&mut self, core: &Core, now: Time, undo: Undo) {
        if undo.again > 0 {
            self.rare_mut().undo = Some((undo, now + self.rtt.timeout(0, &core.config)));
        }
    }

    /// Something was received twice, and nothing is outstanding.
    pub(crate) fn undo_late(&mut self, twice: (Seq, Seq)) {
        let mss = self.effective_mss().max(1);
        let Some((undo, _)) = self.rare_if_any().and_then(|rare| rare.undo.as_mut()) else { return };
        if undo.told_twice(twice, mss) {
            let (cwnd, ssthresh) = (undo.cwnd, undo.ssthresh);
            self.congestion.undo(cwnd, ssthresh);
            self.forget_undo();
        }
    }

    /// F-RTO (RFC 5682 §3.1, the variant with SACK): whether something arrives that was sent before the timeout and never
    /// again, so that it was only late. If the first acknowledgement is for the retransmission, two segments of new data go
    /// out before anything else is sent again (step 2b); a duplicate then says that the loss was real (2a, 3a).
    fn timeout_was_early(&mut self, report: &AckReport) -> bool {
        let (una, mss) = (self.snd.una(), self.effective_mss());
        let room = self.unsent() >= mss && self.snd.wnd() >= self.snd.outstanding() + mss;
        let Some(tx) = self.tx.get_mut() else { return false };
        let Some(undo) = tx.recovery.undo.as_mut().filter(|_| tx.recovery.phase == Phase::Loss) else {
            return false;
        };
        let Some(at) = undo.timeout else { return false };
        if report.delivered.rtt_from.is_some_and(|sent| sent < at) {
            return true;
        }
        if report.acked > 0 || report.duplicate || report.delivered.sacked > 0 {
            undo.probing = !undo.probing && report.acked > 0 && una < tx.recovery.high_seq && room;
            undo.timeout = undo.timeout.filter(|_| undo.probing);
        }
        false
    }

    /// Takes the reduction back if this acknowledgement shows that nothing was lost; whether it did.
    pub(crate) fn perhaps_undo(&mut self, report: &AckReport) -> bool {
        let (una, mss) = (self.snd.una(), self.effective_mss().max(1));
        let early = self.timeout_was_early(report);
        let known = self.tx.get().is_some_and(|tx| tx.recovery.undo.is_some());
        let kept = if report.twice.is_some() && !known { self.take_kept_undo() } else { None };
        let Some(tx) = self.tx.get_mut() else { return false };
        if kept.is_some() {
            tx.recovery.undo = kept;
        }
        let Some(undo) = &mut tx.recovery.undo else { return false };
        let mut needless = early | report.twice.is_some_and(|twice| undo.told_twice(twice, mss));
        // While others that were sent again are under way, one late original proves nothing about them.
        let over = una >= tx.recovery.high_seq || tx.board.retrans() == 0;
        let episode = tx.recovery.phase == Phase::Loss || tx.recovery.phase == Phase::Recovery && over;
        if let (true, Some(echo), Some(stamp)) = (report.acked > 0 && episode, report.echo, undo.stamp) {
            needless |= echo != 0 && (echo.wrapping_sub(stamp) as i32) < 0;
        }
        if !needless || report.ece {
            return false;
        }
        self.congestion.undo(undo.cwnd, undo.ssthresh);
        tx.recovery.undo = None;
        if matches!(tx.recovery.phase, Phase::Recovery | Phase::Loss) {
            tx.recovery.phase = Phase::Open;
            tx.board.none_is_lost();
            (tx.recovery.dupacks, tx.recovery.reno_sacked) = (0, 0);
        }
        true
    }
}
