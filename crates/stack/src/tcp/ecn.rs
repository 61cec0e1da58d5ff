//! Explicit Congestion Notification (RFC 3168): the whole of TCP's part.
//!
//! | when | what | RFC 3168 |
//! |---|---|---|
//! | SYN | ECE and CWR ask for it; a SYN that was lost is sent again without | §6.1.1, §6.1.1.1 |
//! | SYN-ACK | ECE without CWR agrees | §6.1.1 |
//! | CE received | ECE in every acknowledgement until the peer says CWR | §6.1.3 |
//! | ECE received | the window is reduced once for each window of data, as after a loss (`recovery`); then CWR with the next new data | §6.1.2 |
//! | data sent | ECT(0) unless BBR is used, but not on acknowledgements, retransmissions and probes | §6.1.4, §6.1.5, §6.1.6 |

use crate::stats::tcp::TcpStats;
use crate::tcp::config::Ecn;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::segment::Segment;
use crate::wire::TcpFlags;

/// The ECN field of the IP header (RFC 3168 §5).
const ECT1: u8 = 1;
const ECT0: u8 = 2;
const CE: u8 = 3;

/// Whether a passive opener agrees to what the peer's SYN asks for.
pub(crate) fn agrees(told: Ecn, seg: &Segment) -> bool {
    told != Ecn::Off && asks(seg)
}

/// Whether this SYN asks for it.
fn asks(seg: &Segment) -> bool {
    seg.is(TcpFlags::ECE) && seg.is(TcpFlags::CWR)
}

/// What our SYN offers.
pub(crate) fn offer(told: Ecn) -> Flags {
    if told == Ecn::Request { Flags::ECN_OFFERED } else { Flags::NONE }
}

/// The marks on what came, of each segment that a link merged.
#[inline]
pub(crate) fn count_marks(stats: &mut TcpStats, seg: &Segment) {
    match seg.ecn {
        ECT1 => stats.ecn_ect1 += u64::from(seg.merged),
        ECT0 => stats.ecn_ect0 += u64::from(seg.merged),
        CE => stats.ecn_ce += u64::from(seg.merged),
        _ => {}
    }
}

impl Connection {
    /// What a passive opener's SYN-ACK says.
    pub(crate) fn agree_on_ecn(&mut self, agreed: bool) {
        self.set_ecn(agreed);
    }

    /// The peer's SYN crosses ours: both have asked, or there is no ECN.
    pub(crate) fn ecn_asked_by_both(&mut self, seg: &Segment) {
        self.set_ecn(asks(seg) && self.has(Flags::ECN_OFFERED));
    }

    /// The answer to our SYN.
    pub(crate) fn ecn_answered(&mut self, seg: &Segment) {
        // Guard: `!seg.is(TcpFlags::CWR)` as `true` fails ecn::an_echo_of_our_flags
        let agreed = seg.is(TcpFlags::ECE) && !seg.is(TcpFlags::CWR);
        self.set_ecn(agreed && self.has(Flags::ECN_OFFERED));
    }

    /// Our SYN was lost, perhaps because it asked.
    pub(crate) fn withdraw_ecn(&mut self) {
        self.offers_no_ecn();
    }

    /// Bits of a SYN, or of a SYN-ACK (`answer`).
    pub(crate) fn ecn_setup(&self, answer: bool) -> TcpFlags {
        if answer && self.has(Flags::ECN) {
            TcpFlags::ECE
        } else if !answer && self.has(Flags::ECN_OFFERED) {
            TcpFlags::ECE | TcpFlags::CWR
        } else {
            TcpFlags::NONE
        }
    }

    #[inline]
    pub(crate) fn uses_ecn(&self) -> bool {
        self.has(Flags::ECN)
    }

    /// What a received segment says: CWR ends the echo, CE begins it.
    pub(super) fn note_congestion_marks(&mut self, seg: &Segment) {
        if !self.has(Flags::ECN) {
            return;
        }
        // Guard: `seg.is(TcpFlags::CWR)` as `false` fails tcp::tests::ecn
        if seg.is(TcpFlags::CWR) {
            self.set_ece(false);
        }
        if seg.ecn == CE {
            if !self.has(Flags::ECE) {
                self.ack_at_once();
            }
            self.set_ece(true);
        }
    }

    /// Whether this acknowledgement echoes congestion.
    #[inline]
    pub(crate) fn echoes_congestion(&self, seg: &Segment) -> bool {
        self.has(Flags::ECN) && seg.is(TcpFlags::ECE)
    }

    /// ECE, as long as the peer has not said CWR.
    #[inline]
    pub(crate) fn congestion_echo(&self) -> TcpFlags {
        if self.has(Flags::ECN) && self.has(Flags::ECE) { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// The window was reduced: the next new data says so.
    pub(crate) fn tell_of_reduction(&mut self) {
        if self.has(Flags::ECN) {
            self.set_cwr(true);
        }
    }

    /// CWR, if new data is to say so; it says so once.
    #[inline]
    pub(crate) fn take_reduction(&mut self) -> TcpFlags {
        if self.has(Flags::ECN) && self.has(Flags::CWR) {
            self.set_cwr(false);
            return TcpFlags::CWR;
        }
        TcpFlags::NONE
    }

    /// The ECN field of a packet with new data. BBR's model does not respond to marks, so its packets are none that a queue may mark.
    #[inline]
    pub(crate) fn ecn_field(&self) -> u8 {
        if self.has(Flags::ECN) && self.model().is_none() { ECT0 } else { 0 }
    }
}
