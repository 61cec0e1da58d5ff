//! One queue of an AF_PACKET link: what happens for every packet.

use super::cut;
use super::long::{self, Missed};
use super::refused::Refused;
use super::ring::{Received, Rings};
use super::{OffloadSocket, Shared};
use crate::frame::{Frame, Meta, Pool, Segmentation};
use crate::queue::{Queue, QueueStats, send_ring, transmit_in_order};
use crate::vnet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The tag protocol of 802.1Q, the one kept outside the data.
const VLAN: u16 = 0x8100;

/// One packet socket with its rings.
#[derive(Debug)]
pub struct PacketQueue {
    rings: Rings,
    socket: OwnedFd,
    shared: Arc<Shared>,
    queue: u16,
    /// Next slot to receive from.
    next: u32,
    /// Send slots, as free-running positions: given back by the kernel, looked at by it, filled by us.
    done: u32,
    looked: u32,
    filled: u32,
    refused: Refused,
    stats: QueueStats,
    offload: Option<OffloadSocket>,
    /// Datagrams that came in one packet, the last first.
    asunder: Vec<Frame>,
    /// The kernel clears its counter when it is read.
    kernel_drops: std::sync::atomic::AtomicU64,
}

impl PacketQueue {
    pub(super) fn new(
        socket: OwnedFd,
        rings: Rings,
        queue: u16,
        offload: Option<OffloadSocket>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            rings,
            socket,
            shared,
            queue,
            next: 0,
            done: 0,
            looked: 0,
            filled: 0,
            refused: Refused::default(),
            stats: QueueStats::default(),
            offload,
            asunder: Vec::new(),
            kernel_drops: Default::default(),
        }
    }

    /// Copies packets from the front of `frames` into the ring, at most `limit` and as many as there is room for.
    fn put(&mut self, frames: &mut Vec<Frame>, limit: usize) -> usize {
        let limit = limit.min(frames.len());
        let known = (self.rings.send_slots() - self.filled.wrapping_sub(self.done)) as usize;
        let room = if known < limit { self.room() } else { known };
        let count = room.min(limit);
        for mut frame in frames.drain(..count) {
            if let Some(tag) = frame.meta().vlan {
                frame.insert_tag(VLAN, tag);
            }
            let whole = vnet::complete_checksum(&mut frame);
            let len = frame.chain_len();
            let Some(buffer) = self.rings.send_buffer(self.filled, len).filter(|_| len > 0 && whole) else {
                self.stats.tx_failed += 1;
                continue;
            };
            if frame.is_chained() {
                let mut at = 0;
                for chunk in frame.chunks() {
                    buffer[at..at + chunk.len()].copy_from_slice(chunk);
                    at += chunk.len();
                }
            } else {
                buffer.copy_from_slice(frame.data());
            }
            self.rings.submit(self.filled);
            self.filled = self.filled.wrapping_add(1);
            self.stats.tx_frames += 1;
            self.stats.tx_bytes += len as u64;
        }
        count
    }

    /// Has the kernel send what the ring holds, and looks how far it came. Whether it or the device refused the first packet that is left.
    fn send(&mut self) -> bool {
        self.stats.system_calls += 1;
        let refused = send_ring(self.socket.as_fd()) == Some(libc::ENOBUFS);
        // The kernel goes through the ring in order: what it has not looked at is at the end.
        while self.looked != self.filled
            && self.rings.send_status(self.looked) != libc::TP_STATUS_SEND_REQUEST
        {
            if self.refused.is_any() {
                self.refused.passed(self.rings.send_len(self.looked));
            }
            self.looked = self.looked.wrapping_add(1);
        }
        refused
    }

    /// Moves past the slots that the kernel has given back.
    fn reclaim(&mut self) {
        while self.done != self.filled {
            match self.rings.send_status(self.done) {
                libc::TP_STATUS_AVAILABLE => {}
                libc::TP_STATUS_WRONG_FORMAT => {
                    self.rings.reset_send(self.done);
                    self.stats.tx_failed += 1;
                }
                _ => break,
            }
            self.done = self.done.wrapping_add(1);
        }
    }

    /// Number of this queue in its fanout group.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Bytes of the longest packet that can be sent, its Ethernet header and tag included.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.rings.longest()
    }

    /// The state shared with the other queues of the interface.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Puts the tag that the kernel keeps beside a packet where the stack looks for it.
