//! What a connection needs while it has data of its own on the way: buffer, scoreboard, recovery.
//!
//! Boxed; a lane keeps some spare ones, so that short exchanges do not allocate.

use super::Seq;
use super::congestion::Hystart;
use super::memory::FLIGHT;
use super::send_buffer::{Blocks, SendBuffer};
use super::sent::SentQueue;
use super::undo::Undo;
use crate::time::Time;
use core::task::Waker;
use std::collections::VecDeque;

/// What the sender is doing about losses.
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

/// Proportional rate reduction (RFC 6937).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prr {
    pub(crate) delivered: u32,
    pub(crate) out: u32,
    /// RecoverFS.
    pub(crate) recover_fs: u32,
}

/// RACK (RFC 8985 §5.3).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rack {
    /// RACK.xmit_ts; `None` before the first delivery.
    pub(crate) xmit: Option<Time>,
    /// RACK.end_seq.
    pub(crate) end: Seq,
    /// RACK.rtt, nanoseconds.
    pub(crate) rtt_ns: u64,
    /// RACK.dsack_round.
    pub(crate) dsack_round: Option<Seq>,
}

/// What RACK has learnt of the path's reordering; it outlives the flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reordering {
    /// RACK.reordering_seen.
    pub(crate) seen: bool,
    /// The furthest a segment came behind later ones, segments.
    pub(crate) degree: u8,
    /// RACK.reo_wnd_mult - 1.
    pub(crate) more: u8,
    /// RACK.reo_wnd_persist.
    pub(crate) persist: u8,
}

/// State of data on its way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) data: SendBuffer,
    pub(crate) sent: SentQueue,
    pub(crate) phase: Phase,
    /// SND.NXT when recovery began (RecoveryPoint of RFC 6675).
    pub(crate) high_seq: Seq,
    pub(crate) prr: Prr,
    /// What the last episode changed, as long as it may turn out to be needless.
    pub(crate) undo: Option<Undo>,
    pub(crate) rack: Rack,
    /// Duplicate acknowledgements, without SACK.
    pub(crate) dupacks: u32,
    /// Bytes that duplicate acknowledgements say have left the network, without SACK.
    pub(crate) reno_sacked: u32,
    /// End of the data when a tail loss probe went out (TLP.end_seq).
    pub(crate) tlp_end: Option<Seq>,
    /// The probe was a retransmission.
    pub(crate) tlp_is_retrans: bool,
    /// Most bytes that were outstanding in the round that ends at `peak_end`.
    pub(crate) peak: u32,
    pub(crate) peak_end: Seq,
    /// Segments of new data sent in a row, without a pause.
    pub(crate) burst: u32,
    /// Where writes end, those not yet sent, but for the last.
    pub(crate) pushes: VecDeque<Seq>,
    /// Where records end that no segment may reach across, those not yet sent.
    pub(crate) records: VecDeque<Seq>,
    /// `HyStart++`; begins anew when data does.
    pub(crate) hystart: Hystart,
    /// Who waits to write or for the handshake.
    pub(crate) write_waker: Option<Waker>,
    /// Since when the oldest byte waits for an acknowledgement, or the window is closed.
    pub(crate) since: Option<Time>,
    /// Bytes of memory beside the buffer's as the lane has counted them.
    counted: usize,
}

impl Flight {
    /// Bytes in the network, as far as is known.
    #[inline]
    pub(crate) fn in_flight(&self, outstanding: u32) -> u32 {
        self.sent.in_flight(outstanding).saturating_sub(self.reno_sacked)
    }

    /// Bytes of memory beside the buffer's, as the lane has counted them.
    pub(crate) const fn memory(&self) -> usize {
        self.counted
    }

    /// Counts them; how many they are.
    pub(crate) fn count(&mut self) -> usize {
        self.counted = FLIGHT + self.sent.memory();
        self.counted
    }

    /// The scoreboard has changed: the lane's `memory` follows.
    #[inline]
    pub(crate) fn recount(&mut self, memory: &mut usize) {
        let before = self.counted;
        *memory = *memory + self.count() - before;
    }

    /// Ready for another connection. Its buffer's memory goes back; how many bytes of it are free now.
    pub(crate) fn reset(&mut self, blocks: &mut Blocks) -> usize {
        // Field by field, and all of them: a short connection does this four times.
        let Flight {
            data,
            sent,
            phase,
            high_seq,
            prr,
            undo,
            rack,
            dupacks,
            reno_sacked,
            tlp_end,
            tlp_is_retrans,
            peak,
            peak_end,
            burst,
            pushes,
            records,
            hystart,
            write_waker,
            since,
            counted: _,
        } = self;
        sent.reset();
        (*phase, *prr, *rack, *hystart) = Default::default();
        (*high_seq, *peak_end) = Default::default();
        (*dupacks, *reno_sacked, *peak, *burst) = (0, 0, 0, 0);
        (*tlp_end, *tlp_is_retrans, *since, *write_waker) = (None, false, None, None);
        *undo = None;
        for list in [pushes, records] {
            if list.capacity() > 0 {
                *list = VecDeque::new();
            }
        }
        data.reset(blocks)
    }
}
