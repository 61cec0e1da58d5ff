//! Information about a connection, as in `TCP_INFO`.

use crate::tcp::config::Algorithm;
use crate::tcp::connection::accecn::AccEcn;
use crate::tcp::connection::accecn::fed_back::Heard;
use crate::tcp::connection::congestion::Model;
use crate::tcp::connection::congestion::prague::Prague;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::recovery::Phase;
use crate::tcp::connection::rtt::Timeouts;
use crate::tcp::connection::{Connection, Flags, State, scoreboard};
use core::net::SocketAddr;
use core::time::Duration;

/// State of loss recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossState {
    /// Nothing unusual.
    Open,
    /// Duplicate or selective acknowledgements have come, but nothing is deemed lost.
    Disorder,
    /// The window has been reduced because the network said so (ECN), and nothing is lost.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// Numbers of segments in flight, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentCounts {
    /// Not cumulatively acknowledged.
    pub outstanding: u32,
    /// Selectively acknowledged; without SACK, duplicate acknowledgements.
    pub sacked: u32,
    /// Deemed lost.
    pub lost: u32,
    /// Sent again and not yet acknowledged.
    pub retransmitted: u32,
}

/// Packets and bytes by mark, since a connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EcnCounts {
    /// Packets with Congestion Experienced.
    pub ce_packets: u32,
    /// Payload bytes with Congestion Experienced, modulo 2^32.
    pub ce_bytes: u32,
    /// Payload bytes with ECT(0), modulo 2^32.
    pub ect0_bytes: u32,
    /// Payload bytes with ECT(1), modulo 2^32.
    pub ect1_bytes: u32,
}

impl EcnCounts {
    /// Counters of the RFC begin with 5 packets and one byte of each ECT.
    const fn of(cep: u32, ceb: u32, e0b: u32, e1b: u32) -> Self {
        Self {
            ce_packets: cep.wrapping_sub(5),
            ce_bytes: ceb,
            ect0_bytes: e0b.wrapping_sub(1),
            ect1_bytes: e1b.wrapping_sub(1),
        }
    }
}

/// What a connection with accurate ECN (RFC 9768) knows of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccurateEcn {
    /// Of what we received: r.cep, r.ceb, r.e0b, r.e1b, without what they begin with.
    pub received: EcnCounts,
    /// Of what the peer received of ours, as it feeds back: s.cep, s.ceb, s.e0b, s.e1b, without what they begin with. Without the option bytes
    /// stay zero.
    pub delivered: EcnCounts,
    /// New data is sent as ECN-capable, but with BBR. Not so where the handshake showed that something on the way changes marks.
    pub sends_ect: bool,
    /// Feedback is heeded; not so where the peer turned out not to know of it.
    pub heeds: bool,
    /// An option of the peer's has come and is read.
    pub option_seen: bool,
}

impl AccurateEcn {
    fn of(accecn: &AccEcn) -> Self {
        let (r, s) = (&accecn.r, &accecn.s);
        Self {
            received: EcnCounts::of(r.cep, r.ceb, r.e0b, r.e1b),
            delivered: EcnCounts::of(s.cep, s.ceb, s.e0b, s.e1b),
            sends_ect: accecn.sends_ect(),
            heeds: !s.is_deaf(),
            option_seen: s.heard() == Heard::Once,
        }
    }
}

/// A look at one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// State.
    pub state: State,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Flow hash of received packets.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
    /// Smoothed round-trip time; `None` before the first measurement.
    pub rtt: Option<Duration>,
    /// Its variance.
    pub rtt_var: Duration,
    /// Least of the last minutes.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout without backoff.
    pub rto: Duration,
    /// How often the timeout is doubled: timeouts since a round trip was last measured.
    pub backoff: u8,
    /// Congestion control; `None` if it is one of the kernel's that this stack does not have.
    pub congestion: Option<Algorithm>,
    /// Bytes a second at which data is paced; `None` if it is not, or on kernel sockets.
    pub pacing_rate: Option<u64>,
    /// The share of packets that are marked, as Prague reckons with it (alpha), in parts of 2^20; `None` with any other congestion control.
    pub marked_share: Option<u32>,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh: u32,
    /// Bytes sent and not acknowledged.
    pub outstanding: u32,
    /// Bytes in the network, as far as is known.
    pub in_flight: u32,
    /// Bytes of them selectively acknowledged.
    pub sacked: u32,
    /// Bytes deemed lost.
    pub lost: u32,
    /// The same in segments.
    pub segments: SegmentCounts,
    /// State of loss recovery.
    pub loss_state: LossState,
    /// Probes of a closed window or a silent peer that were not answered.
    pub probes: u8,
    /// The sender is repairing losses.
    pub recovering: bool,
    /// The peer's window.
    pub snd_wnd: u32,
    /// Our window.
    pub rcv_wnd: u32,
    /// Segment size we send, without options.
    pub snd_mss: u16,
    /// Bytes of data in a full segment of ours: `snd_mss` without the options of every segment.
    pub effective_mss: u16,
    /// Largest segment seen from the peer.
    pub seen_mss: u16,
    /// Segment size we announced.
    pub rcv_mss: u16,
    /// Path MTU.
    pub pmtu: u16,
    /// Segments sent again.
    pub retransmits: u32,
    /// The furthest a segment was seen to arrive behind later ones, in segments; 0 if none was.
    pub reordering: u8,
    /// Bytes waiting to be read.
    pub readable: u32,
    /// Bytes written and not acknowledged.
    pub unacknowledged: u32,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Receive buffer's limit.
    pub recv_buffer: u32,
    /// Send buffer's limit.
    pub send_buffer: u32,
    /// Agreed options: timestamps, SACK, window scaling, ECN.
    pub timestamps: bool,
    /// SACK.
    pub sack: bool,
    /// Shift of our windows and of the peer's.
    pub window_scale: Option<(u8, u8)>,
    /// ECN, classic or accurate.
    pub ecn: bool,
    /// Accurate ECN.
    pub accurate_ecn: Option<AccurateEcn>,
    /// Data in a SYN, ours or the peer's, has arrived with it (RFC 7413).
    pub syn_data: bool,
}

