//! Counters: plain integers, one set a lane, named after `netstat -s -p tcp`.

use crate::stats::{Counter, Counters};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters of a lane's TCP since it was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct TcpStats {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Segments dropped, by reason.
            pub drops: [u64; DropReason::COUNT],
        }

        impl TcpStats {
            /// Names and values of all counters but the drops.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }

        impl Counters for TcpStats {
            fn each(&self, f: &mut dyn FnMut(Counter)) {
                $({
                    const BYTES: [u8; stringify!($name).len()] = hyphens(stringify!($name));
                    const TEXT: [u8; concat!($($doc)+).len()] = lower(concat!($($doc)+));
                    let text = ascii(&TEXT).trim().trim_end_matches('.');
                    f(Counter::count(ascii(&BYTES), text, self.$name));
                })+
                for (reason, value) in DropReason::ALL.iter().zip(self.drops) {
                    f(Counter::count(reason.counter(), reason.counter(), value));
                }
            }

            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
                for (a, b) in self.drops.iter_mut().zip(other.drops) {
                    *a += b;
                }
            }
        }
    };
}

/// A field's name as statistics show it.
const fn hyphens<const N: usize>(name: &str) -> [u8; N] {
    let (name, mut out) = (name.as_bytes(), [0; N]);
    let mut i = 0;
    while i < N {
        out[i] = if name[i] == b'_' { b'-' } else { name[i] };
        i += 1;
    }
    out
}

const fn ascii(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(name) => name,
        Err(_) => "",
    }
}

/// A counter's description as the end of "17 ...": its first word small, unless it is an abbreviation.
const fn lower<const N: usize>(doc: &str) -> [u8; N] {
    let (doc, mut out) = (doc.as_bytes(), [0; N]);
    let mut i = 0;
    while i < N {
        let first = i <= 1 && i + 1 < N && doc[i + 1].is_ascii_lowercase();
        out[i] = if first { doc[i].to_ascii_lowercase() } else { doc[i] };
        i += 1;
    }
    out
}

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

