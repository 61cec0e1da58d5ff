//! IPv6 input (RFC 8200).

use core::net::{IpAddr, Ipv6Addr};

use flowlane_sys::frame::Frame;

use super::chained::takes_chain;
use super::{Inbound, Ip};
use crate::interface::Destination;
use crate::packet::{Cx, IpInput, IpMeta};
use crate::stats::DropReason;
use crate::wire::icmpv6::{Icmpv6Message, MLD_QUERY};
use crate::wire::ipv6_ext::{ExtensionProblem, walk};
use crate::wire::{IpProtocol, Ipv6Header, Ipv6Upper, MacAddr, Malformed};

impl Ip {
    /// Takes in a packet whose data starts at the IPv6 header.
    #[inline]
    pub(super) fn v6(&mut self, cx: &mut Cx<'_>, mut frame: Frame, link_dst: MacAddr) -> Inbound {
        self.stats.ip6.received += 1;
        let (header, payload) = match Ipv6Header::parse_first(frame.data(), frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.bad_v6(reason),
        };
        let link = frame.meta().interface;
        let unicast = match self.for_us(link, IpAddr::V6(header.dst), link_dst) {
            Ok(unicast) => unicast,
            // Another lane of the host may be in the group that is asked for.
            Err(DropReason::NoGroup) if is_group_query(&frame, &header) => false,
            Err(reason) => {
                let counter = match reason {
                    DropReason::NoGroup => &mut self.stats.ip6.no_group,
                    _ => &mut self.stats.ip6.not_forwardable,
                };
                *counter += 1;
                return self.drop(reason);
            }
        };
        // Ethernet pads short frames: what IP does not count is not there.
        frame.truncate_chain(payload.end);
        if !self.plausible_v6(link, header.src, header.next_header) {
            return self.drop(DropReason::BadSource);
        }
        let ip = self.meta_v6(&header, link, unicast);
        let upper = match walk(frame.data(), header.next_header) {
            Ok(upper) => upper,
            Err(problem) => return self.bad_extension(cx, IpInput { frame, ip }, problem),
        };
        if upper.fragment_at.is_some() {
            if upper.fragment.is_some() {
                return self.fragment_v6(cx, frame, ip, &upper);
            }
            self.stats.ip6.atomic_fragments += 1;
        }
        self.local_v6(cx, frame, ip, &upper)
    }

    /// Takes in a packet that another lane, or reassembly, has checked. It is no fragment any more.
    pub(super) fn direct_v6(&mut self, cx: &mut Cx<'_>, mut frame: Frame) -> Inbound {
        let (header, payload) = match Ipv6Header::parse_first(frame.data(), frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.bad_v6(reason),
        };
        let link = frame.meta().interface;
        let unicast =
            self.interfaces[usize::from(link)].destination(IpAddr::V6(header.dst)) == Destination::Unicast;
        frame.truncate_chain(payload.end);
        let ip = self.meta_v6(&header, link, unicast);
        match walk(frame.data(), header.next_header) {
            Ok(upper) if upper.fragment.is_some() => self.drop(DropReason::FragmentNested),
            Ok(upper) => self.local_v6(cx, frame, ip, &upper),
            Err(problem) => self.bad_extension(cx, IpInput { frame, ip }, problem),
        }
    }

    #[inline]
    fn meta_v6(&self, header: &Ipv6Header, link: u8, unicast: bool) -> IpMeta {
        IpMeta {
            src: IpAddr::V6(header.src),
            dst: IpAddr::V6(header.dst),
            protocol: header.next_header.0,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
            header_len: crate::wire::ipv6::HEADER_LEN as u16,
            interface: link,
            mtu: self.interfaces[usize::from(link)].config.mtu,
            unicast,
        }
    }

    /// Hands a whole packet for us to its protocol. The frame's data starts at the IPv6 header.
    #[inline]
    fn local_v6(&mut self, cx: &mut Cx<'_>, mut frame: Frame, mut ip: IpMeta, upper: &Ipv6Upper) -> Inbound {
        if upper.protocol != IpProtocol::ICMPV6 && ip.src.is_unspecified() {
            // Behind extension headers, too: an answer would go to nobody.
            return self.drop(DropReason::BadSource);
        }
        ip.protocol = upper.protocol.0;
        ip.header_len = upper.offset as u16;
        // The walk ended inside these bytes.
        if !frame.trim_front(upper.offset) {
            return self.malformed(Malformed::Ipv6ExtensionHeader);
        }
        let packet = IpInput { frame, ip };
        self.stats.ip6.delivered += 1;
        if packet.frame.is_chained()
            && !takes_chain(upper.protocol, &packet.frame)
            && !self.tunnels.takes_protocol(upper.protocol.0)
        {
            return self.chained(cx, packet);
        }
        self.upper_v6(cx, packet, upper.next_header_at)
    }

