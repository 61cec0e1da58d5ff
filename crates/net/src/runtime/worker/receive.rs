//! What comes in: from each queue a burst, from each other worker what it handed over. All of it is given to lanes here.

use flowlane_stack::Class;
use flowlane_stack::steering::{HashSource, steer};
use flowlane_stack::tcp::AHEAD;
use flowlane_sys::frame::Frame;

use super::{Door, Worker};
use crate::runtime::netisr::Parcel;
use crate::stats::Misdirected;

/// Frames taken from one queue in one turn.
const BURST: usize = 64;

/// Examples kept of frames on a wrong queue.
const EXAMPLES: usize = 8;

impl Worker {
    /// A burst from each queue: to the lane if it is here, to the worker that has it if not.
    pub(super) fn receive(&mut self) -> bool {
        let mut busy = false;
        for p in 0..self.ports.len() {
            let port = &mut self.ports[p];
            let most = if port.queue.waits() { BURST.min(self.netisr.room()) } else { BURST };
            let n = port.queue.receive(&self.frames, &mut self.burst, most);
            if n == 0 {
                continue;
            }
            busy = true;
            let (only, queue) = (port.doors.only(), port.index.unwrap_or(u16::MAX));
            let mut burst = std::mem::take(&mut self.burst);
            self.in_burst = n > 1;
            match only {
                Some(door) if n > 1 && self.hosts.get(door.host).is_some_and(|h| h.crowded) => {
                    while !burst.is_empty() {
                        let next = burst.len().min(AHEAD);
                        self.look_ahead(door.host, &mut burst[..next]);
                        for frame in burst.drain(..next) {
                            self.classify(door, queue, frame);
                        }
                    }
                }
                Some(door) => {
                    for frame in burst.drain(..) {
                        self.classify(door, queue, frame);
                    }
                }
                None => {
                    for frame in burst.drain(..) {
                        let door = self.ports[p].doors.of(&frame);
                        self.classify(door, queue, frame);
                    }
                }
            }
            self.end_burst();
            self.burst = burst;
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
    fn classify(&mut self, door: Door, queue: u16, mut frame: Frame) {
        let h = door.host;
        // Nobody is on the link.
        let Some(host) = self.hosts.get_mut(h) else { return };
        host.stats.received += 1;
        frame.meta_mut().link = door.interface;
        let (bucket, source) = steer(&host.rss, &mut frame);
        let b = usize::from(bucket.0);
        let owner = usize::from(host.owners[b]);
        let lane = host.first_lane + u32::from(bucket.0);
        match source {
            HashSource::Delivered => {
                host.stats.hash_delivered += 1;
                if host.queue_of[b] != queue {
                    host.stats.misdirected += 1;
                    if self.misdirected.len() < EXAMPLES {
                        let expected = host.queue_of[b];
                        self.misdirected.push(example(&frame, expected, queue));
                    }
                }
            }
            HashSource::Computed => host.stats.hash_computed += 1,
            HashSource::None => host.stats.no_flow += 1,
        }
        let host = &mut self.hosts[h];
        if owner == self.index {
            host.stats.aligned += 1;
            self.deliver(lane, self.index, Class::Ethernet, frame, true);
        } else {
            host.stats.redirected += 1;
            self.netisr.send(owner, Parcel::Frame { lane, class: Class::Ethernet, frame });
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
                self.netisr.stats.dropped += 1;
            } else {
                self.netisr.send(owner, Parcel::Frame { lane, class, frame });
            }
            return;
        };
        let counter = if aligned { &mut slot.counters.aligned } else { &mut slot.counters.redirected };
        *counter += 1;
        self.netisr.stats.handled += 1;
        self.netisr.stats.dispatched += u64::from(aligned);
        if self.in_burst {
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
            busy |= !parcels.is_empty();
            self.in_burst = parcels.len() > 1;
            for parcel in parcels.drain(..) {
                match parcel {
                    Parcel::Frame { lane, class, frame } => self.deliver(lane, from, class, frame, false),
                    Parcel::Lane(slot) => self.move_in(slot),
                    Parcel::Marker { lane, from: marked } => self.marker(lane, marked),
                }
            }
            self.end_burst();
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
    let flow = match flowlane_stack::wire::classify(frame.data()).flow() {
        Some(flow) => {
            let ports = flow.ports.map_or(String::new(), |(s, d)| format!(" ports {s} > {d}"));
            format!("{} > {} {}{ports}", flow.addresses.src(), flow.addresses.dst(), flow.protocol)
        }
        None => "no flow".into(),
    };
    Misdirected { flow, hash: frame.meta().hash, expected_queue, queue }
}
