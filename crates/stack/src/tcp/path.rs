//! ICMP errors and the path's MTU.
//!
//! RFC 5927 (an ICMP error counts only if it quotes a sequence number that is in flight), RFC 1191 and RFC 8201 (packet too
//! big), RFC 1122 §4.2.3.9 (which errors are hard), RFC 4821 §7.7 and RFC 2923 (black holes).

use crate::packet::{Cx, IcmpErrorKind};
use crate::tcp::Seq;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::sizes::header_len;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::error::Failure;
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::time::Time;

/// No path is believed to be narrower: IPv4 (Linux's and RFC 1191's practical bound) and IPv6 (RFC 8200 §5).
const MIN_MTU_V4: u16 = 552;
const MIN_MTU_V6: u16 = 1280;

/// RFC 1191 §7.1: what a router that does not tell its MTU may have.
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 552, 296];

impl Connection {
    /// An ICMP error that quotes one of our segments, with sequence number `seq`.
    pub(crate) fn icmp_error(&mut self, core: &mut Core, cx: &mut Cx<'_>, seq: Seq, kind: IcmpErrorKind) {
        // RFC 5927 §4.1: only about what is in flight.
        // Guard: `self.snd.una() <= seq && seq < self.snd.nxt()` as `true` fails
        // icmp::quoted_numbers_must_be_in_flight
        let in_flight = self.snd.una() <= seq && seq < self.snd.nxt();
        if !in_flight || self.state() == State::Closed {
            core.stats.icmp_ignored += 1;
            return;
        }
        core.stats.icmp_accepted += 1;
        match kind {
            IcmpErrorKind::PacketTooBig(mtu) => self.packet_too_big(core, cx, mtu),
            _ => self.unreachable(core, cx.now, kind),
        }
    }

    /// RFC 1122 §4.2.3.9 makes some of these hard; RFC 5461 and RFC 5927 §5.2: only while the connection is not yet
    /// established, since nothing proves that the error is true.
    fn unreachable(&mut self, core: &mut Core, now: Time, kind: IcmpErrorKind) {
        let failure = match kind {
            IcmpErrorKind::PortUnreachable | IcmpErrorKind::ProtocolUnreachable => Failure::Refused,
            _ => Failure::Unreachable,
        };
        let hard = failure == Failure::Refused || kind == IcmpErrorKind::Prohibited;
        // RFC 5461 §4.1: a handshake of the peer's that nobody has accepted yet may go, as it does in Linux; it can try again.
        // Guard: `self.state() == State::SynReceived` as `false` fails fast_open::unreachable_peers
        let embryo = self.state() == State::SynReceived
            && !self.has(Flags::ACTIVE)
            && if self.is_early() { self.has(Flags::IN_ACCEPT_QUEUE) } else { !hard };
        // Guard: `self.state() == State::SynSent` as `true` fails icmp::unreachable
        if hard && self.state() == State::SynSent || embryo {
            core.stats.bad_attempts += 1;
            let end = match failure {
                _ if embryo => FlowEnd::HalfOpen,
                Failure::Refused => FlowEnd::Refused,
                _ => FlowEnd::Unreachable,
            };
            core.kill(self, now, end, Some(failure));
        } else {
            // RFC 1122, MUST-20's "inform the application": reported if the connection times out.
            self.note_soft_failure(failure);
        }
    }

    fn packet_too_big(&mut self, core: &mut Core, cx: &mut Cx<'_>, mtu: u16) {
        let min = if self.is_ipv4() { MIN_MTU_V4 } else { MIN_MTU_V6 };
        let mtu = if mtu == 0 {
            PLATEAUS.into_iter().find(|plateau| *plateau < self.path.mtu()).unwrap_or(min)
        } else {
            mtu
        };
        // Guard: `mtu.max(min)` as `mtu` fails icmp::absurd_and_missing_values
        let mtu = mtu.max(min);
        // Guard: `mtu >= self.path.mtu()` as `false` fails icmp::no_error_widens
        if mtu >= self.path.mtu() {
            return;
        }
        core.stats.pmtu_lowered += 1;
        cx.paths.learn(cx.now, self.remote(), mtu);
        self.narrow(core, cx.now, mtu);
    }

