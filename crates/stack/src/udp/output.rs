//! UDP output: from a payload in a frame to an IP packet.

use core::net::IpAddr;

use flowlane_sys::frame::{Checksum, Frame};

use super::input::pseudo;
use super::{Udp, UdpHandle};
use crate::address::Endpoint;
use crate::chain;
use crate::packet::{Cx, IpOutput};
use crate::wire::IpProtocol;
use crate::wire::udp::{HEADER_LEN, UdpHeader, fill_checksum, nonzero};

/// TTL of datagrams (RFC 1700).
const HOP_LIMIT: u8 = 64;

impl Udp {
    /// Puts the UDP header in front of `payload`. The source port is the socket's unless `source` names another.
    /// `None` when there is no room for the header.
    #[inline]
    pub(crate) fn datagram(
        &mut self,
        handle: UdpHandle,
        mut payload: Frame,
        source: Endpoint,
        destination: Endpoint,
        cx: &Cx<'_>,
    ) -> Option<IpOutput> {
        let len = payload.chain_len() + HEADER_LEN;
        let chained = payload.is_chained();
        let bytes = payload.push_front(HEADER_LEN)?;
        let header = UdpHeader {
            src_port: source.port,
            dst_port: destination.port,
            len: u16::try_from(len).ok()?,
            checksum: 0,
        };
        header.emit(bytes);
        let sum = pseudo(source.ip, destination.ip, len);
        if chained {
            let checksum = nonzero(sum.combine(chain::sum(&payload), 0).finish());
            if let Some(field) = payload.data_mut().get_mut(6..8) {
                field.copy_from_slice(&checksum.to_be_bytes());
            }
            payload.meta_mut().checksum = Checksum::InPacket;
        } else if cx.offload.checksum {
            // The link adds the sum of the bytes to what stands in the field.
            bytes[6..8].copy_from_slice(&sum.fold().to_be_bytes());
            payload.meta_mut().checksum = Checksum::Partial;
        } else {
            fill_checksum(sum, bytes);
            payload.meta_mut().checksum = Checksum::InPacket;
        }
        if let Some(socket) = self.get_mut(handle) {
            socket.sent += 1;
        }
        Some(IpOutput {
            frame: payload,
            src: source.ip,
            dst: destination.ip,
            protocol: IpProtocol::UDP.0,
            hop_limit: if is_multicast(destination.ip) { 1 } else { HOP_LIMIT },
            traffic_class: 0,
            dont_fragment: true,
        })
    }
}

fn is_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_multicast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}
