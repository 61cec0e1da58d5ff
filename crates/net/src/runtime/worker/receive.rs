//! Receiving: a burst from each queue, and the frames handed over by each other worker. All are passed to lanes here.

use flowlane_stack::Class;
use flowlane_stack::steering::{HashSource, steer};
use flowlane_stack::tcp::AHEAD;
use flowlane_sys::frame::Frame;

use super::{Door, Step, Worker};
use std::io::Write;
use std::time::Duration;

use crate::runtime::card::Request;
use crate::runtime::netisr::Parcel;
use crate::stats::Misdirected;
use flowlane_rss::Bucket;

/// Frames taken from one queue in one turn.
const BURST: usize = 64;

/// Examples kept of frames on a wrong queue.
const EXAMPLES: usize = 8;

/// Frames on a wrong queue after which a worker says so: a few come on their way while a table is changed.
const MANY: u64 = 64;

/// How long it is before more of them are worth a word.
const AGAIN: Duration = Duration::from_millis(250);

impl Worker {
    /// A burst from each queue: to the lane if it is here, to the worker that has it if not.
    pub(super) fn receive(&mut self) -> bool {
        let mut busy = false;
        for p in 0..self.ports.len() {
            let port = &mut self.ports[p];
            let most = if port.queue.waits() { BURST.min(self.netisr.room()) } else { BURST };
            let n = port.queue.receive(&self.frames, &mut self.burst, most);
            if n == most && most < BURST {
                self.turns.held_back += u64::from(n > 0 || port.queue.ready());
            }
            if n == 0 {
                if self.moves.is_draining() {
                    self.drained(p, 0, true);
                }
                continue;
            }
            busy = true;
            self.steps.mark(Step::Receive);
            let (only, queue) = (port.doors.only(), port.index.unwrap_or(u16::MAX));
            let mut burst = std::mem::take(&mut self.burst);
            self.in_burst = n > 1;
            match only {
                Some(door) if n > 1 && self.hosts[door.host].crowded => {
                    while !burst.is_empty() {
                        let next = burst.len().min(AHEAD);
                        self.look_ahead(door.host, &mut burst[..next]);
                        for frame in burst.drain(..next) {
                            self.classify(door, p, queue, frame);
                        }
                    }
                }
                Some(door) => {
                    for frame in burst.drain(..) {
                        self.classify(door, p, queue, frame);
                    }
                }
                None => {
                    for frame in burst.drain(..) {
                        let door = self.ports[p].doors.of(&frame);
                        self.classify(door, p, queue, frame);
                    }
                }
            }
            self.end_burst();
            self.steps.mark(Step::Stack);
            self.burst = burst;
            if self.moves.is_draining() {
                self.drained(p, n, n < most);
            }
        }
        busy
    }

    /// Asks for the memory of the connections of the next of a burst, where a lane has too many to find them in the caches.
    #[inline(never)]
    fn look_ahead(&self, h: usize, burst: &mut [Frame]) {
        let host = &self.hosts[h];
        let mut expected = [None; AHEAD];
        for (frame, place) in burst.iter_mut().zip(&mut expected) {
            let meta = *frame.meta();
            let (bucket, _) = steer(&host.rss, frame);
            // To be steered once more, as if for the first time.
            *frame.meta_mut() = meta;
            let lane = (host.first_lane + u32::from(bucket.0)) as usize;
            if let Some(slot) = self.lanes[lane].as_ref().filter(|slot| slot.lane.tcp_is_crowded()) {
                *place = slot.lane.tcp_prefetch(frame).map(|expected| (lane, expected));
            }
        }
        for (lane, expected) in expected.into_iter().flatten() {
            if let Some(slot) = &self.lanes[lane] {
                slot.lane.tcp_prefetch_connection(expected);
            }
        }
    }

