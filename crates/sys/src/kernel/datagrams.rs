//! Datagrams in batches, received into frames and sent from them: `recvmmsg(2)` and `sendmmsg(2)`, with the local address of each datagram.
//!
//! A *message* is what one header of the kernel describes: one datagram, or several of one sender. The kernel merges datagrams on receive
//! (`UDP_GRO`, generic receive offload) and takes them apart behind the socket, or leaves that to the card, on send (`UDP_SEGMENT`, generic
//! segmentation offload), so that the way through IP and the routes is gone once for all of them.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::Address;
use super::control::{self, Control, ROOM};
use crate::frame::Frame;

/// Messages in one batch at most.
pub const BATCH: usize = 32;
/// Datagrams in one message at most (`UDP_MAX_SEGMENTS` of Linux 6.1).
pub const SEGMENTS: usize = 64;
/// Bytes of datagrams in one message at most: they are one packet of IP until they are taken apart.
pub const MESSAGE: usize = 65_000;
/// Bytes beyond the first frame that a message can have.
const SPILL: usize = 65_536;
/// Parts of a datagram that is sent: with all of a message's datagrams fewer than the kernel's limit of 1024.
const PARTS: usize = 64;
/// Parts of a message.
const MESSAGE_PARTS: usize = 512;

/// What is known of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Sender.
    pub source: SocketAddr,
    /// The local address to which it was sent, if the socket reports it.
    pub destination: Option<IpAddr>,
    /// Number of the kernel's interface that received it; 0 if the socket does not report it.
    pub interface: u32,
    /// Type of service or traffic class, ECN in the low two bits; 0 if the socket does not report it.
    pub traffic_class: u8,
    /// When the kernel received it, nanoseconds since 1970; 0 if the socket does not report it.
    pub timestamp: u64,
    /// Bytes of each of the merged datagrams, but for the last, which may be shorter; 0 if it is one datagram.
    pub segment: usize,
    /// Datagrams that the socket has lost since it was opened, modulo 2^32; `None` if it has not lost any, or does not report it.
    pub lost: Option<u32>,
    /// Bytes that did not fit its frame: see [`Batch::spilled`].
    pub spilled: usize,
}

/// What the kernel took of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Datagrams.
    pub datagrams: usize,
    /// Messages of more than one datagram.
    pub merged: usize,
}

/// A datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// To whom; `None` for the peer of a connected socket.
    pub destination: Option<SocketAddr>,
    /// From which address of ours; `None` for what the kernel prefers.
    pub source: Option<IpAddr>,
    /// By which interface of the kernel's, together with a source; 0 for the one that routes say.
    pub interface: u32,
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
    /// Of each message that was sent, the datagrams up to its end.
    ends: [u16; BATCH],
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
            controls: vec![Control::empty(); BATCH],
            // Zeroed memory is the kernel's promise until it is touched, which only long datagrams do.
            spill: vec![0; SPILL * BATCH],
            received: 0,
            ends: [0; BATCH],
        }
    }
}

impl Batch {
    /// Receives available messages, one into each of `frames`, whose content is overwritten as far as they have room. Returns the number
    /// of messages.
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

    /// What is known of message `index` of the last receive; `in_frame` is the number of bytes in its frame.
    #[must_use]
    pub fn received(&self, index: usize, in_frame: usize) -> Option<Received> {
        let header = self.headers.get(index).filter(|_| index < self.received)?;
        let mut name = self.names[index];
        name.set_len(header.msg_hdr.msg_namelen);
        let told = control::told(&self.controls[index].0[..control_len(&header.msg_hdr).min(ROOM)]);
        Some(Received {
            source: name.get(),
            destination: told.destination,
            interface: told.interface,
            traffic_class: told.traffic_class,
            timestamp: told.timestamp,
            segment: told.segment,
            lost: told.lost,
            spilled: (header.msg_len as usize).saturating_sub(in_frame).min(SPILL),
        })
    }

    /// The bytes of message `index` that did not fit its frame.
    #[must_use]
    pub fn spilled(&self, index: usize, len: usize) -> &[u8] {
        self.spill.get(index * SPILL..).and_then(|s| s.get(..len.min(SPILL))).unwrap_or_default()
    }

