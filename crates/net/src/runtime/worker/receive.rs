//! Receiving: a burst from each queue, and the frames handed over by each other worker. All are passed to lanes here.

use flowlane_stack::Class;
use flowlane_stack::tcp::AHEAD;
use flowlane_sys::frame::Frame;

use super::Worker;
use super::hosts::{Arrival, Here, Led};
use super::meter::Step;
use crate::runtime::netisr::Parcel;

/// Frames taken from one queue in one turn.
const BURST: usize = 64;

impl Worker {
    /// A burst from each queue: to the lane if it is here, to the worker that has it if not.
    pub(super) fn receive(&mut self) -> bool {
        let mut busy = false;
        let mut burst = self.ports.take_burst();
        for p in 0..self.ports.len() {
            let port = self.ports.get_mut(p);
            let most = if port.keeps_what_is_left() { BURST.min(self.netisr.room()) } else { BURST };
            let n = port.receive(&self.frames, &mut burst, most);
            if n == most && most < BURST {
                self.meter.held_back(n > 0 || port.ready());
            }
            if n == 0 {
                if self.moves.is_draining() {
                    self.drained(p, 0, true);
                }
                continue;
            }
            busy = true;
            self.meter.mark(Step::Receive);
            let (only, queue) = (port.doors().only(), port.index().unwrap_or(u16::MAX));
            self.lanes.begin_burst(n);
            match only {
                Some(door) if n > 1 && self.hosts.get(door.host).is_crowded() => {
                    while !burst.is_empty() {
                        let next = burst.len().min(AHEAD);
                        self.look_ahead(door.host, &mut burst[..next]);
                        for frame in burst.drain(..next) {
                            self.classify(Arrival { door, port: p, queue }, frame);
                        }
                    }
                }
                Some(door) if self.moves.is_empty() && !self.taps.is_on() => {
                    self.give_burst(Arrival { door, port: p, queue }, &mut burst);
                }
                Some(door) => {
                    for frame in burst.drain(..) {
                        self.classify(Arrival { door, port: p, queue }, frame);
                    }
                }
                None => {
                    for frame in burst.drain(..) {
                        let door = self.ports.get(p).doors().of(&frame);
                        self.classify(Arrival { door, port: p, queue }, frame);
                    }
                }
            }
            self.lanes.end_burst(self.now, &self.frames);
            self.meter.mark(Step::Stack);
            if self.moves.is_draining() {
                self.drained(p, n, n < most);
            }
        }
        self.ports.put_burst(burst);
        busy
    }

    /// Asks for the memory of the connections of the next of a burst, where a lane has too many to find them in the caches.
    #[inline(never)]
    fn look_ahead(&self, h: usize, burst: &mut [Frame]) {
        let host = self.hosts.get(h);
        let mut expected = [None; AHEAD];
        for (frame, place) in burst.iter_mut().zip(&mut expected) {
            let lane = host.lane_ahead(frame);
            if let Some(slot) = self.lanes.get(lane).filter(|slot| slot.lane.tcp().is_crowded()) {
                *place = slot.lane.tcp_prefetch(frame).map(|expected| (lane, expected));
            }
        }
        for (lane, expected) in expected.into_iter().flatten() {
            if let Some(slot) = self.lanes.get(lane) {
                slot.lane.tcp().prefetch_connection(expected);
            }
        }
    }

    /// As [`Worker::classify`] of each, while no lane is on its way and nothing is captured. Frames for one lane that follow one another are
    /// given to it together.
    fn give_burst(&mut self, arrival: Arrival, burst: &mut Vec<Frame>) {
        let (index, now) = (self.index, self.now);
        let mut led = std::mem::take(&mut self.led);
        let here = || Here { index, now, moves: &self.moves };
        self.hosts.steer_burst(index, here, arrival, burst, &mut led);
        let mut frames = burst.drain(..);
        for Led { lane, owner, frames: n } in led.drain(..) {
            if owner != index {
                frames.by_ref().take(n).for_each(|frame| {
                    self.netisr.send(owner, Parcel::Frame { lane, class: Class::Ethernet, frame });
                });
                continue;
            }
            let in_burst = self.lanes.are_in_burst();
            let Some(slot) = self.lanes.touch(lane).filter(|_| in_burst) else {
                let run = frames.by_ref().take(n);
                run.for_each(|frame| self.deliver_now(lane, Class::Ethernet, frame, true));
                continue;
            };
            slot.counters.aligned += n as u64;
            slot.work += n as u32;
            self.netisr.stats.handled += n as u64;
            self.netisr.stats.dispatched += n as u64;
            if frames.len() == n {
                // Nearly always all are for one lane: then there is nothing to be counted on the way.
                slot.lane.input_burst(now, &self.frames, frames.by_ref());
            } else {
                slot.lane.input_burst(now, &self.frames, frames.by_ref().take(n));
            }
        }
        drop(frames);
        self.led = led;
    }

    #[inline]
    fn classify(&mut self, arrival: Arrival, mut frame: Frame) {
        let here = || Here { index: self.index, now: self.now, moves: &self.moves };
        let (lane, owner) = self.hosts.steer(self.index, here, arrival, &mut frame);
        if owner == self.index {
            self.deliver(lane, self.index, Class::Ethernet, frame, true);
        } else if self.taps.is_on() {
            self.hand_over_captured(owner, lane, frame);
        } else {
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
        let in_burst = self.lanes.are_in_burst();
        let Some(slot) = self.lanes.touch(lane) else {
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
            self.taps.input(slot, &self.shared, turn, (frame, class), in_burst);
        } else if in_burst {
            slot.lane.input_in_burst(self.now, &self.frames, frame, class);
        } else {
            slot.lane.input(self.now, &self.frames, frame, class);
        }
    }

    /// What other workers handed over: from each only what is there now.
    pub(super) fn take_netisr(&mut self) -> bool {
        let mut busy = false;
        let mut parcels = self.netisr.take_list();
        for from in 0..self.netisr.workers() {
            self.netisr.receive(from, &mut parcels);
            if parcels.is_empty() {
                continue;
            }
            busy = true;
            self.meter.mark(Step::Netisr);
            self.lanes.begin_burst(parcels.len());
            for parcel in parcels.drain(..) {
                match parcel {
                    Parcel::Frame { lane, class, frame } => self.deliver(lane, from, class, frame, false),
                    Parcel::Lane(slot) => self.move_in(slot),
                    Parcel::Marker(marker) => self.marker(marker),
                }
            }
            self.lanes.end_burst(self.now, &self.frames);
            self.meter.mark(Step::Stack);
        }
        self.netisr.put_list(parcels);
        busy
    }
}
