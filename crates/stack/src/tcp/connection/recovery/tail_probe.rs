//! The tail loss probe that is out (RFC 8985 §7).

use super::{AckReport, Phase, Recovery};
use crate::tcp::Seq;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TailProbe {
    /// End of the data when it went out (TLP.end_seq).
    end: Option<Seq>,
    /// It was a retransmission (TLP.is_retrans).
    is_retrans: bool,
}

impl TailProbe {
    #[inline]
    pub(super) const fn is_out(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn forget(&mut self) {
        self.end = None;
    }

    /// Segments that were sent again by it: none or one.
    pub(super) fn again(&self) -> u32 {
        u32::from(self.is_out() && self.is_retrans)
    }
}

impl Recovery {
    /// Whether a tail loss probe is out.
    pub(crate) const fn probe_is_out(&self) -> bool {
        self.probe.is_out()
    }

    /// Whether a tail loss probe is out that was a retransmission.
    pub(crate) fn probe_is_sent_again(&self) -> bool {
        self.probe.again() > 0
    }

    /// A tail loss probe is to go out; data ends at `nxt`.
    pub(crate) fn probe_tail(&mut self, nxt: Seq) {
        self.probe = TailProbe { end: Some(nxt), is_retrans: false };
    }

    /// The tail loss probe was a retransmission.
    pub(crate) fn probe_was_sent_again(&mut self) {
        self.probe.is_retrans = true;
    }

    /// RFC 8985 §7.4: whether the probe has repaired a loss that nothing else has told of.
    pub(crate) fn probe_repaired(&mut self, una: Seq, report: &AckReport) -> bool {
        let Some(end) = self.probe.end else { return false };
        if una < end {
            return false;
        }
        let plain_duplicate = report.acked == 0 && report.delivered.bytes == 0;
        // Guard: `!self.probe.is_retrans || report.dsack || plain_duplicate` as `false` fails
        // loss::an_unnecessary
        if !self.probe.is_retrans || report.dsack || plain_duplicate {
            self.probe.forget();
            return false;
        }
        // Guard: `una > end` as `false` fails loss::a_probe_that_repaired
        if una > end {
            // The original and the probe cannot both have arrived without a D-SACK: one was lost.
            self.probe.forget();
            return self.phase == Phase::Open;
        }
        false
    }
}
