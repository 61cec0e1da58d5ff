//! The kernel's reassembly, the baseline of `bench reassembly`: fragments written to a raw socket return over loopback and are
//! reassembled for a UDP socket, all in one thread.
//!
//! Each fragment pays for a system call and for loopback. Whole datagrams sent the same way show that part of the cost.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use flowlane::wire::{IpProtocol, Ipv4Header, Ipv4Options, UdpHeader};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketAddrAny, SocketType, ipproto};

/// Datagrams before the socket is read empty.
const BURST: usize = 32;

/// A raw socket, and a UDP socket that it sends to.
pub(crate) struct KernelFragments {
    raw: OwnedFd,
    to: SocketAddrAny,
    udp: UdpSocket,
    datagram: Vec<u8>,
    id: u16,
}

impl KernelFragments {
    /// Opens the sockets; `None` without the privilege for raw sockets (`CAP_NET_RAW`).
    ///
    /// # Errors
    /// No socket could be opened on loopback for another reason.
    pub(crate) fn open(payload: usize) -> anyhow::Result<Option<Self>> {
        let raw = match rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)) {
            Ok(raw) => raw,
            Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => return Ok(None),
            Err(e) => return Err(e).context("the kernel gives no raw socket"),
        };
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        udp.set_nonblocking(true)?;
        let port = udp.local_addr()?.port();
        let mut datagram = vec![0x5a; payload];
        // A checksum of zero means none (RFC 768), so that checksums are not part of the figure.
        UdpHeader { src_port: 9, dst_port: port, len: payload as u16, checksum: 0 }.emit(&mut datagram);
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into();
        Ok(Some(Self { raw, to, udp, datagram, id: 0 }))
    }

    /// Nanoseconds per packet, with each datagram in `pieces` packets.
    ///
    /// # Errors
    /// Not all datagrams came back.
    pub(crate) fn round(&mut self, pieces: usize, time: Duration) -> anyhow::Result<f64> {
        let (begin, mut packets) = (Instant::now(), 0u64);
        while begin.elapsed() < time {
            for _ in 0..BURST {
                self.send(pieces)?;
            }
            packets += (BURST * pieces) as u64;
            let mut buffer = [0; 2048];
            let back = (0..BURST).take_while(|_| self.udp.recv(&mut buffer).is_ok()).count();
            anyhow::ensure!(back == BURST, "the kernel put {back} of {BURST} datagrams together");
        }
        Ok(begin.elapsed().as_nanos() as f64 / packets as f64)
    }

    fn send(&mut self, pieces: usize) -> anyhow::Result<()> {
        // With 0 the kernel would choose a new one for each fragment.
        self.id = self.id.wrapping_add(1).max(1);
        let each = self.datagram.len() / pieces;
        for (n, bytes) in self.datagram.chunks(each).enumerate() {
            let mut packet = [0; 1500];
            let header = Ipv4Header {
                src: Ipv4Addr::LOCALHOST,
                dst: Ipv4Addr::LOCALHOST,
                protocol: IpProtocol::UDP,
                ttl: 64,
                tos: 0,
                identification: self.id,
                dont_fragment: false,
                more_fragments: n + 1 < pieces,
                fragment_offset: (n * each) as u16,
                payload_len: bytes.len() as u16,
                options: Ipv4Options::default(),
            };
            header.emit(&mut packet[..20]);
            packet[20..20 + bytes.len()].copy_from_slice(bytes);
            rustix::net::sendto(&self.raw, &packet[..20 + bytes.len()], SendFlags::empty(), &self.to)
                .context("the raw socket takes no packet")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_puts_them_together() {
        let Some(mut kernel) = KernelFragments::open(128).unwrap() else {
            flowlane_testnet::skipped("skipped, because a raw socket takes CAP_NET_RAW");
            return;
        };
        for pieces in [1, 2] {
            assert!(kernel.round(pieces, Duration::from_millis(5)).unwrap() > 0.0);
        }
    }
}
