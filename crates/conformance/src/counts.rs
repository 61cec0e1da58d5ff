//! Segments and bytes of each connection, counted as they pass: what `TCP_INFO` tells of them and a lane does not keep.
//!
//! As in Linux the SYN-ACK of a passive opener is not counted among its segments, and its peer's SYN is.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use flowlane_stack::time::Time;
use flowlane_stack::wire::{IpProtocol, Ipv4Header, Ipv6Header, TcpFlags, TcpHeader};

/// What has passed of one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) segments_in: u32,
    pub(crate) segments_out: u32,
    /// Of these, with payload.
    pub(crate) data_in: u32,
    pub(crate) data_out: u32,
    /// Bytes of payload sent, those sent again included, and these alone.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_again: u64,
    /// When an acknowledgement last came.
    pub(crate) acked_at: Option<Time>,
    /// We began it.
    pub(crate) active: bool,
    /// The highest sequence number sent, and one more.
    next: Option<u32>,
}

/// All connections, by our end and the peer's.
#[derive(Debug, Default)]
pub(crate) struct Counters(BTreeMap<(SocketAddr, SocketAddr), Counts>);

impl Counters {
    /// What has passed between these ends.
    pub(crate) fn of(&self, ours: SocketAddr, theirs: SocketAddr) -> Counts {
        self.0.get(&(ours, theirs)).copied().unwrap_or_default()
    }

    /// A packet has come.
    pub(crate) fn came(&mut self, packet: &[u8], now: Time) {
        let Some((theirs, ours, header, len)) = read(packet) else { return };
        let counts = self.0.entry((ours, theirs)).or_default();
        let begins = header.flags.contains(TcpFlags::SYN) && !header.flags.contains(TcpFlags::ACK);
        // A simultaneous open is ours; a SYN again counts again.
        if begins && counts.data_out > 0 {
            *counts = Counts::default();
        }
        counts.segments_in += 1;
        counts.data_in += u32::from(len > 0);
        if header.flags.contains(TcpFlags::ACK) {
            counts.acked_at = Some(now);
        }
    }

    /// A packet has left.
    pub(crate) fn left(&mut self, packet: &[u8]) {
        let Some((ours, theirs, header, len)) = read(packet) else { return };
        let counts = self.0.entry((ours, theirs)).or_default();
        let syn = header.flags.contains(TcpFlags::SYN);
        if syn && !header.flags.contains(TcpFlags::ACK) && counts.next != Some(header.seq.0.wrapping_add(1)) {
            *counts = Counts { active: true, ..Counts::default() };
        }
        if syn {
            counts.next = Some(header.seq.0.wrapping_add(1));
            counts.segments_out += u32::from(counts.active);
            return;
        }
        counts.segments_out += 1;
        counts.data_out += u32::from(len > 0);
        counts.bytes_sent += u64::from(len);
        let end = header.seq.0.wrapping_add(len);
        let next = counts.next.unwrap_or(header.seq.0);
        let new = end.wrapping_sub(next);
        if new < 1 << 31 {
            counts.next = Some(end);
            counts.bytes_again += u64::from(len.saturating_sub(new));
        } else {
            counts.bytes_again += u64::from(len);
        }
    }
}

/// Source, destination, header and length of the payload, if it is TCP.
fn read(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, TcpHeader, u32)> {
    let (src, dst, protocol, payload): (IpAddr, IpAddr, _, _) = match packet.first()? >> 4 {
        4 => {
            let (ip, payload) = Ipv4Header::parse(packet).ok()?;
            (ip.src.into(), ip.dst.into(), ip.protocol, payload)
        }
        _ => {
            let (ip, payload) = Ipv6Header::parse(packet).ok()?;
            (ip.src.into(), ip.dst.into(), ip.next_header, payload)
        }
    };
    if protocol != IpProtocol::TCP {
        return None;
    }
    let (header, data) = TcpHeader::parse(&packet[payload]).ok()?;
    let (from, to) = (SocketAddr::new(src, header.src_port), SocketAddr::new(dst, header.dst_port));
    Some((from, to, header, data.len() as u32))
}
