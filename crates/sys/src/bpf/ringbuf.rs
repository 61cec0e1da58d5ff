//! A BPF ring buffer: records that a program writes and this process reads from shared memory, without a system call.
//!
//! A program reserves a record, fills it and submits it. The kernel (Linux 5.8, `kernel/bpf/ringbuf.c`) lays the map out so:
//!
//! ```text
//!   page 0     position up to which we have read           mapped for writing, ours alone
//!   page 1     position up to which records are reserved   mapped for reading
//!   pages 2..  data, mapped twice in a row, so that every record is in one piece
//!                record: length and flags (4 bytes), page (4), value, padding to 8 bytes
//! ```
//!
//! Positions only grow; modulo the size of the data they are offsets. The flag BUSY marks a record that is being written, DISCARDED one that
//! its program gave up. A program that finds no room gets no record. There is one reader: [`RingBuffer::read`] borrows the buffer mutably.
//!
//! Programs submit with [`NO_WAKEUP`], since nobody waits for a record.

use super::{Map, MapKind};
use crate::error::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// For the helpers that submit and discard: wake nobody (`BPF_RB_NO_WAKEUP`).
pub const NO_WAKEUP: i32 = 1;

/// Bytes before the value of a record.
const HEADER: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A ring buffer, mapped. Unmapped on drop; the map lives as long as a program uses it.
#[derive(Debug)]
pub struct RingBuffer {
    map: Map,
    base: NonNull<u8>,
    page: usize,
    /// Of the data; a power of two.
    size: usize,
}

