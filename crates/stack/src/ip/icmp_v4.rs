//! ICMP for IPv4 (RFC 792, RFC 1122 section 3.2.2).

use core::net::IpAddr;

use flowlane_sys::frame::Checksum;

use super::{Inbound, Ip};
use crate::packet::{Cx, IcmpError, IcmpErrorKind, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::icmpv4::{HEADER_LEN, Icmpv4Message, unreachable};
use crate::wire::{IpProtocol, Malformed, Quote, ipv4};

/// An error's whole packet (RFC 1812 section 4.3.2.3).
const ERROR_LEN: usize = 576;

impl Ip {
    pub(super) fn icmp_v4(&mut self, cx: &mut Cx<'_>, mut packet: IpInput) -> Inbound {
        self.stats.icmp.received += 1;
        let message = match Icmpv4Message::parse(packet.frame.data()) {
            Ok((message, _)) => message,
            Err(Malformed::IcmpChecksum) => {
                self.stats.icmp.bad_checksum += 1;
                return self.drop(DropReason::IcmpChecksum);
            }
            Err(reason) => return self.malformed(reason),
        };
        match message {
            Icmpv4Message::EchoRequest { ident, seq } => {
                self.stats.icmp.echo_requests += 1;
                if !packet.ip.unicast {
                    return self.drop(DropReason::IcmpBroadcast);
                }
                Icmpv4Message::EchoReply { ident, seq }.emit(packet.frame.data_mut());
                packet.frame.meta_mut().checksum = Checksum::InPacket;
                self.answer(cx, packet)
            }
            Icmpv4Message::Unreachable { code, mtu } => {
                let kind = match code {
                    unreachable::PORT => IcmpErrorKind::PortUnreachable,
                    unreachable::PROTOCOL => IcmpErrorKind::ProtocolUnreachable,
                    unreachable::FRAGMENTATION_NEEDED => IcmpErrorKind::PacketTooBig(mtu),
                    9 | 10 | unreachable::PROHIBITED => IcmpErrorKind::Prohibited,
                    _ => IcmpErrorKind::HostUnreachable,
                };
                self.error_in_v4(cx, packet, kind)
            }
            Icmpv4Message::TimeExceeded { .. } => self.error_in_v4(cx, packet, IcmpErrorKind::TimeExceeded),
            Icmpv4Message::ParameterProblem { .. } => {
                self.error_in_v4(cx, packet, IcmpErrorKind::ParameterProblem)
            }
            // Redirects are not followed: routes are configured (RFC 1812 section 5.2.7.2 lets a host choose).
            _ => self.drop(DropReason::IcmpUnhandled),
        }
    }

    fn error_in_v4(&mut self, cx: &mut Cx<'_>, packet: IpInput, kind: IcmpErrorKind) -> Inbound {
        self.stats.icmp.errors_received += 1;
        match Quote::parse_v4(packet.frame.data().get(HEADER_LEN..).unwrap_or_default()) {
            Ok(quote) => self.error_about(cx, packet, quote, kind),
            Err(reason) => self.malformed(reason),
        }
    }

    /// An error about a packet that claims to be ours.
    pub(super) fn error_about(
        &mut self,
        cx: &mut Cx<'_>,
        packet: IpInput,
        quote: Quote,
        kind: IcmpErrorKind,
    ) -> Inbound {
        if !self.tunnels.is_empty() && self.tunnel_error(cx, &quote, kind) {
            return Inbound::Done;
        }
        let Some(quoted) = quote.start.filter(|_| self.is_local(quote.src)) else {
            return self.drop(DropReason::IcmpUnrelated);
        };
        let error =
            IcmpError { local: quote.src, remote: quote.dst, protocol: quote.protocol.0, quoted, kind };
        Inbound::Error(error, packet)
    }

    /// Sends Port Unreachable.
    pub(crate) fn port_unreachable(&mut self, cx: &mut Cx<'_>, packet: IpInput) {
        if packet.ip.src.is_ipv4() {
            self.error_v4(cx, packet, Icmpv4Message::Unreachable { code: unreachable::PORT, mtu: 0 });
        } else {
            use crate::wire::icmpv6::{Icmpv6Message, unreachable};
            self.error_v6(cx, packet, Icmpv6Message::Unreachable { code: unreachable::PORT }, false);
        }
    }

    pub(super) fn protocol_unreachable(&mut self, cx: &mut Cx<'_>, packet: IpInput) {
        self.error_v4(cx, packet, Icmpv4Message::Unreachable { code: unreachable::PROTOCOL, mtu: 0 });
    }

    pub(super) fn error_v4(&mut self, cx: &mut Cx<'_>, mut packet: IpInput, message: Icmpv4Message) {
        if !self.may_err(cx, &packet, false) {
            return;
        }
        let most = ERROR_LEN - ipv4::HEADER_LEN - HEADER_LEN;
        let Some(mut frame) = self.quoting(cx, &mut packet, HEADER_LEN, most) else { return };
        message.emit(frame.data_mut());
        self.stats.icmp.errors_sent += 1;
        let (IpAddr::V4(_), IpAddr::V4(_)) = (packet.ip.src, packet.ip.dst) else { return };
        let out = IpOutput {
            frame,
            src: packet.ip.dst,
            dst: packet.ip.src,
            protocol: IpProtocol::ICMP.0,
            hop_limit: 64,
            // Errors about network control would have precedence; ours carry none (RFC 1812 section 4.3.2.5).
            traffic_class: 0,
            dont_fragment: false,
        };
        self.send_back(cx, out, packet.ip.interface);
    }
}
