//! The pair link, in memory: two ends, any number of queues in each direction, and a card with exact RSS at either end.
//!
//! ```text
//!   end A, worker 0 ──transmit──▶ hash by B's key ▸ B's table ──▶ ring of B's queue 0 ──▶ worker 0
//!          worker 1 ──transmit──▶                            └──▶ ring of B's queue 1 ──▶ worker 1
//! ```
//!
//! The sending side does what the receiving card would: it computes the hash with the receiver's key, looks the queue
//! up in the receiver's table and delivers hash and type with the frame. Each receive queue is one ring with one
//! order for all senders, so frames arrive in the order in which they were sent, even if two workers sent them. Therefore a lane can
//! move without reordering its frames.
//!
//! With offloads on, checksums are not computed and packets not segmented; the metadata says so, and the receiver takes the packet as it
//! is, as between a virtual machine and its host.
//!
//! Frames are passed without copying. While a ring is full its senders keep their frames, as with a real card. If several senders fill
//! the last room at once, the newest frames are dropped and counted at the sender.

mod emulated;
mod programmed;
mod quirks;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use flowlane_rss::Rss;
use flowlane_rss::emulated::Card;
use flowlane_stack::steering::{HashSource, steer};
use flowlane_stack::wire::MacAddr;
use flowlane_sys::frame::{Checksum, Frame, Pool};
use flowlane_sys::ring::mpsc;

use emulated::Emulated;
pub use programmed::EmulatedAccess;
use programmed::Programmed;
pub use quirks::{Quirk, QuirkCounts, Quirks};

use super::opening::{Doorbell, OpenWire, Opened, Opening};
use super::{LinkInfo, Queue, QueueStats};
use crate::error::StartError;

/// Options of a pair link.
#[derive(Debug, Clone)]
pub struct PairConfig {
    /// Queues of each end; `None`: one for each worker.
    pub queues: Option<usize>,
    /// Frames that a receive queue holds.
    pub capacity: usize,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Transport checksums are left out and taken on trust, as between a virtual machine and its host.
    pub checksum_offload: bool,
    /// TCP passes in packets of up to 64 KiB without segmentation, whatever the MTU. Needs `checksum_offload`.
    pub segmentation_offload: bool,
    /// Faults of the wire towards the second end.
    pub quirks: Quirks,
    /// The card that each end has; without one the card of an end steers exactly as the host behind it says. Its table follows the lanes of
    /// a host that is steered by it ([`Builder::steer_card`](crate::Builder::steer_card)).
    pub card: Option<Card>,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            queues: None,
            capacity: 4096,
            mtu: 1500,
            checksum_offload: false,
            segmentation_offload: false,
            quirks: Quirks::default(),
            card: None,
        }
    }
}

/// What both sides know of one receive queue.
struct Far {
    ring: mpsc::Sender<Frame>,
    bell: Doorbell,
}

/// Opens both ends, for [`Builder::wire`](crate::Builder::wire). Each card has the steering of its host.
#[must_use]
pub fn opener(config: PairConfig) -> OpenWire {
    opener_with_access(config).0
}

/// As [`opener`], with access to the cards of both ends, if they have any.
#[must_use]
pub fn opener_with_access(config: PairConfig) -> (OpenWire, Option<[EmulatedAccess; 2]>) {
    let cards = config.card.as_ref().map(|card| [(); 2].map(|()| Arc::new(Programmed::new(card))));
    let access = cards.clone().map(|cards| cards.map(EmulatedAccess));
    (open(config, cards), access)
}

fn open(config: PairConfig, cards: Option<[Arc<Programmed>; 2]>) -> OpenWire {
    Box::new(move |opening| {
        let (Some(a), Some(b)) = (opening.steering(0), opening.steering(1)) else {
            return Err(StartError::Other("pair: an end without a host".to_owned()));
        };
        if config.queues == Some(0) {
            return Err(StartError::NoQueue("pair".to_owned()));
        }
        let (to_a, from_b) = direction(&config, opening);
        let (to_b, from_a) = direction(&config, opening);
        let quiet = Quirks::default();
        Ok(vec![
            end(&config, 0x0a, &to_b, from_b, b, &config.quirks, cards.as_ref().map(|[_, b]| b)),
            end(&config, 0x0b, &to_a, from_a, a, &quiet, cards.as_ref().map(|[a, _]| a)),
        ])
    })
}

fn direction(config: &PairConfig, opening: &Opening<'_>) -> (Arc<[Far]>, Vec<mpsc::Receiver<Frame>>) {
    let queues = 0..config.queues.unwrap_or(opening.workers());
    let (far, near): (Vec<_>, Vec<_>) = queues
        .map(|queue| {
            let (ring, receiver) = mpsc::ring(config.capacity);
            (Far { ring, bell: opening.doorbell(queue) }, receiver)
        })
        .unzip();
    (far.into(), near)
}

