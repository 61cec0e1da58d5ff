//! Explicit Congestion Notification (RFC 3168): the whole of TCP's part.
//!
//! | when | what | RFC 3168 |
//! |---|---|---|
//! | SYN | ECE and CWR ask for it; a SYN that was lost is sent again without | §6.1.1, §6.1.1.1 |
//! | SYN-ACK | ECE without CWR agrees | §6.1.1 |
//! | CE received | ECE in every acknowledgement until the peer says CWR | §6.1.3 |
//! | ECE received | the window is reduced once for each window of data, as after a loss (`recovery`); then CWR with the next new data | §6.1.2 |
//! | data sent | ECT(0) unless BBR is used, but not on acknowledgements, retransmissions and probes | §6.1.4, §6.1.5, §6.1.6 |
//! | the same with Prague in accurate mode, and nowhere else | ECT(1) | RFC 9331 §4.1 |
//!
//! Accurate ECN (RFC 9768) takes the place of the feedback where both ends know it: `accurate`. A connection that has agreed on either has
//! [`Flags::ECN`]; one in accurate mode has a box beside it.

mod accurate;

pub(crate) use accurate::syn_ack_option;

use crate::stats::tcp::TcpStats;
use crate::tcp::config::{Algorithm, Ecn, TcpConfig};
use crate::tcp::connection::accecn::AccEcn;
use crate::tcp::connection::accecn::handshake::{self, CE, ECT0, ECT1, Mode};
use crate::tcp::connection::congestion::Model;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::{TcpFlags, TcpOptions};

/// What a connection negotiates whose socket has been told of this congestion control, or of none.
#[inline]
pub(crate) fn told(config: &TcpConfig, congestion: Option<Algorithm>) -> Ecn {
    config.ecn.with(congestion.unwrap_or(config.congestion))
}

/// What a passive opener makes of the peer's SYN.
pub(crate) fn mode(told: Ecn, seg: &Segment) -> Mode {
    if told.accepts_accurate() {
        return handshake::asked(handshake::bits(seg.flags));
    }
    if told != Ecn::Off && asks(seg) { Mode::Classic } else { Mode::Off }
}

/// Whether this SYN asks for it.
fn asks(seg: &Segment) -> bool {
    seg.is(TcpFlags::ECE) && seg.is(TcpFlags::CWR)
}

