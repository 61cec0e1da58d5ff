//! The beginning of a connection: what both openers have in common.

use super::acks::AckPolicy;
use super::config::{SocketOptions, TcpConfig};
use super::congestion::Congestion;
use super::connection::{Connection, Flags, Pieces, State};
use super::input::MIN_MSS;
use super::lane::Core;
use super::path::{KnownPath, SegmentSizes};
use super::rtt::Rtt;
use super::sequence::{RecvSpace, SendSpace, Stamps, WindowScale};
use super::table::Tuple;
use super::timers::Deadlines;
use super::{Seq, ecn};
use crate::packet::Cx;
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
        let limit = self.rcv.limit().min(core.may_promise(self, cx));
        first_window(limit, u32::from(self.mss.rcv()) - if known { 12 } else { 0 })
    }
}

/// RFC 9293 §3.7.1, MUST-14, MUST-16, MUST-67: the segment size announced; options not subtracted (RFC 6691).
pub(crate) fn local_mss(local: IpAddr, mtu: u16, options: &SocketOptions) -> u16 {
    let mss = mtu.saturating_sub(header_len(local)).max(MIN_MSS);
    options.max_segment.map_or(mss, |max| mss.min(max.max(MIN_MSS)))
}

/// A connection that has sent and received nothing, in its first state.
pub(crate) fn connection(
    core: &mut Core,
    tuple: Tuple,
    state: State,
    (iss, ts_offset): (Seq, u32),
    mtu: u16,
    options: &SocketOptions,
) -> Connection {
    let config = &core.config;
    let mss = local_mss(tuple.local, mtu, options);
    let mut flags = Flags::SYN_OUT | ecn::offer(config.ecn);
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
        rtt: Rtt::new(config),
        congestion,
        tx: core.flight(),
    };
    core.states.begun(state);
    let mut c = Connection::new(tuple, core.table.hash(&tuple), state, flags, pieces);
    c.apply(options);
    c
}
