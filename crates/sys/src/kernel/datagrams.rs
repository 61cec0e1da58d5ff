//! Datagrams in batches, received into frames and sent from them: `recvmmsg(2)` and `sendmmsg(2)`, with the local address of each datagram.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::Address;
use crate::frame::Frame;

/// Datagrams in one batch at most.
pub const BATCH: usize = 32;
/// Bytes beyond the first frame that a datagram can have.
const SPILL: usize = 65_536;
/// Parts of a datagram that is sent: the kernel's limit is 1024.
const PARTS: usize = 64;

/// Room for one control message with the longer of `in_pktinfo` and `in6_pktinfo`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// Addresses and sizes of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Sender.
    pub source: SocketAddr,
    /// The local address to which it was sent, if the socket reports it.
    pub destination: Option<IpAddr>,
    /// Bytes that did not fit its frame: see [`Batch::spilled`].
    pub spilled: usize,
}

/// A datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// To whom; `None` for the peer of a connected socket.
    pub destination: Option<SocketAddr>,
    /// From which address of ours; `None` for what the kernel prefers.
    pub source: Option<IpAddr>,
    /// The payload, with the frames chained to it.
    pub payload: &'a Frame,
}

/// Headers of a batch, made once.
pub struct Batch {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
    names: Vec<Address>,
    controls: Vec<Control>,
    spill: Vec<u8>,
    received: usize,
}

// SAFETY: the pointers in `headers` and `parts` are set anew in every call and not used between calls.
unsafe impl Send for Batch {}

impl Default for Batch {
    fn default() -> Self {
        // SAFETY: all zeros is a valid value of these plain C structures.
        let (header, part) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            headers: vec![header; BATCH],
            parts: vec![part; 2 * BATCH],
            names: vec![Address::room(); BATCH],
            controls: vec![Control([0; 64]); BATCH],
            // Zeroed memory is the kernel's promise until it is touched, which only long datagrams do.
            spill: vec![0; SPILL * BATCH],
            received: 0,
        }
    }
}

