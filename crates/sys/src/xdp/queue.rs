//! One queue of an AF_XDP link: what happens for every packet.

use super::Device;
use super::held::Held;
use super::rings::{Rings, get_option, put, take};
use super::socket::{self, Opening};
use super::told::Told;
use crate::bpf::claim::{METADATA_LEN, NO_HASH};
use crate::frame::{Checksum, Frame, Meta, Pool};
use crate::packet::OffloadSocket;
use crate::queue::{Outstanding, Queue, QueueStats, send_ring, transmit_in_order};
use crate::ring::cursor::between;
use crate::vnet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kicks of one [`flush`](Queue::flush) at most: each sends at least 32 packets.
const MAX_KICKS: u32 = 64;
/// `XDP_PKT_CONTD`: the packet continues in the next descriptor.
const CONTINUED: u32 = libc::XDP_PKT_CONTD;

/// One AF_XDP socket with its rings. Closing it gives every frame back.
#[derive(Debug)]
pub struct XdpQueue {
    // These three go in this order: the mappings keep the socket open, and only when it is closed may the frames that
    // the kernel held be used again.
    rings: Rings,
    socket: OwnedFd,
    held: Held,
    /// Frames to keep in the kernel's hands for receiving, and how many are there.
    fill_target: u32,
    filled: u32,
    /// Looks in a row that found no packet while the driver asked to be told of frames.
    dry: u32,
    /// What the driver was told of the transmit ring, in zero copy.
    told: Told,
    /// The first part of a packet whose last buffer has not arrived yet.
    partial: Option<Frame>,
    stats: QueueStats,
    /// For packets with segmentation offload.
    offload: Option<OffloadSocket>,
    settings: Settings,
    device: Arc<Device>,
}

/// Properties of the socket, from `open`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Number of the queue of the interface.
    pub(super) queue: u32,
    pub(super) need_wakeup: bool,
    /// The card itself reads and writes the frames.
    pub(super) zero_copy: bool,
    pub(super) chains: bool,
    pub(super) busy_poll: bool,
    pub(super) hash_type: Option<fn(u32) -> u8>,
    /// Senders may have left checksums to hardware that was never reached, and nothing says of which packets.
    pub(super) unfinished: bool,
}

impl XdpQueue {
    pub(super) fn new(
        opening: Opening,
        fill_target: u32,
        settings: Settings,
        offload: Option<OffloadSocket>,
        device: Arc<Device>,
    ) -> Self {
        let Opening { rings, socket, held, filled } = opening;
        Self {
            rings,
            socket,
            held,
            fill_target,
            filled,
            dry: 0,
            told: Told::default(),
            partial: None,
            stats: QueueStats::default(),
            offload,
            settings,
            device,
        }
    }

    /// Turns one descriptor into a frame; `true` when that completes a packet.
    #[inline]
    fn accept(&mut self, descriptor: libc::xdp_desc, into: &mut Vec<Frame>) -> bool {
        let Some(mut frame) = self.held.take(descriptor.addr) else {
            self.stats.rx_bad += 1;
            return false;
        };
        let offset = descriptor.addr as usize & (frame.capacity() - 1);
        frame.reset(offset);
        if frame.push_back(descriptor.len as usize).is_none() {
            self.stats.rx_bad += 1;
            return false;
        }
        *frame.meta_mut() = Meta { queue: self.settings.queue as u16, ..Meta::default() };
        self.stats.rx_bytes += u64::from(descriptor.len);
        if self.partial.is_none() {
            if let Some(number) = self.settings.hash_type {
                read_hash(&mut frame, number);
            }
            if self.settings.unfinished && vnet::looks_unfinished(frame.data()) {
                frame.meta_mut().checksum = Checksum::Partial;
                self.stats.rx_unfinished += 1;
            }
            if descriptor.options & CONTINUED == 0 {
                self.stats.rx_frames += 1;
                into.push(frame);
                return true;
            }
            self.partial = Some(frame);
            return false;
        }
        if let Some(head) = self.partial.as_mut() {
            head.append(frame);
        }
        if descriptor.options & CONTINUED == 0 {
            self.stats.rx_frames += 1;
            into.extend(self.partial.take());
            return true;
        }
        false
    }

