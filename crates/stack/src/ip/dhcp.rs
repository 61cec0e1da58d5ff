//! Datagrams of DHCP, as far as the stack has to do with them (RFC 2131 section 4.1): they come and go before there is an address.
//!
//! The client itself is no part of the stack. Datagrams to its port reach the lane of bucket 0, whichever lane their flow is of, and wait
//! there in a short queue. Those that it sends have no source address until it has one.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use flowlane_sys::frame::Checksum;

use super::{Ip, SendError};
use crate::packet::{Cx, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::udp::{HEADER_LEN, UdpHeader, fill_checksum};
use crate::wire::{IpProtocol, MacAddr, Sum};

/// Port of servers, and of clients.
const SERVER: u16 = 67;
const CLIENT: u16 = 68;
/// Datagrams that wait for the client.
const WAITING: usize = 8;

/// Datagrams that wait for the client.
pub(super) type Waiting = VecDeque<Vec<u8>>;

impl Ip {
    /// Whether a datagram is one of a server of DHCP to its client, and the host has one.
    #[inline]
    pub(crate) fn is_dhcp(&self, packet: &IpInput) -> bool {
        self.config.dhcp && packet.ip.dst.is_ipv4() && self.has_dhcp_ports(packet.frame.data())
    }

    /// Whether a header of UDP is that of a server's datagram to a client.
    #[cold]
    pub(super) fn has_dhcp_ports(&self, udp: &[u8]) -> bool {
        let [s1, s0] = SERVER.to_be_bytes();
        let [c1, c0] = CLIENT.to_be_bytes();
        self.config.dhcp && udp.starts_with(&[s1, s0, c1, c0])
    }

    /// Whether the lane is the one that the client is in.
    pub(crate) fn is_speaker(&self) -> bool {
        self.speaks
    }

    /// Keeps a datagram whose checksum is right for the client; beyond a few it is dropped.
    pub(crate) fn keep_dhcp(&mut self, payload: &[u8]) {
        // Guard: `self.dhcp.len() >= WAITING` as `false` fails lane/addresses::a_servers_datagram
        if self.dhcp.len() >= WAITING {
            self.drop(DropReason::UdpSocketFull);
            return;
        }
        self.dhcp.push_back(payload.to_vec());
        self.wake_address();
    }

    /// The next datagram for the client.
    pub(crate) fn dhcp_next(&mut self) -> Option<Vec<u8>> {
        self.dhcp.pop_front()
    }

    /// Sends a datagram of the client, `None` for a source or destination that is not known yet: it has no source, and goes to all.
    /// `last`: there is no time to look for the server on the link, and a frame to all carries it if it is not known.
    pub(crate) fn dhcp_send(
        &mut self,
        cx: &mut Cx<'_>,
        interface: u8,
        (source, server): (Option<Ipv4Addr>, Option<Ipv4Addr>),
        payload: &[u8],
        last: bool,
    ) -> Result<(), SendError> {
        if usize::from(interface) >= self.interfaces.len() {
            return Err(SendError::NoRoute);
        }
        let (src, dst) = (source.unwrap_or(Ipv4Addr::UNSPECIFIED), server.unwrap_or(Ipv4Addr::BROADCAST));
        let mut frame = cx.frames.alloc().ok_or(SendError::NoFrame)?;
        let len = payload.len() + HEADER_LEN;
        let bytes = frame.push_back(len).ok_or(SendError::TooLong)?;
        let header = UdpHeader { src_port: CLIENT, dst_port: SERVER, len: len as u16, checksum: 0 };
        header.emit(bytes);
        bytes[HEADER_LEN..].copy_from_slice(payload);
        fill_checksum(Sum::pseudo_v4(src, dst, IpProtocol::UDP, len as u16), bytes);
        frame.meta_mut().checksum = Checksum::InPacket;
        let out = IpOutput {
            frame,
            src: IpAddr::V4(src),
            dst: IpAddr::V4(dst),
            protocol: IpProtocol::UDP.0,
            hop_limit: 64,
            traffic_class: 0,
            dont_fragment: false,
        };
        // A host that ends has no time to ask where its server is.
        let known = |s: Ipv4Addr| {
            let hop = self.hop(IpAddr::V4(s))?;
            self.neighbours.known().any(|(i, a, _)| (i, a) == (hop.interface, hop.address)).then_some(())
        };
        match server {
            Some(server) if !last || known(server).is_some() => self.send(cx, out)?,
            _ => self.send_directly(out, interface, MacAddr::BROADCAST),
        }
        self.stats.udp.sent += 1;
        Ok(())
    }
}