    /// The protocol above, named by the byte at `next_header_at`, for a packet in one frame or of UDP.
    #[inline]
    pub(super) fn upper_v6(&mut self, cx: &mut Cx<'_>, packet: IpInput, next_header_at: usize) -> Inbound {
        match IpProtocol(packet.ip.protocol) {
            IpProtocol::UDP if self.is_tunnel_udp(&packet) => self.tunnelled_udp(cx, packet),
            IpProtocol::UDP | IpProtocol::TCP => Inbound::Transport(packet),
            IpProtocol::ICMPV6 => self.icmp_v6(cx, packet),
            IpProtocol::NO_NEXT => self.drop(DropReason::NoNextHeader),
            _ if self.tunnels.takes_protocol(packet.ip.protocol) => self.tunnelled(cx, packet),
            _ => {
                self.stats.ip6.unknown_protocol += 1;
                let message = Icmpv6Message::ParameterProblem {
                    code: crate::wire::ipv6_ext::UNKNOWN_NEXT_HEADER,
                    pointer: next_header_at as u32,
                };
                self.error_v6(cx, packet, message, false);
                self.drop(DropReason::UnknownProtocol)
            }
        }
    }

    #[cold]
    fn bad_v6(&mut self, reason: Malformed) -> Inbound {
        let ip = &mut self.stats.ip6;
        let counter = match reason {
            Malformed::Ipv6Short => &mut ip.too_short,
            Malformed::Ipv6Version => &mut ip.bad_version,
            Malformed::Ipv6PayloadLength => &mut ip.bad_length,
            _ => &mut ip.bad_options,
        };
        *counter += 1;
        self.malformed(reason)
    }

    #[cold]
    pub(super) fn bad_extension(
        &mut self,
        cx: &mut Cx<'_>,
        mut packet: IpInput,
        problem: ExtensionProblem,
    ) -> Inbound {
        self.stats.ip6.bad_options += 1;
        match problem {
            ExtensionProblem::Malformed(reason) => self.malformed(reason),
            ExtensionProblem::Discard => self.drop(DropReason::Ipv6Option),
            ExtensionProblem::Report { code, pointer, even_if_multicast } => {
                // The frame still starts at the IPv6 header; make it what an IpInput is.
                let len = usize::from(packet.ip.header_len).min(packet.frame.len());
                let _ = packet.frame.trim_front(len);
                let message = Icmpv6Message::ParameterProblem { code, pointer };
                self.error_v6(cx, packet, message, even_if_multicast);
                self.drop(DropReason::Ipv6Option)
            }
        }
    }

    /// Whether a host could have this source address (RFC 4291 sections 2.5.3 and 2.7). The unspecified address is
    /// that of hosts that have none yet and speak neighbour discovery. Our own is one that a rival advertises from: ICMPv6
    /// looks at those.
    #[inline]
    fn plausible_v6(&self, link: u8, src: Ipv6Addr, next: IpProtocol) -> bool {
        !src.is_multicast()
            && !src.is_loopback()
            && (!src.is_unspecified() || matches!(next, IpProtocol::ICMPV6 | IpProtocol::HOP_BY_HOP))
            && (next == IpProtocol::ICMPV6 || !self.interfaces[usize::from(link)].is_local(IpAddr::V6(src)))
    }
}

/// Whether a packet for a group that this lane is not in is a query for it.
#[cold]
fn is_group_query(frame: &Frame, header: &Ipv6Header) -> bool {
    let data = frame.data();
    header.next_header == IpProtocol::HOP_BY_HOP
        && header.hop_limit == 1
        && walk(data, header.next_header).is_ok_and(|upper| {
            upper.protocol == IpProtocol::ICMPV6 && data.get(upper.offset) == Some(&MLD_QUERY)
        })
}