impl TcpInfo {
    /// Nothing known beyond the ends and the state: for connections that are not this stack's.
    #[must_use]
    pub fn new(state: State, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            state,
            local,
            remote,
            hash: 0,
            hash_type: 0,
            rtt: None,
            rtt_var: Duration::ZERO,
            min_rtt: None,
            rto: Duration::ZERO,
            backoff: 0,
            congestion: None,
            pacing_rate: None,
            marked_share: None,
            cwnd: 0,
            ssthresh: 0,
            outstanding: 0,
            in_flight: 0,
            sacked: 0,
            lost: 0,
            recovering: false,
            snd_wnd: 0,
            rcv_wnd: 0,
            snd_mss: 0,
            rcv_mss: 0,
            pmtu: 0,
            retransmits: 0,
            reordering: 0,
            readable: 0,
            unacknowledged: 0,
            unsent: 0,
            segments: SegmentCounts::default(),
            loss_state: LossState::Open,
            probes: 0,
            effective_mss: 0,
            seen_mss: 0,
            recv_buffer: 0,
            send_buffer: 0,
            timestamps: false,
            sack: false,
            window_scale: None,
            ecn: false,
            accurate_ecn: None,
            syn_data: false,
        }
    }
}

impl Connection {
    pub(crate) fn info(&self, timeouts: Timeouts) -> TcpInfo {
        let us = |us: u32| Duration::from_micros(u64::from(us));
        let tx = self.tx.get();
        TcpInfo {
            state: self.state(),
            local: self.local_end(),
            remote: self.remote_end(),
            hash: self.flow_hash(),
            hash_type: self.hash_type(),
            rtt: (self.rtt.srtt() > 0).then(|| us(self.rtt.srtt())),
            rtt_var: us(self.rtt.rttvar()),
            min_rtt: (self.rtt.min() != u32::MAX).then(|| us(self.rtt.min())),
            rto: us(self.rtt.rto(timeouts)),
            backoff: self.timers.doublings(),
            congestion: Some(self.congestion.algorithm()),
            pacing_rate: self.model().map(|model| model.pace().rate()),
            marked_share: self.model().and_then(Model::prague).map(Prague::share),
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            outstanding: self.snd.outstanding(),
            in_flight: tx.map_or(0, |tx| tx.in_flight(self.snd.outstanding())),
            sacked: tx.map_or(0, |tx| tx.board.sacked()),
            lost: tx.map_or(0, |tx| tx.board.lost()),
            recovering: matches!(self.phase(), Phase::Recovery | Phase::Loss),
            segments: self.segment_counts(),
            loss_state: self.loss_state(),
            probes: self.timers.probes(),
            snd_wnd: self.snd.wnd(),
            rcv_wnd: self.rcv.wnd(),
            snd_mss: self.mss.snd(),
            effective_mss: self.effective_mss() as u16,
            seen_mss: self.acks.seen(),
            rcv_mss: self.mss.rcv(),
            pmtu: self.path.mtu(),
            retransmits: self.retransmits(),
            reordering: self.reordering().degree(),
            readable: self.readable(),
            unacknowledged: self.buffered(),
            unsent: self.unsent(),
            recv_buffer: self.rcv.limit(),
            send_buffer: self.snd.limit(),
            timestamps: self.has(Flags::TIMESTAMPS),
            sack: self.has(Flags::SACK),
            window_scale: self.has(Flags::SCALING).then_some((self.scale.rcv(), self.scale.snd())),
            ecn: self.has(Flags::ECN),
            accurate_ecn: self.accurate_info(),
            syn_data: self.fast.has(Marks::SYN_DATA),
        }
    }

    /// What is known of marks, in accurate mode.
    pub(crate) fn accurate_info(&self) -> Option<AccurateEcn> {
        self.accecn().filter(|accecn| accecn.is_agreed()).map(AccurateEcn::of)
    }

    fn segment_counts(&self) -> SegmentCounts {
        let mut counts = SegmentCounts::default();
        let Some(tx) = self.tx.get() else { return counts };
        for record in (0..tx.board.len()).filter_map(|index| tx.board.get(index)) {
            counts.outstanding += 1;
            counts.sacked += u32::from(record.is(scoreboard::SACKED));
            counts.lost += u32::from(record.is(scoreboard::LOST) && !record.is(scoreboard::SACKED));
            counts.retransmitted +=
                u32::from(record.is(scoreboard::RETRANS) && !record.is(scoreboard::SACKED));
        }
        if !self.has(Flags::SACK) {
            counts.sacked = tx.recovery.reno_sacked() / self.effective_mss().max(1);
        }
        counts
    }

    fn loss_state(&self) -> LossState {
        let Some(tx) = self.tx.get() else { return LossState::Open };
        match tx.recovery.phase() {
            Phase::Open if tx.board.sacked() > 0 || tx.recovery.dupacks() > 0 => LossState::Disorder,
            Phase::Open => LossState::Open,
            Phase::Cwr => LossState::Reduced,
            Phase::Recovery => LossState::Recovery,
            Phase::Loss => LossState::Loss,
        }
    }
}