    #[inline]
    fn classify(&mut self, door: Door, port: usize, queue: u16, mut frame: Frame) {
        let h = door.host;
        let host = &mut self.hosts[h];
        let stats = &mut host.stats[port];
        stats.received += 1;
        frame.meta_mut().interface = door.interface;
        if host.trust.is_lost() {
            frame.meta_mut().hash_type = 0;
        }
        let (mut bucket, source) = steer(&host.rss, &mut frame);
        match source {
            HashSource::Delivered => {
                let strayed = host.queue_of[usize::from(bucket.0)] != queue;
                if strayed || host.trust.is_due() {
                    bucket = self.check((h, port), queue, bucket, &mut frame);
                } else {
                    stats.hash_delivered += 1;
                }
            }
            HashSource::Computed => {
                stats.hash_computed += 1;
                if host.of_card && host.queue_of[usize::from(bucket.0)] != queue {
                    self.misdirected((h, port), queue, bucket, &frame);
                }
            }
            HashSource::None => stats.no_flow += 1,
        }
        let host = &mut self.hosts[h];
        let owner = usize::from(host.owners[usize::from(bucket.0)]);
        let lane = host.first_lane + u32::from(bucket.0);
        if owner == self.index {
            host.stats[port].aligned += 1;
            self.deliver(lane, self.index, Class::Ethernet, frame, true);
        } else {
            let right_queue = host.queue_of[usize::from(bucket.0)] == queue;
            let stats = &mut host.stats[port];
            stats.redirected += 1;
            if source == HashSource::None {
                stats.redirected_no_flow += 1;
            } else if host.of_card && right_queue {
                stats.redirected_away += 1;
            }
            if self.taps.is_on() {
                return self.hand_over_captured(owner, lane, frame);
            }
            self.netisr.send(owner, Parcel::Frame { lane, class: Class::Ethernet, frame });
        }
    }

    /// Compares a delivered hash with ours: it named another queue than the frame came on, or it is this frame's turn. The bucket
    /// by the hash that is right.
    #[cold]
    fn check(&mut self, (h, port): (usize, usize), queue: u16, bucket: Bucket, frame: &mut Frame) -> Bucket {
        let host = &mut self.hosts[h];
        let delivered = frame.meta().hash;
        frame.meta_mut().hash_type = 0;
        let (computed, _) = steer(&host.rss, frame);
        let stats = &mut host.stats[port];
        if frame.meta().hash == delivered {
            stats.hash_delivered += 1;
            if host.queue_of[usize::from(bucket.0)] != queue {
                self.misdirected((h, port), queue, bucket, frame);
            }
            return bucket;
        }
        stats.hash_computed += 1;
        stats.foreign_hash += 1;
        if host.trust.lose() {
            let (name, flow) = (&host.name, flow_in_words(frame));
            let ours = frame.meta().hash;
            // Nobody may read it.
            let _ = writeln!(
                std::io::stderr(),
                "flowlane: {name}: the card's hash is not that of its key and fields ({flow}: {delivered:08x}, not {ours:08x}), so hashes are computed"
            );
        }
        if self.hosts[h].of_card && self.hosts[h].queue_of[usize::from(computed.0)] != queue {
            self.misdirected((h, port), queue, computed, frame);
        }
        computed
    }

    /// A frame came on another queue than its hash and the card's table name.
    #[cold]
    fn misdirected(&mut self, (h, port): (usize, usize), queue: u16, bucket: Bucket, frame: &Frame) {
        let (host, now) = (&mut self.hosts[h], self.now);
        // The card was asked to send the bucket's packets elsewhere, and this one was on its way.
        let late =
            host.late.iter().any(|late| (late.bucket, late.queue) == (bucket, queue) && late.until > now);
        // Or has done so already, and its answer is on the way.
        if late || self.moves.is_awaited(host.first_lane + u32::from(bucket.0)) {
            let here = usize::from(host.owners[usize::from(bucket.0)]) == self.index;
            host.stats[port].redirected_late += u64::from(!here);
            return;
        }
        host.stats[port].misdirected += 1;
        host.strayed += 1;
        if self.misdirected.len() < EXAMPLES {
            let expected = host.queue_of[usize::from(bucket.0)];
            self.misdirected.push(example(frame, expected, queue));
        }
        if !host.of_card {
            return;
        }
        if self.cards.look_after(h) {
            let (told, when) = host.strays_told;
            let again = when.is_none_or(|when| now.saturating_duration_since(when) >= AGAIN);
            if host.strayed - told >= MANY && again {
                host.strays_told = (host.strayed, Some(now));
                self.cards.ask(Request::Strayed { host: h });
            }
        } else if host.strayed == MANY {
            let name = &host.name;
            let _ = writeln!(
                std::io::stderr(),
                "flowlane: {name}: packets come on other queues than the card's table names, and are handed over to their workers"
            );
        }
    }

