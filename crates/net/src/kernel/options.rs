//! Options and state of a socket, translated.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use flowlane_stack::tcp::{
    Algorithm, FastOpen, FastOpenListen, Keepalive, LossState, SegmentCounts, SocketOptions, State, TcpInfo,
};
use flowlane_sys::kernel::options::{self as kernel, Number};

use super::slab::{Flags, SocketId};
use super::{KernelLane, errors};
use crate::error::SocketError;

/// Seconds, at least one.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn tos(v4: bool) -> Number {
    if v4 { Number::TOS } else { Number::TRAFFIC_CLASS }
}

fn hop_limit(v4: bool) -> Number {
    if v4 { Number::TTL } else { Number::HOP_LIMIT }
}

/// Sets what differs from the kernel's defaults on a new socket. A listener hands its options on to its connections.
pub(super) fn apply(fd: BorrowedFd<'_>, v4: bool, options: &SocketOptions) -> Result<(), SocketError> {
    change(fd, v4, &SocketOptions::default(), options)
}

/// Has a listener take data in SYNs.
pub(super) fn apply_fast_open(fd: BorrowedFd<'_>, fast_open: &FastOpenListen) -> io::Result<()> {
    if let Some(keys) = fast_open.keys {
        let (primary, former) = keys.bytes();
        kernel::set_fast_open_keys(fd, primary, former)?;
    }
    if fast_open.no_cookie {
        kernel::set(fd, Number::FAST_OPEN_NO_COOKIE, 1)?;
    }
    kernel::set(fd, Number::FAST_OPEN, number(fast_open.pending))
}

/// Sets what differs between `old` and `new`.
fn change(fd: BorrowedFd<'_>, v4: bool, old: &SocketOptions, new: &SocketOptions) -> Result<(), SocketError> {
    if old == new {
        return Ok(());
    }
    let set = |option: Number, value: i32| kernel::set(fd, option, value).map_err(|e| errors::other(&e));
    if new.nodelay != old.nodelay {
        set(Number::NO_DELAY, i32::from(new.nodelay))?;
    }
    // Whether data goes with a SYN at all is said when the connection is opened.
    let no_cookie = |options: &SocketOptions| options.fast_open == FastOpen::NoCookie;
    if no_cookie(new) && !no_cookie(old) {
        set(Number::FAST_OPEN_NO_COOKIE, 1)?;
    }
    if new.cork != old.cork {
        set(Number::CORK, i32::from(new.cork))?;
    }
    if new.keepalive != old.keepalive {
        if let Some(keepalive) = new.keepalive {
            set(Number::KEEPALIVE_IDLE, seconds(keepalive.idle))?;
            set(Number::KEEPALIVE_INTERVAL, seconds(keepalive.interval))?;
            set(Number::KEEPALIVE_PROBES, i32::from(keepalive.probes.max(1)))?;
        }
        set(Number::KEEPALIVE, i32::from(new.keepalive.is_some()))?;
    }
    if new.user_timeout != old.user_timeout {
        let millis = new.user_timeout.map_or(0, |t| t.as_millis());
        set(Number::USER_TIMEOUT, i32::try_from(millis).unwrap_or(i32::MAX))?;
    }
    // A longer time to linger would make closing wait, and a lane does not wait.
    let resets = |options: &SocketOptions| options.linger == Some(Duration::ZERO);
    if resets(new) != resets(old) {
        kernel::set_reset_on_close(fd, resets(new)).map_err(|e| errors::other(&e))?;
    }
    if let Some(linger2) = new.linger2.filter(|_| new.linger2 != old.linger2) {
        set(Number::LINGER2, seconds(linger2))?;
    }
    if new.tos != old.tos {
        set(tos(v4), i32::from(new.tos) << 2)?;
    }
    if new.hop_limit != old.hop_limit {
        set(hop_limit(v4), new.hop_limit.map_or(-1, |hops| i32::from(hops.max(1))))?;
    }
    // The kernel doubles what it is told, to have room for its own.
    if let Some(bytes) = new.recv_buffer.filter(|_| new.recv_buffer != old.recv_buffer) {
        set(Number::RECEIVE_BUFFER, number(bytes / 2))?;
    }
    if let Some(bytes) = new.send_buffer.filter(|_| new.send_buffer != old.send_buffer) {
        set(Number::SEND_BUFFER, number(bytes / 2))?;
    }
    if let Some(segment) = new.max_segment.filter(|_| new.max_segment != old.max_segment) {
        set(Number::MAX_SEGMENT, i32::from(segment))?;
    }
    if let Some(retries) = new.syn_retries.filter(|_| new.syn_retries != old.syn_retries) {
        set(Number::SYN_RETRIES, i32::from(retries))?;
    }
    if let Some(algorithm) = new.congestion.filter(|_| new.congestion != old.congestion) {
        let name = if algorithm == Algorithm::NewReno { "reno" } else { algorithm.name() };
        kernel::set_congestion(fd, name).map_err(|e| errors::other(&e))?;
    }
    Ok(())
}

