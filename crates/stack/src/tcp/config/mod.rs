//! Configuration of a lane's TCP, and socket options.

mod fast_open;

pub use fast_open::{FastOpen, FastOpenKeys, FastOpenListen};

use core::time::Duration;

/// Which congestion control a connection runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// A model of the path: how fast it delivers and how long it is (draft-ietf-ccwg-bbr). What is sent is spread over time.
    Bbr,
    /// An answer to each packet that a queue of L4S marks (draft-briscoe-iccrg-prague-congestion-control), an experiment. Accurate ECN is asked for
    /// and accepted where [`TcpConfig::ecn`] says classic, but not where that is off; a connection whose peer does not agree on it has CUBIC. What
    /// is sent is spread over time.
    Prague,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Bbr, Self::Prague];

    /// Its name in this program's words: `cubic`, `newreno`, `bbr`, `prague`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Bbr => "bbr",
            Self::Prague => "prague",
        }
    }
}

/// Which Explicit Congestion Notification is negotiated: classic (RFC 3168), or accurate (RFC 9768), which falls back to classic and to none as the
/// peer's answer says. The numbers are those of Linux (`net.ipv4.tcp_ecn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Ecn {
    /// Never (0).
    Off,
    /// Use classic ECN if the peer requests any (2).
    #[default]
    Accept,
    /// Classic, asked for in our own SYNs too (1).
    Request,
    /// Accurate, asked for in our own SYNs too (3).
    Accurate,
    /// Use what the peer requests, accurate or classic; our own SYNs ask for classic (4).
    AccurateRequest,
    /// Use what the peer requests, accurate or classic; our own SYNs ask for none (5).
    AccurateAccept,
}

impl Ecn {
    /// All of them, in the order of Linux's numbers.
    pub const ALL: [Self; 6] =
        [Self::Off, Self::Request, Self::Accept, Self::Accurate, Self::AccurateRequest, Self::AccurateAccept];

    /// Its name in this program's words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Request => "request",
            Self::Accept => "accept",
            Self::Accurate => "accurate",
            Self::AccurateRequest => "accurate-request",
            Self::AccurateAccept => "accurate-accept",
        }
    }

    /// What connections with this congestion control negotiate that were told this: Prague needs accurate ECN.
    #[inline]
    pub(crate) fn with(self, algorithm: Algorithm) -> Self {
        let is_less = matches!(self, Self::Accept | Self::Request);
        // Guard: `is_less && algorithm == Algorithm::Prague` as `false` fails prague::it_asks
        // prague::it_accepts
        if is_less && algorithm == Algorithm::Prague { Self::Accurate } else { self }
    }

    /// Whether a peer that asks for accurate ECN gets it.
    #[inline]
    pub(crate) const fn accepts_accurate(self) -> bool {
        matches!(self, Self::Accurate | Self::AccurateRequest | Self::AccurateAccept)
    }

    /// Whether our SYNs ask for ECN of either kind.
    pub(crate) const fn asks(self) -> bool {
        matches!(self, Self::Request | Self::Accurate | Self::AccurateRequest)
    }
}

/// When SYNs are answered with cookies instead of being remembered (RFC 4987 §3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SynCookies {
    /// Never: when the backlog is full, SYNs are dropped.
    Off,
    /// When the listener's SYN backlog is full.
    #[default]
    WhenFull,
    /// Always; for tests and for hosts under constant attack.
    Always,
}

/// Bounds of a buffer that tunes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSize {
    /// Bytes a new connection may buffer.
    pub initial: u32,
    /// Bytes it may grow to.
    pub max: u32,
}