counters! {
    /// Segments sent.
    packets_sent,
    /// Segments sent with data for the first time.
    data_packets_sent,
    /// Bytes of them.
    data_bytes_sent,
    /// Segments sent again.
    packets_retransmitted,
    /// Bytes sent again.
    bytes_retransmitted,
    /// Segments reported by D-SACK to have been sent again for nothing.
    unnecessary_retransmits,
    /// Segments sent again because the path's MTU turned out smaller.
    mtu_resends,
    /// Segments that only acknowledge.
    ack_only_sent,
    /// Of those, acknowledgements that had been delayed.
    delayed_acks_sent,
    /// Probes of a closed window.
    window_probes_sent,
    /// Acknowledgements that open the window.
    window_updates_sent,
    /// SYN, FIN and RST segments.
    control_sent,
    /// Segments received.
    packets_received,
    /// Segments merged into others before they came here.
    merged_received,
    /// Segments joined to the one before them in their burst.
    coalesced_received,
    /// Acknowledgements of something new.
    acks_received,
    /// Bytes they acknowledged.
    bytes_acked,
    /// Duplicate acknowledgements.
    duplicate_acks,
    /// Acknowledgements of what was never sent.
    acks_for_unsent,
    /// Segments received in sequence.
    in_sequence_packets,
    /// Bytes received in sequence.
    in_sequence_bytes,
    /// Segments wholly received before.
    duplicate_packets,
    /// Bytes of them.
    duplicate_bytes,
    /// Segments partly received before.
    partly_duplicate_packets,
    /// Bytes received before in them.
    partly_duplicate_bytes,
    /// Segments out of order.
    out_of_order_packets,
    /// Bytes of them.
    out_of_order_bytes,
    /// Segments with data beyond the window.
    after_window_packets,
    /// Bytes beyond the window.
    after_window_bytes,
    /// Window probes received.
    window_probes_received,
    /// Window updates received.
    window_updates_received,
    /// Segments received after the application was gone.
    after_close_packets,
    /// Connection attempts by us.
    connection_requests,
    /// Connections accepted.
    connection_accepts,
    /// Local ports that were looked at for connections.
    ports_tried,
    /// Attempts that failed in the handshake.
    bad_attempts,
    /// Handshakes that found the accept queue full.
    listen_overflows,
    /// Connections established, both ways.
    established,
    /// Connections closed or dropped.
    closed,
    /// Connections dropped in the handshake by us.
    embryonic_dropped,
    /// Connections used before the handshake was over (Fast Open).
    fast_open_passive,
    /// SYNs with a Fast Open cookie that is not ours.
    fast_open_passive_refused,
    /// Resets by peers before such a handshake was over.
    fast_open_passive_resets,
    /// Requests for a Fast Open cookie.
    fast_open_cookies_asked,
    /// Cookies made with the former key.
    fast_open_former_keys,
    /// SYNs that found a listener's limit of Fast Open reached.
    fast_open_overflows,
    /// Connections by us whose data in the SYN arrived.
    fast_open_active,
    /// Connections by us whose data in the SYN had to be sent again.
    fast_open_active_refused,
    /// Fast Open cookies received.
    fast_open_cookies_received,
    /// Connections by us without Fast Open: SYNs with it were lost.
    fast_open_paused,
    /// Resets received that ended a connection.
    resets_received,
    /// Resets sent.
    resets_sent,
    /// Resets to strangers not sent because of the rate limit.
    resets_limited,
    /// Round-trip measurements.
    rtt_samples,
    /// Retransmission timeouts.
    retransmit_timeouts,
    /// Connections given up for them.
    retransmit_drops,
    /// Persist timeouts.
    persist_timeouts,
    /// Connections given up in them.
    persist_drops,
    /// Connections closed by time in FIN-WAIT-2.
    fin_wait_2_drops,
    /// Keep-alive timeouts.
    keepalive_timeouts,
    /// Keep-alive probes sent.
    keepalive_probes_sent,
    /// Connections dropped by keep-alive.
    keepalive_drops,
    /// Writes that had to wait for memory of the lane.
    memory_waits,
    /// Windows closed for want of memory for what they promised.
    windows_closed,
    /// Bytes received out of order and dropped again for want of memory.
    pruned_bytes,
    /// Connections closed by us and reset for want of memory.
    orphan_drops,
    /// SYNs remembered.
    syncache_added,
    /// SYN-ACKs sent again.
    syncache_retransmitted,
    /// SYNs of a known handshake.
    syncache_dupsyn,
    /// Handshakes completed.
    syncache_completed,
    /// Handshakes ended by a reset.
    syncache_reset,
    /// Handshakes ended by time.
    syncache_stale,
    /// SYN cookies sent.
    cookies_sent,
    /// Connections made from cookies.
    cookies_received,
    /// Acknowledgements that looked like a cookie but were none.
    cookies_bad,
    /// Loss recoveries begun by selective or duplicate ACKs.
    sack_recovery_episodes,
    /// Segments sent again in them.
    sack_rexmits,
    /// Bytes sent again in them.
    sack_rexmit_bytes,
    /// SACK options received.
    sack_options_received,
    /// SACK options sent.
    sack_options_sent,
    /// Times a peer took back what it had selectively acknowledged.
    sack_reneges,
    /// D-SACK blocks received.
    dsacks_received,
    /// D-SACK blocks sent.
    dsacks_sent,
    /// Tail loss probes sent.
    tail_loss_probes,
    /// Losses repaired by them.
    tail_loss_recoveries,
    /// Segments received with Congestion Experienced.
    ecn_ce,
    /// Segments received with ECT(0).
    ecn_ect0,
    /// Segments received with ECT(1).
    ecn_ect1,
    /// Connections that agreed on ECN.
    ecn_handshakes,
    /// Times ECN reduced a congestion window.
    ecn_reductions,
    /// Challenge ACKs sent.
    challenge_acks_sent,
    /// Challenge ACKs not sent because of the limit.
    challenge_acks_limited,
    /// ICMP errors about a connection of ours, inside its window.
    icmp_accepted,
    /// ICMP errors about nothing we sent.
    icmp_ignored,
    /// Path MTU lowered by ICMP.
    pmtu_lowered,
    /// Flows that ended while flows were watched.
    flow_records,
    /// Records of flows that went on, by the active timeout.
    flow_records_active,
    /// Records lost because the ring was full.
    flow_records_lost,
    /// Paths suspected of swallowing big packets.
    black_hole_activations,
    /// Segment sizes raised again, in case the path is wider now.
    mss_raises,
    /// Connections that went into TIME-WAIT.
    time_wait_entered,
    /// TIME-WAIT records reused for a new connection (RFC 6191).
    time_wait_reused,
    /// TIME-WAIT records ended by a peer whose SYN was refused.
    time_wait_reset,
    /// TIME-WAIT records dropped because there were too many.
    time_wait_overflow,
    /// Times a segment could not be sent for want of a frame.
    no_frame,
    /// Slow starts left early by delay.
    hystart_exits,
}

reasons! {
    /// Shorter than a TCP header.
    Short = "short",
    /// The data offset points nowhere.
    BadHeaderLength = "bad_header_length",
    /// The checksum is wrong.
    BadChecksum = "bad_checksum",
    /// A TCP option's length is impossible.
    BadOption = "bad_option",
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
    /// The kind of the frame does not fit TCP.
    BadFrame = "bad_frame",
}

impl TcpStats {
    /// Counts a drop.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// Drops for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }
}
