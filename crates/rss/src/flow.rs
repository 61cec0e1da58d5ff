//! A packet's flow as the hash sees it.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// An IP protocol number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP, 6.
    pub const TCP: Self = Self(6);
    /// UDP, 17.
    pub const UDP: Self = Self(17);
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TCP => f.pad("tcp"),
            Self::UDP => f.pad("udp"),
            Self(number) => write!(f, "protocol {number}"),
        }
    }
}

/// The fields of one packet that steering may use, in the direction of the packet: the source is the sender.
///
/// Ports are in host order. Both addresses must be of one family; the hash of a mixed flow is of type
/// [`None`](crate::HashType::None).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Address of the sender.
    pub src: IpAddr,
    /// Address of the receiver.
    pub dst: IpAddr,
    /// Port of the sender; not used unless the protocol has ports.
    pub src_port: u16,
    /// Port of the receiver; not used unless the protocol has ports.
    pub dst_port: u16,
    /// IPv4's protocol or the last next-header of IPv6.
    pub protocol: Protocol,
    /// Whether the packet is a fragment and so may have no ports. An IPv6 fragment header with offset 0 and nothing
    /// to follow ("atomic") does not count.
    pub fragment: bool,
}

impl Flow {
    /// An unfragmented packet from `src` to `dst`.
    #[must_use]
    pub fn new(src: SocketAddr, dst: SocketAddr, protocol: Protocol) -> Self {
        Self {
            src: src.ip(),
            dst: dst.ip(),
            src_port: src.port(),
            dst_port: dst.port(),
            protocol,
            fragment: false,
        }
    }

    /// The flow of the answer: source and destination swapped.
    #[must_use]
    pub fn reply(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            protocol: self.protocol,
            fragment: self.fragment,
        }
    }
}
