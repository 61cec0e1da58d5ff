//! Control messages of datagrams: what the kernel tells about one that came, and what it is told about one that goes.
//!
//! Each message is a header with level, type and length (`cmsg(3)`) and its data, aligned to a machine word. All of them are parsed; the
//! kernel writes them, so a length that does not fit ends the walk and is no panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of control messages at most: packet information of either family, traffic class, size of segments, time and losses, with their
/// headers.
pub(super) const ROOM: usize = 192;

/// Room for control messages.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control(pub(super) [u8; ROOM]);

impl Control {
    pub(super) const fn empty() -> Self {
        Self([0; ROOM])
    }
}

/// What control messages told of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// Our address that it was sent to.
    pub(super) destination: Option<IpAddr>,
    /// The interface's number, 0 if it was not told.
    pub(super) interface: u32,
    pub(super) traffic_class: u8,
    /// Bytes of each of the datagrams that were merged, but for the last; 0 if it is one.
    pub(super) segment: usize,
    /// Nanoseconds since 1970 when it came; 0 if it was not told.
    pub(super) timestamp: u64,
    /// Datagrams that the socket has lost since it was opened; `None` if it was not told.
    pub(super) lost: Option<u32>,
}

/// Offset of a message's data: behind its header, aligned.
const DATA: usize = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());

/// Reads control messages.
pub(super) fn told(control: &[u8]) -> Told {
    let mut told = Told::default();
    messages(control, |level, kind, data| told.take(level, kind, data));
    told
}

/// Each message: level, type, data.
pub(super) fn messages(mut control: &[u8], mut each: impl FnMut(i32, i32, &[u8])) {
    while control.len() >= DATA {
        // SAFETY: there are enough bytes, and every bit pattern is a valid header.
        let header: libc::cmsghdr = unsafe { std::ptr::read_unaligned(control.as_ptr().cast()) };
        let Some(data) = control.get(DATA..length(&header)) else { break };
        each(header.cmsg_level, header.cmsg_type, data);
        control = control.get(length(&header).next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
}

#[allow(clippy::unnecessary_cast, reason = "some C libraries count control bytes in 32 bits")]
fn length(header: &libc::cmsghdr) -> usize {
    header.cmsg_len as usize
}

impl Told {
    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
        match (level, kind) {
            // Interface, the local address it was routed by, the destination in its header.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(octets) = data.get(8..12).and_then(|b| <[u8; 4]>::try_from(b).ok()) {
                    self.destination = Some(Ipv4Addr::from(octets).into());
                    self.interface = word(0).unwrap_or(0);
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(octets) = data.get(..16).and_then(|b| <[u8; 16]>::try_from(b).ok()) {
                    let ip = Ipv6Addr::from(octets);
                    self.destination = Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4));
                    self.interface = word(16).unwrap_or(0);
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.traffic_class = word(0).unwrap_or(0) as u8,
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = word(0).unwrap_or(0) as usize,
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.timestamp = nanos(data),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.lost = word(0),
            _ => {}
        }
    }
}

/// A `timespec` in nanoseconds.
fn nanos(data: &[u8]) -> u64 {
    if data.len() < size_of::<libc::timespec>() {
        return 0;
    }
    // SAFETY: there are enough bytes, and every bit pattern is a valid `timespec`.
    let time: libc::timespec = unsafe { std::ptr::read_unaligned(data.as_ptr().cast()) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Writes the control message that chooses a source address, and the interface if it is not 0, at offset `at`; the offset behind it.
pub(super) fn tell_source(
    control: &mut Control,
    at: usize,
    source: IpAddr,
    interface: u32,
    v4: bool,
) -> usize {
    let mut info = [0; 20];
    let (level, kind, len) = match (v4, source) {
        (true, IpAddr::V4(ip)) => {
            info[..4].copy_from_slice(&interface.to_ne_bytes());
            info[4..8].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        (true, IpAddr::V6(_)) => return at,
        (false, ip) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            info[..16].copy_from_slice(&ip.octets());
            info[16..].copy_from_slice(&interface.to_ne_bytes());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    write(control, at, level, kind, &info[..len])
}

/// Writes the control message that says how long each datagram of a payload is (`UDP_SEGMENT`); the offset behind it.
pub(super) fn tell_segment(control: &mut Control, at: usize, segment: u16) -> usize {
    write(control, at, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes())
}

fn write(control: &mut Control, at: usize, level: i32, kind: i32, data: &[u8]) -> usize {
    let end = at + (DATA + data.len()).next_multiple_of(size_of::<usize>());
    let Some(room) = control.0.get_mut(at..end) else { return at };
    room.fill(0);
    room[DATA..DATA + data.len()].copy_from_slice(data);
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_level = level;
    header.cmsg_type = kind;
    header.cmsg_len = (DATA + data.len()) as _;
    // SAFETY: the room is longer than a header.
    unsafe { std::ptr::write_unaligned(room.as_mut_ptr().cast(), header) };
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        let mut control = Control::empty();
        let ours: IpAddr = "10.1.2.3".parse().unwrap();
        let end = tell_source(&mut control, 0, ours, 7, false);
        let end = tell_segment(&mut control, end, 1200);
        let end = write(&mut control, end, libc::SOL_UDP, libc::UDP_GRO, &1300u32.to_ne_bytes());
        let end = write(&mut control, end, libc::IPPROTO_IP, libc::IP_TOS, &[3]);
        let end = write(&mut control, end, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &9u32.to_ne_bytes());
        let read = told(&control.0[..end]);
        assert_eq!((read.destination, read.interface), (Some(ours), 7));
        assert_eq!((read.segment, read.traffic_class, read.lost), (1300, 3, Some(9)));
        // Every truncation ends the walk, and nothing else.
        for cut in 0..end {
            let _ = told(&control.0[..cut]);
        }
        // A length of nothing or of everything is no way on.
        for length in [0, 1, DATA - 1, ROOM + 1, usize::MAX] {
            let mut bad = control;
            bad.0[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(told(&bad.0[..end]), Told::default(), "{length}");
        }
        // What is unknown is passed over, and there is no room beyond the end.
        assert_eq!(write(&mut control, ROOM - 8, 1, 1, &[1]), ROOM - 8);
        let end = write(&mut control, 0, 12345, 1, &[1, 2, 3]);
        let end = tell_source(&mut control, end, "10.1.2.4".parse().unwrap(), 0, true);
        // On the way out the address stands where the kernel looks for it, in front of the one that it tells.
        assert_eq!(told(&control.0[..end]).destination, Some("0.0.0.0".parse().unwrap()));
    }
}
