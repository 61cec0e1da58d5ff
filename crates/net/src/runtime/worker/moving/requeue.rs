//! The last part of a move: the card sends the lane's packets to a queue of its new worker.
//!
//! ```text
//!   card's thread     new worker (B)                      worker of the old queue (A)
//!     │◀── Follow ──── the lane is here; what comes by B's own queues is held
//!     │    card sends the lane's packets to B's queue
//!     ├── Requeued ──▶ sends on that queue
//!     ├── Requeued ─────────────────────────────────────▶ empties its queue: frames go to B by the ring,
//!     │                ◀──────────────ring─────────────── and after them a marker
//!     │                what is held is let in: the move is done
//! ```
//!
//! So no frame on the new queue overtakes one on the old queue, except a frame that is still in the card or its driver when the old queue
//! is found empty.

use std::time::Duration;

use flowlane_rss::worker_of_queue;
use flowlane_stack::time::Time;

use super::LONG_ENOUGH;
use crate::runtime::card::Request;
use crate::runtime::netisr::{Marker, Parcel};
use crate::runtime::worker::Worker;
use crate::shared::MoveId;

/// Frames of a queue after which what the card had put there before is out, though it was never empty.
const RING: usize = 4096;

/// A queue that is empty so long after the card's answer has no more of the lane's frames in it.
const SETTLES: Duration = Duration::from_micros(50);

/// A queue that has lost a bucket, being emptied.
#[derive(Debug)]
pub(super) struct Drain {
    lane: u32,
    asked: MoveId,
    port: usize,
    since: Time,
    received: usize,
}

impl Worker {
    /// The lane's packets come on another worker's queue, and the card can be told to change that.
    pub(super) fn comes_elsewhere(&self, lane: u32, asked: MoveId) -> Option<Request> {
        let (host, bucket) = self.hosts.place_of(lane)?;
        let queue = self.hosts.get(host).followed_queue(bucket)?;
        let elsewhere = usize::from(worker_of_queue(queue, self.netisr.workers()).0) != self.index;
        elsewhere.then_some(Request::Follow { host, bucket, asked })
    }

    /// The packets of a lane come on `queue` now; `None`: on the one that they came on before. `asked`: the move that asked for it.
    pub(crate) fn requeued(&mut self, lane: u32, asked: Option<MoveId>, queue: Option<u16>) {
        let arriving = asked.filter(|asked| asked.worker == self.index);
        let arriving = arriving.and_then(|asked| self.moves.arriving_by(lane, asked.number));
        if let Some(i) = arriving {
            self.moves.arriving[i].answered = Some(self.now);
        }
        let Some(queue) = queue else {
            return asked.into_iter().for_each(|asked| self.marker(last(lane, asked)));
        };
        let Some((h, bucket)) = self.hosts.place_of(lane) else { return };
        let (host, now) = (self.hosts.get_mut(h), self.now);
        let old = host.requeue(bucket, queue, now);
        for (port, at) in self.ports.of_queue(queue) {
            for door in at.doors().all().filter(|door| door.host == h) {
                host.send_on(bucket, door.interface, port);
            }
        }
        let Some(asked) = asked else { return };
        if asked.worker == self.index {
            if arriving.is_some_and(|i| self.moves.arriving[i].emptied) {
                self.marker(last(lane, asked));
            }
        } else {
            // One of each link of the host.
            for (port, _) in self.ports.of_queue(old).filter(|(_, p)| p.doors().serve(h)) {
                self.moves.drains.push(Drain { lane, asked, port, since: now, received: 0 });
            }
        }
    }

    /// `n` frames were taken from a queue; `empty`: there were no more.
    #[cold]
    pub(crate) fn drained(&mut self, port: usize, n: usize, empty: bool) {
        let mut i = 0;
        while let Some(drain) = self.moves.drains.get_mut(i) {
            if drain.port != port {
                i += 1;
                continue;
            }
            drain.received += n;
            let settled = self.now.saturating_duration_since(drain.since) >= SETTLES;
            if (empty && settled) || drain.received >= RING {
                let Drain { lane, asked, .. } = self.moves.drains.swap_remove(i);
                // Behind the last frame of all links.
                // Guard: `!self.moves.drains.iter().any(|drain| (drain.lane, drain.asked) == (lane, asked))`
                // as `true` fails moving::tests::the_queues_of_all_links
                if !self.moves.drains.iter().any(|drain| (drain.lane, drain.asked) == (lane, asked)) {
                    self.netisr.send(asked.worker, Parcel::Marker(last(lane, asked)));
                }
            } else {
                i += 1;
            }
        }
    }

    /// Lets in what is held for lanes whose marker does not come: its worker is busy.
    pub(super) fn let_in_what_waits(&mut self) {
        let now = self.now;
        let late = |answered: Time| now.saturating_duration_since(answered) >= LONG_ENOUGH;
        while let Some(arriving) = self.moves.arriving.iter().find(|a| a.answered.is_some_and(late)) {
            let asked = MoveId { worker: self.index, number: arriving.number() };
            self.marker(last(arriving.lane, asked));
        }
    }
}

/// The marker behind the last frame of a lane's old queue: what its new worker's own queues bring is let in.
fn last(lane: u32, asked: MoveId) -> Marker {
    let worker = asked.worker as u16;
    Marker { lane, number: asked.number, from: worker, to: worker }
}
