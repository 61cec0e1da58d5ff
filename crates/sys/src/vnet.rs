//! The virtio-net header in front of a packet of a TAP queue or a packet socket, with the checksum and segmentation offload of the
//! packet. And software checksums for packets to links without such a header.
//!
//! ```text
//!    0       1          2          4          6            8              10
//!    ├───────┼──────────┼──────────┼──────────┼────────────┼──────────────┤
//!    │ flags │ gso type │ hdr_len  │ gso_size │ csum_start │ csum_offset  │   numbers in machine order
//! ```

use crate::frame::{Checksum, Frame, Meta, Segmentation};
use std::io::{Error, ErrorKind, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of the header.
pub(crate) const LEN: usize = 10;
/// Pieces of one packet at most, its header included: 64 KiB in the smallest frames, and some.
pub(crate) const PIECES: usize = 48;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Copies the fields of the header to `meta`. `false` for a kind of segmentation that was not negotiated.
pub(crate) fn read(header: [u8; LEN], meta: &mut Meta) -> bool {
    meta.checksum = if header[0] & NEEDS_CHECKSUM != 0 {
        Checksum::Partial
    } else if header[0] & DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::InPacket
    };
    meta.segmentation = match header[1] & !GSO_ECN {
        0 => return true,
        GSO_TCP_V4 => Segmentation::TcpV4,
        GSO_TCP_V6 => Segmentation::TcpV6,
        GSO_UDP => Segmentation::Udp,
        _ => return false,
    };
    meta.segment_size = u16::from_ne_bytes([header[4], header[5]]);
    true
}

/// The header for `frame`; `None` if the requested offload does not fit its headers.
pub(crate) fn write(frame: &Frame) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    let meta = frame.meta();
    if meta.checksum != Checksum::Partial && meta.segmentation == Segmentation::None {
        if meta.checksum == Checksum::Verified {
            header[0] = DATA_VALID;
        }
        return Some(header);
    }
    let (start, protocol) = transport(frame.data())?;
    let offset: u16 = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    header[0] = NEEDS_CHECKSUM;
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    let (kind, transport_len) = match (meta.segmentation, protocol) {
        (Segmentation::None, _) => return Some(header),
        (Segmentation::TcpV4, TCP) => (GSO_TCP_V4, tcp_len(frame.data(), start)?),
        (Segmentation::TcpV6, TCP) => (GSO_TCP_V6, tcp_len(frame.data(), start)?),
        (Segmentation::Udp, UDP) => (GSO_UDP, 8),
        _ => return None,
    };
    header[1] = kind;
    header[2..4].copy_from_slice(&((start + transport_len) as u16).to_ne_bytes());
    header[4..6].copy_from_slice(&meta.segment_size.to_ne_bytes());
    Some(header)
}

/// Writes a packet with its header to a descriptor that takes both, in one call. Returns the packet's bytes.
pub(crate) fn send(fd: BorrowedFd<'_>, frame: &Frame) -> std::io::Result<usize> {
    let header = write(frame).ok_or(ErrorKind::InvalidInput)?;
    let (slices, pieces) = slices(&header, frame)?;
    // SAFETY: an `IoSlice` is an `iovec`, and each is readable for its length; `pieces` is at most their number.
    let written = unsafe { libc::writev(fd.as_raw_fd(), slices.as_ptr().cast(), pieces as libc::c_int) };
    sent(written)
}

/// As [`send`], to a socket of packets. No signal is raised when its other end is closed.
pub(crate) fn send_to_socket(fd: BorrowedFd<'_>, frame: &Frame) -> std::io::Result<usize> {
    let header = write(frame).ok_or(ErrorKind::InvalidInput)?;
    let (mut slices, pieces) = slices(&header, frame)?;
    // SAFETY: all zero is a message without address, data and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = pieces as _;
    // SAFETY: an `IoSlice` is an `iovec`, each readable for its length, and there are at least `pieces`; nothing else is pointed to.
    let written =
        unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    sent(written)
}