    /// Sends datagrams, as many of `count` as fit [`BATCH`] messages, in order, to and from addresses of the socket's family (`v4`). Those
    /// that follow one another with the same ends and the same length of up to `most` bytes are one message (the last of it may be
    /// shorter); with `most` of 0 each is a message of its own.
    ///
    /// # Errors
    /// The kernel's for the first message, if it took none; `WouldBlock` if there is no room. [`Batch::first`] says how many datagrams
    /// that message has.
    pub fn send<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        v4: bool,
        count: usize,
        most: usize,
        datagram: impl Fn(usize) -> Outgoing<'a>,
    ) -> io::Result<Sent> {
        let messages = self.lay_out(v4, count, most, &datagram);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: each header points to a name, parts and a control buffer that the kernel only reads; the payloads outlive
        // the call by the lifetime of `Outgoing`.
        let n =
            unsafe { libc::sendmmsg(fd.as_raw_fd(), self.headers.as_mut_ptr(), messages as u32, flags as _) };
        // SAFETY: as in `default`.
        self.parts.resize(2 * BATCH, unsafe { std::mem::zeroed() });
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let ends = &self.ends[..(n as usize).min(messages)];
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let merged = begins.zip(ends).filter(|(begin, end)| *end - begin > 1).count();
        Ok(Sent { datagrams: ends.last().copied().unwrap_or(0).into(), merged })
    }

    /// Datagrams of the first message of the last [`Batch::send`].
    #[must_use]
    pub fn first(&self) -> usize {
        self.ends[0].into()
    }

    /// Makes the headers of messages, and the parts and ends of each; how many messages.
    fn lay_out<'a>(
        &mut self,
        v4: bool,
        count: usize,
        most: usize,
        datagram: &impl Fn(usize) -> Outgoing<'a>,
    ) -> usize {
        // No pointer to a part is taken before all parts stand.
        self.parts.clear();
        let mut parts = [0u16; BATCH];
        let mut sizes = [0u16; BATCH];
        let (mut messages, mut next) = (0, 0);
        while messages < BATCH && next < count {
            let first = datagram(next);
            let (size, begin) = (first.payload.chain_len(), self.parts.len());
            self.put(first.payload);
            next += 1;
            let (mut bytes, mut last, mut merged) = (size, size, 1);
            while next < count && merged < SEGMENTS && last == size && (1..=most).contains(&size) {
                let another = datagram(next);
                last = another.payload.chain_len();
                let like = (another.destination, another.source, another.interface)
                    == (first.destination, first.source, first.interface);
                let fits = (1..=size).contains(&last) && bytes + last <= MESSAGE;
                if !like || !fits || self.parts.len() - begin + PARTS > MESSAGE_PARTS {
                    break;
                }
                self.put(another.payload);
                bytes += last;
                (next, merged) = (next + 1, merged + 1);
            }
            (parts[messages], self.ends[messages]) = ((self.parts.len() - begin) as u16, next as u16);
            sizes[messages] = if merged > 1 { size as u16 } else { 0 };
            messages += 1;
        }
        // As in `point_at`.
        let mut rest = &mut self.parts[..];
        let places = self.headers.iter_mut().zip(self.names.iter_mut().zip(&mut self.controls));
        let mut of = 0;
        for (i, (header, (name, control))) in places.take(messages).enumerate() {
            let Outgoing { destination, source, interface, .. } = datagram(of);
            of = self.ends[i].into();
            let header = &mut header.msg_hdr;
            let (parts, others) = rest.split_at_mut(parts[i].into());
            rest = others;
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
            let mut used = source.map_or(0, |source| control::tell_source(control, 0, source, interface, v4));
            if sizes[i] > 0 {
                used = control::tell_segment(control, used, sizes[i]);
            }
            header.msg_control = if used == 0 { std::ptr::null_mut() } else { control.0.as_mut_ptr().cast() };
            header.msg_controllen = used as _;
            header.msg_flags = 0;
        }
        messages
    }

    fn put(&mut self, payload: &Frame) {
        let chunks = payload.chunks().take(PARTS);
        self.parts
            .extend(chunks.map(|c| libc::iovec { iov_base: c.as_ptr().cast_mut().cast(), iov_len: c.len() }));
    }

    /// Sends `payload` as datagrams of `segment` bytes, the last of which may be shorter, or as one datagram if `segment` is 0. With
    /// segments it has at most [`SEGMENTS`] of them and [`MESSAGE`] bytes.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if there is no room.
    pub fn send_one(
        fd: BorrowedFd<'_>,
        v4: bool,
        payload: &[u8],
        segment: u16,
        destination: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> io::Result<()> {
        let mut control = Control::empty();
        let mut name = destination.map(|d| Address::new(dressed(d, v4)));
        let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(name) = &mut name {
            (header.msg_name, header.msg_namelen) = (name.as_mut_ptr().cast(), name.len());
        }
        let mut used = source.map_or(0, |source| control::tell_source(&mut control, 0, source, 0, v4));
        if segment > 0 {
            used = control::tell_segment(&mut control, used, segment);
        }
        if used > 0 {
            header.msg_controllen = used as _;
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
