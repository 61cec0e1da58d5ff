//! Socket options whose value is a number, the few that are not, and `TCP_INFO`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An option whose value is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    level: libc::c_int,
    name: libc::c_int,
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $name:ident = $level:ident, $option:ident;)+) => {
        impl Number {
            $($(#[doc = $doc])+ pub const $name: Self = Self { level: libc::$level, name: libc::$option };)+
        }
    };
}

impl Number {
    /// The ports from which `connect` takes one, if it is to choose: the first in the lower half, the last in the upper; 0 for the
    /// host's. Since Linux 6.3 (`IP_LOCAL_PORT_RANGE`), for both families.
    pub const LOCAL_PORT_RANGE: Self = Self { level: libc::IPPROTO_IP, name: 51 };
}

numbers! {
    /// Several sockets may listen on one address.
    REUSE_PORT = SOL_SOCKET, SO_REUSEPORT;
    /// An address may be bound that was in use a moment ago.
    REUSE_ADDRESS = SOL_SOCKET, SO_REUSEADDR;
    /// An IPv6 socket does not serve IPv4.
    V6_ONLY = IPPROTO_IPV6, IPV6_V6ONLY;
    /// `bind` of an address leaves the port to `connect`, which then needs to differ in the peer only.
    BIND_ADDRESS_NO_PORT = IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT;
    /// The error that waits; asking takes it.
    ERROR = SOL_SOCKET, SO_ERROR;
    /// Silent peers are probed.
    KEEPALIVE = SOL_SOCKET, SO_KEEPALIVE;
    /// Bytes of receive buffer; the kernel doubles what it is given.
    RECEIVE_BUFFER = SOL_SOCKET, SO_RCVBUF;
    /// Bytes of send buffer; the kernel doubles what it is given.
    SEND_BUFFER = SOL_SOCKET, SO_SNDBUF;
    /// Small segments are sent at once.
    NO_DELAY = IPPROTO_TCP, TCP_NODELAY;
    /// What arrives is acknowledged at once; off, the next segment takes the acknowledgement along, if there is one soon.
    QUICK_ACK = IPPROTO_TCP, TCP_QUICKACK;
    /// Only full segments are sent.
    CORK = IPPROTO_TCP, TCP_CORK;
    /// Seconds of silence before the first probe.
    KEEPALIVE_IDLE = IPPROTO_TCP, TCP_KEEPIDLE;
    /// Seconds between probes.
    KEEPALIVE_INTERVAL = IPPROTO_TCP, TCP_KEEPINTVL;
    /// Unanswered probes before the end.
    KEEPALIVE_PROBES = IPPROTO_TCP, TCP_KEEPCNT;
    /// Milliseconds that data may stay unacknowledged.
    USER_TIMEOUT = IPPROTO_TCP, TCP_USER_TIMEOUT;
    /// Seconds in FIN-WAIT-2.
    LINGER2 = IPPROTO_TCP, TCP_LINGER2;
    /// Largest segment.
    MAX_SEGMENT = IPPROTO_TCP, TCP_MAXSEG;
    /// A SYN is sent again so often.
    SYN_RETRIES = IPPROTO_TCP, TCP_SYNCNT;
    /// A listener takes data in SYNs, for so many handshakes under way (RFC 7413).
    FAST_OPEN = IPPROTO_TCP, TCP_FASTOPEN;
    /// Data goes or is taken with a SYN that has no cookie.
    FAST_OPEN_NO_COOKIE = IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE;
    /// Type of service of IPv4.
    TOS = IPPROTO_IP, IP_TOS;
    /// Traffic class of IPv6.
    TRAFFIC_CLASS = IPPROTO_IPV6, IPV6_TCLASS;
    /// Time to live of sent IPv4 packets; -1 for the host's default.
    TTL = IPPROTO_IP, IP_TTL;
    /// Hop limit of sent IPv6 packets; -1 for the host's default.
    HOP_LIMIT = IPPROTO_IPV6, IPV6_UNICAST_HOPS;
    /// Report the local address of received datagrams, IPv4.
    PACKET_INFO = IPPROTO_IP, IP_PKTINFO;
    /// Report the local address of received datagrams, IPv6.
    PACKET_INFO_6 = IPPROTO_IPV6, IPV6_RECVPKTINFO;
    /// Report the type of service of received datagrams, IPv4.
    TELL_TOS = IPPROTO_IP, IP_RECVTOS;
    /// Report the traffic class of received datagrams, IPv6.
    TELL_TRAFFIC_CLASS = IPPROTO_IPV6, IPV6_RECVTCLASS;
    /// Report when datagrams were received.
    TIMESTAMPS = SOL_SOCKET, SO_TIMESTAMPNS;
    /// Report how many datagrams were lost because the socket was full.
    TELL_LOST = SOL_SOCKET, SO_RXQ_OVFL;
    /// Receive datagrams of one sender merged.
    MERGE = SOL_UDP, UDP_GRO;
    /// The processor on which the last packet of a socket arrived.
    INCOMING_CPU = SOL_SOCKET, SO_INCOMING_CPU;
    /// The number of the queue (NAPI) by which the last packet of a socket arrived; 0 if it was none of a card.
    INCOMING_QUEUE = SOL_SOCKET, SO_INCOMING_NAPI_ID;
    /// Microseconds to poll the card's queue when a read finds nothing.
    BUSY_POLL = SOL_SOCKET, SO_BUSY_POLL;
    /// Polling by the application takes the place of interrupts.
    PREFER_BUSY_POLL = SOL_SOCKET, SO_PREFER_BUSY_POLL;
}

/// Sets an option.
///
/// # Errors
/// The kernel's.
pub fn set(fd: BorrowedFd<'_>, option: Number, value: i32) -> io::Result<()> {
    raw_set(fd, option.level, option.name, &value.to_ne_bytes())
}

/// Reads an option.
///
/// # Errors
/// The kernel's.
pub fn get(fd: BorrowedFd<'_>, option: Number) -> io::Result<i32> {
    let mut value = [0; 4];
    let len = raw_get(fd, option.level, option.name, &mut value)?;
    // Some are a single byte if asked so; never shorter.
    if len < 4 {
        return Ok(i32::from(value[0]));
    }
    Ok(i32::from_ne_bytes(value))
}

/// Closing resets the connection instead of ending it (`SO_LINGER` of zero), or no more.
///
/// # Errors
/// The kernel's.
pub fn set_reset_on_close(fd: BorrowedFd<'_>, reset: bool) -> io::Result<()> {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&i32::from(reset).to_ne_bytes());
    raw_set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)
}