/// Configuration of a lane's TCP.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Send the option of accurate ECN, which tells of bytes by mark. Without it there are three bits of a counter in each header (Linux:
    /// `net.ipv4.tcp_ecn_option`).
    pub accecn_option: bool,
    /// Congestion control of new connections.
    pub congestion: Algorithm,
    /// Leave slow start early by delay (`HyStart++`, RFC 9406).
    pub hystart: bool,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u8,
    /// Least number of segments of new data that make a burst, which ends with PSH; half of the congestion window is enough.
    pub least_burst: u8,
    /// Reduce the window after an idle time (RFC 5681 §4.1).
    pub slow_start_after_idle: bool,
    /// Receive buffer; its maximum decides the window scale.
    pub recv_buffer: BufferSize,
    /// Send buffer.
    pub send_buffer: BufferSize,
    /// Most unsent bytes in a send buffer without a set size. A small number keeps data in the caches from writing to sending.
    pub max_unsent: u32,
    /// Retransmission timeout before the first measurement (RFC 6298 §2.1).
    pub initial_rto: Duration,
    /// Least retransmission timeout. RFC 6298 §2.4 recommends a second; common implementations use less.
    pub min_rto: Duration,
    /// Greatest retransmission timeout (RFC 6298 §2.5: at least a minute).
    pub max_rto: Duration,
    /// Join segments of one flow that follow one another in one burst before they are handled; each such run gets one
    /// acknowledgement.
    pub coalesce: bool,
    /// How long an acknowledgement may wait for company (RFC 9293 §3.8.6.3: below half a second).
    pub delayed_ack: Duration,
    /// SYNs sent again before a connection attempt is given up.
    pub syn_retries: u8,
    /// SYN-ACKs sent again before a half-open connection is forgotten.
    pub synack_retries: u8,
    /// Retransmissions of data before a connection is given up (R2 of RFC 9293 §3.8.3), unless a user timeout says.
    pub retries: u8,
    /// Retransmissions after which a path is suspected of swallowing big packets (RFC 4821, RFC 2923).
    pub black_hole_retries: u8,
    /// Segment size to try when it does.
    pub black_hole_mss: u16,
    /// How long the four-tuple of a closed connection is kept (2 MSL).
    pub time_wait: Duration,
    /// How long a closed socket waits in FIN-WAIT-2 for the peer's FIN, at most 24 days.
    pub fin_wait_2: Duration,
    /// When SYN cookies are used.
    pub syn_cookies: SynCookies,
    /// Challenge ACKs in any one second, all connections together (RFC 5961 §7).
    pub challenge_acks_per_second: u32,
    /// Resets in any one second to segments of no connection, about: from half of it to one and a half, drawn anew each second.
    pub resets_per_second: u32,
    /// ACKs in answer to unacceptable segments: at most one in this time and connection.
    pub invalid_ack_interval: Duration,
    /// Connections of this lane.
    pub max_connections: usize,
    /// TIME-WAIT records of this lane; beyond it the oldest is dropped.
    pub max_time_wait: usize,
    /// Bytes of all send and receive buffers of the lane.
    pub max_memory: usize,
    /// Bytes of frames in which received data may wait, all connections together; beyond it data is copied out of its
    /// frame, and out-of-order data dropped.
    pub max_held: usize,
    /// Out-of-order segments a connection may hold.
    pub max_out_of_order: u16,
    /// Control segments without a connection waiting for output (resets, cookies).
    pub max_replies: usize,
    /// TTL or hop limit of sent packets.
    pub hop_limit: u8,
    /// Secrets of the cookies that listeners give for Fast Open, the same in all lanes of a host; `None` for one of the
    /// lane's own.
    pub fast_open_keys: Option<FastOpenKeys>,
    /// Pairs of our address and a peer's whose cookies are remembered, at most 240 bytes each; beyond it the first known is
    /// forgotten.
    pub fast_open_peers: usize,
    /// How long Fast Open is left out with a peer after two SYNs of it in a row were lost or a connection attempt with it was
    /// never answered; it doubles with each further loss, up to 64 times. Zero: not at all.
    pub fast_open_pause: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            timestamps: true,
            sack: true,
            window_scaling: true,
            ecn: Ecn::default(),
            accecn_option: true,
            congestion: Algorithm::default(),
            hystart: true,
            initial_window: 10,
            least_burst: 2,
            slow_start_after_idle: true,
            recv_buffer: BufferSize { initial: 128 << 10, max: 6 << 20 },
            send_buffer: BufferSize { initial: 64 << 10, max: 4 << 20 },
            max_unsent: 256 << 10,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            coalesce: true,
            delayed_ack: Duration::from_millis(40),
            syn_retries: 6,
            synack_retries: 5,
            retries: 15,
            black_hole_retries: 3,
            black_hole_mss: 1024,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            syn_cookies: SynCookies::default(),
            challenge_acks_per_second: 1000,
            resets_per_second: 1000,
            invalid_ack_interval: Duration::from_millis(500),
            max_connections: 1 << 20,
            max_time_wait: 1 << 16,
            max_memory: 1 << 30,
            max_held: 64 << 20,
            max_out_of_order: 4096,
            max_replies: 256,
            hop_limit: 64,
            fast_open_keys: None,
            fast_open_peers: 1024,
            fast_open_pause: Duration::from_secs(3600),
        }
    }
}

/// Keep-alive of one socket (RFC 9293 §3.8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe; at least 10 ms.
    pub idle: Duration,
    /// Between probes; at least 10 ms, at most 24 days.
    pub interval: Duration,
    /// Unanswered probes after which the connection is dropped.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Options of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// Send small segments at once (no Nagle, RFC 9293 §3.7.4, MUST-17).
    pub nodelay: bool,
    /// Send only full segments until this is taken back, or 200 ms.
    pub cork: bool,
    /// Probe a silent peer; off by default (MUST-25).
    pub keepalive: Option<Keepalive>,
    /// Give up after data stayed unacknowledged for so long (RFC 5482, local part).
    pub user_timeout: Option<Duration>,
    /// What `close` does with unsent data: `None` sends it, zero resets the connection, anything else resets it after
    /// that time, at most 24 days.
    pub linger: Option<Duration>,
    /// How long a closed socket stays in FIN-WAIT-2, if not as configured for the lane; at most 24 days.
    pub linger2: Option<Duration>,
    /// Upper six bits of the traffic class.
    pub tos: u8,
    /// TTL or hop limit, if not the lane's (RFC 9293 §3.9.2, MUST-49): 255 for peers that check it (RFC 5082). 0 counts as 1.
    pub hop_limit: Option<u8>,
    /// Fixed size of the receive buffer, instead of the one that tunes itself.
    pub recv_buffer: Option<u32>,
    /// Fixed size of the send buffer.
    pub send_buffer: Option<u32>,
    /// Segments no larger than this, both ways.
    pub max_segment: Option<u16>,
    /// Another congestion control than the lane's.
    pub congestion: Option<Algorithm>,
    /// SYNs sent again before a connection attempt is given up, if not as configured for the lane.
    pub syn_retries: Option<u8>,
    /// Use of Fast Open when connecting (RFC 7413).
    pub fast_open: FastOpen,
}

/// Options of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections waiting to be accepted.
    pub backlog: u32,
    /// Handshakes under way.
    pub syn_backlog: u32,
    /// Options of the connections it makes.
    pub socket: SocketOptions,
    /// Takes data in SYNs, if given (RFC 7413).
    pub fast_open: Option<FastOpenListen>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, syn_backlog: 1024, socket: SocketOptions::default(), fast_open: None }
    }
}
