//! Why a packet could not be read.
//!
//! A parser gives up with exactly one of these. The lane turns the reason into the index of a counter, so the list is
//! dense, each reason has a stable name for statistics, and adding one adds a counter without another line of code.

use core::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The named reasons for which a packet is malformed.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Malformed {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Malformed {
            /// Every reason, in the order of [`index`](Malformed::index).
            pub const ALL: &'static [Malformed] = &[$(Malformed::$name,)+];

            /// The name under which statistics show the reason: lower case, words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Malformed::$name => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// The frame ends inside its Ethernet header or VLAN tag.
    EthernetShort = "ethernet_short",
    /// The ARP packet is shorter than 28 bytes.
    ArpShort = "arp_short",
    /// ARP for something other than IPv4 on Ethernet, or neither request nor reply.
    ArpUnsupported = "arp_unsupported",
    /// Fewer than 20 bytes where an IPv4 header should be.
    Ipv4Short = "ipv4_short",
    /// The version field of an IPv4 packet is not 4.
    Ipv4Version = "ipv4_version",
    /// The IPv4 header length is below 20 or beyond the packet.
    Ipv4HeaderLength = "ipv4_header_length",
    /// The IPv4 total length is below the header length or beyond the frame.
    Ipv4TotalLength = "ipv4_total_length",
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum = "ipv4_checksum",
    /// An IPv4 option's length is impossible.
    Ipv4BadOption = "ipv4_bad_option",
    /// Fewer than 40 bytes where an IPv6 header should be.
    Ipv6Short = "ipv6_short",
    /// The version field of an IPv6 packet is not 6.
    Ipv6Version = "ipv6_version",
    /// The IPv6 payload length is beyond the frame.
    Ipv6PayloadLength = "ipv6_payload_length",
    /// An IPv6 extension header runs past the end of the packet.
    Ipv6ExtensionHeader = "ipv6_extension_header",
    /// More IPv6 extension headers than the stack is willing to walk.
    Ipv6TooManyHeaders = "ipv6_too_many_headers",
    /// Fewer than 8 bytes where a UDP header should be.
    UdpShort = "udp_short",
    /// The UDP length is below 8 or beyond the IP payload.
    UdpLength = "udp_length",
    /// The UDP checksum is wrong.
    UdpChecksum = "udp_checksum",
    /// Fewer than 20 bytes where a TCP header should be.
    TcpShort = "tcp_short",
    /// The TCP data offset is below 20 bytes or beyond the segment.
    TcpDataOffset = "tcp_data_offset",
    /// An ICMP message shorter than its type needs.
    IcmpShort = "icmp_short",
    /// The ICMP checksum is wrong.
    IcmpChecksum = "icmp_checksum",
    /// An ICMP error that does not quote enough of the packet it is about.
    IcmpQuote = "icmp_quote",
    /// An ICMPv6 message shorter than its type needs.
    Icmpv6Short = "icmpv6_short",
    /// The ICMPv6 checksum is wrong.
    Icmpv6Checksum = "icmpv6_checksum",
    /// A neighbour discovery message shorter than its type needs, or with a value its type forbids.
    NdpMessage = "ndp_message",
    /// A neighbour discovery option of length zero or past the end.
    NdpOption = "ndp_option",
    /// An IGMP message shorter than its type needs.
    IgmpShort = "igmp_short",
    /// The IGMP checksum is wrong.
    IgmpChecksum = "igmp_checksum",
    /// An MLD message shorter than its type needs.
    MldShort = "mld_short",
    /// A tunnel header that ends early.
    TunnelShort = "tunnel_short",
    /// A tunnel header with a version or flags that cannot be honoured.
    TunnelUnsupported = "tunnel_unsupported",
    /// The checksum inside a tunnel header is wrong.
    TunnelChecksum = "tunnel_checksum",
}

impl Malformed {
    /// How many reasons there are: the length of an array of counters.
    pub const COUNT: usize = Malformed::ALL.len();

    /// The reason's place in [`ALL`](Malformed::ALL) and in an array of counters.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_place_in_the_list_and_names_differ() {
        let mut names = std::collections::BTreeSet::new();
        for (place, reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
            assert!(names.insert(reason.name()), "{reason} twice");
            assert!(reason.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
        assert_eq!(names.len(), Malformed::COUNT);
    }
}
