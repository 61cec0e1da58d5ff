//! Packets in several frames for protocols that need one frame: copied into one frame if they fit.
//!
//! UDP accepts chains, and so does TCP when the link merged segments or did not segment them. TCP segments and ICMP messages that were
//! fragmented on the way usually fit one frame and are copied into it; longer segments are passed on as chains, which are dropped if the
//! first frame is too short for their headers. A longer echo request, as of `ping -s 60000`, is answered in its own frames. Any other
//! packet of that size is dropped: no legitimate peer sends it.

use flowlane_sys::frame::{Checksum, Frame, Segmentation};

use super::{Inbound, Ip};
use crate::chain;
use crate::packet::{Cx, IpInput};
use crate::stats::DropReason;
use crate::wire::checksum::update_u16;
use crate::wire::{IpProtocol, Malformed, Sum};

/// Type and code of an echo request and of its reply.
const ECHO_V4: (u16, u16) = (0x0800, 0x0000);
const ECHO_V6: (u16, u16) = (0x8000, 0x8100);

/// Whether a transport takes a chain as it is: UDP any, TCP what the link merged or did not cut, whose headers are whole in
/// the first frame.
#[inline]
pub(super) fn takes_chain(protocol: IpProtocol, frame: &Frame) -> bool {
    let batch = matches!(frame.meta().segmentation, Segmentation::TcpV4 | Segmentation::TcpV6);
    protocol == IpProtocol::UDP || protocol == IpProtocol::TCP && batch
}

impl Ip {
    /// Takes in a packet in several frames whose protocol does not take chains.
    #[cold]
    pub(super) fn chained(&mut self, cx: &mut Cx<'_>, mut packet: IpInput) -> Inbound {
        let header_len = usize::from(packet.ip.header_len);
        if packet.frame.push_front(header_len).is_none() {
            return self.drop(DropReason::Chained);
        }
        let (mut frame, fits) = match chain::gather(cx.frames, packet.frame) {
            Ok(one) => (one, true),
            Err(chain) => (chain, false),
        };
        if !frame.trim_front(header_len) {
            return self.drop(DropReason::Chained);
        }
        let packet = IpInput { frame, ip: packet.ip };
        match (fits, packet.ip.src.is_ipv4()) {
            (true, true) => self.upper_v4(cx, packet),
            // The byte that names the protocol is looked for only to complain about the protocol: say the fixed header's.
            (true, false) => self.upper_v6(cx, packet, 6),
            (false, _) if packet.ip.protocol == IpProtocol::TCP.0 => Inbound::Transport(packet),
            (false, _) => self.long_echo(cx, packet),
        }
    }

    /// Answers an echo request that does not fit one frame.
    fn long_echo(&mut self, cx: &mut Cx<'_>, mut packet: IpInput) -> Inbound {
        let len = packet.frame.chain_len();
        let (protocol, (request, reply), pseudo) = match (packet.ip.src, packet.ip.dst) {
            (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
                (IpProtocol::ICMPV6, ECHO_V6, Sum::pseudo_v6(src, dst, IpProtocol::ICMPV6, len as u32))
            }
            _ => (IpProtocol::ICMP, ECHO_V4, Sum::EMPTY),
        };
        let ipv4 = packet.ip.src.is_ipv4();
        if packet.ip.protocol != protocol.0 {
            return self.drop(DropReason::Chained);
        }
        self.icmp_stats(ipv4).received += 1;
        let intact = pseudo.combine(chain::sum(&packet.frame), 0).is_intact();
        let Some(h) = packet.frame.data_mut().first_chunk_mut::<8>() else {
            return self.malformed(if ipv4 { Malformed::IcmpShort } else { Malformed::Icmpv6Short });
        };
        if !intact {
            self.icmp_stats(ipv4).bad_checksum += 1;
            return self.drop(DropReason::IcmpChecksum);
        }
        if u16::from_be_bytes([h[0], h[1]]) != request {
            return self.drop(DropReason::Chained);
        }
        // The answer's addresses are the question's, swapped: the sum differs in the type only.
        let checksum = update_u16(u16::from_be_bytes([h[2], h[3]]), request, reply);
        h[..2].copy_from_slice(&reply.to_be_bytes());
        h[2..4].copy_from_slice(&checksum.to_be_bytes());
        self.icmp_stats(ipv4).echo_requests += 1;
        if !packet.ip.unicast {
            return self.drop(DropReason::IcmpBroadcast);
        }
        packet.frame.meta_mut().checksum = Checksum::InPacket;
        self.answer(cx, packet)
    }
}