/// The packet's bytes of those written.
fn sent(written: isize) -> std::io::Result<usize> {
    usize::try_from(written).map(|n| n.saturating_sub(LEN)).map_err(|_| Error::last_os_error())
}

/// A header and the pieces of its packet, and how many there are.
fn slices<'a>(header: &'a [u8; LEN], frame: &'a Frame) -> std::io::Result<([IoSlice<'a>; PIECES], usize)> {
    let mut chunks = frame.chunks();
    if frame.is_chained() {
        let slices = std::array::from_fn(|i| {
            IoSlice::new(if i == 0 { header } else { chunks.next().unwrap_or_default() })
        });
        if chunks.next().is_some() {
            return Err(ErrorKind::InvalidInput.into());
        }
        return Ok((slices, frame.chunks().count() + 1));
    }
    let mut slices = [IoSlice::new(&[]); PIECES];
    (slices[0], slices[1]) = (IoSlice::new(header), IoSlice::new(frame.data()));
    Ok((slices, 2))
}

/// Puts the checksum that was left out into a packet that is to leave as it is. `false` if its headers make no sense.
pub(crate) fn complete_checksum(frame: &mut Frame) -> bool {
    if frame.meta().checksum != Checksum::Partial {
        return true;
    }
    let Some((start, protocol)) = transport(frame.data()) else { return false };
    let offset = match protocol {
        TCP => start + 16,
        UDP => start + 6,
        _ => return false,
    };
    if frame.len() < offset + 2 {
        return false;
    }
    // The field holds the pseudo-header's sum already.
    let (mut sum, mut odd, mut skip) = (0u64, false, start);
    for chunk in frame.chunks() {
        let bytes = &chunk[skip.min(chunk.len())..];
        skip -= skip.min(chunk.len());
        let part = fold(sum_of(bytes));
        sum += u64::from(if odd { part.swap_bytes() } else { part });
        odd ^= bytes.len() % 2 == 1;
    }
    // Zero means "none" in UDP, and all ones are the same number.
    let value = match !fold(sum) {
        0 if protocol == UDP => u16::MAX,
        value => value,
    };
    frame.data_mut()[offset..offset + 2].copy_from_slice(&value.to_ne_bytes());
    frame.meta_mut().checksum = Checksum::InPacket;
    true
}

/// Whether a packet's transport checksum is what Linux leaves there for hardware to finish: the sum of the pseudo-header, not
/// complemented. One in 65,536 packets with another checksum, right or wrong, looks like that. `packet` is the packet's first
/// piece, with all of its headers.
pub(crate) fn looks_unfinished(packet: &[u8]) -> bool {
    pseudo_sum(packet).is_some_and(|(sum, field)| sum == field)
}

/// The folded sum of the pseudo-header and what the checksum's field holds, both as they lie in memory, of a whole packet of TCP
/// or UDP without IPv6 extension headers.
fn pseudo_sum(packet: &[u8]) -> Option<(u16, u16)> {
    const FRAGMENT: u16 = 0x3fff;
    let (ip, start, protocol) = headers(packet)?;
    let field = match protocol {
        TCP => packet.get(start + 16..start + 18)?,
        UDP => packet.get(start + 6..start + 8)?,
        _ => return None,
    };
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (addresses, len) = match packet[ip] >> 4 {
        4 if start - ip >= 20 && word(ip + 6) & FRAGMENT == 0 => {
            (ip + 12..ip + 20, word(ip + 2).checked_sub((start - ip) as u16)?)
        }
        6 if start - ip == 40 => (ip + 8..ip + 40, word(ip + 4)),
        _ => return None,
    };
    let numbers = u64::from(len.to_be()) + u64::from(u16::from(protocol).to_be());
    Some((fold(sum_of(&packet[addresses]) + numbers), u16::from_ne_bytes([field[0], field[1]])))
}