fn read(fd: BorrowedFd<'_>, v4: bool) -> Result<SocketOptions, SocketError> {
    let get = |option: Number| kernel::get(fd, option).map_err(|e| errors::other(&e));
    let length = |seconds: i32| Duration::from_secs(u64::from(seconds.unsigned_abs()));
    let keepalive = if get(Number::KEEPALIVE)? == 0 {
        None
    } else {
        Some(Keepalive {
            idle: length(get(Number::KEEPALIVE_IDLE)?),
            interval: length(get(Number::KEEPALIVE_INTERVAL)?),
            probes: u8::try_from(get(Number::KEEPALIVE_PROBES)?).unwrap_or(u8::MAX),
        })
    };
    let millis = get(Number::USER_TIMEOUT)?;
    let linger = kernel::reset_on_close(fd).map_err(|e| errors::other(&e))?;
    Ok(SocketOptions {
        nodelay: get(Number::NO_DELAY)? != 0,
        // Of one call, which is over.
        fast_open: FastOpen::Off,
        cork: get(Number::CORK)? != 0,
        keepalive,
        user_timeout: (millis > 0).then(|| Duration::from_millis(u64::from(millis.unsigned_abs()))),
        linger: linger.then_some(Duration::ZERO),
        linger2: Some(length(get(Number::LINGER2)?)),
        tos: (get(tos(v4))? >> 2) as u8,
        hop_limit: u8::try_from(get(hop_limit(v4))?).ok(),
        recv_buffer: Some(get(Number::RECEIVE_BUFFER)?.unsigned_abs()),
        send_buffer: Some(get(Number::SEND_BUFFER)?.unsigned_abs()),
        syn_retries: u8::try_from(get(Number::SYN_RETRIES)?).ok(),
        max_segment: u16::try_from(get(Number::MAX_SEGMENT)?).ok(),
        congestion: congestion(fd).map_err(|e| errors::other(&e))?,
    })
}

/// The congestion control of a connection; `None` if our own stack does not have it.
pub(super) fn congestion(fd: BorrowedFd<'_>) -> io::Result<Option<Algorithm>> {
    let name = kernel::congestion(fd)?;
    let is = |algorithm: &Algorithm| {
        algorithm.name() == name || *algorithm == Algorithm::NewReno && name == "reno"
    };
    Ok(Algorithm::ALL.into_iter().find(is))
}

impl KernelLane {
    /// The options as they stand, those the kernel chose included.
    pub(crate) fn options(&self, id: SocketId) -> Result<SocketOptions, SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        read(socket.fd(), socket.flags.has(Flags::V4))
    }

    /// Sets what differs.
    pub(crate) fn set_options(&mut self, id: SocketId, options: &SocketOptions) -> Result<(), SocketError> {
        let old = self.options(id)?;
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        change(socket.fd(), socket.flags.has(Flags::V4), &old, options)
    }

    /// One option that is often set, by one system call.
    pub(crate) fn set_nodelay(&mut self, id: SocketId, nodelay: bool) -> Result<(), SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        kernel::set(socket.fd(), Number::NO_DELAY, i32::from(nodelay)).map_err(|e| errors::other(&e))
    }

    /// A look at a connection.
    pub(crate) fn info(&self, id: SocketId, remote: SocketAddr) -> Result<TcpInfo, SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        let k = kernel::tcp_info(socket.fd()).map_err(|e| errors::other(&e))?;
        let us = |us: u32| Duration::from_micros(u64::from(us));
        let short = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let mut info = TcpInfo::new(state(k.state), self.local_address(id)?, remote);
        info.rtt = (k.rtt > 0).then(|| us(k.rtt));
        info.rtt_var = us(k.rtt_var);
        info.min_rtt = (k.min_rtt > 0 && k.min_rtt != u32::MAX).then(|| us(k.min_rtt));
        info.rto = us(k.rto);
        info.backoff = k.backoff;
        info.congestion = congestion(socket.fd()).ok().flatten();
        // The kernel counts segments.
        let bytes = |segments: u32| segments.saturating_mul(k.snd_mss);
        info.cwnd = bytes(k.cwnd);
        info.ssthresh = bytes(k.ssthresh);
        info.outstanding = bytes(k.unacked);
        info.in_flight = bytes((k.unacked + k.retrans).saturating_sub(k.sacked + k.lost));
        info.sacked = bytes(k.sacked);
        info.lost = bytes(k.lost);
        info.recovering = k.ca_state >= 3;
        info.loss_state = loss_state(k.ca_state);
        info.segments = SegmentCounts {
            outstanding: k.unacked,
            sacked: k.sacked,
            lost: k.lost,
            retransmitted: k.retrans,
        };
        info.probes = k.probes;
        info.effective_mss = short(k.snd_mss);
        info.seen_mss = short(k.rcv_mss);
        info.snd_wnd = k.snd_wnd;
        info.snd_mss = short(k.snd_mss);
        info.rcv_mss = short(k.rcv_mss);
        info.pmtu = short(k.pmtu);
        info.retransmits = k.total_retrans;
        info.unsent = k.not_sent;
        info.unacknowledged = info.outstanding.saturating_add(k.not_sent);
        info.recv_buffer = k.rcv_space;
        let agreed = |bit: u8| k.options & bit != 0;
        info.timestamps = agreed(1);
        info.sack = agreed(2);
        info.window_scale = agreed(4).then_some((k.scales.1, k.scales.0));
        info.ecn = agreed(8);
        info.syn_data = agreed(32);
        Ok(info)
    }
}

/// What a sender does about losses by the kernel's number (`linux/tcp.h`, `enum tcp_ca_state`).
fn loss_state(number: u8) -> LossState {
    match number {
        0 => LossState::Open,
        1 => LossState::Disorder,
        2 => LossState::Reduced,
        3 => LossState::Recovery,
        _ => LossState::Loss,
    }
}

/// A state by the kernel's number (`linux/tcp_states.h`).
pub(super) fn state(number: u8) -> State {
    match number {
        1 => State::Established,
        2 => State::SynSent,
        3 | 12 => State::SynReceived,
        4 => State::FinWait1,
        5 => State::FinWait2,
        6 => State::TimeWait,
        8 => State::CloseWait,
        9 => State::LastAck,
        11 => State::Closing,
        _ => State::Closed,
    }
}