    /// Tops up the fill ring, as far as there are frames.
    fn refill(&mut self, pool: &Pool) {
        let wanted = self.fill_target - self.filled;
        let mut given = socket::fill(&mut self.rings, &mut self.held, pool, wanted);
        if given == 0 {
            // What was sent meanwhile is all that there is.
            self.reclaim();
            given = socket::fill(&mut self.rings, &mut self.held, pool, wanted);
        }
        if given == 0 {
            return;
        }
        let first = self.filled == 0;
        self.filled += given;
        if self.settings.need_wakeup && self.rings.fill.positions().needs_wakeup() {
            self.poll_device();
        } else if first && self.settings.zero_copy {
            // The driver found no frame when the socket was bound, and may not have said that it waits for some.
            self.kick();
        }
    }

    /// Nothing has come. A driver that ran out of frames may have said so only after frames were put into the ring, and then waits to be
    /// told of them. Asked ever more seldom, since it may want more than there are.
    #[inline]
    fn look_after_fill(&mut self) {
        if self.settings.need_wakeup && self.rings.fill.positions().needs_wakeup() {
            self.dry = self.dry.saturating_add(1);
            if self.dry.is_power_of_two() && self.rings.fill.pending() > 0 {
                self.poll_device();
            }
        }
    }

    /// Puts packets from the front of `frames` into the ring, at most `limit` and as many as there is room for.
    fn put(&mut self, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let limit = limit.min(frames.len());
        let mut room = self.rings.transmit.room(limit as u32) as usize;
        let mut count = 0;
        for frame in frames.iter().take(limit) {
            let needs = if frame.is_chained() { frame.chunks().count() } else { 1 };
            if needs > room {
                break;
            }
            room -= needs;
            count += 1;
        }
        for mut frame in frames.drain(..count) {
            // The kernel sends from the frames' own buffers only.
            if frame.is_chained() {
                frame.own_chain();
            } else {
                frame.own();
            }
            if let Some(tag) = frame.meta().vlan {
                frame.insert_tag(0x8100, tag);
            }
            if !vnet::complete_checksum(&mut frame) {
                self.stats.tx_failed += 1;
            } else if frame.is_chained() {
                self.put_chain(frame);
            } else if frame.is_empty() {
                self.stats.tx_failed += 1;
            } else {
                self.put_packet(frame, 0);
            }
        }
        count
    }

    /// Puts one frame into the transmit ring, which has room.
    #[inline]
    fn put_packet(&mut self, frame: Frame, options: u32) {
        let (offset, len) = (frame.headroom() as u64, frame.len() as u32);
        match self.held.give(frame) {
            Ok(address) => {
                put(&mut self.rings.transmit, libc::xdp_desc { addr: address + offset, len, options });
                self.stats.tx_bytes += u64::from(len);
                self.stats.tx_frames += u64::from(options & CONTINUED == 0);
            }
            Err(_) => self.stats.tx_failed += 1,
        }
    }

    /// Puts a packet of several frames into the transmit ring, which has room.
    #[cold]
    fn put_chain(&mut self, frame: Frame) {
        let held = &self.held;
        if !self.settings.chains || !frame.chunks().all(|c| !c.is_empty() && held.contains(c)) {
            self.stats.tx_failed += 1;
            return;
        }
        let mut next = Some(frame);
        while let Some(mut frame) = next {
            next = frame.take_next();
            self.put_packet(frame, if next.is_some() { CONTINUED } else { 0 });
        }
    }

    /// Asks the kernel to look at the transmit ring; `true` if it may have more to do.
    fn kick(&mut self) -> bool {
        self.stats.system_calls += 1;
        let error = send_ring(self.socket.as_fd());
        // With busy polling the call itself has the device work.
        if error.is_none() && self.settings.zero_copy && !self.settings.busy_poll {
            self.told.of(self.rings.transmit.end());
        } else {
            self.told.of_nothing();
        }
        // "Busy" is copy mode's word for a packet that the device refused, and that is lost.
        let lost = error == Some(libc::EBUSY);
        self.stats.tx_failed += u64::from(lost);
        lost || error == Some(libc::EAGAIN)
    }

    /// Asks the kernel to look at the fill ring or, with busy polling, at the device.
    fn poll_device(&mut self) {
        self.stats.system_calls += 1;
        // SAFETY: no buffer and no address are passed.
        unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }

    /// Frees the frames that have been sent.
    fn reclaim(&mut self) {
        let done = self.rings.completion.ready(u32::MAX);
        for _ in 0..done {
            drop(self.held.take(take(&mut self.rings.completion)));
        }
        if done > 0 {
            self.rings.completion.release();
        }
    }

