//! Which fields a hash covers.
//!
//! The numbers are those of FreeBSD's `M_HASHTYPE_*`, so that captures and tools agree; bit 0x80 means that equal flows have equal
//! hashes. A card's hash is usable only together with its type: see [`HashConfig::accepts`](crate::HashConfig::accepts).

use core::fmt;

/// The fields that a flow hash covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum HashType {
    /// No hash.
    #[default]
    None = 0,
    /// A number that keeps the packets of a flow in order, but is no hash.
    Opaque = 63,
    /// IPv4 addresses.
    Ipv4 = 0x81,
    /// IPv4 addresses and TCP ports.
    TcpIpv4 = 0x82,
    /// IPv6 addresses.
    Ipv6 = 0x83,
    /// IPv6 addresses and TCP ports.
    TcpIpv6 = 0x84,
    /// IPv6 addresses, taken from the home-address option and routing header where present.
    Ipv6Ex = 0x85,
    /// As `Ipv6Ex`, with TCP ports.
    TcpIpv6Ex = 0x86,
    /// IPv4 addresses and UDP ports.
    UdpIpv4 = 0x87,
    /// IPv6 addresses and UDP ports.
    UdpIpv6 = 0x89,
    /// As `Ipv6Ex`, with UDP ports.
    UdpIpv6Ex = 0x8a,
    /// A hash of unknown fields.
    OpaqueHash = 0xbf,
}

impl HashType {
    /// Every type, in the order of the numbers.
    pub const ALL: [Self; 12] = [
        Self::None,
        Self::Opaque,
        Self::Ipv4,
        Self::TcpIpv4,
        Self::Ipv6,
        Self::TcpIpv6,
        Self::Ipv6Ex,
        Self::TcpIpv6Ex,
        Self::UdpIpv4,
        Self::UdpIpv6,
        Self::UdpIpv6Ex,
        Self::OpaqueHash,
    ];

    /// The type's number.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The type with that number, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.as_u8() == number)
    }

    /// Whether a hash of this type names a bucket.
    ///
    /// The `Ex` types do not: a stack that looks at the plain header cannot compute them again.
    #[must_use]
    pub const fn has_affinity(self) -> bool {
        use HashType::*;
        matches!(self, Ipv4 | TcpIpv4 | Ipv6 | TcpIpv6 | UdpIpv4 | UdpIpv6)
    }

    /// Whether ports are among the fields.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        use HashType::*;
        matches!(self, TcpIpv4 | TcpIpv6 | UdpIpv4 | UdpIpv6 | TcpIpv6Ex | UdpIpv6Ex)
    }

    /// The name, as in `tcp-ipv4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Opaque => "opaque",
            Self::Ipv4 => "ipv4",
            Self::TcpIpv4 => "tcp-ipv4",
            Self::Ipv6 => "ipv6",
            Self::TcpIpv6 => "tcp-ipv6",
            Self::Ipv6Ex => "ipv6-ex",
            Self::TcpIpv6Ex => "tcp-ipv6-ex",
            Self::UdpIpv4 => "udp-ipv4",
            Self::UdpIpv6 => "udp-ipv6",
            Self::UdpIpv6Ex => "udp-ipv6-ex",
            Self::OpaqueHash => "opaque-hash",
        }
    }
}

impl fmt::Display for HashType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for number in 0..=255 {
            if let Some(t) = HashType::from_u8(number) {
                assert_eq!(t.as_u8(), number);
            }
        }
        assert_eq!(HashType::ALL.iter().filter_map(|t| HashType::from_u8(t.as_u8())).count(), 12);
        assert_eq!(HashType::from_u8(0x88), None);
        assert_eq!(HashType::from_u8(0x89), Some(HashType::UdpIpv6));
    }

    #[test]
    fn six_types_name_a_bucket() {
        assert_eq!(HashType::ALL.iter().filter(|t| t.has_affinity()).count(), 6);
    }
}