#[inline]
fn tag(frame: &mut Frame, packet: &Received<'_>) {
    if packet.status & libc::TP_STATUS_VLAN_VALID != 0 {
        let (protocol, tag) = packet.vlan;
        if packet.status & libc::TP_STATUS_VLAN_TPID_VALID != 0 && protocol != VLAN {
            frame.insert_tag(protocol, tag);
        } else {
            frame.meta_mut().vlan = Some(tag);
        }
    }
}

impl Queue for PacketQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut count = 0;
        while count < max {
            if let Some(datagram) = self.asunder.pop() {
                into.push(datagram);
                count += 1;
                continue;
            }
            let Some(packet) = self.rings.received(self.next) else { break };
            match long::take(&packet, self.socket.as_fd(), pool) {
                Ok((mut frame, header)) => {
                    let mut meta = Meta { queue: self.queue, ..Meta::default() };
                    if vnet::read(header, &mut meta) {
                        *frame.meta_mut() = meta;
                        tag(&mut frame, &packet);
                        self.stats.system_calls += u64::from(packet.whole > packet.bytes.len());
                        self.stats.rx_bytes += frame.chain_len() as u64;
                        if meta.segmentation != Segmentation::Udp {
                            into.push(frame);
                            count += 1;
                        } else if let Err(why) = cut::cut(&frame, pool, &mut self.asunder) {
                            let no_frame = why == Missed::NoFrame;
                            self.stats.rx_no_frame += u64::from(no_frame);
                            self.stats.rx_bad += u64::from(!no_frame);
                        }
                    } else {
                        self.stats.rx_bad += 1;
                    }
                }
                Err(Missed::NoFrame) => {
                    self.stats.rx_no_frame += 1;
                    break;
                }
                Err(Missed::BufferFull) => self.stats.rx_ring_full += 1,
                Err(Missed::Bad) => self.stats.rx_bad += 1,
            }
            self.rings.release(self.next);
            self.next = self.next.wrapping_add(1);
        }
        self.stats.rx_frames += count as u64;
        count
    }

    fn room(&mut self) -> usize {
        self.reclaim();
        (self.rings.send_slots() - self.filled.wrapping_sub(self.done)) as usize
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let Some(offload) = self.offload.take() else { return self.put(frames, usize::MAX) };
        let done =
            transmit_in_order(self, frames, Self::put, |queue, frame| offload.send(frame, &mut queue.stats));
        self.offload = Some(offload);
        done
    }

    fn flush(&mut self) -> bool {
        if self.looked != self.filled {
            // Each turn but the last gives one packet up.
            while self.send() && self.looked != self.filled {
                let len = self.rings.send_len(self.looked);
                if !self.refused.is_hopeless(self.looked, len, Instant::now) {
                    break;
                }
                self.rings.spoil(self.looked);
                self.stats.tx_failed += 1;
            }
        }
        self.looked == self.filled
    }

    fn ready(&mut self) -> bool {
        !self.asunder.is_empty() || self.rings.is_received(self.next)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn stats(&self) -> QueueStats {
        use std::sync::atomic::Ordering::Relaxed;
        let mut kernel = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: at most `len` bytes are written to `kernel`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut kernel).cast(),
                &raw mut len,
            )
        };
        if result == 0 {
            self.kernel_drops.fetch_add(u64::from(kernel.tp_drops), Relaxed);
        }
        let rx_ring_full = self.stats.rx_ring_full + self.kernel_drops.load(Relaxed);
        QueueStats { rx_ring_full, ..self.stats }
    }
}