/// Whether closing resets the connection.
///
/// # Errors
/// The kernel's.
pub fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value = [0; 8];
    raw_get(fd, libc::SOL_SOCKET, libc::SO_LINGER, &mut value)?;
    Ok(value[..4] != [0; 4])
}

/// The keys of a listener's Fast Open cookies: what new ones are made with, and the former one, whose cookies are still valid.
///
/// # Errors
/// The kernel's.
pub fn set_fast_open_keys(fd: BorrowedFd<'_>, primary: [u8; 16], former: Option<[u8; 16]>) -> io::Result<()> {
    let mut keys = [0; 32];
    keys[..16].copy_from_slice(&primary);
    keys[16..].copy_from_slice(&former.unwrap_or_default());
    let len = if former.is_some() { 32 } else { 16 };
    raw_set(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY, &keys[..len])
}

/// Chooses the congestion control by its name (`reno`, `cubic`).
///
/// # Errors
/// The kernel's; `NotFound` if it has none of that name.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    raw_set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Name of the congestion control.
///
/// # Errors
/// The kernel's.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    let mut name = [0; 16];
    let len = raw_get(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    let name = &name[..len.min(16)];
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

fn raw_set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the value is valid for the call and only read.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn raw_get(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    let done =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

/// State of a connection in the kernel (`TCP_INFO`). Times are microseconds; fields that an old kernel does not report are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State, by the kernel's number: 1 is ESTABLISHED.
    pub state: u8,
    /// Probes that were not answered.
    pub probes: u8,
    /// Timeouts in a row.
    pub backoff: u8,
    /// Agreed options: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN; 32: the data of a SYN was taken.
    pub options: u8,
    /// Shift of the windows the peer sends, and of ours.
    pub scales: (u8, u8),
    /// Retransmission timeout.
    pub rto: u32,
    /// Segment size we send.
    pub snd_mss: u32,
    /// Segment size we receive.
    pub rcv_mss: u32,
    /// Segments not acknowledged; of a listener, connections waiting to be accepted.
    pub unacked: u32,
    /// Segments selectively acknowledged; of a listener, its backlog.
    pub sacked: u32,
    /// Segments deemed lost.
    pub lost: u32,
    /// Segments sent again and not acknowledged.
    pub retrans: u32,
    /// Path MTU.
    pub pmtu: u32,
    /// Smoothed round-trip time.
    pub rtt: u32,
    /// Its variance.
    pub rtt_var: u32,
    /// Slow-start threshold, segments.
    pub ssthresh: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Receive buffer as it tuned itself, bytes.
    pub rcv_space: u32,
    /// Segments retransmitted since the connection began.
    pub total_retrans: u32,
    /// Bytes written and not sent.
    pub not_sent: u32,
    /// Least round-trip time of the last minutes.
    pub min_rtt: u32,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// Congestion state: 3 and above repair losses.
    pub ca_state: u8,
    /// Bytes of data sent, those sent again included (Linux 4.19).
    pub bytes_sent: u64,
    /// Of these, sent again (Linux 4.19).
    pub bytes_retrans: u64,
    /// Bytes of data received in order, and one more if the peer's FIN was.
    pub bytes_received: u64,
    /// Segments sent, those without data included, modulo 2^32.
    pub segments_sent: u32,
    /// Segments received, those without data included, modulo 2^32.
    pub segments_received: u32,
    /// Milliseconds since data was sent.
    pub since_sent: u32,
    /// Milliseconds since data came.
    pub since_received: u32,
}

/// Offsets in the kernel's structure (`linux/tcp.h`), which only ever grows.
mod at {
    pub(super) const FIRST_WORD: usize = 8;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGMENTS_SENT: usize = 136;
    pub(super) const SEGMENTS_RECEIVED: usize = 140;
    pub(super) const NOT_SENT: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const SND_WND: usize = 228;
    pub(super) const END: usize = 232;
}

/// Asks for a connection's state.
///
/// # Errors
/// The kernel's.
pub fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; at::END];
    raw_get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    let at = |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let word = |i: usize| at(at::FIRST_WORD + 4 * i);
    let long = |i: usize| bytes[i..].first_chunk().map_or(0, |eight| u64::from_ne_bytes(*eight));
    // Two bit fields of four; which comes first follows the byte order.
    let (low, high) = (bytes[6] & 15, bytes[6] >> 4);
    let scales = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
    Ok(TcpInfo {
        state: bytes[0],
        ca_state: bytes[1],
        probes: bytes[3],
        backoff: bytes[4],
        options: bytes[5],
        scales,
        rto: word(0),
        snd_mss: word(2),
        rcv_mss: word(3),
        unacked: word(4),
        sacked: word(5),
        lost: word(6),
        retrans: word(7),
        pmtu: word(13),
        rtt: word(15),
        rtt_var: word(16),
        ssthresh: word(17),
        cwnd: word(18),
        rcv_space: word(22),
        total_retrans: word(23),
        not_sent: at(at::NOT_SENT),
        min_rtt: at(at::MIN_RTT),
        snd_wnd: at(at::SND_WND),
        bytes_sent: long(at::BYTES_SENT),
        bytes_retrans: long(at::BYTES_RETRANS),
        bytes_received: long(at::BYTES_RECEIVED),
        segments_sent: at(at::SEGMENTS_SENT),
        segments_received: at(at::SEGMENTS_RECEIVED),
        since_sent: word(9),
        since_received: word(11),
    })
}

/// What a socket holds and has lost (`SO_MEMINFO`, Linux 4.12).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory of what waits to be read, bytes: more than its payload.
    pub waiting: u32,
    /// Packets that the kernel dropped at the socket: it was full, or the checksum was wrong.
    pub dropped: u32,
}

/// Asks for a socket's memory and drops.
///
/// # Errors
/// The kernel's; `ENOPROTOOPT` where it is older.
pub fn memory(fd: BorrowedFd<'_>) -> io::Result<Memory> {
    const WAITING: usize = libc::SK_MEMINFO_RMEM_ALLOC as usize;
    const DROPPED: usize = libc::SK_MEMINFO_DROPS as usize;
    // What an older kernel does not tell remains zero.
    let mut bytes = [0u8; 4 * (DROPPED + 1)];
    raw_get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    let word =
        |i: usize| u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
    Ok(Memory { waiting: word(WAITING), dropped: word(DROPPED) })
}
