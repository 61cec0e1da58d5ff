//! Datagrams as they were received: up to 64 at once, each in the frame in which it came, with what is known of it.
//!
//! A batch is lent to a callback. Its datagrams can be read, changed in place, and marked to be sent back; what is not marked is dropped when
//! the callback returns.

use std::ffi::c_void;

use flowlane::{Datagram, Flow, HashType, Protocol, Rss};

use crate::address::Address;
use crate::error::{Error, guarded};
use crate::pointer::{borrowed, changed, give, room};

/// Datagrams of a batch at most: its marks are the bits of a word.
pub(crate) const MOST: usize = 64;

/// Datagrams that were received at once.
#[derive(Debug)]
pub struct Batch {
    pub(crate) datagrams: Vec<Datagram>,
    /// Which of them are to go back, a bit each.
    back: u64,
    /// For hashes that the link did not deliver.
    rss: *const Rss,
}

// SAFETY: the steering is the lane's, which the batch's task keeps; it is only read, and may be on any thread.
unsafe impl Send for Batch {}

impl Batch {
    /// # Safety
    /// The batch is gone before the steering is.
    pub(crate) unsafe fn new(rss: &Rss) -> Self {
        Self { datagrams: Vec::with_capacity(MOST), back: 0, rss }
    }

    /// Keeps those that are marked, in their order.
    pub(crate) fn keep_marked(&mut self) {
        let back = std::mem::take(&mut self.back);
        let all = u64::MAX >> (MOST - self.datagrams.len().clamp(1, MOST));
        if back == 0 {
            self.datagrams.clear();
        // Guard: `back != all` as `false` fails capi/every_function
        } else if back != all {
            let mut at = 0;
            self.datagrams.retain(|_| {
                at += 1;
                back >> (at - 1) & 1 == 1
            });
        }
    }

    fn at(&self, index: usize) -> Result<&Datagram, Error> {
        self.datagrams.get(index).ok_or_else(|| self.beyond(index))
    }

    #[cold]
    fn beyond(&self, index: usize) -> Error {
        Error::invalid(format!("there are {} datagrams, none has the number {index}", self.datagrams.len()))
    }
}

/// A received datagram.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DatagramView {
    /// Its payload, to be read and changed in place until the callback returns. Of one in several parts, as a reassembled one may be, only
    /// the first: flowlane_batch_read has all.
    pub data: *mut c_void,
    /// Bytes at data.
    pub len: usize,
    /// Bytes of all parts.
    pub total: usize,
    /// Who sent it.
    pub source: Address,
    /// Where it was sent to, which is ours.
    pub destination: Address,
    /// Its flow hash, as the card delivered or the stack computed it; on kernel sockets as the host's steering makes it.
    pub hash: u32,
    /// What the hash covers, by FreeBSD's numbers.
    pub hash_type: u32,
    /// The bucket that the hash names. On kernel sockets the kernel chooses the lane, which may be another bucket's.
    pub bucket: u32,
    /// The queue on which it arrived; on kernel sockets the number of the kernel's interface.
    pub queue: u32,
    /// When the link received it, nanoseconds on the link's clock; 0 if the link does not say.
    pub timestamp: u64,
    /// Type of service or traffic class.
    pub traffic_class: u8,
}

/// What is known of a datagram of a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_batch_get(
    batch: *mut Batch,
    index: usize,
    datagram: *mut DatagramView,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result; the steering lives as long as the batch.
        unsafe {
            let batch = changed(batch, "the batch")?;
            let steering = &*batch.rss;
            let Some(found) = batch.datagrams.get_mut(index) else { return Err(batch.beyond(index)) };
            let (hash, hash_type) = flow_hash(found, steering);
            let total = found.len();
            let (source, destination) = (found.source, found.destination);
            let (timestamp, traffic_class) = (found.timestamp(), found.traffic_class);
            let queue = u32::from(found.frame().meta().queue);
            let payload = found.payload_mut();
            let view = DatagramView {
                data: payload.as_mut_ptr().cast(),
                len: payload.len(),
                total,
                source: Address::of(Some(source.ip), source.port),
                destination: Address::of(Some(destination.ip), destination.port),
                hash,
                hash_type: u32::from(hash_type),
                bucket: u32::from(steering.bucket_of(hash).0),
                queue,
                timestamp,
                traffic_class,
            };
            give(datagram, view, "the datagram")
        }
    })
}

/// The hash that came with it, or what the steering makes of its addresses.
fn flow_hash(datagram: &Datagram, rss: &Rss) -> (u32, u8) {
    if datagram.hash_type() != HashType::None.as_u8() {
        return (datagram.flow_hash(), datagram.hash_type());
    }
    let flow = Flow::new(datagram.source.into(), datagram.destination.into(), Protocol::UDP);
    let (hash, hash_type) = rss.software_hash(&flow);
    (hash, hash_type.as_u8())
}

/// Copies the payload of a datagram, all parts of it, as far as it fits; to `copied` how many bytes that were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_batch_read(
    batch: *const Batch,
    index: usize,
    to: *mut c_void,
    size: usize,
    copied: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, buffer and place for a result.
        unsafe {
            let n = borrowed(batch, "the batch")?.at(index)?.read(room(to.cast::<u8>(), size, "the buffer")?);
            give(copied, n, "the number of bytes")
        }
    })
}

/// Marks a datagram to be sent back to its sender when the callback returns, with the payload that it has then, shortened to `len` bytes if it
/// is longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_batch_reply(batch: *mut Batch, index: usize, len: usize) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let batch = unsafe { changed(batch, "the batch") }?;
        let Some(datagram) = batch.datagrams.get_mut(index) else { return Err(batch.beyond(index)) };
        // Guard: `len < datagram.len()` as `false` fails capi/every_function
        if len < datagram.len() {
            datagram.truncate(len);
        }
        batch.back |= 1 << index;
        Ok(())
    })
}

/// Marks all datagrams to be sent back as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_batch_reply_all(batch: *mut Batch) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let batch = unsafe { changed(batch, "the batch") }?;
        batch.back = u64::MAX >> (MOST - batch.datagrams.len().clamp(1, MOST));
        Ok(())
    })
}
