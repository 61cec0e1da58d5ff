//! Accurate ECN (RFC 9768): the steps of a connection that has agreed on it or asks for it. What it knows is in `connection/accecn/`.
//!
//! | when | what | RFC 9768 |
//! |---|---|---|
//! | SYN | AE, CWR and ECE ask for it; lost twice, it is sent without | §3.1.1, §3.1.4.1 |
//! | SYN-ACK | one of four answers, which tells how the SYN arrived; lost, it goes without the option, then without the flags | §3.1.1, §3.2.3.2.2 |
//! | its acknowledgement | tells how the SYN-ACK arrived | §3.2.2.1 |
//! | a packet comes | it is counted by its mark | §3.2 |
//! | a segment goes | ACE, and on acknowledgements and new data the option | §3.2.2, §3.2.3.3 |
//! | an acknowledgement comes | the window is reduced once for each window of data in which packets were marked, as for classic ECN; CWR is not said. With Prague by how many were (`model`) | §3.1.5 |
//! | a handshake that tells of an impossible change | data is not sent as ECN-capable; feedback is still heeded | §3.2.2.3 |

use crate::tcp::config::TcpConfig;
use crate::tcp::connection::accecn::fed_back::Feedback;
use crate::tcp::connection::accecn::handshake::{self, CE, Mode, NOT_ECT, Told};
use crate::tcp::connection::accecn::{AccEcn, Received};
use crate::tcp::connection::congestion::Model;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::tcp_options::MAX_LEN;
use crate::wire::{AccEcnOption, TcpFlags, TcpOptions};

/// SACK blocks that the option never takes the place of (§3.2.3.3).
const BLOCKS: usize = 2;

/// The option of a SYN-ACK, of a connection or of a cookie, as far as there is room behind the other options.
pub(crate) fn syn_ack_option(config: &TcpConfig, others: &TcpOptions) -> Option<AccEcnOption> {
    if !config.accecn_option {
        return None;
    }
    Received::default().option(MAX_LEN.saturating_sub(others.len()))
}

impl Connection {
    /// Both ends are in accurate mode.
    #[inline]
    pub(crate) fn is_accurate(&self) -> bool {
        self.has(Flags::ECN) && self.accecn().is_some_and(AccEcn::is_agreed)
    }

    /// It is agreed: the peer's SYN or SYN-ACK came with this ECN field.
    pub(super) fn agree_on_accurate(&mut self, config: &TcpConfig, field: u8) {
        let mut accecn = AccEcn::offer(config.accecn_option);
        accecn.agree(field);
        self.set_accecn(Some(accecn));
        self.set_ecn(true);
    }

    /// What follows from a mode that the peer has chosen, or we: the one that this connection keeps.
    pub(super) fn enter_mode(&mut self, config: &TcpConfig, mode: Mode, field: u8) {
        match mode {
            Mode::Accurate(_) => self.agree_on_accurate(config, field),
            Mode::Classic | Mode::Off => {
                self.set_accecn(None);
                self.set_ecn(mode == Mode::Classic);
            }
        }
    }

    /// Our SYN asked for accurate ECN, and this is the answer (table 2).
    pub(super) fn accurate_answered(&mut self, config: &TcpConfig, seg: &Segment) {
        let mode = handshake::answered(handshake::bits(seg.flags));
        self.enter_mode(config, mode, seg.ecn);
        let Some(accecn) = self.accecn_mut() else { return };
        accecn.syn_ack_came(seg.ecn);
        accecn.s.first_option(seg.options.accecn.as_ref());
        // Our SYN said that it is not ECN-capable. If it arrived otherwise, somebody on the way changes that (§3.2.2.3).
        if let Mode::Accurate(Some(field)) = mode {
            // Guard: `field != NOT_ECT` as `false` fails accurate::a_syn_that_was_changed
            if field != NOT_ECT {
                accecn.stop_ect();
            }
            if field == CE {
                accecn.handshake_was_marked();
            }
        }
    }

    /// The SYN-ACK is acknowledged alone, before data that waits, because only that tells how it arrived (§3.2.2.1).
    pub(crate) fn tells_of_syn_ack(&self) -> bool {
        self.is_accurate()
    }

