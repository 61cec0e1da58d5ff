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

use flowlane_rss::{Bucket, worker_of_queue};
use flowlane_stack::time::Time;

use super::LONG_ENOUGH;
use crate::runtime::card::Request;
use crate::runtime::netisr::{Marker, Parcel};
use crate::runtime::worker::{Port, Worker};
use crate::shared::Asked;

/// Frames of a queue after which what the card had put there before is out, though it was never empty.
const RING: usize = 4096;

/// A queue that is empty so long after the card's answer has no more of the lane's frames in it.
const SETTLES: Duration = Duration::from_micros(50);

/// How long frames on the lane's old queue still count as expected there.
const LATE: Duration = Duration::from_secs(1);

/// A queue that has lost a bucket, being emptied.
#[derive(Debug)]
pub(super) struct Drain {
    lane: u32,
    asked: Asked,
    port: usize,
    since: Time,
    received: usize,
}

impl Worker {
    /// The lane's packets come on another worker's queue, and the card can be told to change that.
    pub(super) fn comes_elsewhere(&self, lane: u32, asked: Asked) -> Option<Request> {
        let (h, bucket) = self.place_of(lane)?;
        let host = &self.hosts[h];
        if !host.follows {
            return None;
        }
        let at = worker_of_queue(host.queue_of[usize::from(bucket.0)], self.netisr.workers());
        let elsewhere = usize::from(at.0) != self.index;
        elsewhere.then_some(Request::Follow { host: h, bucket, asked })
    }

    /// Host and bucket of a lane.
    fn place_of(&self, lane: u32) -> Option<(usize, Bucket)> {
        let host = self.hosts.iter().rposition(|h| h.first_lane <= lane)?;
        Some((host, Bucket((lane - self.hosts[host].first_lane) as u16)))
    }

    /// The packets of a lane come on `queue` now; `None`: on the one that they came on before. `asked`: the move that asked for it.
    pub(crate) fn requeued(&mut self, lane: u32, asked: Option<Asked>, queue: Option<u16>) {
        let arriving = asked.filter(|asked| asked.worker == self.index);
        let arriving = arriving.and_then(|asked| self.moves.arriving_by(lane, asked.number));
        if let Some(i) = arriving {
            self.moves.arriving[i].answered = Some(self.now);
        }
        let Some(queue) = queue else {
            return asked.into_iter().for_each(|asked| self.marker(last(lane, asked)));
        };
        let Some((h, bucket)) = self.place_of(lane) else { return };
        let b = usize::from(bucket.0);
        let host = &mut self.hosts[h];
        let old = std::mem::replace(&mut host.queue_of[b], queue);
        let now = self.now;
        // Of a bucket that moves again before that time is over, packets may still be on their way to each of its old queues.
        host.late.retain(|late| late.until > now && (late.bucket, late.queue) != (bucket, old));
        host.late.push(Late { bucket, queue: old, until: now + LATE });
        for (port, at) in self.ports.iter().enumerate().filter(|(_, p)| p.index == Some(queue)) {
            for door in at.doors.all().filter(|door| door.host == h) {
                if let Some(sends_on) = host.ports.get_mut(b * host.interfaces + usize::from(door.interface))
                {
                    *sends_on = port;
                }
            }
        }
        let Some(asked) = asked else { return };
        if asked.worker == self.index {
            if arriving.is_some_and(|i| self.moves.arriving[i].emptied) {
                self.marker(last(lane, asked));
            }
        } else {
            // One of each link of the host.
            let of_host = |(_, p): &(usize, &Port)| p.index == Some(old) && p.doors.serve(h);
            for (port, _) in self.ports.iter().enumerate().filter(of_host) {
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
            let asked = Asked { worker: self.index, number: arriving.number() };
            self.marker(last(arriving.lane, asked));
        }
    }
}

/// The marker behind the last frame of a lane's old queue: what its new worker's own queues bring is let in.
fn last(lane: u32, asked: Asked) -> Marker {
    let worker = asked.worker as u16;
    Marker { lane, number: asked.number, from: worker, to: worker }
}

/// Packets of a bucket that may still come on a queue which is no longer theirs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    pub(crate) bucket: Bucket,
    pub(crate) queue: u16,
    pub(crate) until: Time,
}