/// Sum of words in machine order, which is as good as any other as long as it goes back in the same (RFC 1071).
pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let mut sum: u64 = words.map(|w| u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))).sum();
    let pairs = rest.chunks_exact(2);
    let last = pairs.remainder();
    sum += pairs.map(|p| u64::from(u16::from_ne_bytes([p[0], p[1]]))).sum::<u64>();
    sum + last.first().map_or(0, |b| u64::from(u16::from_ne_bytes([*b, 0])))
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

fn tcp_len(frame: &[u8], start: usize) -> Option<usize> {
    Some(usize::from(frame.get(start + 12)? >> 4) * 4)
}

/// Where the transport header starts, and its protocol. Through VLAN tags; not through IPv6 extension headers, which
/// the stack does not send.
pub(crate) fn transport(frame: &[u8]) -> Option<(usize, u8)> {
    headers(frame).map(|(_, start, protocol)| (start, protocol))
}

/// As [`transport`], and before these where the IP header starts.
fn headers(frame: &[u8]) -> Option<(usize, usize, u8)> {
    let at = network(frame)?;
    let ip = frame.get(at..)?;
    match frame[at - 2..at] {
        [0x08, 0x00] => Some((at, at + usize::from(ip.first()? & 15) * 4, *ip.get(9)?)),
        [0x86, 0xdd] => Some((at, at + 40, *ip.get(6)?)),
        _ => None,
    }
}

