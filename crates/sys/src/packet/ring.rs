//! The memory-mapped rings of a packet socket (TPACKET_V2): slots of equal size, each with a status word.
//!
//! ```text
//!   slot   ┌────────┬──────────┬─────────────────────┐
//!          │ status │ header … │ packet              │
//!          └────────┴──────────┴─────────────────────┘
//!   receive: the kernel writes the packet, then status USER; we copy it out and write KERNEL.
//!   send:    we write the packet, then SEND_REQUEST; the kernel sends it and writes AVAILABLE.
//! ```
//!
//! There are no positions to share: either side goes round and stops at a slot that is not its own. Version 2 has one
//! status a packet; version 3 hands over blocks of packets when they are full or old, which makes a lone packet wait
//! for a timer of a millisecond or more. Round trips matter here, so version 2 it is.
//!
//! A virtio-net header stands before each packet: [`crate::vnet`] reads that of a received one. That of a packet to be sent
//! stays as it was mapped, all zeros: the packet is finished. A packet longer than its slot waits whole in the socket's receive
//! buffer, and the slot says so (`TP_STATUS_COPY`); see `long`.

use crate::error::{Error, Result};
use crate::sync::AtomicU32;
use crate::vnet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// Shape of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Slots, a power of two.
    pub(super) slots: u32,
    /// Bytes of a slot, a power of two.
    pub(super) slot_bytes: u32,
}

/// Slots share blocks of this size (or of one slot, if that is larger).
const BLOCK: u32 = 1 << 16;
const HEADER: usize = size_of::<libc::tpacket2_hdr>();
/// Where the virtio-net header starts in a slot to be sent: after the ring's, rounded up to 16.
const SEND_HEADER: usize = HEADER.next_multiple_of(16);
/// Where the packet starts in a slot to be sent.
const SEND_OFFSET: usize = SEND_HEADER + vnet::LEN;
/// The longest slot: packets of nearly 64 KiB, the longest that IP knows.
const LONGEST_SLOT: u32 = 1 << 16;
/// Bytes of a ring with slots for long packets at most, unless short ones would need as much.
const RING_BYTES: u32 = 32 << 20;

impl Shape {
    /// Slots for packets of up to `packet` bytes, or of 64 KiB less the headers if that is fewer. Of long slots there are fewer
    /// than `slots`, so that a ring does not take more than 32 MiB, or what it would with the shortest slots.
    pub(super) fn for_packets(slots: u32, packet: u32) -> Self {
        // Headers, link-layer address and alignment, before a received packet.
        const OVERHEAD: u32 = 32 + 20 + 16 + 16 + 16 + vnet::LEN as u32;
        const SHORTEST: u32 = 2048;
        let slots = slots.next_power_of_two();
        let slot_bytes = packet.saturating_add(OVERHEAD).min(LONGEST_SLOT).next_power_of_two().max(SHORTEST);
        let most = RING_BYTES.max(slots.saturating_mul(SHORTEST)) / slot_bytes;
        Self { slots: slots.min(most), slot_bytes }
    }

    /// Bytes of the longest packet that a slot of a send ring takes.
    pub(super) fn longest(self) -> usize {
        self.slot_bytes as usize - SEND_OFFSET
    }

    fn request(self) -> libc::tpacket_req {
        let block = BLOCK.max(self.slot_bytes);
        libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: (u64::from(self.slots) * u64::from(self.slot_bytes) / u64::from(block)).max(1)
                as u32,
            tp_frame_size: self.slot_bytes,
            tp_frame_nr: self.slots.max(block / self.slot_bytes),
        }
    }

    fn bytes(self) -> usize {
        let request = self.request();
        request.tp_block_size as usize * request.tp_block_nr as usize
    }
}

/// Both rings of one socket in one mapping: receive first, then send.
#[derive(Debug)]
pub(super) struct Rings {
    base: NonNull<u8>,
    bytes: usize,
    receive: Shape,
    send_at: usize,
    send: Shape,
}

