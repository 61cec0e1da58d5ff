//! IP output: route, header, next hop.

use core::fmt;
use core::net::IpAddr;

use flowlane_sys::frame::{Frame, Segmentation};

use super::{Ip, NextHop};
use crate::neighbour::Resolution;
use crate::packet::{Cx, IpOutput};
use crate::route::Hop;
use crate::stats::DropReason;
use crate::wire::{IpProtocol, Ipv4Header, Ipv4Options, Ipv6Header, MacAddr, ipv4, ipv6};

/// Why a packet was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// There is no route to the destination.
    NoRoute,
    /// None of our addresses is of the destination's family, or the source given is not ours.
    NoSource,
    /// Larger than the MTU, bytes of IP packet, on the way there, and not to be cut.
    TooBig(u16),
    /// Longer than any datagram can be: a UDP payload beyond 65507 bytes over IPv4 or 65527 over IPv6.
    TooLong,
    /// The lane's output queue is full: try again when there is room.
    Full,
    /// No frame is free: try again later.
    NoFrame,
    /// The handle's socket is closed.
    Closed,
    /// An unconnected socket needs a destination.
    NoDestination,
    /// `0.0.0.0` and `::` are no destinations.
    Unspecified,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute => f.write_str("no route to the destination"),
            Self::NoSource => f.write_str("no source address for the destination"),
            Self::TooBig(mtu) => write!(f, "larger than the MTU of {mtu} bytes"),
            Self::TooLong => f.write_str("longer than a datagram can be"),
            Self::Full => f.write_str("the output queue is full"),
            Self::NoFrame => f.write_str("no frame is free"),
            Self::Closed => f.write_str("the socket is closed"),
            Self::Unspecified => f.write_str("the unspecified address is no destination"),
            Self::NoDestination => f.write_str("the socket is not connected and no destination was given"),
        }
    }
}

impl std::error::Error for SendError {}

impl Ip {
    /// Sends a packet of a transport: puts the headers in front and the frame into the output queue, or lets it wait
    /// for its next hop.
    #[inline]
    pub(crate) fn send(&mut self, cx: &mut Cx<'_>, out: IpOutput) -> Result<(), SendError> {
        let Some(hop) = self.hop(out.dst) else {
            self.stats.drops.count(DropReason::NoRoute);
            let ip = if out.dst.is_ipv4() { &mut self.stats.ip } else { &mut self.stats.ip6 };
            ip.no_route += 1;
            return Err(SendError::NoRoute);
        };
        if !self.has_room(hop.interface) {
            self.stats.drops.count(DropReason::OutputFull);
            return Err(SendError::Full);
        }
        self.send_to(cx, out, hop)
    }

    /// As [`Ip::send`], for a transport whose turn it is: what others have queued does not stand in its way. What is put
    /// into an output queue must be taken out at once.
    #[inline]
    pub(crate) fn send_in_turn(&mut self, cx: &mut Cx<'_>, out: IpOutput) -> Result<(), SendError> {
        let Some(hop) = self.hop(out.dst) else { return self.send(cx, out) };
        self.send_to(cx, out, hop)
    }

    #[inline]
    pub(crate) fn send_to(&mut self, cx: &mut Cx<'_>, out: IpOutput, hop: Hop) -> Result<(), SendError> {
        let dst = out.dst;
        let out = if out.frame.is_chained() { self.unchained(cx, out, hop) } else { out };
        if self.is_to_be_cut(cx.paths, &out, hop) {
            return self.send_fragments(cx, out, hop);
        }
        let frame = self.with_header(out, hop.interface)?;
        self.hand_to_hop(cx, hop, dst, frame);
        Ok(())
    }

