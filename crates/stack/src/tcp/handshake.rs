//! The beginning of a connection: what both openers have in common.

use super::Seq;
use super::config::{Ecn, SocketOptions, TcpConfig};
use super::congestion::Congestion;
use super::connection::{Connection, Flags, Lists, NEVER, RtxTimer, State};
use super::flight::Reordering;
use super::input::MIN_MSS;
use super::lane::Core;
use super::rtt::Rtt;
use super::table::{ConnId, Tuple};
use crate::packet::Cx;
use crate::time::Time;
use core::net::IpAddr;

/// Bytes of IP and TCP header without options.
pub(crate) fn header_len(local: IpAddr) -> u16 {
    if local.is_ipv4() { 40 } else { 60 }
}

/// RFC 7323 §2.2, §2.3: the least shift that can show the greatest receive buffer; a size that was asked for stays.
pub(crate) fn window_scale(config: &TcpConfig, options: &SocketOptions) -> u8 {
    let max = options.recv_buffer.unwrap_or(config.recv_buffer.max);
    (0..14).find(|shift| 0xffff_u32 << shift >= max).unwrap_or(14)
}

/// The window of a SYN, which is never scaled (RFC 7323 §2.2): whole segments of the receive buffer.
pub(crate) fn first_window(limit: u32, mss: u32) -> u32 {
    let whole = limit - limit % mss.max(1);
    if whole > 0 { whole.min(0xffff) } else { limit }
}

impl Connection {
    /// That of our own SYN, as far as the lane has memory. An answer knows whether timestamps will take their share of each segment.
    pub(crate) fn first_window(&self, core: &Core, cx: &Cx<'_>) -> u32 {
        let known = !self.has(Flags::ACTIVE) && self.has(Flags::TIMESTAMPS);
        let limit = self.recv_limit.min(core.may_promise(self, cx));
        first_window(limit, u32::from(self.rcv_mss) - if known { 12 } else { 0 })
    }
}

/// RFC 9293 §3.7.1, MUST-14, MUST-16, MUST-67: the segment size announced; options not subtracted (RFC 6691).
pub(crate) fn local_mss(local: IpAddr, mtu: u16, options: &SocketOptions) -> u16 {
    let mss = mtu.saturating_sub(header_len(local)).max(MIN_MSS);
    options.max_segment.map_or(mss, |max| mss.min(max.max(MIN_MSS)))
}

/// A connection that has sent and received nothing.
pub(crate) fn connection(
    core: &mut Core,
    tuple: Tuple,
    (iss, ts_offset): (Seq, u32),
    mtu: u16,
    options: &SocketOptions,
) -> Connection {
    let config = &core.config;
    let mss = local_mss(tuple.local, mtu, options);
    let mut flags = Flags::SYN_OUT;
    for (on, flag) in [
        (config.timestamps, Flags::TIMESTAMPS),
        (config.sack, Flags::SACK),
        (config.window_scaling, Flags::SCALING),
        (config.ecn == Ecn::Request, Flags::ECN_OFFERED),
    ] {
        if on {
            flags = flags | flag;
        }
    }
    let mut congestion = Congestion::for_config(config, options.congestion, u32::from(mss));
    congestion.start(u32::from(mss), config.initial_window, false);
    let mut c = Connection {
        tuple,
        state: State::Closed,
        rtx_kind: RtxTimer::Rto,
        id: ConnId::NOBODY,
        flags,
        rcv_nxt: Seq(0),
        rcv_adv: Seq(0),
        last_ack_sent: Seq(0),
        snd_una: iss,
        snd_nxt: iss + 1,
        snd_wnd: 0,
        snd_wl1: Seq(0),
        snd_wl2: iss,
        max_snd_wnd: 0,
        snd_sml: iss + 1,
        push_seq: iss + 1,
        ts_recent: 0,
        ts_offset,
        snd_scale: 0,
        rcv_scale: if config.window_scaling { window_scale(config, options) } else { 0 },
        backoff: 0,
        quick_acks: 0,
        unanswered: false,
        tos: 0,
        hash_type: 0,
        probes: 0,
        snd_mss: mss,
        rcv_mss: mss,
        seen_mss: mss.min(536),
        base_mss: mss,
        pmtu: mtu,
        hash: 0,
        table_hash: core.table.hash(&tuple),
        recv_limit: config.recv_buffer.initial.min(core.most_buffer()),
        send_limit: config.send_buffer.initial,
        rtx_at: NEVER,
        ack_at: NEVER,
        heard_at: Time::ZERO,
        life_at: NEVER,
        armed_at: NEVER,
        timer: None,
        tx: Some(core.flight()),
        rx: None,
        read_waker: None,
        rtt: Rtt::new(&core.config),
        congestion,
        invalid_ack_ms: 0,
        listener: u32::MAX,
        sent_ms: 0,
        retransmits: 0,
        reordering: Reordering::default(),
        lists: Lists::default(),
        recv_copied: 0,
        recv_round_us: 0,
        fast: super::fast_open::Marks::default(),
        failure: None,
        soft_failure: None,
        rare: None,
    };
    c.apply(options);
    c
}