    /// The receive queue of the interface that this is.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.settings.queue
    }

    /// Frames in the kernel's hands: waiting to be filled, received and not yet taken, or being sent.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.count()
    }

    /// The socket.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The state shared with the other queues of the interface.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Queue for XdpQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let wanted = max.min(u32::MAX as usize) as u32;
        let mut ready = self.rings.receive.ready(wanted).min(wanted);
        if ready == 0 && self.settings.busy_poll {
            self.poll_device();
            ready = self.rings.receive.ready(wanted).min(wanted);
        }
        let mut packets = 0;
        for _ in 0..ready {
            let descriptor = take(&mut self.rings.receive);
            packets += usize::from(self.accept(descriptor, into));
        }
        if ready > 0 {
            self.rings.receive.release();
            self.filled -= ready.min(self.filled);
            self.dry = 0;
        } else {
            self.look_after_fill();
        }
        if self.filled < self.fill_target {
            self.refill(pool);
        }
        packets
    }

    fn room(&mut self) -> usize {
        self.rings.transmit.room(u32::MAX) as usize
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let Some(offload) = self.offload.take() else { return self.put(frames, usize::MAX) };
        let done =
            transmit_in_order(self, frames, Self::put, |queue, frame| offload.send(frame, &mut queue.stats));
        self.offload = Some(offload);
        done
    }

    fn flush(&mut self) -> bool {
        self.rings.transmit.publish();
        let mut pending = self.rings.transmit.pending();
        for _ in 0..MAX_KICKS {
            let ring = &self.rings.transmit;
            let awake = self.settings.need_wakeup && !ring.positions().needs_wakeup();
            if pending == 0 || awake || self.told.knows(ring.end()) {
                break;
            }
            let again = self.kick();
            self.reclaim();
            let before = std::mem::replace(&mut pending, self.rings.transmit.pending());
            // "Again" means that the kernel's budget for one call is spent, if it took any.
            if !again || pending == before {
                break;
            }
        }
        self.reclaim();
        pending == 0
    }

    fn ready(&mut self) -> bool {
        self.rings.receive.ready(1) > 0
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket())
    }

    fn outstanding(&self) -> Option<Outstanding> {
        let Rings { fill, receive, transmit, completion } = &self.rings;
        let rings = [
            between(fill.positions()),
            between(receive.positions()),
            between(transmit.positions()),
            between(completion.positions()),
        ];
        Some(Outstanding::of(self.held.count() as u64, u64::from(self.filled), rings))
    }

    fn stats(&self) -> QueueStats {
        let mut stats = self.stats;
        // SAFETY: the statistics are plain numbers.
        let kernel: Result<libc::xdp_statistics, _> =
            unsafe { get_option(self.socket.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS) };
        if let Ok(kernel) = kernel {
            // In copy mode each is a packet without a frame, which counts as dropped, too. In zero-copy mode a driver looks into the fill ring
            // when it has room, and one that finds nothing has lost nothing: what it drops then is in the card's own counters.
            let no_frame = if self.settings.zero_copy { 0 } else { kernel.rx_fill_ring_empty_descs };
            stats.rx_no_frame += no_frame;
            stats.rx_ring_full += kernel.rx_ring_full;
            stats.rx_bad += kernel.rx_dropped.saturating_sub(no_frame);
            stats.tx_failed += kernel.tx_invalid_descs;
        }
        stats
    }
}

/// Reads the hash that the program put before the packet.
fn read_hash(frame: &mut Frame, number: fn(u32) -> u8) {
    let Some(all) = frame.push_front(METADATA_LEN) else { return };
    let word = |at: usize| u32::from_ne_bytes([all[at], all[at + 1], all[at + 2], all[at + 3]]);
    let (hash, kind) = (word(0), word(4));
    let _ = frame.trim_front(METADATA_LEN);
    if kind != NO_HASH {
        frame.meta_mut().hash = hash;
        frame.meta_mut().hash_type = number(kind);
    }
}

impl Drop for XdpQueue {
    /// Sends what was promised; a device that has stopped sending must not keep us for long. The rest is done by the
    /// fields, in their order.
    fn drop(&mut self) {
        self.device.withdraw(self.settings.queue);
        let deadline = Instant::now() + Duration::from_millis(100);
        while !(self.flush() && self.held.count() <= self.filled as usize) && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}