    /// The peer's SYN came again before our SYN-ACK was acknowledged. Whether the connection must be reset: a peer may not ask for both kinds
    /// of ECN in one handshake (§3.1.5).
    pub(crate) fn accurate_asked_again(&mut self, core: &mut Core, seg: &Segment) -> bool {
        let told = core.config.ecn.with(self.congestion.algorithm());
        if !told.accepts_accurate() || !self.has(Flags::ECN) {
            return false;
        }
        let mode = handshake::asked(handshake::bits(seg.flags));
        let accurate = self.is_accurate();
        let other = match mode {
            Mode::Off => false,
            Mode::Classic => accurate,
            Mode::Accurate(_) => !accurate,
        };
        if let (false, Some(accecn)) = (other, self.accecn_mut()) {
            accecn.syn_came(seg.ecn);
            if mode == Mode::Off && accecn.stop_ect() {
                core.stats.accecn_stopped += 1;
            }
        }
        other
    }

    /// A SYN-ACK came again, or crossed ours: the next acknowledgement tells how.
    #[cold]
    pub(crate) fn syn_ack_came_again(&mut self, seg: &Segment) {
        if !seg.is(TcpFlags::ACK) || !self.has(Flags::ACTIVE) {
            return;
        }
        if let Some(accecn) = self.accecn_mut().filter(|accecn| accecn.is_agreed()) {
            accecn.syn_ack_came(seg.ecn);
        }
    }

    /// The SYN-ACK of a simultaneous open goes on as an acknowledgement: it has no ACE field, and is counted already (§3.2.2).
    #[cold]
    pub(crate) fn without_feedback(&self, seg: &mut Segment) {
        if let Some(accecn) = self.accecn() {
            seg.ecn = NOT_ECT;
            seg.flags = seg.flags.without(handshake::flags(7)) | handshake::flags(accecn.s.cep as u8);
        }
    }

    /// The acknowledgement of our SYN-ACK, which tells how that arrived if it is bare (table 4).
    #[cold]
    pub(crate) fn syn_ack_acknowledged(&mut self, core: &mut Core, seg: &Segment) {
        let bare = seg.len == 0 && seg.options.sack.is_empty() && !self.has(Flags::ACTIVE);
        let stamp = seg.options.timestamps.filter(|_| self.has(Flags::TIMESTAMPS)).map(|ts| ts.value);
        let Some(accecn) = self.accecn_mut() else { return };
        if let Some(stamp) = stamp {
            accecn.s.is_newer(stamp);
        }
        accecn.s.first_option(seg.options.accecn.as_ref());
        if !bare {
            return;
        }
        let told = handshake::told(handshake::bits(seg.flags));
        if accecn.s.handshake(told, CE) {
            accecn.handshake_was_marked();
        }
        // Our SYN-ACK said that it is not ECN-capable.
        // Guard: `!matches!(told, Told::Nothing | Told::Field(NOT_ECT))` as `false` fails
        // accurate::a_syn_ack_that_was_changed accurate::a_server_that_is_told_nothing
        if !matches!(told, Told::Nothing | Told::Field(NOT_ECT)) && accecn.stop_ect() {
            core.stats.accecn_stopped += 1;
        }
    }

    /// The handshake is over: how it began, and whether its segments were marked.
    #[cold]
    pub(crate) fn accurate_established(&self, core: &mut Core) -> bool {
        let Some(accecn) = self.accecn() else { return false };
        core.stats.accecn_handshakes += 1;
        accecn.is_handshake_marked()
    }

    /// A segment was acceptable: its marks are counted, before anything of its payload is cut off.
    #[cold]
    pub(crate) fn count_received_marks(&mut self, seg: &Segment) {
        let owed = self.rcv.nxt() != self.rcv.last_ack_sent();
        let old = seg.end() <= self.rcv.nxt();
        let Some(accecn) = self.accecn_mut().filter(|accecn| accecn.is_agreed()) else { return };
        if seg.len > 0 {
            accecn.r.payload(old);
        }
        let now = accecn.r.packets(seg.ecn, seg.merged, seg.len, owed);
        accecn.put_ack_due(now);
    }

    /// Whether what came has to be acknowledged now for its marks.
    pub(super) fn takes_due_ack(&mut self) -> bool {
        self.accecn_mut().is_some_and(AccEcn::take_ack_due)
    }