/// Where the header behind the Ethernet header and its tags starts.
pub(crate) fn network(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    Some(at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameMemory, MemoryConfig};

    /// A packet of UDP or TCP with a payload, its checksum's field left to hardware, and where that field is.
    fn unfinished(v4: bool, protocol: u8, tag: bool, payload: usize) -> (Vec<u8>, usize) {
        let header = if protocol == TCP { 20 } else { 8 };
        let mut packet = vec![2; 12];
        packet.extend(if tag { &[0x81, 0, 0, 5][..] } else { &[] });
        let len = (header + payload) as u16;
        let mut pseudo: Vec<u8> = Vec::new();
        if v4 {
            packet.extend([8, 0, 0x45, 0]);
            packet.extend((20 + len).to_be_bytes());
            packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 9, 1, 1, 10, 9, 1, 2]);
            pseudo.extend(&packet[packet.len() - 8..]);
        } else {
            packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend(len.to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend((0..32).map(|i| i * 7 + 1));
            pseudo.extend(&packet[packet.len() - 32..]);
        }
        let field = packet.len() + if protocol == TCP { 16 } else { 6 };
        packet.resize(packet.len() + header, 3);
        packet.extend((0..payload).map(|i| (i * 5 + 1) as u8));
        pseudo.extend([0, protocol]);
        pseudo.extend(len.to_be_bytes());
        let sum = fold(pseudo.chunks(2).map(|p| u64::from(u16::from_be_bytes([p[0], p[1]]))).sum());
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        (packet, field)
    }

    #[test]
    fn a_checksum_that_was_left_to_hardware_is_told_from_one_that_is_there() {
        let config =
            MemoryConfig { frames_per_home: 2, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        for (v4, protocol, tag, payload) in [
            (true, UDP, false, 5),
            (true, TCP, false, 900),
            (false, UDP, true, 64),
            (false, TCP, false, 33),
            (true, TCP, true, 1),
        ] {
            let (packet, field) = unfinished(v4, protocol, tag, payload);
            assert!(looks_unfinished(&packet));
            // Finished, as hardware would, it is not.
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&packet));
            frame.meta_mut().checksum = Checksum::Partial;
            assert!(complete_checksum(&mut frame));
            assert!(!looks_unfinished(frame.data()), "{v4} {protocol}");
            // Nor is one with another checksum, none at all, or of a fragment.
            let mut other = packet.clone();
            other[field] ^= 1;
            assert!(!looks_unfinished(&other));
            other[field..field + 2].fill(0);
            assert!(!looks_unfinished(&other));
            if v4 {
                let mut fragment = packet.clone();
                fragment[if tag { 24 } else { 20 }] |= 0x20;
                assert!(!looks_unfinished(&fragment));
            }
            for len in 0..packet.len() {
                let _ = looks_unfinished(&packet[..len]); // must not panic
            }
            for at in 0..packet.len().min(60) {
                for value in [0, 0x0f, 0x4f, 0xff] {
                    let mut strange = packet.clone();
                    strange[at] = value;
                    let _ = looks_unfinished(&strange);
                }
            }
        }
    }

    #[test]
    fn headers_say_where_the_sum_belongs() {
        let config =
            MemoryConfig { frames_per_home: 2, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let mut frame = pool.alloc().unwrap();
        let mut bytes = [0u8; 74];
        bytes[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
        (bytes[18], bytes[27], bytes[38 + 12]) = (0x45, TCP, 0x80);
        assert!(frame.extend_from_slice(&bytes));
        assert_eq!(write(&frame), Some([0; LEN]));
        frame.meta_mut().checksum = Checksum::Partial;
        let plain = write(&frame).unwrap();
        assert_eq!(
            (plain[0], plain[6..8].to_vec(), plain[8..].to_vec()),
            (1, 38u16.to_ne_bytes().to_vec(), 16u16.to_ne_bytes().to_vec())
        );
        frame.meta_mut().segmentation = Segmentation::TcpV4;
        frame.meta_mut().segment_size = 1400;
        let mut back = Meta::default();
        let header = write(&frame).unwrap();
        assert_eq!(header[2..4], 70u16.to_ne_bytes());
        assert!(read(header, &mut back));
        assert_eq!(
            (back.checksum, back.segmentation, back.segment_size),
            (Checksum::Partial, Segmentation::TcpV4, 1400)
        );
        frame.meta_mut().segmentation = Segmentation::Udp;
        assert_eq!(write(&frame), None, "a TCP packet is not cut as UDP");
        for cut in 0..74 {
            frame.truncate(73 - cut);
            let _ = write(&frame); // must not panic
        }
        assert!(!read([0, 3, 0, 0, 0, 0, 0, 0, 0, 0], &mut back));
    }

    #[test]
    fn a_checksum_that_was_left_out_is_the_one_of_rfc_1071() {
        let config =
            MemoryConfig { frames_per_home: 4, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        for (protocol, at) in [(TCP, 50), (UDP, 40)] {
            for len in [0usize, 1, 2, 3, 7, 400, 1001] {
                let mut bytes: Vec<u8> = (0..54 + len).map(|i| (i * 37 % 251) as u8).collect();
                (bytes[12], bytes[13], bytes[14], bytes[23]) = (8, 0, 0x45, protocol);
                let words = |bytes: &[u8]| {
                    let word = |w: &[u8]| u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b));
                    bytes.chunks(2).map(word).sum::<u64>()
                };
                let mut slow = words(&bytes[34..]);
                while slow > 0xffff {
                    slow = (slow & 0xffff) + (slow >> 16);
                }
                // Whole, and cut in two at an odd place.
                for cut in [0, 53] {
                    let mut frame = pool.alloc().unwrap();
                    assert!(frame.extend_from_slice(&bytes[..bytes.len() - cut.min(len)]));
                    if cut.min(len) > 0 {
                        let mut second = pool.alloc().unwrap();
                        assert!(second.extend_from_slice(&bytes[bytes.len() - cut.min(len)..]));
                        frame.append(second);
                    }
                    frame.meta_mut().checksum = Checksum::Partial;
                    assert!(complete_checksum(&mut frame));
                    assert_eq!(
                        frame.data()[at..at + 2],
                        (!(slow as u16)).to_be_bytes(),
                        "{protocol} {len} {cut}"
                    );
                    assert_eq!(frame.meta().checksum, Checksum::InPacket);
                }
            }
        }
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&[0; 60]));
        frame.meta_mut().checksum = Checksum::Partial;
        assert!(!complete_checksum(&mut frame), "no IP");
    }
}
