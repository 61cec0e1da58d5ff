//! What a packet becomes on a wire: segments of a packet longer than the MTU, and checksums that were left out.
//!
//! A packet has the virtio-net header in front, numbers in machine order:
//!
//! ```text
//!    0       1          2          4          6            8              10
//!    ├───────┼──────────┼──────────┼──────────┼────────────┼──────────────┤
//!    │ flags │ gso type │ hdr_len  │ gso_size │ csum_start │ csum_offset  │ packet
//! ```
//!
//! `csum_start` is where the transport header starts, and `csum_offset` where its checksum is behind that; the field holds the sum of the
//! pseudo-header, which covers the length. So a segment's field is the packet's with one length taken out and the other put in (RFC 1624),
//! and the sum itself may be left out again. TCP is segmented as Linux does it: sequence numbers go on, FIN and PSH are the last
//! segment's, CWR is the first's; IPv4 identifications count up.

use flowlane_stack::rng::Rng;
use flowlane_stack::wire::Sum;
use flowlane_sys::tun::HEADER;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_SEGMENTS: u8 = 5;
const ECN: u8 = 0x80;
const ETHERNET: usize = 14;
/// Flags of TCP, in its byte 13.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
/// Segments of one packet at most: 64 KiB in the smallest that Linux sends.
const MOST: usize = 4096;

/// What was left undone in a packet that is to be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// UDP, not TCP.
    udp: bool,
    /// Where the IP header starts, behind the virtio-net header.
    ip: usize,
    /// Where the transport header starts, and where it ends.
    transport: usize,
    head: usize,
    /// Bytes of data in a segment.
    size: usize,
    segments: usize,
    /// Bytes of the packet, without the virtio-net header.
    len: usize,
}

impl Offload {
    /// Of a packet with its header; `None` if it is to be sent as it is, or if its header does not fit it.
    #[inline]
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<HEADER>()?;
        if header[1] == 0 { None } else { Self::read(*header, &packet[HEADER..]) }
    }

    fn read(header: [u8; HEADER], packet: &[u8]) -> Option<Self> {
        let number = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let (size, transport) = (number(4), number(6));
        let mut ip = ETHERNET;
        while matches!(packet.get(ip - 2..ip)?, [0x81, 0x00] | [0x88, 0xa8]) {
            ip += 4;
        }
        let room = if packet.get(ip)? >> 4 == 6 { 40 } else { 20 };
        let (udp, head) = match header[1] & !ECN {
            TCP_V4 | TCP_V6 => (false, transport + usize::from(packet.get(transport + 12)? >> 4) * 4),
            UDP_SEGMENTS => (true, transport + 8),
            _ => return None,
        };
        let shortest = transport + if udp { 8 } else { 20 };
        // Guard: `size == 0` as `false` fails impair::tests::a_header_that_fits_no_packet
        if header[0] & NEEDS_CHECKSUM == 0 || size == 0 || transport < ip + room || head < shortest {
            return None;
        }
        let data = packet.len().checked_sub(head).filter(|data| *data > 0)?;
        let segments = data.div_ceil(size);
        let len = packet.len();
        // Guard: `(segments <= MOST)` as `true` fails impair::tests::a_packet_of_more_segments
        (segments <= MOST).then_some(Self { udp, ip, transport, head, size, segments, len })
    }

    /// How many segments it becomes.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// What its segments take on a wire in all, bytes with the Ethernet header.
    #[inline]
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        (self.len + (self.segments - 1) * self.head) as u64
    }

    /// Bytes of its longest segment, with the Ethernet header.
    #[inline]
    #[must_use]
    pub fn longest(&self) -> usize {
        self.len.min(self.head + self.size)
    }

    /// Cuts `packet`, of which this was read.
    #[must_use]
    pub fn cut<'a>(&self, packet: &'a [u8]) -> Segments<'a> {
        Segments { offload: *self, packet, next: 0 }
    }
}

/// The segments of a packet, each with its header. Made by [`Offload::cut`].
#[derive(Debug)]
pub struct Segments<'a> {
    offload: Offload,
    packet: &'a [u8],
    next: usize,
}

