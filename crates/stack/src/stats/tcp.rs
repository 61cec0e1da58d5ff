//! Counters: plain integers, one set a lane, named after `netstat -s -p tcp`.

use flowlane_sys::figures;
use flowlane_sys::figures::{Figure, Figures, Kind, ascii, hyphens};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Why a received segment, or part of it, was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+];
            /// How many reasons there are.
            pub const COUNT: usize = DropReason::ALL.len();

            /// The name under which statistics show it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$name => $text,)+
                }
            }

            /// Its name among all the counters of TCP.
            const fn counter(self) -> &'static str {
                match self {
                    $(DropReason::$name => {
                        const BYTES: [u8; concat!("dropped-", $text).len()] = hyphens(concat!("dropped-", $text));
                        ascii(&BYTES)
                    })+
                }
            }
        }
    };
}

figures! {
    /// Counters of a lane's TCP since it was made.
    pub struct TcpStats {
        packets_sent: count "segments sent";
        data_packets_sent: count "segments sent with data for the first time";
        data_bytes_sent: count "bytes of them";
        packets_retransmitted: count "segments sent again";
        bytes_retransmitted: count "bytes sent again";
        unnecessary_retransmits: count "segments reported by D-SACK to have been sent again for nothing";
        mtu_resends: count "segments sent again because the path's MTU turned out smaller";
        ack_only_sent: count "segments that only acknowledge";
        delayed_acks_sent: count "of those, acknowledgements that had been delayed";
        window_probes_sent: count "probes of a closed window";
        window_updates_sent: count "acknowledgements that open the window";
        control_sent: count "SYN, FIN and RST segments";
        packets_received: count "segments received";
        merged_received: count "segments merged into others before they came here";
        coalesced_received: count "segments joined to the one before them in their burst";
        acks_received: count "acknowledgements of something new";
        bytes_acked: count "bytes they acknowledged";
        duplicate_acks: count "duplicate acknowledgements";
        acks_for_unsent: count "acknowledgements of what was never sent";
        in_sequence_packets: count "segments received in sequence";
        in_sequence_bytes: count "bytes received in sequence";
        duplicate_packets: count "segments wholly received before";
        duplicate_bytes: count "bytes of them";
        partly_duplicate_packets: count "segments partly received before";
        partly_duplicate_bytes: count "bytes received before in them";
        out_of_order_packets: count "segments out of order";
        out_of_order_bytes: count "bytes of them";
        after_window_packets: count "segments with data beyond the window";
        after_window_bytes: count "bytes beyond the window";
        window_probes_received: count "window probes received";
        window_updates_received: count "window updates received";
        after_close_packets: count "segments received after the application was gone";
        connection_requests: count "connection attempts by us";
        connection_accepts: count "connections accepted";
        ports_tried: count "local ports that were looked at for connections";
        bad_attempts: count "attempts that failed in the handshake";
        listen_overflows: count "handshakes that found the accept queue full";
        established: count "connections established, both ways";
        closed: count "connections closed or dropped";
        embryonic_dropped: count "connections dropped in the handshake by us";
        fast_open_passive: count "connections used before the handshake was over (Fast Open)";
        fast_open_passive_refused: count "SYNs with a Fast Open cookie that is not ours";
        fast_open_passive_resets: count "resets by peers before such a handshake was over";
        fast_open_cookies_asked: count "requests for a Fast Open cookie";
        fast_open_former_keys: count "cookies made with the former key";
        fast_open_overflows: count "SYNs that found a listener's limit of Fast Open reached";
        fast_open_active: count "connections by us whose data in the SYN arrived";
        fast_open_active_refused: count "connections by us whose data in the SYN had to be sent again";
        fast_open_cookies_received: count "fast Open cookies received";
        fast_open_paused: count "connections by us without Fast Open: SYNs with it were lost";
        resets_received: count "resets received that ended a connection";
        resets_sent: count "resets sent";
        resets_limited: count "resets to strangers not sent because of the rate limit";
        rtt_samples: count "round-trip measurements";
        retransmit_timeouts: count "retransmission timeouts";
        retransmit_drops: count "connections given up for them";
        persist_timeouts: count "persist timeouts";
        persist_drops: count "connections given up in them";
        fin_wait_2_drops: count "connections closed by time in FIN-WAIT-2";
        keepalive_timeouts: count "keep-alive timeouts";
        keepalive_probes_sent: count "keep-alive probes sent";
        keepalive_drops: count "connections dropped by keep-alive";
        memory_waits: count "writes that had to wait for memory of the lane";
        windows_closed: count "windows closed for want of memory for what they promised";
        pruned_bytes: count "bytes received out of order and dropped again for want of memory";
        orphan_drops: count "connections closed by us and reset for want of memory";
        syncache_added: count "SYNs remembered";
        syncache_retransmitted: count "SYN-ACKs sent again";
        syncache_dupsyn: count "SYNs of a known handshake";
        syncache_completed: count "handshakes completed";
        syncache_reset: count "handshakes ended by a reset";
        syncache_stale: count "handshakes ended by time";
        cookies_sent: count "SYN cookies sent";
        cookies_received: count "connections made from cookies";
        cookies_bad: count "acknowledgements that looked like a cookie but were none";
        sack_recovery_episodes: count "loss recoveries begun by selective or duplicate ACKs";
        sack_rexmits: count "segments sent again in them";
        sack_rexmit_bytes: count "bytes sent again in them";
        sack_options_received: count "SACK options received";
        sack_options_sent: count "SACK options sent";
        sack_reneges: count "times a peer took back what it had selectively acknowledged";
        dsacks_received: count "D-SACK blocks received";
        dsacks_sent: count "D-SACK blocks sent";
        tail_loss_probes: count "tail loss probes sent";
        tail_loss_recoveries: count "losses repaired by them";
        ecn_ce: count "segments received with Congestion Experienced";
        ecn_ect0: count "segments received with ECT(0)";
        ecn_ect1: count "segments received with ECT(1)";
        ecn_handshakes: count "connections that agreed on ECN";
        ecn_reductions: count "times ECN reduced a congestion window";
        accecn_handshakes: count "connections that agreed on accurate ECN (RFC 9768)";
        accecn_marks: count "segments that peers with accurate ECN say came with CE";
        accecn_options_sent: count "options of accurate ECN sent";
        accecn_options_received: count "options of accurate ECN received with new acknowledgements";
        accecn_stopped: count "connections whose data goes without ECT: the path changes marks";
        prague_without: count "connections with CUBIC, as Prague has no accurate ECN";
        prague_deep: count "rounds of Prague with marks while over 10 ms waited";
        challenge_acks_sent: count "challenge ACKs sent";
        challenge_acks_limited: count "challenge ACKs not sent because of the limit";
        icmp_accepted: count "ICMP errors about a connection of ours, inside its window";
        icmp_ignored: count "ICMP errors about nothing we sent";
        pmtu_lowered: count "path MTU lowered by ICMP";
        flow_records: count "flows that ended while flows were watched";
        flow_records_active: count "records of flows that went on, by the active timeout";
        flow_records_lost: count "records lost because the ring was full";
        black_hole_activations: count "paths suspected of swallowing big packets";
        mss_raises: count "segment sizes raised again, in case the path is wider now";
        time_wait_entered: count "connections that went into TIME-WAIT";
        time_wait_reused: count "TIME-WAIT records reused for a new connection (RFC 6191)";
        time_wait_reset: count "TIME-WAIT records ended by a peer whose SYN was refused";
        time_wait_overflow: count "TIME-WAIT records dropped because there were too many";
        no_frame: count "times a segment could not be sent for want of a frame";
        hystart_exits: count "slow starts left early by delay";
        ..
        /// Segments dropped, by reason.
        drops: SegmentDrops;
    }
}