fn end(
    config: &PairConfig,
    last: u8,
    far: &Arc<[Far]>,
    near: Vec<mpsc::Receiver<Frame>>,
    rss: &Arc<Rss>,
    quirks: &Quirks,
    programmed: Option<&Arc<Programmed>>,
) -> Opened {
    let segmentation = if config.checksum_offload && config.segmentation_offload { 65_535 } else { 0 };
    let info = LinkInfo::new(
        if last == 0x0a { "pair:a" } else { "pair:b" },
        MacAddr([0x02, 0x46, 0x4c, 0x00, 0x00, last]),
        config.mtu,
        near.len(),
    )
    .offload(config.checksum_offload, segmentation)
    .delivers_hash(true);
    if let Some(programmed) = programmed {
        programmed.begin(near.len());
    }
    let queues = near
        .into_iter()
        .enumerate()
        .map(|(index, ring)| {
            Box::new(PairQueue {
                index: index as u16,
                ring,
                rss: rss.clone(),
                staged: far.iter().map(|_| Vec::with_capacity(64)).collect(),
                far: far.clone(),
                quirks: quirks.start(index as u64),
                card: config
                    .card
                    .as_ref()
                    .zip(programmed)
                    .map(|(card, programmed)| Box::new(Emulated::new(card, index, rss, programmed))),
                stats: QueueStats::default(),
            }) as Box<dyn Queue>
        })
        .collect();
    (info, queues)
}

/// One queue pair of one end.
struct PairQueue {
    index: u16,
    ring: mpsc::Receiver<Frame>,
    /// How the far end's card steers.
    rss: Arc<Rss>,
    far: Arc<[Far]>,
    /// Frames sorted by the far queue they go to, until the flush.
    staged: Vec<Vec<Frame>>,
    quirks: Option<Box<quirks::State>>,
    card: Option<Box<Emulated>>,
    stats: QueueStats,
}

impl PairQueue {
    /// Does what the far card does on receive.
    #[inline]
    fn card(&mut self, mut frame: Frame) {
        self.stats.tx_frames += 1;
        self.stats.tx_bytes += frame.chain_len() as u64;
        let meta = frame.meta_mut();
        meta.hash_type = 0;
        meta.timestamp = 0;
        if meta.checksum == Checksum::Verified {
            meta.checksum = Checksum::InPacket;
        }
        let (queue, flows) = match &mut self.card {
            Some(card) => card.receive(&mut frame, self.far.len()),
            None => {
                let (bucket, source) = steer(&self.rss, &mut frame);
                (usize::from(self.rss.queue_of(bucket)) % self.far.len(), source != HashSource::None)
            }
        };
        match &mut self.quirks {
            // Frames without a flow are spared: what is lost of neighbour resolution is asked for again, and would
            // blur the counts.
            Some(quirks) if flows => quirks.apply(frame, queue, &mut self.staged),
            _ => self.staged[queue].push(frame),
        }
    }
}

impl Queue for PairQueue {
    fn receive(&mut self, _pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let before = into.len();
        while into.len() - before < max {
            let Some(mut frame) = self.ring.pop() else { break };
            frame.meta_mut().queue = self.index;
            self.stats.rx_bytes += frame.chain_len() as u64;
            into.push(frame);
        }
        let n = into.len() - before;
        if n > 0 {
            self.ring.release();
            self.stats.rx_frames += n as u64;
        }
        n
    }

    fn room(&mut self) -> usize {
        // Which queue a frame goes to is known only when it is out, so all need room.
        self.far.iter().map(|far| far.ring.room()).min().unwrap_or(0)
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let n = frames.len();
        for frame in frames.drain(..) {
            self.card(frame);
        }
        n
    }

    fn flush(&mut self) -> bool {
        if let Some(quirks) = &mut self.quirks {
            quirks.release(&mut self.staged);
        }
        for (far, staged) in self.far.iter().zip(&mut self.staged) {
            if staged.is_empty() {
                continue;
            }
            let mut frames = staged.drain(..);
            // Asked for exactly as many as there are.
            let n = frames.len();
            let sent = far.ring.push_from(n, || match frames.next() {
                Some(frame) => frame,
                None => unreachable!("the ring asks for no more than it was offered"),
            });
            let lost = frames.len() as u64;
            debug_assert_eq!(sent as u64 + lost, n as u64);
            drop(frames);
            self.stats.tx_far_full += lost;
            far.bell.ring();
        }
        if let Some(card) = &mut self.card {
            card.flushed();
        }
        true
    }

    fn ready(&mut self) -> bool {
        self.ring.is_ready() || self.quirks.as_ref().is_some_and(|q| q.holds())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }

    fn quirks(&self) -> Option<&[u64]> {
        self.quirks.as_ref().map(|q| q.counts.as_slice())
    }
}
