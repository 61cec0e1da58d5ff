//! Handshake code common to active and passive openers: the first state of a connection, what the SYNs say, and that it is established.

use crate::packet::Cx;
use crate::tcp::config::{SocketOptions, TcpConfig};
use crate::tcp::connection::ack_policy::AckPolicy;
use crate::tcp::connection::congestion::Congestion;
use crate::tcp::connection::deadlines::Deadlines;
use crate::tcp::connection::flight::Flight;
use crate::tcp::connection::rtt::Rtt;
use crate::tcp::connection::scoreboard::{AckClock, Delivered};
use crate::tcp::connection::sequence::{RecvSpace, SendSpace, Stamps, WindowScale};
use crate::tcp::connection::sizes::{KnownPath, MIN_MSS, SegmentSizes, header_len};
use crate::tcp::connection::{Connection, Flags, Pieces, State};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::tcp::table::{Slab, Tuple};
use crate::tcp::{Seq, ecn};
use core::net::IpAddr;

/// RFC 7323 §2.2, §2.3: the least shift that can show the greatest receive buffer; a size that was asked for stays.
pub(crate) fn window_scale(config: &TcpConfig, options: &SocketOptions) -> u8 {
    let max = options.recv_buffer.unwrap_or(config.recv_buffer.max);
    max.div_ceil(0xffff).next_power_of_two().trailing_zeros().min(14) as u8
}

/// The window of a SYN, which is never scaled (RFC 7323 §2.2): whole segments of the receive buffer.
pub(crate) fn first_window(limit: u32, mss: u32) -> u32 {
    let whole = limit - limit % mss.max(1);
    if whole > 0 { whole.min(0xffff) } else { limit }
}

/// RFC 9293 §3.7.1, MUST-14, MUST-16, MUST-67: the segment size announced; options not subtracted (RFC 6691).
pub(crate) fn local_mss(local: IpAddr, mtu: u16, options: &SocketOptions) -> u16 {
    let mss = mtu.saturating_sub(header_len(local)).max(MIN_MSS);
    // Guard: `mss.min(max.max(MIN_MSS))` as `mss` fails tcp::tests::options
    options.max_segment.map_or(mss, |max| mss.min(max.max(MIN_MSS)))
}

/// A connection that has sent and received nothing, in its first state. It stands in the slab, and not yet in the table, where `hash` will
/// be its key.
pub(crate) fn connection<'c>(
    core: &mut Core,
    connections: &'c mut Slab<Connection>,
    (tuple, hash): (Tuple, u32),
    state: State,
    (iss, ts_offset): (Seq, u32),
    mtu: u16,
    options: &SocketOptions,
) -> &'c mut Connection {
    let config = &core.config;
    let mss = local_mss(tuple.local, mtu, options);
    let mut flags = Flags::SYN_OUT | ecn::offer(ecn::told(config, options.congestion));
    for (on, flag) in [
        (config.timestamps, Flags::TIMESTAMPS),
        (config.sack, Flags::SACK),
        (config.window_scaling, Flags::SCALING),
    ] {
        if on {
            flags = flags | flag;
        }
    }
    let mut congestion = Congestion::for_config(config, options.congestion, u32::from(mss));
    congestion.start(u32::from(mss), config.initial_window, false);
    let scale = if config.window_scaling { window_scale(config, options) } else { 0 };
    let pieces = Pieces {
        timers: Deadlines::new(),
        acks: AckPolicy::new(mss.min(536)),
        rcv: RecvSpace::new(config.recv_buffer.initial.min(core.most_buffer())),
        snd: SendSpace::new(iss, config.send_buffer.initial),
        stamps: Stamps::new(ts_offset),
        scale: WindowScale::new(scale),
        mss: SegmentSizes::new(mss),
        path: KnownPath::new(mtu, mss),
        rtt: Rtt::new(core.timeouts),
        congestion,
        tx: core.flight(),
    };
    core.states.begun(state);
    let c = connections.insert_with(|id| Connection::new(id, tuple, hash, state, flags, pieces));
    c.apply(options);
    c
}

