//! Undoing a spurious reduction of the window.
//!
//! Segments that were only late look lost. Three signs show it: an acknowledgement echoes a timestamp from before the first
//! retransmission, so it answers an original (Eifel, RFC 3522 and RFC 4015); D-SACKs for everything retransmitted show that all of it had
//! arrived (RFC 3708); after a timeout originals still arrive (F-RTO, RFC 5682). Then congestion window and threshold are restored, as in
//! Linux, and the segments marked lost count as in flight again.
//!
//! A D-SACK that arrives when nothing is outstanding counts as well, which is usual at the end of an answer.

use crate::tcp::Seq;
use crate::tcp::connection::Connection;
use crate::tcp::connection::recovery::{AckReport, Undo};
use crate::tcp::lane::Core;
use crate::time::Time;

impl Connection {
    /// An episode begins with a reduction of the window: what it was.
    pub(crate) fn remember_window(&mut self) {
        let window = (self.congestion.cwnd(), self.congestion.ssthresh());
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.remember(self.snd.una(), window);
        }
        self.forget_undo();
    }

    /// Everything has arrived; reports of what came twice may still be under way, for as long as a timeout takes.
    #[cold]
    pub(crate) fn keep_undo(&mut self, core: &Core, now: Time, undo: Undo) {
        if undo.awaits_reports() {
            self.keep_undo_until(undo, now.plus_micros(self.rtt.timeout(0, core.timeouts)));
        }
    }

    /// Something was received twice, and nothing is outstanding.
    pub(crate) fn undo_late(&mut self, twice: (Seq, Seq)) {
        let mss = self.effective_mss().max(1);
        let Some(undo) = self.kept_undo_mut() else { return };
        if undo.told_twice(twice, mss) {
            let (cwnd, ssthresh) = undo.window();
            self.congestion.undo(cwnd, ssthresh);
            self.forget_undo();
        }
    }
    /// Takes the reduction back if this acknowledgement shows that nothing was lost; whether it did.
    pub(crate) fn perhaps_undo(&mut self, report: &AckReport) -> bool {
        let (una, mss) = (self.snd.una(), self.effective_mss());
        // Guard: `self.unsent() >= mss` as `true` fails undo::nothing_new_can
        // Guard: `self.snd.wnd() >= self.snd.outstanding() + mss` as `true` fails undo::nothing_new_can
        let room = self.unsent() >= mss && self.snd.wnd() >= self.snd.outstanding() + mss;
        let Some(tx) = self.tx.get_mut() else { return false };
        let early = tx.recovery.timeout_was_early(report, una, room);
        if report.twice.is_some() && tx.recovery.undo().is_none() {
            let kept = self.take_kept_undo();
            if let (Some(kept), Some(tx)) = (kept, self.tx.get_mut()) {
                tx.recovery.restore(kept);
            }
        }
        let Some(tx) = self.tx.get_mut() else { return false };
        let before = tx.recovery.undo_needless(&mut tx.board, report, (una, mss.max(1)), early);
        if let Some((cwnd, ssthresh)) = before {
            self.congestion.undo(cwnd, ssthresh);
        }
        before.is_some()
    }
}
