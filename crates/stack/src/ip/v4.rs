//! IPv4 input (RFC 791, RFC 1122 section 3.2.1).

use core::net::{IpAddr, Ipv4Addr};

use flowlane_sys::frame::Frame;

use super::chained::takes_chain;
use super::{Inbound, Ip};
use crate::interface::Destination;
use crate::packet::{Cx, IpInput, IpMeta};
use crate::stats::DropReason;
use crate::wire::{IpProtocol, Ipv4Header, MacAddr, Malformed};

impl Ip {
    /// Takes in a packet whose data starts at the IPv4 header.
    #[inline]
    pub(super) fn v4(&mut self, cx: &mut Cx<'_>, mut frame: Frame, link_dst: MacAddr) -> Inbound {
        self.stats.ip.received += 1;
        let (header, payload) = match Ipv4Header::parse_first(frame.data(), frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.bad_v4(reason),
        };
        // Guard: `header.options.source_route` as `false` fails lane/packets_with_a_source_route
        if header.options.source_route {
            self.stats.ip.bad_options += 1;
            return self.drop(DropReason::SourceRoute);
        }
        let link = frame.meta().interface;
        let unicast = match self.for_us(link, IpAddr::V4(header.dst), link_dst) {
            Ok(unicast) => unicast,
            // Another lane of the host may be in the group that is asked for.
            Err(DropReason::NoGroup) if header.protocol == IpProtocol::IGMP => false,
            // A server may send its offer to the address that it offers.
            Err(DropReason::NotOurAddress)
                if header.protocol == IpProtocol::UDP
                    && frame.data().get(payload.start..).is_some_and(|udp| self.has_dhcp_ports(udp)) =>
            {
                false
            }
            Err(reason) => {
                let counter = match reason {
                    DropReason::NoGroup => &mut self.stats.ip.no_group,
                    _ => &mut self.stats.ip.not_forwardable,
                };
                *counter += 1;
                return self.drop(reason);
            }
        };
        // Guard: `!self.plausible_v4(link, header.src)` as `false` fails lane/hostile lane/net
        if !self.plausible_v4(link, header.src) {
            return self.drop(DropReason::BadSource);
        }
        // Ethernet pads short frames: what IP does not count is not there.
        frame.truncate_chain(payload.end);
        // The header was parsed from these bytes.
        let _ = frame.trim_front(payload.start);
        if header.is_fragment() {
            return self.fragment_v4(cx, frame, &header, payload.start as u16);
        }
        self.local_v4(cx, frame, &header, payload.start as u16, unicast)
    }

    /// Takes in a packet that another lane, or reassembly, has checked. It is no fragment any more.
    pub(super) fn direct_v4(&mut self, cx: &mut Cx<'_>, mut frame: Frame) -> Inbound {
        let (header, payload) = match Ipv4Header::parse_first_trusted(frame.data(), frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.bad_v4(reason),
        };
        // Guard: `header.is_fragment()` as `false` fails lane/what_comes_from_another_lane
        if header.is_fragment() {
            return self.drop(DropReason::FragmentNested);
        }
        let link = usize::from(frame.meta().interface);
        let unicast = self.interfaces[link].destination(IpAddr::V4(header.dst)) == Destination::Unicast;
        frame.truncate_chain(payload.end);
        // The header was parsed from these bytes.
        let _ = frame.trim_front(payload.start);
        self.local_v4(cx, frame, &header, payload.start as u16, unicast)
    }

    /// Hands a whole packet for us to its protocol. The frame's data starts behind the header.
    #[inline]
    fn local_v4(
        &mut self,
        cx: &mut Cx<'_>,
        frame: Frame,
        header: &Ipv4Header,
        header_len: u16,
        unicast: bool,
    ) -> Inbound {
        let link = frame.meta().interface;
        let packet = IpInput {
            ip: IpMeta {
                src: IpAddr::V4(header.src),
                dst: IpAddr::V4(header.dst),
                protocol: header.protocol.0,
                hop_limit: header.ttl,
                traffic_class: header.tos,
                header_len,
                interface: link,
                mtu: self.interfaces[usize::from(link)].config.mtu,
                unicast,
            },
            frame,
        };
        self.stats.ip.delivered += 1;
        if packet.frame.is_chained()
            && !takes_chain(header.protocol, &packet.frame)
            && !self.tunnels.takes_protocol(header.protocol.0)
        {
            return self.chained(cx, packet);
        }
        self.upper_v4(cx, packet)
    }

    /// The protocol above, for a packet in one frame or of UDP.
    #[inline]
    pub(super) fn upper_v4(&mut self, cx: &mut Cx<'_>, packet: IpInput) -> Inbound {
        match IpProtocol(packet.ip.protocol) {
            IpProtocol::UDP if self.is_tunnel_udp(&packet) => self.tunnelled_udp(cx, packet),
            IpProtocol::UDP | IpProtocol::TCP => Inbound::Transport(packet),
            IpProtocol::ICMP => self.icmp_v4(cx, packet),
            IpProtocol::IGMP => self.igmp(cx, packet),
            _ if self.tunnels.takes_protocol(packet.ip.protocol) => self.tunnelled(cx, packet),
            _ => {
                self.stats.ip.unknown_protocol += 1;
                self.protocol_unreachable(cx, packet);
                self.drop(DropReason::UnknownProtocol)
            }
        }
    }

    #[cold]
    fn bad_v4(&mut self, reason: Malformed) -> Inbound {
        let ip = &mut self.stats.ip;
        let counter = match reason {
            Malformed::Ipv4Short => &mut ip.too_short,
            Malformed::Ipv4Version => &mut ip.bad_version,
            Malformed::Ipv4HeaderLength => &mut ip.bad_header_length,
            Malformed::Ipv4TotalLength => &mut ip.bad_length,
            Malformed::Ipv4Checksum => &mut ip.bad_checksum,
            _ => &mut ip.bad_options,
        };
        *counter += 1;
        self.malformed(reason)
    }

    /// Whether a host could have this source address (RFC 1122 section 3.2.1.3). Our own address is one that no
    /// other host may use, a broadcast address of our networks would have answers sent to everybody; the unspecified one only asks for an address, which nobody here serves.
    #[inline]
    fn plausible_v4(&self, link: u8, src: Ipv4Addr) -> bool {
        let first = src.octets()[0];
        // 0/8, 127/8, 224/4 and above: impossible at a glance.
        (1..224).contains(&first)
            && first != 127
            && !self.interfaces[usize::from(link)].is_no_source_v4(u32::from(src))
    }
}