    /// Sends a packet with its header to the next hop, or lets it wait for that one's address.
    #[inline]
    pub(super) fn hand_to_hop(&mut self, cx: &mut Cx<'_>, hop: Hop, dst: IpAddr, frame: Frame) {
        if !self.interfaces[usize::from(hop.interface)].ethernet {
            self.put_ethernet(frame, hop.interface, MacAddr::ZERO);
            return;
        }
        // No group and no broadcast has an address that a neighbour answered for.
        if let Some(last) = self.last_hop.filter(|last| last.leads_to(cx.now, hop)) {
            self.put_ethernet(frame, hop.interface, last.mac);
            return;
        }
        if let Some(mac) = group_mac(dst) {
            self.put_ethernet(frame, hop.interface, mac);
            return;
        }
        if let (IpAddr::V4(a), Some(interface)) = (dst, self.interfaces.get(usize::from(hop.interface))) {
            if interface.destination(dst) == crate::interface::Destination::Broadcast || a.is_broadcast() {
                self.put_ethernet(frame, hop.interface, MacAddr::BROADCAST);
                return;
            }
        }
        match self.neighbours.resolve(cx.now, hop.interface, hop.address, cx.rng, &mut self.stats.arp) {
            Resolution::Known(mac) => {
                if let IpAddr::V4(address) = hop.address {
                    self.last_hop = Some(NextHop::new(cx.now, hop.interface, address, mac));
                }
                self.put_ethernet(frame, hop.interface, mac);
            }
            Resolution::Probe(mac) => {
                self.put_ethernet(frame, hop.interface, mac);
                let (interface, address) = (hop.interface, hop.address);
                self.ask(cx, crate::neighbour::Ask { interface, address, at: Some(mac) });
            }
            Resolution::Unknown { ask } => {
                if self.neighbours.wait(hop.interface, hop.address, frame).is_err() {
                    self.stats.drops.count(DropReason::NeighbourQueueFull);
                }
                if ask {
                    let (interface, address) = (hop.interface, hop.address);
                    self.ask(cx, crate::neighbour::Ask { interface, address, at: None });
                }
            }
        }
    }

    /// Sends a packet on an interface to an Ethernet address that the caller knows.
    pub(super) fn send_directly(&mut self, out: IpOutput, interface: u8, mac: MacAddr) {
        // Counted where it fails.
        if let Ok(frame) = self.with_header(out, interface) {
            self.put_ethernet(frame, interface, mac);
        }
    }

    /// Puts the IP header in front.
    #[inline]
    fn with_header(&mut self, out: IpOutput, interface: u8) -> Result<Frame, SendError> {
        // TCP knows the way of each connection, and what is too long for the way is cut before it comes here.
        let mtu = self.interfaces[usize::from(interface)].config.mtu;
        let len = out.frame.chain_len();
        let mut frame = out.frame;
        let cut_by_link = frame.meta().segmentation != Segmentation::None;
        match (out.src, out.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                if len + ipv4::HEADER_LEN > usize::from(mtu) && !cut_by_link {
                    self.stats.ip.cannot_fragment += 1;
                    self.stats.drops.count(DropReason::TooBig);
                    return Err(SendError::TooBig(mtu));
                }
                let header = Ipv4Header {
                    src,
                    dst,
                    protocol: IpProtocol(out.protocol),
                    ttl: out.hop_limit,
                    tos: out.traffic_class,
                    // Never fragmented, so the identifier means nothing (RFC 6864 section 4.1).
                    identification: 0,
                    dont_fragment: out.dont_fragment,
                    more_fragments: false,
                    fragment_offset: 0,
                    payload_len: len as u16,
                    options: Ipv4Options::default(),
                };
                let Some(bytes) = frame.push_front(ipv4::HEADER_LEN) else { return Err(self.no_room()) };
                header.emit(bytes);
                self.stats.ip.sent += 1;
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                if len + ipv6::HEADER_LEN > usize::from(mtu) && !cut_by_link {
                    self.stats.ip6.cannot_fragment += 1;
                    self.stats.drops.count(DropReason::TooBig);
                    return Err(SendError::TooBig(mtu));
                }
                let header = Ipv6Header {
                    src,
                    dst,
                    next_header: IpProtocol(out.protocol),
                    hop_limit: out.hop_limit,
                    traffic_class: out.traffic_class,
                    flow_label: 0,
                    payload_len: len as u16,
                };
                let Some(bytes) = frame.push_front(ipv6::HEADER_LEN) else { return Err(self.no_room()) };
                header.emit(bytes);
                self.stats.ip6.sent += 1;
            }
            _ => {
                self.stats.drops.count(DropReason::NoRoute);
                return Err(SendError::NoSource);
            }
        }
        Ok(frame)
    }

    #[cold]
    fn no_room(&mut self) -> SendError {
        self.stats.drops.count(DropReason::NoHeadroom);
        SendError::NoFrame
    }

    /// The source address for packets to `dst`.
    pub(crate) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        let hop = self.hop(dst)?;
        self.interfaces.get(usize::from(hop.interface))?.source_for(dst)
    }

    /// Whether `address` is ours on any interface.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.is_local(address))
    }
}

/// The Ethernet address of a multicast group.
#[inline]
fn group_mac(dst: IpAddr) -> Option<MacAddr> {
    match dst {
        IpAddr::V4(a) if a.is_multicast() => Some(MacAddr::for_ipv4_multicast(a)),
        IpAddr::V6(a) if a.is_multicast() => Some(MacAddr::for_ipv6_multicast(a)),
        _ => None,
    }
}