    /// Packets have no more than `mtu` bytes from now on.
    pub(crate) fn narrow(&mut self, core: &mut Core, now: Time, mtu: u16) {
        self.path.set_mtu(mtu);
        self.lower_mss(mtu - header_len(self.local()), now);
        // RFC 8201 §5.4: what was too big is sent again at once; no congestion is implied.
        let mss = self.effective_mss();
        let handshake = self.state() == State::SynSent;
        let headers = header_len(self.local());
        let Some(tx) = self.tx.get_mut() else { return };
        if handshake {
            // Only data makes a SYN too big: it goes without.
            if self.fast.has(Marks::DATA) && !tx.board.is_empty() {
                self.mss.lower_announced(mtu - headers);
                tx.board.mark_lost(0);
                core.stats.mtu_resends += 1;
            }
            return;
        }
        let mut resend = 0;
        for index in 0..tx.board.len() {
            if tx.board.get(index).is_some_and(|sent| sent.len > mss) {
                tx.board.mark_lost(index);
                resend += 1;
            }
        }
        core.stats.mtu_resends += resend;
        self.rearm_rtx(core, now, true);
    }

    /// What the lane has learnt of the path to this host is true for a new connection, too (RFC 1191 §6.3, RFC 8201 §5.2). What we
    /// announce stays: the path back is another.
    #[cold]
    pub(crate) fn heed_known_path(&mut self, cx: &Cx<'_>) {
        let known = cx.paths.get(self.remote());
        let Some(mtu) = known.filter(|mtu| *mtu < self.path.mtu()) else { return };
        self.path.set_mtu(mtu);
        let mss = mtu - header_len(self.local());
        if mss < self.mss.snd() {
            self.lower_mss(mss, cx.now);
        }
    }

    fn lower_mss(&mut self, mss: u16, now: Time) {
        self.mss.lower(mss);
        self.set_mss_lowered(true);
        self.mss_lowered_at((now.as_nanos() / 1_000_000_000) as u32);
    }

    /// After several timeouts of big segments: perhaps a router drops them without a word. Smaller ones are tried, half as
    /// small each time.
    pub(crate) fn suspect_black_hole(&mut self, core: &mut Core, now: Time, len: u32) {
        let min = if self.is_ipv4() { MIN_MTU_V4 } else { MIN_MTU_V6 };
        let min = (min - header_len(self.local())).min(core.config.black_hole_mss);
        let tries = self.timers.backoff().wrapping_sub(core.config.black_hole_retries);
        let due = self.timers.backoff() >= core.config.black_hole_retries && tries % 2 == 0;
        // Guard: `!due` as `false` fails tcp::tests::icmp tcp::tests::loss
        if !due || self.snd.wnd() == 0 || self.mss.snd() <= min || len <= u32::from(min) {
            return;
        }
        core.stats.black_hole_activations += 1;
        let mss = if self.mss.snd() > core.config.black_hole_mss {
            core.config.black_hole_mss
        } else {
            self.mss.snd() / 2
        };
        self.lower_mss(mss.max(min), now);
    }

    /// RFC 1191 §6.3, RFC 4821 §7.7: paths change; ten minutes later the old size is tried again.
    pub(crate) fn perhaps_raise_mss(&mut self, core: &mut Core, now: Time) {
        let secs = (now.as_nanos() / 1_000_000_000) as u32;
        if secs.wrapping_sub(self.mss_lowered_secs()) > RAISE_AFTER {
            self.set_mss_lowered(false);
            self.mss.restore(self.path.base());
            let whole = self.path.base() + header_len(self.local());
            self.path.set_mtu(self.path.mtu().max(whole));
            core.stats.mss_raises += 1;
        }
    }
}

/// Seconds.
const RAISE_AFTER: u32 = 600;