/// Segments dropped by reason, in the order of [`DropReason::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentDrops(pub [u64; DropReason::COUNT]);

impl Figures for SegmentDrops {
    fn each(&self, f: &mut dyn FnMut(Figure)) {
        for (reason, value) in DropReason::ALL.iter().zip(&self.0) {
            f(Figure::count(reason.counter(), reason.counter(), *value));
        }
    }

    fn each_with(&mut self, other: &Self, f: &mut dyn FnMut(Kind, &mut u64, u64)) {
        self.0.iter_mut().zip(&other.0).for_each(|(value, other)| f(Kind::Count, value, *other));
    }
}

reasons! {
    /// Shorter than a TCP header.
    Short = "short",
    /// The data offset points nowhere.
    BadHeaderLength = "bad_header_length",
    /// The checksum is wrong.
    BadChecksum = "bad_checksum",
    /// Sent to a broadcast or multicast address (MUST-57).
    NotUnicast = "not_unicast",
    /// SYN and FIN, or SYN and RST together, or no flag at all.
    BadFlags = "bad_flags",
    /// Port 0.
    PortZero = "port_zero",
    /// There is neither a listener nor such a connection.
    NoConnection = "no_connection",
    /// A reset for no known connection.
    ResetForNobody = "reset_for_nobody",
    /// A listener got something other than a SYN.
    NotSyn = "not_syn",
    /// An acknowledgement that is no cookie, while cookies are in use.
    BadCookie = "bad_cookie",
    /// The accept queue is full.
    BacklogFull = "backlog_full",
    /// The SYN backlog is full and cookies are off.
    SynBacklogFull = "syn_backlog_full",
    /// The lane has as many connections as it may.
    TooManyConnections = "too_many_connections",
    /// Too many replies without a connection wait for output.
    RepliesFull = "replies_full",
    /// A timestamp older than the last one (PAWS, RFC 7323 §5).
    Paws = "paws",
    /// Outside the window.
    OutOfWindow = "out_of_window",
    /// A reset that is not exactly at the left edge (RFC 5961 §3).
    ResetNotExact = "reset_not_exact",
    /// A SYN on a synchronised connection (RFC 5961 §4).
    SynInWindow = "syn_in_window",
    /// No ACK flag where one is needed.
    NoAck = "no_ack",
    /// An acknowledgement outside what is acceptable (RFC 5961 §5).
    AckOutOfRange = "ack_out_of_range",
    /// Received before.
    Duplicate = "duplicate",
    /// The queue of out-of-order segments is full.
    ReassemblyFull = "reassembly_full",
    /// The receive buffer is full of tiny segments.
    BufferFull = "buffer_full",
    /// The lane's memory limit is reached.
    LaneMemory = "lane_memory",
    /// Data out of order, when the lane holds as many frames as it may.
    FewFrames = "few_frames",
    /// Data after the application has closed.
    AfterClose = "after_close",
    /// Data behind the peer's FIN.
    AfterFin = "after_fin",
    /// A segment for a connection in TIME-WAIT.
    TimeWait = "time_wait",
    /// A SYN-ACK or ACK that does not answer our SYN.
    BadSynAck = "bad_syn_ack",
}

impl TcpStats {
    /// Counts a drop.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops.0[reason as usize] += 1;
    }

    /// Drops for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.0[reason as usize]
    }
}