impl Batch {
    /// Receives available datagrams, one into each of `frames`, whose content is overwritten as far as they have room. Returns the number
    /// of datagrams.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if there are none.
    pub fn receive(&mut self, fd: BorrowedFd<'_>, frames: &mut [Frame]) -> io::Result<usize> {
        let count = self.point_at(frames);
        self.received = 0;
        let headers = self.headers.as_mut_ptr();
        // SAFETY: each header points to a name, two buffers and a control buffer of its own, all alive and unshared during
        // the call: this batch and the frames are borrowed exclusively.
        let n = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers,
                count as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let n = if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) };
        self.received = *n.as_ref().unwrap_or(&0);
        for (i, frame) in frames.iter_mut().take(count).enumerate() {
            let len = if i < self.received { self.headers[i].msg_len as usize } else { 0 };
            frame.truncate(len.min(frame.len()));
        }
        n
    }

    /// Makes the headers point to room for datagrams: one for each of `frames`, how many. Every piece of a vector is borrowed
    /// once and for all of them: to borrow the whole vector again would end the right to use the pointers made before.
    fn point_at(&mut self, frames: &mut [Frame]) -> usize {
        let count = frames.len().min(BATCH);
        let rooms = self.parts.chunks_exact_mut(2).zip(self.spill.chunks_exact_mut(SPILL));
        let places = self.names.iter_mut().zip(&mut self.controls);
        for (((frame, header), (parts, spill)), (name, control)) in
            frames.iter_mut().take(count).zip(&mut self.headers).zip(rooms).zip(places)
        {
            frame.truncate(0);
            let room = frame.tailroom();
            parts[0] = part_mut(frame.push_back(room).unwrap_or_default());
            parts[1] = part_mut(spill);
            *name = Address::room();
            let header = &mut header.msg_hdr;
            header.msg_namelen = name.len();
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
            header.msg_flags = 0;
        }
        count
    }

    /// Addresses and sizes of datagram `index` of the last receive; `in_frame` is the number of bytes in its frame.
    #[must_use]
    pub fn received(&self, index: usize, in_frame: usize) -> Option<Received> {
        let header = self.headers.get(index).filter(|_| index < self.received)?;
        let mut name = self.names[index];
        name.set_len(header.msg_hdr.msg_namelen);
        let told = self.controls[index].0.get(..control_len(&header.msg_hdr));
        Some(Received {
            source: name.get(),
            destination: told.and_then(told_address),
            spilled: (header.msg_len as usize).saturating_sub(in_frame).min(SPILL),
        })
    }

    /// The bytes of datagram `index` that did not fit its frame.
    #[must_use]
    pub fn spilled(&self, index: usize, len: usize) -> &[u8] {
        self.spill.get(index * SPILL..).and_then(|s| s.get(..len.min(SPILL))).unwrap_or_default()
    }

    /// Sends `count` datagrams, at most [`BATCH`], in order, to and from addresses of the socket's family (`v4`); how many
    /// the kernel took.
    ///
    /// # Errors
    /// The kernel's for the first, if it took none; `WouldBlock` if there is no room.
    pub fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        v4: bool,
        count: usize,
        datagram: impl Fn(usize) -> Outgoing<'a>,
    ) -> io::Result<usize> {
        let count = count.min(BATCH);
        // No pointer to a part is taken before all parts stand.
        self.parts.clear();
        let mut ends = [0; BATCH];
        for (i, end) in ends.iter_mut().enumerate().take(count) {
            let chunks = datagram(i).payload.chunks().take(PARTS);
            self.parts.extend(
                chunks.map(|c| libc::iovec { iov_base: c.as_ptr().cast_mut().cast(), iov_len: c.len() }),
            );
            *end = self.parts.len();
        }
        // As in `point_at`.
        let mut rest = &mut self.parts[..];
        let places = self.headers.iter_mut().zip(self.names.iter_mut().zip(&mut self.controls));
        let mut begin = 0;
        for (i, (header, (name, control))) in places.take(count).enumerate() {
            let Outgoing { destination, source, .. } = datagram(i);
            let header = &mut header.msg_hdr;
            let (parts, others) = rest.split_at_mut(ends[i] - begin);
            (rest, begin) = (others, ends[i]);
            header.msg_iov = parts.as_mut_ptr();
            header.msg_iovlen = parts.len() as _;
            (header.msg_name, header.msg_namelen) = match destination {
                Some(destination) => {
                    *name = Address::new(dressed(destination, v4));
                    let len = name.len();
                    (name.as_mut_ptr().cast(), len)
                }
                None => (std::ptr::null_mut(), 0),
            };
            let used = source.map_or(0, |source| tell_source(&mut control.0, source, v4));
            header.msg_control = if used == 0 { std::ptr::null_mut() } else { control.0.as_mut_ptr().cast() };
            header.msg_controllen = used as _;
            header.msg_flags = 0;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: each header points to a name, parts and a control buffer that the kernel only reads; the payloads outlive
        // the call by the lifetime of `Outgoing`.
        let n =
            unsafe { libc::sendmmsg(fd.as_raw_fd(), self.headers.as_mut_ptr(), count as u32, flags as _) };
        // SAFETY: as in `default`.
        self.parts.resize(2 * BATCH, unsafe { std::mem::zeroed() });
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// Sends one datagram from a slice.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if there is no room.
    pub fn send_one(
        fd: BorrowedFd<'_>,
        v4: bool,
        payload: &[u8],
        destination: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> io::Result<()> {
        let mut control = Control([0; 64]);
        let mut name = destination.map(|d| Address::new(dressed(d, v4)));
        let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(name) = &mut name {
            (header.msg_name, header.msg_namelen) = (name.as_mut_ptr().cast(), name.len());
        }
        if let Some(source) = source {
            header.msg_controllen = tell_source(&mut control.0, source, v4) as _;
            header.msg_control = control.0.as_mut_ptr().cast();
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: everything the header points to lives on this stack frame or is borrowed, and is only read.
        let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("received", &self.received).finish_non_exhaustive()
    }
}

#[allow(clippy::unnecessary_cast, reason = "some C libraries count control bytes in 32 bits")]
fn control_len(header: &libc::msghdr) -> usize {
    header.msg_controllen as usize
}

fn part_mut(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// An address as a socket of that family takes it.
fn dressed(address: SocketAddr, v4: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(a) if !v4 => SocketAddrV6::new(a.ip().to_ipv6_mapped(), a.port(), 0, 0).into(),
        address => address,
    }
}

/// Offset of a control message's data: behind its header, aligned.
const DATA: usize = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());

/// The address of ours in the first control message.
fn told_address(control: &[u8]) -> Option<IpAddr> {
    if control.len() < DATA {
        return None;
    }
    // SAFETY: there are enough bytes, and every bit pattern is a valid header.
    let header: libc::cmsghdr = unsafe { std::ptr::read_unaligned(control.as_ptr().cast()) };
    let data = control.get(DATA..)?;
    match (header.cmsg_level, header.cmsg_type) {
        // Interface, the local address it was routed by, the destination in its header.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let octets: [u8; 4] = data.get(8..12)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let octets: [u8; 16] = data.get(..16)?.try_into().ok()?;
            let ip = Ipv6Addr::from(octets);
            Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
        }
        _ => None,
    }
}

/// Writes the control message that chooses a source address; its length.
fn tell_source(control: &mut [u8; 64], source: IpAddr, v4: bool) -> usize {
    *control = [0; 64];
    let (level, kind, len) = match (v4, source) {
        (true, IpAddr::V4(ip)) => {
            control[DATA + 4..DATA + 8].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
        }
        (true, IpAddr::V6(_)) => return 0,
        (false, ip) => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            control[DATA..DATA + 16].copy_from_slice(&ip.octets());
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
        }
    };
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_level = level;
    header.cmsg_type = kind;
    header.cmsg_len = (DATA + len) as _;
    // SAFETY: the buffer is longer than a header.
    unsafe { std::ptr::write_unaligned(control.as_mut_ptr().cast(), header) };
    (DATA + len).next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameMemory, MemoryConfig};

    /// What the kernel does with the headers, done here, so that Miri sees whether every pointer may still be used when all
    /// of them stand.
    #[test]
    fn every_pointer_may_be_used_when_all_stand() {
        let config =
            MemoryConfig { frames_per_home: 4, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
        let mut batch = Batch::default();
        assert_eq!(batch.point_at(&mut frames), 4);
        let headers: Vec<_> = batch.headers.iter().take(4).map(|header| header.msg_hdr).collect();
        for (n, header) in headers.iter().enumerate() {
            // SAFETY: two parts, a name and a control buffer, as `point_at` made them; nobody else uses them.
            unsafe {
                assert_eq!(header.msg_iovlen, 2);
                let parts = std::slice::from_raw_parts(header.msg_iov, 2);
                parts[0].iov_base.cast::<u8>().write_bytes(n as u8, 5);
                parts[1].iov_base.cast::<u8>().write(n as u8);
                header.msg_name.cast::<libc::sa_family_t>().write(libc::AF_INET as libc::sa_family_t);
                header.msg_control.cast::<u8>().write(7);
            }
        }
        assert!(frames.iter().enumerate().all(|(n, frame)| frame.data()[..5] == [n as u8; 5]));
        assert_eq!(batch.spilled(3, 1), [3]);
    }
}