    /// Gives a frame to a lane that should be here. `via` is the worker that sent it, or this one.
    #[inline]
    pub(crate) fn deliver(&mut self, lane: u32, via: usize, class: Class, frame: Frame, aligned: bool) {
        if !self.moves.is_empty() {
            let Some(frame) = self.moves.hold(lane, via, class, frame) else { return };
            return self.deliver_now(lane, class, frame, aligned);
        }
        self.deliver_now(lane, class, frame, aligned);
    }

    #[inline]
    pub(crate) fn deliver_now(&mut self, lane: u32, class: Class, frame: Frame, aligned: bool) {
        let Some(slot) = &mut self.lanes[lane as usize] else {
            // It has left: whoever sent this did not know yet.
            let owner = self.owner_in_view(lane);
            if owner == self.index {
                self.netisr.stats.no_lane += 1;
                if self.taps.is_on() {
                    let place = self.lane_place(lane);
                    self.taps.dropped(place, self.now, &frame, ("netisr", "no-lane"));
                }
            } else {
                self.netisr.send(owner, Parcel::Frame { lane, class, frame });
            }
            return;
        };
        let counter = if aligned { &mut slot.counters.aligned } else { &mut slot.counters.redirected };
        *counter += 1;
        slot.work += 1;
        self.netisr.stats.handled += 1;
        self.netisr.stats.dispatched += u64::from(aligned);
        if self.taps.is_on() {
            let turn = (self.now, &*self.frames);
            self.taps.input(slot, &self.shared, turn, (frame, class), self.in_burst);
        } else if self.in_burst {
            slot.lane.input_in_burst(self.now, &self.frames, frame, class);
        } else {
            slot.lane.input(self.now, &self.frames, frame, class);
        }
        if !slot.touched {
            slot.touched = true;
            self.touched.push(lane);
        }
    }

    /// What other workers handed over: from each only what is there now.
    pub(super) fn take_netisr(&mut self) -> bool {
        let mut busy = false;
        for from in 0..self.netisr.workers() {
            let mut parcels = std::mem::take(&mut self.parcels);
            self.netisr.receive(from, &mut parcels);
            if parcels.is_empty() {
                self.parcels = parcels;
                continue;
            }
            busy = true;
            self.steps.mark(Step::Netisr);
            self.in_burst = parcels.len() > 1;
            for parcel in parcels.drain(..) {
                match parcel {
                    Parcel::Frame { lane, class, frame } => self.deliver(lane, from, class, frame, false),
                    Parcel::Lane(slot) => self.move_in(slot),
                    Parcel::Marker(marker) => self.marker(marker),
                }
            }
            self.end_burst();
            self.steps.mark(Step::Stack);
            self.parcels = parcels;
        }
        busy
    }

    /// A burst has been given in: what lanes held of it is handled.
    #[inline]
    fn end_burst(&mut self) {
        if std::mem::take(&mut self.in_burst) {
            for &lane in &self.touched {
                if let Some(slot) = &mut self.lanes[lane as usize] {
                    slot.lane.end_burst(self.now, &self.frames);
                }
            }
        }
    }
}

#[cold]
fn example(frame: &Frame, expected_queue: u16, queue: u16) -> Misdirected {
    Misdirected { flow: flow_in_words(frame), hash: frame.meta().hash, expected_queue, queue }
}

fn flow_in_words(frame: &Frame) -> String {
    match flowlane_stack::wire::classify(frame.data()).flow() {
        Some(flow) => {
            let ports = flow.ports.map_or(String::new(), |(s, d)| format!(" ports {s} > {d}"));
            format!("{} > {} {}{ports}", flow.addresses.src(), flow.addresses.dst(), flow.protocol)
        }
        None => "no flow".into(),
    }
}
