//! `TCP_INFO`: a lane's view of a connection in the layout of `linux/tcp.h`.
//!
//! packetdrill's code blocks look at some of it; what a lane does not keep stays zero.

use flowlane_stack::tcp::{LossState, State, TcpInfo};
use flowlane_stack::time::Time;

use crate::counts::Counts;
use crate::queue::Queue;

/// Bytes; longer than any that packetdrill knows, so that it always fills what it is given.
const LEN: usize = 320;

/// Linux's number of a state (`net/tcp_states.h`). A socket in TIME-WAIT has given its connection away and is closed.
pub(crate) fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait | State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// `TCP_LISTEN`.
const LISTEN: u8 = 10;

/// What a listener says: how many wait and how many may.
pub(crate) fn listener(waiting: u32, backlog: u32) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = LISTEN;
    put(&mut bytes, UNACKED, waiting);
    put(&mut bytes, SACKED, backlog);
    bytes
}

const UNACKED: usize = 24;
const SACKED: usize = 28;

/// What a socket says that is no connection yet.
pub(crate) fn idle() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = state_number(State::Closed);
    put(&mut bytes, 76, i32::MAX as u32);
    put(&mut bytes, 80, 10);
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_long(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

/// What a connection says.
pub(crate) fn connection(info: &TcpInfo, queue: &Queue, counts: &Counts, now: Time) -> Vec<u8> {
    let chrono = &queue.chrono;
    let mut bytes = vec![0; LEN];
    let micros = |d: core::time::Duration| d.as_micros().min(u128::from(u32::MAX)) as u32;
    bytes[0] = state_number(info.state);
    bytes[1] = match info.loss_state {
        LossState::Open => 0,
        LossState::Disorder => 1,
        LossState::Reduced => 2,
        LossState::Recovery => 3,
        _ => 4,
    };
    bytes[2] = info.backoff;
    bytes[3] = info.probes;
    bytes[4] = info.backoff;
    bytes[5] = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.window_scale.is_some()) << 2
        | u8::from(info.ecn) << 3
        | u8::from(info.syn_data) << 5;
    if let Some((ours, theirs)) = info.window_scale {
        bytes[6] = theirs & 15 | ours << 4;
    }
    let mss = u32::from(info.effective_mss).max(1);
    let ssthresh = if info.ssthresh >= i32::MAX as u32 { i32::MAX as u32 } else { info.ssthresh / mss };
    for (at, value) in [
        (8, micros(info.rto)),
        (12, 40_000),
        (16, mss),
        (20, u32::from(info.seen_mss)),
        (UNACKED, info.segments.outstanding),
        (SACKED, info.segments.sacked),
        (32, info.segments.lost),
        (36, info.segments.retransmitted),
        (60, u32::from(info.pmtu)),
        (64, info.rcv_wnd),
        (68, info.rtt.map_or(0, micros)),
        (72, micros(info.rtt_var)),
        (76, ssthresh),
        (80, info.cwnd / mss),
        (84, u32::from(info.rcv_mss)),
        (88, u32::from(info.reordering).max(3)),
        (100, info.retransmits),
        (136, counts.segments_out),
        (140, counts.segments_in),
        (144, info.unsent),
        (148, info.min_rtt.map_or(u32::MAX, micros)),
        (152, counts.data_in),
        (156, counts.data_out),
        (192, queue.delivered),
        (228, info.snd_wnd),
        (232, info.rcv_wnd),
    ] {
        put(&mut bytes, at, value);
    }
    let ago = |at: Option<Time>| at.map_or(0, |at| now.saturating_duration_since(at).as_millis() as u32);
    put(&mut bytes, 44, ago(chrono.sent_at));
    put(&mut bytes, 52, ago(chrono.received_at));
    put(&mut bytes, 56, ago(counts.acked_at));
    // Our SYN and FIN count among what was acknowledged.
    let syn = counts.active && !matches!(info.state, State::SynSent | State::SynReceived);
    let fin = matches!(info.state, State::FinWait2 | State::TimeWait);
    put_long(&mut bytes, 120, queue.acked() + u64::from(syn) + u64::from(fin));
    put_long(&mut bytes, 128, queue.received());
    put_long(&mut bytes, 200, counts.bytes_sent);
    put_long(&mut bytes, 208, counts.bytes_again);
    for (at, spent) in [168, 176, 184].into_iter().zip(chrono.spent()) {
        put_long(&mut bytes, at, spent);
    }
    if let Some(accurate) = &info.accurate_ecn {
        let (received, delivered) = (&accurate.received, &accurate.delivered);
        for (at, value) in [
            (196, delivered.ce_packets),
            (248, received.ce_packets),
            (252, delivered.ect1_bytes),
            (256, delivered.ect0_bytes),
            (260, delivered.ce_bytes),
            (264, received.ect1_bytes),
            (268, received.ect0_bytes),
            (272, received.ce_bytes),
        ] {
            put(&mut bytes, at, value);
        }
    }
    // `tcpi_ecn_mode`, `tcpi_accecn_opt_seen` in bit fields.
    let mode = if info.accurate_ecn.is_some() { 2 } else { u8::from(info.ecn) };
    let seen = info.accurate_ecn.is_some_and(|accurate| accurate.option_seen);
    bytes[276] = mode | u8::from(seen) << 3;
    // Not paced.
    put_long(&mut bytes, 112, u64::MAX);
    bytes
}