    /// What an acknowledgement feeds back, which newly acknowledges so many packets; whether the window is to be reduced.
    #[cold]
    pub(super) fn accurate_echo(&mut self, core: &mut Core, seg: &Segment, packets: u32, bytes: u32) -> bool {
        let stamp = seg.options.timestamps.filter(|_| self.has(Flags::TIMESTAMPS)).map(|ts| ts.value);
        let Some(accecn) = self.accecn_mut() else { return false };
        let newer = stamp.is_some_and(|stamp| accecn.s.is_newer(stamp));
        // Appendix A.1: one that acknowledges nothing new and is not newer may be overtaken.
        // Guard: `bytes == 0 && !newer` as `false` fails accurate::what_is_superseded
        if seg.ack < self.snd.una() || bytes == 0 && !newer {
            return false;
        }
        let mss = self.effective_mss();
        let Some(accecn) = self.accecn_mut() else { return false };
        let mss = accecn.s.largest(mss);
        let said = Feedback {
            ace: handshake::bits(seg.flags),
            option: seg.options.accecn.as_ref(),
            packets: packets.max(bytes.div_ceil(mss.max(1))),
            bytes,
            mss,
        };
        core.stats.accecn_options_received += u64::from(said.option.is_some());
        let news = accecn.s.take(&said);
        core.stats.accecn_marks += u64::from(news.marked);
        if news.stop && accecn.stop_ect() {
            core.stats.accecn_stopped += 1;
        }
        match self.model_mut() {
            None => news.marked > 0,
            // It does not respond to marks.
            Some(Model::Bbr(_)) => false,
            // It responds to each, on its own.
            Some(Model::Prague(prague)) => {
                prague.on_feedback(said.packets, bytes, news.marked);
                false
            }
        }
    }

    /// Flags and option of a segment that goes out; `new`: with new data, `room`: bytes for the option.
    #[cold]
    pub(super) fn accurate_feedback(
        &mut self,
        core: &mut Core,
        now: Time,
        (options, room): (&mut TcpOptions, Option<usize>),
        bare: bool,
    ) -> TcpFlags {
        let (now, srtt) = (now.as_millis() as u32, self.rtt.srtt());
        let Some(accecn) = self.accecn_mut() else { return TcpFlags::NONE };
        if let Some(room) = room.filter(|_| accecn.r.wants_option(now, srtt)) {
            let least = accecn.r.least_room();
            let spare = |options: &TcpOptions| MAX_LEN.saturating_sub(options.len()).min(room);
            // Blocks beyond the second make room for what has changed (§3.2.3.3).
            let blocks = options.sack;
            while spare(options) < least && options.sack.as_slice().len() > BLOCKS {
                options.sack.pop();
            }
            options.accecn = accecn.r.option(spare(options));
            if options.accecn.is_none() {
                options.sack = blocks;
            }
        }
        accecn.r.told(options.accecn.is_some(), now);
        core.stats.accecn_options_sent += u64::from(options.accecn.is_some());
        handshake::flags(accecn.ace(bare && options.sack.is_empty()))
    }

    /// Payload bytes that the next segment of new data leaves to the option.
    #[cold]
    pub(super) fn room_for_option(&self, now: Time) -> u32 {
        let wanted = self
            .accecn()
            .is_some_and(|accecn| accecn.r.wants_option(now.as_millis() as u32, self.rtt.srtt()));
        if wanted { AccEcnOption::len_of(3) as u32 } else { 0 }
    }

    /// Whether a link may cut a batch of segments: it says CWR in the first of them only, which here is a bit of ACE.
    #[cold]
    pub(crate) fn may_send_batches(&self) -> bool {
        self.accecn().is_none_or(|accecn| accecn.r.cep & 2 == 0)
    }

    /// The three flags of a SYN-ACK (§3.1.4.2): the answer that tells how the latest SYN arrived; when it was lost twice none, and then nothing
    /// of ours says any more that it may be marked.
    pub(super) fn syn_ack_flags(&mut self) -> TcpFlags {
        let lost_twice = self.retransmits() > 0 && self.state() == State::SynReceived;
        let Some(accecn) = self.accecn_mut() else { return TcpFlags::NONE };
        // Guard: `lost_twice` as `false` fails accurate::syn_acks_fall_back
        if lost_twice {
            accecn.stop_ect();
            return TcpFlags::NONE;
        }
        handshake::flags(handshake::of_field(accecn.syn_field()))
    }
}
