//! ICMP for IPv6 (RFC 4443).

use core::net::{IpAddr, Ipv6Addr};

use flowlane_sys::frame::Checksum;

use super::{Inbound, Ip};
use crate::packet::{Cx, IcmpErrorKind, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::icmpv6::{HEADER_LEN, Icmpv6Message, unreachable};
use crate::wire::{IpProtocol, Malformed, Quote, ipv6};

/// An error's whole packet: the least MTU of IPv6 (RFC 4443 section 2.4 c).
const ERROR_LEN: usize = 1280;

impl Ip {
    pub(super) fn icmp_v6(&mut self, cx: &mut Cx<'_>, mut packet: IpInput) -> Inbound {
        self.stats.icmp6.received += 1;
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.ip.src, packet.ip.dst) else {
            return Inbound::Done;
        };
        let message = match Icmpv6Message::parse(src, dst, packet.frame.data()) {
            Ok((message, _)) => message,
            Err(Malformed::Icmpv6Checksum) => {
                self.stats.icmp6.bad_checksum += 1;
                return self.drop(DropReason::IcmpChecksum);
            }
            Err(reason) => return self.malformed(reason),
        };
        let ours = self.interfaces[usize::from(packet.ip.interface)].is_local(packet.ip.src);
        let impossible = match message {
            // A rival's claim: looked at there.
            Icmpv6Message::Ndp => false,
            Icmpv6Message::Mld => ours,
            _ => ours || src.is_unspecified(),
        };
        if impossible {
            return self.drop(DropReason::BadSource);
        }
        match message {
            Icmpv6Message::Ndp => self.ndp(cx, &packet),
            Icmpv6Message::Mld => self.mld(cx, packet),
            Icmpv6Message::EchoRequest { ident, seq } => {
                self.stats.icmp6.echo_requests += 1;
                if !packet.ip.unicast {
                    // To a group of the link that we are in: RFC 4443 section 4.2. Groups of wider scope are not answered,
                    // since many of us could be made to answer somebody far away.
                    let interface = &self.interfaces[usize::from(packet.ip.interface)];
                    match interface.source_for(packet.ip.src) {
                        Some(own) if interface.is_member(dst) && is_of_link(dst) => packet.ip.dst = own,
                        _ => return self.drop(DropReason::IcmpBroadcast),
                    }
                }
                let IpAddr::V6(own) = packet.ip.dst else { return self.drop(DropReason::IcmpBroadcast) };
                Icmpv6Message::EchoReply { ident, seq }.emit(own, src, packet.frame.data_mut());
                packet.frame.meta_mut().checksum = Checksum::InPacket;
                self.answer(cx, packet)
            }
            Icmpv6Message::Unreachable { code } => {
                let kind = match code {
                    unreachable::PORT => IcmpErrorKind::PortUnreachable,
                    unreachable::PROHIBITED | 5 | 6 => IcmpErrorKind::Prohibited,
                    _ => IcmpErrorKind::HostUnreachable,
                };
                self.error_in_v6(cx, packet, kind)
            }
            Icmpv6Message::PacketTooBig { mtu } => {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                self.error_in_v6(cx, packet, IcmpErrorKind::PacketTooBig(mtu))
            }
            Icmpv6Message::TimeExceeded { .. } => self.error_in_v6(cx, packet, IcmpErrorKind::TimeExceeded),
            Icmpv6Message::ParameterProblem { code: 1, .. } => {
                self.error_in_v6(cx, packet, IcmpErrorKind::ProtocolUnreachable)
            }
            Icmpv6Message::ParameterProblem { .. } => {
                self.error_in_v6(cx, packet, IcmpErrorKind::ParameterProblem)
            }
            _ => self.drop(DropReason::IcmpUnhandled),
        }
    }

    fn error_in_v6(&mut self, cx: &mut Cx<'_>, packet: IpInput, kind: IcmpErrorKind) -> Inbound {
        self.stats.icmp6.errors_received += 1;
        match Quote::parse_v6(packet.frame.data().get(HEADER_LEN..).unwrap_or_default()) {
            Ok(quote) => self.error_about(cx, packet, quote, kind),
            Err(reason) => self.malformed(reason),
        }
    }

    /// Sends an error about `packet`.
    pub(super) fn error_v6(
        &mut self,
        cx: &mut Cx<'_>,
        mut packet: IpInput,
        message: Icmpv6Message,
        even_if_multicast: bool,
    ) {
        if !self.may_err(cx, &packet, even_if_multicast) {
            return;
        }
        let most = ERROR_LEN - ipv6::HEADER_LEN - HEADER_LEN;
        let Some(mut frame) = self.quoting(cx, &mut packet, HEADER_LEN, most) else { return };
        // An error about a packet to a group comes from an address of the interface.
        let link = usize::from(packet.ip.interface);
        let src = match packet.ip.unicast {
            true => Some(packet.ip.dst),
            false => self.interfaces[link].source_for(packet.ip.src),
        };
        let (Some(IpAddr::V6(src)), IpAddr::V6(dst)) = (src, packet.ip.src) else { return };
        message.emit(src, dst, frame.data_mut());
        self.stats.icmp6.errors_sent += 1;
        let out = IpOutput {
            frame,
            src: IpAddr::V6(src),
            dst: packet.ip.src,
            protocol: IpProtocol::ICMPV6.0,
            hop_limit: 64,
            traffic_class: 0,
            dont_fragment: true,
        };
        self.send_back(cx, out, packet.ip.interface);
    }
}

/// Whether a group means something on one link only (RFC 4291 section 2.7).
pub(super) fn is_of_link(group: Ipv6Addr) -> bool {
    group.is_multicast() && group.segments()[0] & 0xf == 2
}
