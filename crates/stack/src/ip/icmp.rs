//! ICMP, common to both families: echo, and the rules for sending errors.

use core::net::IpAddr;

use super::{Inbound, Ip};
use crate::packet::{Cx, IpInput, IpOutput};
use crate::route::Hop;
use crate::stats::{DropReason, IcmpStats};

/// TTL of answers and errors.
const HOP_LIMIT: u8 = 64;

impl Ip {
    pub(super) fn icmp_stats(&mut self, ipv4: bool) -> &mut IcmpStats {
        if ipv4 { &mut self.stats.icmp } else { &mut self.stats.icmp6 }
    }

    /// Sends an answer back in the frame that brought the question; its data is the finished message.
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, packet: IpInput) -> Inbound {
        let ipv4 = packet.ip.src.is_ipv4();
        if !self.limits.echoes.take(cx.now) {
            self.icmp_stats(ipv4).echoes_limited += 1;
            return self.drop(DropReason::EchoLimited);
        }
        self.icmp_stats(ipv4).echo_replies_sent += 1;
        let out = IpOutput {
            frame: packet.frame,
            src: packet.ip.dst,
            dst: packet.ip.src,
            protocol: packet.ip.protocol,
            hop_limit: HOP_LIMIT,
            traffic_class: packet.ip.traffic_class,
            dont_fragment: false,
        };
        self.send_back(cx, out, packet.ip.interface);
        Inbound::Done
    }

    /// Sends an answer to who asked by an interface: back by the same one where the address means something there only.
    pub(super) fn send_back(&mut self, cx: &mut Cx<'_>, out: IpOutput, interface: u8) {
        let of_link = matches!(out.dst, IpAddr::V6(a) if a.is_unicast_link_local());
        // Counted where it fails.
        let _ = if of_link && self.has_room(interface) {
            let hop = Hop { interface, address: out.dst };
            self.send_to(cx, out, hop)
        } else {
            self.send(cx, out)
        };
    }

    /// Whether an error about `packet` may be sent at all, and now (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
    pub(super) fn may_err(&mut self, cx: &Cx<'_>, packet: &IpInput, even_if_multicast: bool) -> bool {
        let ipv4 = packet.ip.src.is_ipv4();
        if (!packet.ip.unicast && !even_if_multicast) || packet.ip.src.is_unspecified() {
            self.icmp_stats(ipv4).errors_suppressed += 1;
            return false;
        }
        if !self.limits.errors.take(cx.now) {
            self.icmp_stats(ipv4).errors_limited += 1;
            return false;
        }
        true
    }

    /// Builds an error in a fresh frame: `header_len` bytes for the caller to fill, then the offending packet from its
    /// IP header on, cut so that no more than `most` bytes follow.
    pub(super) fn quoting(
        &mut self,
        cx: &Cx<'_>,
        packet: &mut IpInput,
        header_len: usize,
        most: usize,
    ) -> Option<flowlane_sys::frame::Frame> {
        let original = packet.frame.push_front(usize::from(packet.ip.header_len))?;
        let quoted = original.len().min(most);
        let Some(mut frame) = cx.frames.alloc() else {
            self.stats.drops.count(DropReason::NoFrame);
            return None;
        };
        let room = frame.push_back(header_len + quoted)?;
        room[header_len..].copy_from_slice(&original[..quoted]);
        Some(frame)
    }
}
