//! A received segment: its header fields and its payload.

use crate::packet::IpInput;
use crate::stats::tcp::DropReason;
use crate::tcp::{Seq, TCP};
use crate::wire::{Malformed, Sum, TcpFlags, TcpHeader, TcpOptions, tcp};
use core::net::IpAddr;
use flowlane_sys::frame::{Checksum, Frame, Segmentation};

/// A segment on its way through input processing.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: TcpFlags,
    pub(crate) window: u16,
    pub(crate) options: TcpOptions,
    /// Payload bytes left after trimming.
    pub(crate) len: u32,
    /// Segments that the link or the lane merged into this one.
    pub(crate) merged: u32,
    /// Payload bytes of the largest of them.
    pub(crate) largest: u32,
    /// Bytes of its TCP header, options included.
    pub(crate) header: u8,
    /// ECN field of the IP header.
    pub(crate) ecn: u8,
    /// The urgent pointer (RFC 9293 §3.8.5).
    pub(crate) urgent: u16,
    /// The payload, perhaps a chain.
    pub(crate) frame: Option<Frame>,
    /// Flow hash and its type.
    pub(crate) hash: u32,
    pub(crate) hash_type: u8,
    pub(crate) mtu: u16,
}

/// The pseudo-header's sum (RFC 9293 §3.1).
#[inline(always)]
pub(crate) fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Sum::pseudo_v4(src, dst, TCP, len as u16),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Sum::pseudo_v6(src, dst, TCP, len as u32),
        _ => Sum::EMPTY,
    }
}

/// RFC 9293 §3.1, MUST-3: the checksum is checked, unless the link has.
#[inline(always)]
fn is_intact(packet: &IpInput) -> bool {
    let frame = &packet.frame;
    // Guard: `frame.meta().checksum != Checksum::InPacket` as `true` fails lossy::any_weather
    if frame.meta().checksum != Checksum::InPacket {
        return true;
    }
    let sum = pseudo(packet.ip.src, packet.ip.dst, frame.chain_len());
    if !frame.is_chained() {
        return sum.add_bytes(frame.data()).is_intact();
    }
    let mut at = 0;
    let add = |sum: Sum, chunk: &[u8]| {
        let sum = sum.add_bytes_at(at, chunk);
        at += chunk.len();
        sum
    };
    frame.chunks().fold(sum, add).is_intact()
}

impl Segment {
    /// Checks a packet: its header, and where the data begins behind that and its options.
    #[inline(always)]
    pub(crate) fn check(packet: &IpInput) -> Result<(TcpHeader, usize), DropReason> {
        // RFC 9293 §3.9.2.3, MUST-57: no segments to broadcast or multicast addresses, nor from them.
        // Guard: `!packet.ip.unicast` as `false` fails attacks::only_unicast
        if !packet.ip.unicast || !is_plain(packet.ip.src) {
            return Err(DropReason::NotUnicast);
        }
        let (header, data) = TcpHeader::parse(packet.frame.data()).map_err(|malformed| match malformed {
            Malformed::TcpShort => DropReason::Short,
            _ => DropReason::BadHeaderLength,
        })?;
        // Guard: `!is_intact(packet)` as `false` fails tcp::tests::attacks tcp::tests::coalesce
        // tcp::tests::handshake
        if !is_intact(packet) {
            return Err(DropReason::BadChecksum);
        }
        // Guard: `header.src_port == 0 || header.dst_port == 0` as `false` fails
        // listen::nothing_comes_from_port_zero
        if header.src_port == 0 || header.dst_port == 0 {
            return Err(DropReason::PortZero);
        }
        Ok((header, data.start))
    }

    /// What a packet carries that was checked, as [`check`](Self::check) has found it.
    // Apart from the check, so that what is large is made where it stays.
    #[inline(always)]
    pub(crate) fn new(mut packet: IpInput, header: &TcpHeader, data: usize) -> Segment {
        // RFC 9293 §3.2, MUST-7: a list of options that makes no sense must not crash anything; Linux and the BSDs read
        // what made sense and so does this.
        let options = TcpOptions::parse(packet.frame.data().get(tcp::HEADER_LEN..data).unwrap_or_default());
        let len = (packet.frame.chain_len() - data) as u32;
        // The header was read from these bytes.
        let _ = packet.frame.trim_front(data);
        let meta = packet.frame.meta();
        let (merged, largest) = match meta.segmentation {
            Segmentation::TcpV4 | Segmentation::TcpV6 if meta.segment_size > 0 => {
                let size = u32::from(meta.segment_size);
                (len.div_ceil(size).max(1), size.min(len))
            }
            _ => (1, len),
        };
        Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options,
            len,
            merged,
            largest,
            header: data as u8,
            ecn: packet.ip.traffic_class & 3,
            urgent: header.urgent,
            hash: meta.hash,
            hash_type: meta.hash_type,
            mtu: packet.ip.mtu,
            frame: Some(packet.frame),
        }
    }

    #[inline]
    pub(crate) fn is(&self, flags: TcpFlags) -> bool {
        self.flags.intersects(flags)
    }

    /// Sequence numbers it takes (SEG.LEN of RFC 9293 §3.4).
    #[inline]
    pub(crate) fn sequence_len(&self) -> u32 {
        self.len + u32::from(self.is(TcpFlags::SYN)) + u32::from(self.is(TcpFlags::FIN))
    }

    /// The first sequence number after it.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.sequence_len()
    }

    /// Takes `n` bytes of payload off the front.
    pub(crate) fn trim_front(&mut self, n: u32) {
        self.seq += n;
        self.len -= n;
        let mut left = n as usize;
        while let Some(frame) = &mut self.frame {
            let here = frame.len().min(left);
            let trimmed = frame.trim_front(here);
            debug_assert!(trimmed);
            left -= here;
            if left == 0 {
                return;
            }
            self.frame = frame.take_next();
        }
    }
}

/// An address a connection can be with.
pub(crate) fn is_plain(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
    }
}
