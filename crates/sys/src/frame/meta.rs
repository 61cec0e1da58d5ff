//! Metadata of a packet.

/// Metadata of one frame. A link fills it on receive, the stack on send. Plain values: copying it costs nothing.
///
/// The hash type is kept as its number (`flowlane_rss::HashType::as_u8`), since this crate knows no protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Meta {
    /// When the link received the packet, nanoseconds on the link's clock; 0 if the link gives no timestamps.
    pub timestamp: u64,
    /// Flow hash: on receive as delivered or computed, on send the hash that the reply will have.
    pub hash: u32,
    /// Which fields went into `hash`, by number; 0 is "no hash".
    pub hash_type: u8,
    /// Index of the host's interface that received the packet or sends it.
    pub interface: u8,
    /// Receive queue of the packet; of a datagram from a kernel socket the number of the kernel's interface.
    pub queue: u16,
    /// 802.1Q tag (PCP, DEI, VID) held outside the data, host byte order; `None` when untagged.
    pub vlan: Option<u16>,
    /// State of the transport checksum: received, or to be computed.
    pub checksum: Checksum,
    /// Segmentation: how the packet is to be segmented, or how it was merged.
    pub segmentation: Segmentation,
    /// Payload bytes a segment when `segmentation` is not `None`.
    pub segment_size: u16,
}

/// State of the transport (UDP, TCP) checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Checksum {
    /// Receive: not looked at, the stack must verify. Send: complete in the packet.
    #[default]
    InPacket,
    /// Receive: the link has verified it.
    Verified,
    /// Receive: the sender left it to hardware that was never reached (virtual links), so it need not be verified.
    /// Send: the link must compute it; the field holds the folded pseudo-header sum.
    Partial,
}

/// Segmentation offload of a packet larger than the MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Segmentation {
    /// One packet as it stands.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal size, last one shorter (`UDP_SEGMENT`).
    Udp,
}
