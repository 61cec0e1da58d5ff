//! What recovery knows of the data on its way, and how it changes: a piece of the flight. The steps, which also change the window and
//! the timers, are in `recovery`.

mod prr;
mod rack;
mod report;
mod tail_probe;
mod undo;

pub(crate) use rack::Reordering;
pub(crate) use report::AckReport;
pub(crate) use undo::Undo;

use prr::Prr;
use rack::Rack;
use tail_probe::TailProbe;

use crate::tcp::Seq;
use crate::tcp::connection::scoreboard::Scoreboard;
use crate::time::Time;

/// State of loss recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// The window is being reduced for ECN.
    Cwr,
    /// Fast recovery (RFC 6675, RFC 6582).
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// The state of recovery, beside the scoreboard.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// SND.NXT when the episode began (RecoveryPoint of RFC 6675).
    high_seq: Seq,
    prr: Prr,
    /// What the last episode changed, as long as it may turn out to be needless.
    undo: Option<Undo>,
    rack: Rack,
    /// Duplicate acknowledgements, without SACK.
    dupacks: u32,
    /// Bytes that duplicate acknowledgements say have left the network, without SACK.
    reno_sacked: u32,
    probe: TailProbe,
}

impl Recovery {
    #[inline]
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Duplicate acknowledgements, without SACK.
    pub(crate) const fn dupacks(&self) -> u32 {
        self.dupacks
    }

    /// Bytes that duplicate acknowledgements say have left the network, without SACK.
    #[inline]
    pub(crate) const fn reno_sacked(&self) -> u32 {
        self.reno_sacked
    }

    /// After a timeout new data goes first, to find out whether anything was lost (F-RTO).
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.phase == Phase::Loss && self.undo.as_ref().is_some_and(Undo::holds_back)
    }

    /// New data of so many sequence numbers goes out.
    #[inline]
    pub(crate) fn sent(&mut self, numbers: u32) {
        self.prr.out += numbers;
    }

    /// Numbers go out again, with this timestamp.
    pub(crate) fn sent_again(&mut self, numbers: u32, stamp: u32) {
        self.prr.out += numbers;
        if let Some(undo) = &mut self.undo {
            undo.sent_again(stamp);
        }
    }

    /// What the last episode changed, if that may still turn out to be needless.
    #[inline]
    pub(crate) const fn undo(&self) -> Option<Undo> {
        self.undo
    }

    /// There was never a doubt about the flight, and no probe is out.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.phase == Phase::Open
            && !self.probe.is_out()
            && self.reno_sacked == 0
            && self.rack.dsack_round.is_none()
    }

    // Episodes.

    /// Whether no episode covers SND.UNA.
    pub(crate) fn is_new(&self, una: Seq) -> bool {
        // Guard: `una >= self.high_seq` as `true` fails loss::recovery_ends tcp::tests::loss
        self.phase == Phase::Open || una >= self.high_seq
    }

    /// An acknowledgement of something new has moved SND.UNA to `una`: the episode that is over by that, if one is.
    pub(crate) fn leave(&mut self, una: Seq) -> Option<Phase> {
        if self.is_new(una) && self.phase != Phase::Open {
            let was = self.phase;
            // Guard: no `self.phase = Phase::Open;` fails tcp::tests::loss
            self.phase = Phase::Open;
            self.forget_duplicates();
            return Some(was);
        }
        None
    }

    /// Begins an episode, or makes one for ECN one for losses, if something is `lost` or the peer has `marked` an acknowledgement;
    /// whether it is for losses, and whether the window is to be reduced.
    pub(crate) fn enter(&mut self, lost: bool, marked: bool, nxt: Seq) -> Option<(bool, bool)> {
        let loss = lost && matches!(self.phase, Phase::Open | Phase::Cwr);
        // Guard: `self.phase == Phase::Open` as `true` fails ecn::a_mark_and_a_loss
        let reduce = self.phase == Phase::Open;
        if !(loss || marked && reduce) {
            return None;
        }
        self.phase = if loss { Phase::Recovery } else { Phase::Cwr };
        self.high_seq = nxt;
        Some((loss, reduce))
    }

    /// The window is reduced over the round, from a flight of so many bytes (RecoverFS of RFC 9937).
    pub(crate) fn reduce_from(&mut self, flight_size: u32) {
        self.prr = Prr { delivered: 0, out: 0, recover_fs: flight_size.max(1) };
    }

    /// How much more may be sent on this acknowledgement: see [`Prr::allowance`].
    pub(crate) fn allowance(
        &mut self,
        in_flight: u32,
        ssthresh: u32,
        delivered: u32,
        mss: u32,
        safe: bool,
    ) -> u32 {
        self.prr.allowance(in_flight, ssthresh, delivered, mss, safe)
    }

    /// The retransmission timer fired; `judge`: when, if the next acknowledgements may tell whether too early.
    pub(crate) fn timed_out(&mut self, nxt: Seq, judge: Option<Time>) {
        if let Some(undo) = &mut self.undo {
            undo.timed_out(judge);
        }
        self.phase = Phase::Loss;
        self.high_seq = nxt;
        self.forget_duplicates();
        self.probe.forget();
    }

    // Duplicate acknowledgements.

    fn forget_duplicates(&mut self) {
        (self.dupacks, self.reno_sacked) = (0, 0);
    }

    /// RFC 5681 §3.2 and RFC 6582 §3.2 without SACK: each duplicate says that one segment has left the network.
    pub(crate) fn count_duplicates(
        &mut self,
        board: &mut Scoreboard,
        report: &AckReport,
        una: Seq,
        outstanding: u32,
        mss: u32,
    ) {
        let first = board.front().map_or(0, |front| front.len);
        if report.duplicate {
            self.dupacks += 1;
            self.reno_sacked = (self.reno_sacked + mss).min(outstanding.saturating_sub(first));
            // Guard: `self.dupacks == DUP_THRESH && self.phase != Phase::Loss` as `false` fails
            // loss::newreno_without
            // Guard: `== DUP_THRESH` as `== 2` fails tcp::tests::loss
            if self.dupacks == DUP_THRESH && self.phase != Phase::Loss {
                board.mark_lost(0);
            }
        } else if report.acked > 0 {
            // Guard: `self.phase == Phase::Recovery && una < self.high_seq` as `false` fails
            // loss::a_partial_ack
            if self.phase == Phase::Recovery && una < self.high_seq {
                // RFC 6582 §3.2, step 3, partial acknowledgement: the next hole is lost too.
                self.reno_sacked = self.reno_sacked.saturating_sub(report.acked.saturating_sub(mss));
                self.reno_sacked = self.reno_sacked.min(outstanding.saturating_sub(first));
                if !board.is_empty() {
                    board.mark_lost(0);
                }
            } else {
                self.forget_duplicates();
            }
        }
    }

    /// For another flight. Field by field, and all of them: a short connection does this four times.
    pub(crate) fn reset(&mut self) {
        let Recovery { phase, high_seq, prr, undo, rack, dupacks, reno_sacked, probe } = self;
        (*phase, *prr, *rack, *probe) = Default::default();
        (*dupacks, *reno_sacked) = (0, 0);
        (*high_seq, *undo) = (Seq::default(), None);
    }
}

/// Duplicates that mean loss (RFC 5681 §3.2).
pub(crate) const DUP_THRESH: u32 = 3;