// SAFETY: the only handle to the mapping on this side; moving it moves all access.
unsafe impl Send for Rings {}

/// A received packet, as its slot describes it.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) status: u32,
    /// Length before it was cut to the slot.
    pub(super) whole: usize,
    pub(super) vlan: (u16, u16),
    /// What is left to do about its checksum, and how it was merged.
    pub(super) header: [u8; vnet::LEN],
    pub(super) bytes: &'a [u8],
}

impl Rings {
    /// Gives the socket its rings and maps them.
    pub(super) fn new(socket: BorrowedFd<'_>, receive: Shape, send: Shape) -> Result<Self> {
        for (name, option, shape) in
            [("receive", libc::PACKET_RX_RING, receive), ("send", libc::PACKET_TX_RING, send)]
        {
            super::set_option(socket, option, &shape.request()).map_err(|e| {
                Error::from_io(e, format!("AF_PACKET {name} ring of {} slots", shape.slots), "CAP_NET_RAW")
            })?;
        }
        let bytes = receive.bytes() + send.bytes();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => {
                Ok(Self { base, bytes, receive, send_at: receive.bytes(), send })
            }
            _ => Err(Error::last("mapping the AF_PACKET rings", "CAP_NET_RAW")),
        }
    }

    pub(super) fn send_slots(&self) -> u32 {
        self.send.slots
    }

    /// Bytes of the longest packet that a send slot takes.
    pub(super) fn longest(&self) -> usize {
        self.send.longest()
    }

    fn receive_slot(&self, position: u32) -> *mut u8 {
        let index = (position & (self.receive.slots - 1)) as usize;
        // SAFETY: index is below the number of slots, so the slot is inside the receive ring.
        unsafe { self.base.as_ptr().add(index * self.receive.slot_bytes as usize) }
    }

    fn send_slot(&self, position: u32) -> *mut u8 {
        let index = (position & (self.send.slots - 1)) as usize;
        // SAFETY: index is below the number of slots, so the slot is inside the send ring.
        unsafe { self.base.as_ptr().add(self.send_at + index * self.send.slot_bytes as usize) }
    }

    /// The status word of a slot.
    ///
    /// # Safety
    /// `slot` is the start of a slot of this mapping.
    unsafe fn status(&self, slot: *mut u8) -> &AtomicU32 {
        // SAFETY: the status is the first word, aligned to the slot, and both sides touch it only atomically.
        unsafe { AtomicU32::from_ptr(slot.cast()) }
    }

    /// Whether the packet at `position` is ours to read.
    #[inline]
    pub(super) fn is_received(&self, position: u32) -> bool {
        // SAFETY: a slot of the mapping.
        let status = unsafe { self.status(self.receive_slot(position)) };
        // Acquire: the packet was written before its status.
        status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The packet at `position`, if it is ours to read. [`Rings::release`] gives the slot back.
    #[inline]
    pub(super) fn received(&mut self, position: u32) -> Option<Received<'_>> {
        if !self.is_received(position) {
            return None;
        }
        let slot = self.receive_slot(position);
        // SAFETY: the status said that the slot is ours until `release`, which needs `self` back; the header is plain
        // numbers; the packet's place is checked against the slot.
        unsafe {
            let header = slot.cast::<libc::tpacket2_hdr>().read();
            let (at, len) = (header.tp_mac as usize, header.tp_snaplen as usize);
            let fits = at >= HEADER + vnet::LEN && at + len <= self.receive.slot_bytes as usize;
            let bytes = if fits { std::slice::from_raw_parts(slot.add(at), len) } else { Default::default() };
            let before =
                if fits { slot.add(at - vnet::LEN).cast::<[u8; vnet::LEN]>().read() } else { [0; vnet::LEN] };
            Some(Received {
                status: header.tp_status,
                whole: header.tp_len as usize,
                vlan: (header.tp_vlan_tpid, header.tp_vlan_tci),
                header: before,
                bytes,
            })
        }
    }

    /// Gives the receive slot at `position` back to the kernel.
    #[inline]
    pub(super) fn release(&mut self, position: u32) {
        // SAFETY: a slot of the mapping.
        let status = unsafe { self.status(self.receive_slot(position)) };
        // Release: the packet has been read before the slot may be written again.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    /// State of the send slot at `position`: `TP_STATUS_AVAILABLE`, `_SEND_REQUEST`, `_SENDING` or `_WRONG_FORMAT`.
    #[inline]
    pub(super) fn send_status(&self, position: u32) -> u32 {
        // SAFETY: a slot of the mapping.
        let status = unsafe { self.status(self.send_slot(position)) };
        // Acquire: the kernel has read the packet before it gave the slot back.
        status.load(Ordering::Acquire) & 0xff
    }

    /// Makes the send slot at `position` ours again after the kernel refused its packet.
    pub(super) fn reset_send(&mut self, position: u32) {
        // SAFETY: a slot of the mapping.
        let status = unsafe { self.status(self.send_slot(position)) };
        status.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
    }

    /// Room for a packet of `len` bytes in the send slot at `position`, which is available. [`Rings::submit`] sends it.
    #[inline]
    pub(super) fn send_buffer(&mut self, position: u32, len: usize) -> Option<&mut [u8]> {
        if len > self.send.longest() {
            return None;
        }
        let slot = self.send_slot(position);
        // SAFETY: an available slot is ours alone until `submit`, which needs `self` back; the length was checked.
        unsafe {
            let whole = (len + vnet::LEN) as u32;
            (&raw mut (*slot.cast::<libc::tpacket2_hdr>()).tp_len).write(whole);
            Some(std::slice::from_raw_parts_mut(slot.add(SEND_OFFSET), len))
        }
    }

    /// Bytes of the packet in the send slot at `position`.
    pub(super) fn send_len(&self, position: u32) -> usize {
        // SAFETY: a slot of the mapping; the kernel does not write the length of a packet to be sent.
        let whole =
            unsafe { (&raw const (*self.send_slot(position).cast::<libc::tpacket2_hdr>()).tp_len).read() };
        (whole as usize).saturating_sub(vnet::LEN)
    }

    /// Makes the packet in the send slot at `position` one that the kernel passes over: it is too short for its header, and with
    /// `PACKET_LOSS` such a slot is given back.
    pub(super) fn spoil(&mut self, position: u32) {
        // SAFETY: a slot of the mapping; the kernel reads the length in a call of this socket's only, which is ours.
        unsafe { (&raw mut (*self.send_slot(position).cast::<libc::tpacket2_hdr>()).tp_len).write(0) };
    }

    /// Marks the send slot at `position` for sending.
    #[inline]
    pub(super) fn submit(&mut self, position: u32) {
        // SAFETY: a slot of the mapping.
        let status = unsafe { self.status(self.send_slot(position)) };
        // Release: the packet is written before its status.
        status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it outlives the rings.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_satisfy_the_kernels_rules() {
        for packet in [1518, 1966, 9018, 65_550, u32::MAX] {
            for slots in [1, 512, 4096] {
                let shape = Shape::for_packets(slots, packet);
                let request = shape.request();
                assert!(request.tp_frame_size == LONGEST_SLOT || request.tp_frame_size >= packet + 92);
                assert!(shape.bytes() <= RING_BYTES as usize, "{shape:?}");
                assert!(request.tp_frame_size >= packet.min(60_000) + 92 && request.tp_frame_size % 16 == 0);
                assert!(request.tp_block_size % request.tp_frame_size == 0);
                let per_block = request.tp_block_size / request.tp_frame_size;
                assert_eq!(request.tp_frame_nr, per_block * request.tp_block_nr, "{shape:?}");
            }
        }
    }
}