impl Segments<'_> {
    /// Writes the next segment to the front of `into`, which holds the longest: its bytes. `None` after the last.
    pub fn next(&mut self, into: &mut [u8]) -> Option<usize> {
        let Offload { udp, ip, transport, head, size, segments, .. } = self.offload;
        let number = self.next;
        if number >= segments {
            return None;
        }
        let data = self.packet.get(HEADER + head + number * size..)?;
        let data = &data[..data.len().min(size)];
        let len = HEADER + head + data.len();
        let out = into.get_mut(..len)?;
        out[..HEADER + head].copy_from_slice(&self.packet[..HEADER + head]);
        out[HEADER + head..].copy_from_slice(data);
        // The checksum stays undone; nothing else does.
        (out[0], out[1]) = (NEEDS_CHECKSUM, 0);
        out[2..6].fill(0);
        let checksum = usize::from(u16::from_ne_bytes([out[8], out[9]]));
        let segment = &mut out[HEADER..];
        network(&mut segment[ip..], number, transport - ip);
        let last = number + 1 == segments;
        let upper = &mut segment[transport..];
        let now = upper.len() as u16;
        if udp {
            put(upper, 4, now);
        } else {
            let first = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]);
            upper[4..8].copy_from_slice(&first.wrapping_add((number * size) as u32).to_be_bytes());
            upper[13] &= if last { 0xff } else { !FIN_PSH } & if number == 0 { 0xff } else { !CWR };
        }
        if let Some(field) = upper.get(checksum..checksum + 2) {
            let before = u16::from_be_bytes([field[0], field[1]]);
            let whole = (self.packet.len() - HEADER - transport) as u16;
            put(upper, checksum, exchanged(before, whole, now));
        }
        self.next += 1;
        Some(len)
    }
}

/// Length, identification and checksum of the IP header of a segment.
fn network(ip: &mut [u8], number: usize, header: usize) {
    if ip[0] >> 4 == 6 {
        put(ip, 4, (ip.len() - 40) as u16);
        return;
    }
    put(ip, 2, ip.len() as u16);
    let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(number as u16);
    put(ip, 4, identification);
    put(ip, 10, 0);
    let sum = Sum::EMPTY.add_bytes(&ip[..header]).finish();
    put(ip, 10, sum);
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A sum that is not complemented with one number of it exchanged.
fn exchanged(sum: u16, before: u16, now: u16) -> u16 {
    let mut sum = u32::from(sum) + u32::from(!before) + u32::from(now);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Computes the checksum that was left out. `false`, and no change, if the header does not fit the packet.
pub(super) fn complete(packet: &mut [u8]) -> bool {
    if packet.len() < HEADER || packet[0] & NEEDS_CHECKSUM == 0 || packet[1] != 0 {
        return packet.len() >= HEADER && packet[1] == 0;
    }
    let number = |at: usize| usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]));
    let (start, offset) = (HEADER + number(6), number(8));
    let Some(upper) = packet.get(start..).filter(|upper| upper.len() >= offset + 2) else { return false };
    // The field holds the pseudo-header's sum already. Zero means "none" in UDP, and all ones are the same number.
    let value = match Sum::EMPTY.add_bytes(upper).finish() {
        0 if offset == 6 => u16::MAX,
        value => value,
    };
    put(&mut packet[start..], offset, value);
    packet[..HEADER].fill(0);
    true
}

/// Flips a bit behind the Ethernet header, once the checksum is there. `false` if there is none to flip.
pub(super) fn corrupt(packet: &mut [u8], rng: &mut Rng) -> bool {
    if !complete(packet) || packet.len() <= HEADER + ETHERNET {
        return false;
    }
    // Nobody is to believe that the checksum has been verified.
    packet[0] = 0;
    let at = HEADER + ETHERNET + rng.below((packet.len() - HEADER - ETHERNET) as u32) as usize;
    packet[at] ^= 1 << rng.below(8);
    true
}
