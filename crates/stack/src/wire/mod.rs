//! What travels on the wire: one file per protocol, each a pair of functions between bytes and meaning.
//!
//! Every file has the same shape. A plain `Copy` struct holds what a header *says*; `parse` reads it from a slice,
//! checks each length once and returns the struct with the range of the payload inside that slice; `emit` writes it
//! to the front of a buffer. Nothing here keeps state, allocates, or knows about sockets, and nothing here panics on
//! any input: a packet that cannot be right yields a [`Malformed`] reason, which the lane counts by name.
//!
//! Emitting is different: the caller chose the buffer, so a buffer too small for the header is a bug of ours and
//! panics with both sizes.
//!
//! All integers in the structs are in host order, all addresses in the order of the wire. The code reads and writes
//! through byte arrays, so it makes no assumption about the machine's byte order or alignment.

mod accecn;
pub mod arp;
pub mod checksum;
mod display;
pub mod ethernet;
pub mod flow;
pub mod geneve;
pub mod gre;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
mod malformed;
pub mod mld;
pub mod ndp;
mod quote;
mod seq;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
pub mod vxlan;

pub use accecn::AccEcnOption;
pub use arp::{ArpOperation, ArpPacket};
pub use checksum::Sum;
pub use ethernet::{EtherType, EthernetHeader, MacAddr, VlanTag};
pub use flow::{Addresses, Classified, Flow, classify, classify_ip};
pub use geneve::GeneveHeader;
pub use gre::GreHeader;
pub use icmpv4::Icmpv4Message;
pub use icmpv6::Icmpv6Message;
pub use igmp::{GroupChange, IgmpMessage};
pub use ipv4::{Ipv4Header, Ipv4Options};
pub use ipv6::Ipv6Header;
pub use ipv6_ext::{ExtensionProblem, Ipv6Fragment, Ipv6Upper};
pub use malformed::Malformed;
pub use mld::MldQuery;
pub use ndp::{NdpMessage, NdpOptions, PrefixInformation};
pub use quote::Quote;
pub use seq::SeqNum;
pub use tcp::{TcpFlags, TcpHeader};
pub use tcp_options::{FastOpenOption, SackBlock, SackBlocks, TcpOptions, Timestamps};
pub use udp::UdpHeader;
pub use vxlan::VxlanHeader;

use core::fmt;

/// The number in IPv4's protocol field and IPv6's next-header fields (IANA "Protocol Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: IpProtocol = IpProtocol(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: IpProtocol = IpProtocol(1);
    /// IGMP (RFC 3376).
    pub const IGMP: IpProtocol = IpProtocol(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: IpProtocol = IpProtocol(4);
    /// TCP (RFC 9293).
    pub const TCP: IpProtocol = IpProtocol(6);
    /// UDP (RFC 768).
    pub const UDP: IpProtocol = IpProtocol(17);
    /// IPv6 in IP (RFC 4213, RFC 2473).
    pub const IPV6: IpProtocol = IpProtocol(41);
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: IpProtocol = IpProtocol(43);
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: IpProtocol = IpProtocol(44);
    /// GRE (RFC 2784).
    pub const GRE: IpProtocol = IpProtocol(47);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: IpProtocol = IpProtocol(58);
    /// Nothing follows (RFC 8200 §4.7).
    pub const NO_NEXT: IpProtocol = IpProtocol(59);
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DESTINATION_OPTIONS: IpProtocol = IpProtocol(60);
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            IpProtocol::HOP_BY_HOP => "hop-by-hop",
            IpProtocol::ICMP => "icmp",
            IpProtocol::IGMP => "igmp",
            IpProtocol::IPV4 => "ipv4",
            IpProtocol::TCP => "tcp",
            IpProtocol::UDP => "udp",
            IpProtocol::IPV6 => "ipv6",
            IpProtocol::ROUTING => "routing",
            IpProtocol::FRAGMENT => "fragment",
            IpProtocol::GRE => "gre",
            IpProtocol::ICMPV6 => "icmpv6",
            IpProtocol::NO_NEXT => "none",
            IpProtocol::DESTINATION_OPTIONS => "destination-options",
            IpProtocol(other) => return write!(f, "protocol-{other}"),
        };
        f.write_str(name)
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The `N` bytes at `at`, or `None` if the slice ends before them.
#[inline(always)]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>()
}

/// The first `N` bytes of a buffer that is to be written.
#[inline(always)]
#[track_caller]
fn room<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    let have = buffer.len();
    match buffer.first_chunk_mut::<N>() {
        Some(bytes) => bytes,
        None => no_room(N, have),
    }
}

#[cold]
#[track_caller]
fn no_room(need: usize, have: usize) -> ! {
    panic!("a header of {need} bytes does not fit into a buffer of {have}")
}

/// A big-endian 16-bit number at a constant place of a fixed header.
#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A big-endian 32-bit number at a constant place of a fixed header.
#[inline(always)]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Four address bytes at a constant place of a fixed header.
#[inline(always)]
fn four<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// Six address bytes at a constant place of a fixed header.
#[inline(always)]
fn six<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 6] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4], bytes[at + 5]]
}

/// Sixteen address bytes at a constant place of a fixed header.
#[inline(always)]
fn sixteen<const N: usize>(bytes: &[u8; N], at: usize) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&bytes[at..at + 16]);
    out
}
