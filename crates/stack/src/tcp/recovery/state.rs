//! What recovery knows of the data on its way. Only the files of this directory change it.

use super::Phase;
use super::undo::Undo;
use crate::tcp::Seq;
use crate::time::Time;

/// RACK (RFC 8985 §5.3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rack {
    /// RACK.xmit_ts; `None` before the first delivery.
    pub(super) xmit: Option<Time>,
    /// RACK.end_seq.
    pub(super) end: Seq,
    /// RACK.rtt, nanoseconds.
    pub(super) rtt_ns: u64,
    /// RACK.dsack_round.
    pub(super) dsack_round: Option<Seq>,
}

/// What RACK has learnt of the path's reordering; it outlives the flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reordering {
    /// RACK.reordering_seen.
    pub(super) seen: bool,
    /// The furthest a segment came behind later ones, segments.
    pub(super) degree: u8,
    /// RACK.reo_wnd_mult - 1.
    pub(super) more: u8,
    /// RACK.reo_wnd_persist.
    pub(super) persist: u8,
}

impl Reordering {
    /// The furthest a segment came behind later ones, segments.
    pub(crate) const fn degree(self) -> u8 {
        self.degree
    }
}

/// The state of recovery, beside the scoreboard.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    pub(super) phase: Phase,
    /// SND.NXT when the episode began (RecoveryPoint of RFC 6675).
    pub(super) high_seq: Seq,
    pub(super) prr: super::Prr,
    /// What the last episode changed, as long as it may turn out to be needless.
    pub(super) undo: Option<Undo>,
    pub(super) rack: Rack,
    /// Duplicate acknowledgements, without SACK.
    pub(super) dupacks: u32,
    /// Bytes that duplicate acknowledgements say have left the network, without SACK.
    pub(super) reno_sacked: u32,
    /// End of the data when a tail loss probe went out (TLP.end_seq).
    pub(super) tlp_end: Option<Seq>,
    /// The probe was a retransmission (TLP.is_retrans).
    pub(super) tlp_is_retrans: bool,
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

    /// The tail loss probe was a retransmission.
    pub(crate) fn probe_was_sent_again(&mut self) {
        self.tlp_is_retrans = true;
    }

    /// What the last episode changed, if that may still turn out to be needless.
    #[inline]
    pub(crate) const fn undo(&self) -> Option<Undo> {
        self.undo
    }

    /// There was never a doubt about the flight, and no probe is out.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.phase == Phase::Open
            && self.tlp_end.is_none()
            && self.reno_sacked == 0
            && self.rack.dsack_round.is_none()
    }

    /// For another flight. Field by field, and all of them: a short connection does this four times.
    pub(crate) fn reset(&mut self) {
        let Recovery { phase, high_seq, prr, undo, rack, dupacks, reno_sacked, tlp_end, tlp_is_retrans } =
            self;
        (*phase, *prr, *rack) = Default::default();
        (*dupacks, *reno_sacked) = (0, 0);
        (*tlp_end, *tlp_is_retrans) = (None, false);
        (*high_seq, *undo) = (Seq::default(), None);
    }
}
