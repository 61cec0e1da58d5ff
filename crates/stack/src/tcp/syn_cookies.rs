//! SYN cookies (RFC 4987 §3.6, Bernstein 1996): handshakes without state on our side.
//!
//! The initial sequence number of the SYN-ACK encodes the state:
//!
//! ```text
//!   31    27 26  24 23                      0
//!   | time  | mss  | keyed hash of everything |
//! ```
//!
//! Time counts periods of 64 seconds. Where the peer sends timestamps, window scale, SACK and ECN are kept in the low six
//! bits of ours, which it echoes; without them those options are not agreed. Accurate ECN needs no memory: the acknowledgement of a SYN-ACK that
//! agreed on it shows a number that no other does (RFC 9768 §5.1).

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::config::TcpConfig;
use crate::tcp::connection::accecn::handshake::{self as flags_of, Mode};
use crate::tcp::connection::{Connection, State};
use crate::tcp::lane::Core;
use crate::tcp::lane::replies::ReplyMeta;
use crate::tcp::segment::Segment;
use crate::tcp::table::{Slab, Tuple};
use crate::tcp::{Seq, ecn, handshake};
use crate::time::Time;
use crate::wire::{TcpFlags, TcpHeader, TcpOptions, Timestamps};
use core::time::Duration;

/// Segment sizes a cookie can remember.
const MSS: [u16; 8] = [536, 1024, 1220, 1300, 1440, 1460, 4312, 8960];
const TAG_COOKIE: u64 = 3;
/// Low bits of our timestamp that carry options.
const BITS: u32 = 6;
const NO_SCALE: u32 = 15;

fn period(now: Time) -> u32 {
    (now.as_nanos() / 64_000_000_000) as u32 & 31
}

impl Core {
    fn cookie_hash(&self, tuple: &Tuple, irs: Seq, top: u32) -> u32 {
        let more = TAG_COOKIE | u64::from(top) << 8;
        tuple.keyed_with(&self.keyed, irs.0, more, 2) as u32 & 0x00ff_ffff
    }

    /// Answers a SYN without remembering it.
    pub(crate) fn send_cookie(&mut self, cx: &mut Cx<'_>, slot: u32, tuple: &Tuple, seg: &Segment) {
        let default = if tuple.local.is_ipv4() { 536 } else { 1220 };
        let peer = seg.options.mss.unwrap_or(default);
        let index = MSS.iter().rposition(|mss| *mss <= peer).unwrap_or(0) as u32;
        let top = period(cx.now) << 3 | index;
        let iss = Seq(top << 24 | self.cookie_hash(tuple, seg.seq, top));
        let Some(listener) = self.listeners.slot_mut(slot) else { return };
        listener.sends_cookie(cx.now + Duration::from_secs(128));
        let options = listener.options().socket;
        let with_timestamps = self.config.timestamps && seg.options.timestamps.is_some();
        let scaling = self.config.window_scaling && seg.options.window_scale.is_some() && with_timestamps;
        let sack = self.config.sack && seg.options.sack_permitted && with_timestamps;
        let mode = ecn::mode(ecn::told(&self.config, options.congestion), seg);
        let ecn = mode == Mode::Classic && with_timestamps;
        let bits = if scaling { u32::from(seg.options.window_scale.unwrap_or(0)) } else { NO_SCALE };
        let bits = bits | u32::from(sack) << 4 | u32::from(ecn) << 5;
        let timestamps = seg.options.timestamps.filter(|_| with_timestamps).map(|ts| {
            // The latest clock reading with these low bits that is not in the future.
            let clock = cx.now.as_millis() as u32;
            let mut value = clock & !((1 << BITS) - 1) | bits;
            if value > clock {
                value = value.wrapping_sub(1 << BITS);
            }
            Timestamps { value: value.wrapping_add(self.secrets(tuple).ts_offset), echo: ts.value }
        });
        let mss = handshake::local_mss(tuple.local, seg.mtu, &options);
        let limit = options.recv_buffer.unwrap_or(self.config.recv_buffer.initial);
        let payload = u32::from(mss) - if timestamps.is_some() { 12 } else { 0 };
        let window = handshake::first_window(limit.min(self.may_promise_first(cx, payload)), payload);
        let mut answer = TcpOptions {
            mss: Some(mss),
            window_scale: scaling.then(|| handshake::window_scale(&self.config, &options)),
            sack_permitted: sack,
            timestamps,
            ..TcpOptions::default()
        };
        let mut flags = TcpFlags::SYN | TcpFlags::ACK;
        if ecn {
            flags |= TcpFlags::ECE;
        } else if let Mode::Accurate(_) = mode {
            flags |= flags_of::flags(flags_of::of_field(seg.ecn));
            answer.accecn = ecn::syn_ack_option(&self.config, &answer);
        }
        let header = TcpHeader {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq: iss,
            ack: seg.seq + 1,
            flags,
            window: window as u16,
            urgent: 0,
        };
        self.stats.cookies_sent += 1;
        self.stats.control_sent += 1;
        let meta = ReplyMeta { hash: seg.hash, hash_type: seg.hash_type, tos: 0 };
        self.reply(cx, tuple, &header, &answer, meta);
    }