impl Connection {
    /// The window of our own SYN, as far as the lane has memory. An answer knows whether timestamps will take their share of each segment.
    pub(crate) fn first_window(&self, core: &Core, cx: &Cx<'_>) -> u32 {
        let known = !self.has(Flags::ACTIVE) && self.has(Flags::TIMESTAMPS);
        let limit = self.rcv.limit().min(core.may_promise(self, cx));
        first_window(limit, u32::from(self.mss.rcv()) - if known { 12 } else { 0 })
    }

    /// What the peer's SYN says: sequence number and options.
    pub(crate) fn take_peer_syn(&mut self, core: &Core, cx: &Cx<'_>, seg: &Segment) {
        self.heard(cx.now);
        self.rcv.peer_begins(seg.seq);
        self.snd.peer_begins(seg.seq);
        // RFC 9293 §3.7.1, MUST-15: 536 (IPv4) or 1220 (IPv6) if the peer does not say.
        // Guard: `self.is_ipv4()` as `false` fails handshake::a_plain_peer
        let default = if self.is_ipv4() { 536 } else { 1220 };
        // Guard: `.max(MIN_MSS)` as `.max(1)` fails tcp::tests::options
        let peer = seg.options.mss.filter(|mss| *mss > 0).unwrap_or(default).max(MIN_MSS);
        self.mss.lower(peer);
        self.path.agree(self.mss.snd());
        self.acks.expect(self.mss.snd().min(default));
        // RFC 7323 §2.2: scaling only if both say so.
        match seg.options.window_scale {
            // Guard: `self.has(Flags::SCALING)` as `true` fails handshake::a_scale_that_nobody_asked_for
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
    pub(crate) fn syn_acknowledged(&mut self, core: &mut Core, cx: &Cx<'_>) {
        // The SYN alone: data in it, or sent before the handshake was over, is acknowledged as any other.
        self.snd.acknowledged(self.data_seq());
        self.syn_was_acknowledged();
        if let Some(tx) = self.tx.take() {
            if let Some(syn) = tx.only_syn() {
                self.sample_rtt(core, cx.now.micros_since(syn.at), cx.now);
                core.give_flight(tx);
            } else {
                self.syn_of_more_acknowledged(core, cx, tx);
            }
        }
        self.timers.stop_rtx();
    }

    /// The same of a SYN that was sent again, or behind which there is more.
    #[inline(never)]
    fn syn_of_more_acknowledged(&mut self, core: &mut Core, cx: &Cx<'_>, mut tx: Box<Flight>) {
        let clock = AckClock { now: cx.now, min_rtt_us: 0, echo: None, ts_offset: self.stamps.offset() };
        let mut delivered = Delivered::default();
        tx.board.acknowledge(self.snd.una(), &clock, &mut delivered);
        if let Some(at) = delivered.rtt_from {
            self.sample_rtt(core, cx.now.micros_since(at), cx.now);
        } else if self.has(Flags::SYN_LOST) {
            self.rtt.syn_was_lost();
        }
        if tx.data.is_empty() && tx.board.is_empty() {
            core.give_flight(tx);
        } else {
            self.tx.put_back(tx);
        }
    }

    /// The connection is up (RFC 9293 §3.10.7.4, fifth step, SYN-RECEIVED; §3.10.7.3, fourth step).
    pub(crate) fn establish(&mut self, core: &mut Core, cx: &Cx<'_>) {
        self.enter(&mut core.states, State::Established);
        self.count_as_established();
        core.count_established();
        let mut lost = false;
        if self.uses_ecn() {
            core.stats.ecn_handshakes += 1;
            // A mark on the first segment counts as its loss (RFC 9768 §3.2.2.2, RFC 5562 §3).
            lost = self.accurate_established(core);
        }
        // Guard: `self.retransmits() > 1` as `self.retransmits() > 0` fails
        // handshake::one_segment_after_two_lost_syns
        lost |= self.retransmits() > 1;
        if !cx.paths.is_empty() {
            self.heed_known_path(cx);
        }
        let mss = self.effective_mss();
        self.congestion.start(mss, core.config.initial_window, lost);
        self.timers.forget_backoff();
        self.acks.begin();
        self.snd.sent_at((cx.now.as_millis() as u32).max(1));
        self.heard(cx.now);
        self.timers.stop_ack();
        self.arm_keepalive(cx.now);
        self.fit_model(core, cx.now);
        self.wake_write();
    }
}
