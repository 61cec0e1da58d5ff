//! A segment in SYN-SENT (RFC 9293 §3.10.7.3).

use super::super::connection::{Connection, Flags, State};
use super::super::fast_open::Marks;
use super::super::lane::{Core, ReplyMeta};
use super::super::scoreboard::{AckClock, Delivered};
use super::super::segment::Segment;
use super::super::table::Tuple;
use super::{Step, Stop};
use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::time::Time;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions};

impl Connection {
    pub(super) fn input_syn_sent(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) -> Step {
        // First: the ACK bit. Only our SYN can have been acknowledged.
        let ack = seg.is(TcpFlags::ACK);
        let ours = seg.ack > self.snd.una() && seg.ack <= self.snd.nxt();
        if ack && !(ours && self.echoes_us(cx.now, seg)) {
            core.stats.acks_for_unsent += u64::from(!ours);
            if !seg.is(TcpFlags::RST) {
                // The reset ends what the peer remembers of an earlier connection; the SYN comes again when its time is over
                // (RFC 6298 §5), since nobody knows who says so.
                refuse_stranger(core, cx, self.tuple(), seg, self.reply_meta());
            }
            return Err(Stop::Drop(DropReason::BadSynAck));
        }
        // Second: RST.
        if seg.is(TcpFlags::RST) {
            if ack {
                core.stats.bad_attempts += 1;
                self.was_reset(core, cx.now);
                return Err(Stop::Done);
            }
            return Err(Stop::Drop(DropReason::ResetNotExact));
        }
        // Fourth: SYN.
        if !seg.is(TcpFlags::SYN) {
            return Err(Stop::Drop(DropReason::NotSyn));
        }
        self.take_peer_syn(core, cx, seg);
        core.flows.peer_begins(self);
        if !ack {
            // Simultaneous open: SYN-ACK with the same sequence number (RFC 9293 §3.5, figure 7).
            self.enter(core, State::SynReceived);
            self.ecn_asked_by_both(seg);
            if let Some(tx) = self.tx.get_mut() {
                if !tx.board.is_empty() {
                    tx.board.mark_lost(0);
                }
            }
            self.keep_for_later(core, cx, seg)?;
            return Err(Stop::Done);
        }
        self.ecn_answered(seg);
        self.syn_acknowledged(core, cx);
        self.snd.first_window(u32::from(seg.window), seg.seq, seg.ack);
        self.establish(core, cx);
        self.fast_open_answered(core, cx, seg);
        if self.has(Flags::FIN_QUEUED) {
            self.enter(core, State::FinWait1);
        }
        if self.fast.has(Marks::REST) {
            // Whoever waits to write goes on with the conversation.
            self.ack_with_data();
            self.timers.delay_ack(cx.now + core.config.delayed_ack);
        } else {
            self.ack_at_once();
        }
        // Payload behind the SYN-ACK's SYN, and a FIN, go on as if they had come alone.
        seg.seq += 1;
        seg.flags = seg.flags.without(TcpFlags::SYN);
        if seg.len == 0 && !seg.is(TcpFlags::FIN) {
            return Err(Stop::Done);
        }
        let data = self.take_data(core, cx, seg);
        self.check_fin(core, cx);
        data
    }

    /// Whether a timestamp that is echoed to our SYN is one that we sent.
    fn echoes_us(&self, now: Time, seg: &Segment) -> bool {
        let (Some(ts), Some(since)) = (seg.options.timestamps, self.waits_since()) else {
            return true;
        };
        let first = self.stamps.clock(since);
        let span = self.stamps.clock(now).wrapping_sub(first);
        !self.has(Flags::TIMESTAMPS) || ts.echo == 0 || ts.echo.wrapping_sub(first) <= span
    }