    /// An acknowledgement for no known handshake: is it the answer to a cookie?
    pub(crate) fn cookie_input(
        &mut self,
        cx: &mut Cx<'_>,
        slot: u32,
        (tuple, hash): (&Tuple, u32),
        seg: &Segment,
        connections: &mut Slab<Connection>,
    ) -> Option<u32> {
        let listener = self.listeners.slot_mut(slot)?;
        // Guard: `!listener.honours_cookies(cx.now)` as `false` fails cookies::who_sends_no_cookies
        if !listener.honours_cookies(cx.now) || seg.is(TcpFlags::RST | TcpFlags::SYN) {
            return None;
        }
        let options = listener.options().socket;
        let room = !listener.is_full();
        let (iss, irs) = (seg.ack - 1, seg.seq - 1);
        let top = iss.0 >> 24;
        let age = period(cx.now).wrapping_sub(top >> 3) & 31;
        // Guard: `age > 1` as `false` fails guards::an_old_cookie_is_none
        // Guard: `iss.0 & 0x00ff_ffff != self.cookie_hash(tuple, irs, top)` as `false` fails
        // cookies::guesses_fail
        if age > 1 || iss.0 & 0x00ff_ffff != self.cookie_hash(tuple, irs, top) {
            self.stats.cookies_bad += 1;
            return None;
        }
        if !self.may_connect() {
            self.stats.drop(DropReason::LaneMemory);
            return None;
        }
        // Guard: `!room` as `false` fails cookies::a_full_accept_queue
        // Guard: `connections.len() >= self.config.max_connections` as `false` fails listen::connections_of_a_lane
        if !room || connections.len() >= self.config.max_connections {
            self.stats.listen_overflows += 1;
            return None;
        }
        self.stats.cookies_received += 1;
        let secrets = self.secrets(tuple);
        let c = handshake::connection(
            self,
            connections,
            (*tuple, hash),
            State::SynReceived,
            (iss, secrets.ts_offset),
            seg.mtu,
            &options,
        );
        c.came_from(slot);
        let (asked, ecn) = remembered(&self.config, seg, c.stamps.offset(), MSS[(top & 7) as usize]);
        let syn = Segment {
            seq: irs,
            ack: Seq(0),
            flags: TcpFlags::SYN,
            window: 0,
            options: asked,
            len: 0,
            merged: 1,
            largest: 0,
            header: 20,
            urgent: 0,
            ecn: 0,
            frame: None,
            hash: seg.hash,
            hash_type: seg.hash_type,
            mtu: seg.mtu,
        };
        c.take_peer_syn(self, cx, &syn);
        // Guard: `flags_of::bits(seg.flags) > 1` as `true` fails cookies::accurate_ecn
        let told = ecn::told(&self.config, options.congestion);
        let accurate = told.accepts_accurate() && flags_of::bits(seg.flags) > 1;
        let mode = match ecn {
            true => Mode::Classic,
            false if accurate => Mode::Accurate(None),
            false => Mode::Off,
        };
        c.agree_on_ecn(&self.config, mode, &syn);
        c.set_flow_hash(seg.hash, seg.hash_type);
        Some(c.id().slot)
    }
}

/// The options of the SYN, from the segment size in the cookie and the bits in the echoed timestamp.
fn remembered(config: &TcpConfig, seg: &Segment, ts_offset: u32, mss: u16) -> (TcpOptions, bool) {
    let mut options = TcpOptions { mss: Some(mss), ..TcpOptions::default() };
    let mut ecn = false;
    if let (true, Some(ts)) = (config.timestamps, seg.options.timestamps) {
        let bits = ts.echo.wrapping_sub(ts_offset) & ((1 << BITS) - 1);
        options.timestamps = Some(ts);
        options.window_scale = (bits & 15 != NO_SCALE).then_some((bits & 15) as u8);
        options.sack_permitted = bits & 16 != 0;
        ecn = bits & 32 != 0;
    }
    (options, ecn)
}