// SAFETY: a buffer is the only reader of its mapping; moving it to another thread moves all access.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// An empty buffer with at least so many bytes of records, their headers included.
    ///
    /// # Errors
    /// [`Error::MissingCapability`], and the kernel's.
    pub fn new(name: &str, bytes: usize) -> Result<Self> {
        // SAFETY: no memory is involved.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let size = bytes.max(page).next_power_of_two();
        let map = Map::new(MapKind::RingBuffer, name, 0, 0, size)?;
        let length = 2 * page + 2 * size;
        let failed = || Error::last("mapping a BPF ring buffer", "CAP_BPF");
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours. It covers all of the map; the first page is
        // mapped again below, for writing.
        let base = unsafe {
            libc::mmap(null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, map.as_fd().as_raw_fd(), 0)
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(start) if base != libc::MAP_FAILED => start,
            _ => return Err(failed()),
        };
        let ring = Self { map, base, page, size };
        // SAFETY: replaces the first page of the mapping just made, to which nothing refers.
        let first = unsafe {
            libc::mmap(
                base.as_ptr().cast(),
                page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                ring.map.as_fd().as_raw_fd(),
                0,
            )
        };
        if first == libc::MAP_FAILED { Err(failed()) } else { Ok(ring) }
    }

    /// The map, for the program that writes.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// What `look` makes of the oldest record, which is then free; `None` when there is none, or it is not finished yet.
    pub fn read<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut at = self.consumed().load(Ordering::Relaxed);
        // Acquire: headers up to this position are marked BUSY before it is published.
        let reserved = self.reserved().load(Ordering::Acquire);
        while at != reserved {
            // Acquire: the value was written before BUSY was cleared.
            let header = self.header(at).load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let length = (header & !DISCARDED) as usize;
            let next = at.wrapping_add((HEADER + length).next_multiple_of(8));
            // Guard: `header & DISCARDED == 0` as `true` fails bpf::ringbuf
            if header & DISCARDED == 0 {
                let looked = look(self.value(at, length));
                self.release(next);
                return Some(looked);
            }
            self.release(next);
            at = next;
        }
        None
    }

    /// Everything before this position may be overwritten. Release: reads of it are over.
    fn release(&mut self, position: usize) {
        self.consumed().store(position, Ordering::Release);
    }

    fn consumed(&self) -> &AtomicUsize {
        // SAFETY: the start of the first page, which is mapped for writing and which both sides touch only atomically.
        unsafe { AtomicUsize::from_ptr(self.base.as_ptr().cast()) }
    }

    fn reserved(&self) -> &AtomicUsize {
        // SAFETY: the start of the second page, which the kernel writes atomically and which is only loaded here.
        unsafe { AtomicUsize::from_ptr(self.base.as_ptr().add(self.page).cast()) }
    }

    fn record(&self, position: usize) -> *mut u8 {
        // SAFETY: the offset is below the size of the data, so the record begins inside the first copy of it.
        unsafe { self.base.as_ptr().add(2 * self.page + (position & (self.size - 1))) }
    }

    fn header(&self, position: usize) -> &AtomicU32 {
        // SAFETY: records begin at multiples of 8 inside the mapping; the kernel writes this word atomically, and it is only loaded here.
        unsafe { AtomicU32::from_ptr(self.record(position).cast()) }
    }

    fn value(&self, position: usize, length: usize) -> &[u8] {
        assert!(length <= self.size - HEADER, "a record is inside the ring buffer");
        // SAFETY: header and value are at most as long as the data, and begin inside the first of its two copies, so they are inside the
        // mapping. The record is submitted and not released, so the kernel does not write to it.
        unsafe { std::slice::from_raw_parts(self.record(position).add(HEADER), length) }
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it outlives the buffer.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.page + 2 * self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::asm::{Assembler, If, Reg::*, Size, helper};
    use crate::bpf::{Program, ProgramKind};
    use crate::{privilege, skipped};

    /// Bytes of a value; a record is padded.
    const VALUE: i32 = 1004;

    /// A program that writes the first 4 bytes of its packet to both ends of a record, and discards the record if they are an odd number. Its
    /// result: whether there was room.
    fn writer(ring: &RingBuffer) -> Assembler {
        let mut a = Assembler::new();
        let (full, discard) = (a.label(), a.label());
        a.copy(R6, R1);
        a.load_map(R1, ring.map()).set(R2, VALUE).set(R3, 0).call(helper::RINGBUF_RESERVE);
        a.jump_if(If::Equal, R0, 0, full);
        a.copy(R7, R0);
        // Socket filters see a packet from its network header on.
        a.copy(R1, R6).set(R2, 0).copy(R3, R7).set(R4, 4).call(helper::SKB_LOAD_BYTES);
        a.load(Size::W, R8, R7, 0).store(Size::W, R7, (VALUE - 4) as i16, R8);
        a.jump_if(If::AnySet, R8, 1, discard);
        a.copy(R1, R7).set(R2, NO_WAKEUP).call(helper::RINGBUF_SUBMIT).exit_with(1);
        a.bind(discard).copy(R1, R7).set(R2, NO_WAKEUP).call(helper::RINGBUF_DISCARD).exit_with(1);
        a.bind(full).exit_with(0);
        a
    }

    /// Many times the size of the buffer passes through it: what was submitted is read in order, what finds no room is refused.
    #[test]
    fn records_come_in_order_and_a_full_buffer_refuses() {
        if !privilege::lacking(&[privilege::CAP_BPF, privilege::CAP_NET_ADMIN]).is_empty() {
            return skipped("skipped, because BPF programs need CAP_BPF and CAP_NET_ADMIN");
        }
        let mut ring = RingBuffer::new("flowlane_test", 1).unwrap();
        let program = Program::load(ProgramKind::SocketFilter, "test_ring", writer(&ring)).unwrap();
        let write = |number: u32| {
            let packet = [&[0; 14][..], &number.to_ne_bytes(), &[0; 42]].concat();
            program.test_run(&packet, 1).unwrap().value == 1
        };
        let word = |value: &[u8], at: usize| u32::from_ne_bytes(value[at..at + 4].try_into().unwrap());
        let read = |ring: &mut RingBuffer| {
            ring.read(|value| {
                assert_eq!(value.len(), VALUE as usize);
                (word(value, 0), word(value, value.len() - 4))
            })
        };
        assert_eq!(read(&mut ring), None);
        let room = ring.size / (HEADER + VALUE as usize).next_multiple_of(8);
        let mut number = 0;
        for held in (1..=room).cycle().take(50 * room) {
            let first = number;
            while number - first < held as u32 {
                assert!(write(number), "{number}: there is room");
                number += 1;
            }
            if held == room {
                assert!(!write(number), "{number}: there is no room");
            }
            for wanted in (first..number).filter(|number| number % 2 == 0) {
                assert_eq!(read(&mut ring), Some((wanted, wanted)));
            }
            assert_eq!(read(&mut ring), None);
        }
    }
}
