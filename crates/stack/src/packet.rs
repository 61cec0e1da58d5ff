//! Packets between the IP layer and the transports of a lane.
//!
//! On input a packet keeps its IP header in the frame's headroom, so that an ICMP error can quote it. On output a transport fills a frame
//! from its own header on and names the destination; the lane prepends IP and Ethernet headers.

use core::net::IpAddr;
use flowlane_sys::frame::{Frame, Pool};

use crate::path_mtu::PathMtus;
use crate::rng::Rng;
use crate::time::Time;

/// Resources that the lane lends to a transport during a call.
#[derive(Debug)]
pub struct Cx<'a> {
    /// Now, on the worker's clock.
    pub now: Time,
    /// The pool of frames.
    pub frames: &'a Pool,
    /// The lane's randomness, seeded from outside.
    pub rng: &'a mut Rng,
    /// The lane's path MTUs.
    pub paths: &'a mut PathMtus,
    /// Offloads of the link for outgoing packets.
    pub offload: Offload,
}

/// Offloads of a link for outgoing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// Transport checksums may be left to the link (`Checksum::Partial`).
    pub checksum: bool,
    /// TCP packets of up to this many bytes of payload may be handed down for the link to cut; 0 for none.
    pub segmentation: usize,
}

/// Which links of a host have room, for a transport that is asked for what may leave.
pub(crate) struct Room<'a> {
    /// Whether a link has room.
    pub(crate) is_open: &'a dyn Fn(u8) -> bool,
    /// The link without room that what is for a destination has to wait for.
    pub(crate) closed: &'a dyn Fn(IpAddr) -> Option<u8>,
}

/// A packet for a transport. The frame's data starts at the transport header and ends with the IP payload.
#[derive(Debug)]
pub struct IpInput {
    /// Transport header and payload; the IP header lies in the headroom, `ip.header_len` bytes before the data.
    pub frame: Frame,
    /// Fields of the IP header.
    pub ip: IpMeta,
}

/// Fields of the IP header of a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpMeta {
    /// Who sent it.
    pub src: IpAddr,
    /// To which address: one of ours, a broadcast or a joined group.
    pub dst: IpAddr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// TTL or hop limit as received.
    pub hop_limit: u8,
    /// Type of service or traffic class, ECN in the low two bits.
    pub traffic_class: u8,
    /// Bytes from the start of the IP header to the transport header.
    pub header_len: u16,
    /// Interface of the host that received it.
    pub interface: u8,
    /// MTU of that interface, bytes of IP packet.
    pub mtu: u16,
    /// `dst` is one of our own addresses, not a broadcast or multicast one.
    pub unicast: bool,
}

/// A packet from a transport. The frame's data starts at the transport header.
#[derive(Debug)]
pub struct IpOutput {
    /// Transport header and payload, with room in front for IP and Ethernet. `meta().checksum` and `meta().segmentation` are the offloads
    /// left to the link.
    pub frame: Frame,
    /// One of our addresses.
    pub src: IpAddr,
    /// The destination.
    pub dst: IpAddr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Type of service or traffic class.
    pub traffic_class: u8,
    /// IPv4: set DF.
    pub dont_fragment: bool,
}

/// An ICMP error about a packet that we sent, checked by the IP layer as far as it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Our address, the quoted packet's source.
    pub local: IpAddr,
    /// The quoted packet's destination.
    pub remote: IpAddr,
    /// Quoted protocol.
    pub protocol: u8,
    /// First 8 bytes of the quoted transport header.
    pub quoted: [u8; 8],
    /// Kind of the error.
    pub kind: IcmpErrorKind,
}

/// Kinds of ICMP error, across both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcmpErrorKind {
    /// No listener or socket on that port.
    PortUnreachable,
    /// The host does not take that protocol.
    ProtocolUnreachable,
    /// The host or its network cannot be reached; perhaps only now.
    HostUnreachable,
    /// Administratively prohibited by a router.
    Prohibited,
    /// The packet was too big for a link with this MTU (bytes of IP packet; 0 when an old router did not say).
    PacketTooBig(u16),
    /// The hop limit ran out.
    TimeExceeded,
    /// A header field was not understood.
    ParameterProblem,
}