/// What our SYN offers.
pub(crate) fn offer(told: Ecn) -> Flags {
    if told.asks() { Flags::ECN_OFFERED } else { Flags::NONE }
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
    pub(crate) fn agree_on_ecn(&mut self, config: &TcpConfig, mode: Mode, seg: &Segment) {
        self.enter_mode(config, mode, seg.ecn);
    }

    /// Our SYN asks for what the lane was told.
    pub(crate) fn ask_for_ecn(&mut self, config: &TcpConfig) {
        if config.ecn.with(self.congestion.algorithm()) == Ecn::Accurate {
            self.set_accecn(Some(AccEcn::offer(config.accecn_option)));
        }
    }

    /// The peer's SYN crosses ours: both have asked, or there is no ECN. In accurate mode it is as if only the peer had (RFC 9768 §3.1.2).
    pub(crate) fn ecn_asked_by_both(&mut self, config: &TcpConfig, seg: &Segment) {
        if self.accecn().is_some() {
            return self.enter_mode(config, handshake::asked(handshake::bits(seg.flags)), seg.ecn);
        }
        self.set_ecn(asks(seg) && self.has(Flags::ECN_OFFERED));
    }

    /// The answer to our SYN.
    pub(crate) fn ecn_answered(&mut self, config: &TcpConfig, seg: &Segment) {
        if self.accecn().is_some() {
            return self.accurate_answered(config, seg);
        }
        // Guard: `!seg.is(TcpFlags::CWR)` as `true` fails ecn::an_echo_of_our_flags
        let agreed = seg.is(TcpFlags::ECE) && !seg.is(TcpFlags::CWR);
        self.set_ecn(agreed && self.has(Flags::ECN_OFFERED));
    }

    /// Our SYN was lost, perhaps because it asked. For accurate ECN it asks twice (RFC 9768 §3.1.4.1).
    pub(crate) fn withdraw_ecn(&mut self) {
        // Guard: `self.accecn().is_some() && self.timers.backoff() == 0` as `false` fails
        // accurate::syns_fall_back
        if self.accecn().is_some() && self.timers.backoff() == 0 {
            return;
        }
        self.offers_no_ecn();
    }

    /// Bits of a SYN, or of a SYN-ACK (`answer`).
    pub(crate) fn ecn_setup(&mut self, answer: bool) -> TcpFlags {
        if answer && self.has(Flags::ECN) {
            if self.is_accurate() { self.syn_ack_flags() } else { TcpFlags::ECE }
        } else if !answer && self.has(Flags::ECN_OFFERED) {
            let accurate = if self.accecn().is_some() { TcpFlags::AE } else { TcpFlags::NONE };
            TcpFlags::ECE | TcpFlags::CWR | accurate
        } else {
            TcpFlags::NONE
        }
    }

    /// What acknowledgements go on to feed back in TIME-WAIT: three bits.
    #[inline]
    pub(crate) fn last_ace(&self) -> u8 {
        if self.has(Flags::ECN) { self.accecn().map_or(0, |accecn| accecn.r.cep as u8 & 7) } else { 0 }
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
        if self.is_accurate() {
            if self.takes_due_ack() {
                self.ack_at_once();
            }
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

    /// Whether this acknowledgement may echo congestion.
    #[inline]
    pub(crate) fn echoes_congestion(&self, seg: &Segment) -> bool {
        self.has(Flags::ECN) && (seg.is(TcpFlags::ECE) || self.is_accurate())
    }

    /// Whether this acknowledgement, which newly acknowledges so many packets and bytes, echoes congestion.
    #[inline]
    pub(crate) fn heed_echo(&mut self, core: &mut Core, seg: &Segment, packets: u32, bytes: u32) -> bool {
        if self.is_accurate() {
            return self.accurate_echo(core, seg, packets, bytes);
        }
        seg.is(TcpFlags::ECE)
    }

    /// What a segment of a connection with ECN says of it. `room`: bytes of payload that a segment of new data leaves to options, `None` for one
    /// that is sent again; `bare`: it only acknowledges.
    pub(crate) fn ecn_of_segment(
        &mut self,
        core: &mut Core,
        now: Time,
        options: (&mut TcpOptions, Option<usize>),
        (new, bare): (bool, bool),
    ) -> TcpFlags {
        if self.is_accurate() {
            return self.accurate_feedback(core, now, options, bare);
        }
        // ECE, as long as the peer has not said CWR.
        let echo = if self.has(Flags::ECE) { TcpFlags::ECE } else { TcpFlags::NONE };
        // CWR, if new data is to say so; it says so once.
        if new && self.has(Flags::CWR) {
            self.set_cwr(false);
            return echo | TcpFlags::CWR;
        }
        echo
    }

    /// Bytes of data in the next segment of new data, if it is full: what the option takes is left out.
    #[inline]
    pub(crate) fn next_mss(&self, now: Time) -> u32 {
        let mss = self.effective_mss();
        if self.has(Flags::ECN) { mss.saturating_sub(self.room_for_option(now)).max(1) } else { mss }
    }

    /// The window was reduced: the next new data says so. In accurate mode nothing does (RFC 9768 §3.1.5).
    pub(crate) fn tell_of_reduction(&mut self) {
        if self.has(Flags::ECN) && !self.is_accurate() {
            self.set_cwr(true);
        }
    }

    /// The ECN field of a packet with new data. BBR's model does not respond to marks, so its packets are none that a queue may mark. ECT(1) says
    /// that each mark gets an answer of its own.
    #[inline]
    pub(crate) fn ecn_field(&self) -> u8 {
        let may = self.has(Flags::ECN) && self.accecn().is_none_or(AccEcn::sends_ect);
        match self.model() {
            // Guard: `!may` as `false` fails prague::without_accurate
            _ if !may => 0,
            None => ECT0,
            Some(Model::Bbr(_)) => 0,
            // Guard: `ECT1` as `ECT0` fails prague::only_prague
            Some(Model::Prague(_)) => ECT1,
        }
    }
}