    /// What the peer's SYN says: sequence number and options.
    pub(crate) fn take_peer_syn(&mut self, core: &Core, cx: &Cx<'_>, seg: &Segment) {
        self.heard(cx.now);
        self.rcv.peer_begins(seg.seq);
        self.snd.peer_begins(seg.seq);
        // RFC 9293 §3.7.1, MUST-15: 536 (IPv4) or 1220 (IPv6) if the peer does not say.
        let default = if self.tuple().local.is_ipv4() { 536 } else { 1220 };
        let peer = seg.options.mss.filter(|mss| *mss > 0).unwrap_or(default).max(MIN_MSS);
        self.mss.lower(peer);
        self.path.agree(self.mss.snd());
        self.acks.expect(self.mss.snd().min(default));
        // RFC 7323 §2.2: scaling only if both say so.
        match seg.options.window_scale {
            Some(shift) if self.has(Flags::SCALING) => self.scale.agree(shift),
            _ => {
                self.without_scaling();
                self.scale.off();
            }
        }
        if !seg.options.sack_permitted {
            self.without_sack();
        }
        match seg.options.timestamps {
            Some(ts) if self.has(Flags::TIMESTAMPS) => {
                self.stamps.take(ts.value);
            }
            _ => self.without_timestamps(),
        }
        self.rcv.advertised(self.rcv.nxt() + self.first_window(core, cx));
        if seg.hash_type != 0 {
            self.set_flow_hash(seg.hash, seg.hash_type);
        }
        let mss = self.effective_mss();
        self.congestion.start(mss, core.config.initial_window, false);
    }

    /// Our SYN or SYN-ACK has been acknowledged: the first round-trip sample.
    pub(super) fn syn_acknowledged(&mut self, core: &mut Core, cx: &Cx<'_>) {
        let clock = AckClock { now: cx.now, min_rtt_us: 0, echo: None, ts_offset: self.stamps.offset() };
        let mut delivered = Delivered::default();
        // The SYN alone: data in it, or sent before the handshake was over, is acknowledged as any other.
        self.snd.acknowledged(self.data_seq());
        self.syn_was_acknowledged();
        if let Some(mut tx) = self.tx.take() {
            tx.board.acknowledge(self.snd.una(), &clock, &mut delivered);
            if let Some(at) = delivered.rtt_from {
                self.sample_rtt(core, cx.now.saturating_duration_since(at), cx.now);
            } else if self.has(Flags::SYN_LOST) {
                self.rtt.syn_was_lost();
            }
            if tx.data.is_empty() && tx.board.is_empty() {
                core.give_flight(tx);
            } else {
                self.tx.put_back(tx);
            }
        }
        self.timers.stop_rtx();
    }
}

/// Smaller segments than this are not agreed to: they would cost more header than data and split the scoreboard to pieces.
pub(crate) const MIN_MSS: u16 = 48;

/// As [`refuse`], for a stranger or who may be one: limited, but for lanes with half-open clients, where resets answer what the lane
/// itself asked for.
pub(crate) fn refuse_stranger(
    core: &mut Core,
    cx: &mut Cx<'_>,
    tuple: &Tuple,
    seg: &Segment,
    meta: ReplyMeta,
) {
    if core.half_open.is_none() && !core.resets.take(cx, core.config.resets_per_second) {
        core.stats.resets_limited += 1;
        return;
    }
    refuse(core, cx, tuple, seg, meta);
}

/// A reset in answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1, and MUST-11's kind).
/// Whether there was room for it.
pub(crate) fn refuse(
    core: &mut Core,
    cx: &mut Cx<'_>,
    tuple: &Tuple,
    seg: &Segment,
    meta: ReplyMeta,
) -> bool {
    let (flags, seq, ack) = if seg.is(TcpFlags::ACK) {
        (TcpFlags::RST, seg.ack, crate::wire::SeqNum(0))
    } else {
        (TcpFlags::RST | TcpFlags::ACK, crate::wire::SeqNum(0), seg.end())
    };
    let header = TcpHeader {
        src_port: tuple.local_port,
        dst_port: tuple.remote_port,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
    };
    core.stats.resets_sent += 1;
    core.stats.control_sent += 1;
    core.reply(cx, tuple, &header, &TcpOptions::default(), meta)
}
