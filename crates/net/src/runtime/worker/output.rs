//! The end of a turn: output, redirects, messages and deadlines of the lanes that did something, and transmission on the links.
//!
//! A lane is polled for output to links with room. If it has more, it waits (`Worker::waiting`) and is not polled again before one of the
//! full links has room, so that waiting costs no turns; output to other links continues meanwhile. [`stall`](super::stall) decides when a
//! link that took nothing is tried again, and when it is given up.

use std::io::Write;

use flowlane_stack::LaneEvent;
use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::stall::{Backoff, Stall};
use super::{HostView, Port, Worker};
use crate::events;
use crate::lane::LaneSlot;
use crate::runtime::netisr::Parcel;
use crate::runtime::relay::Relay;
use crate::shared::Message;

/// Frames taken at once for a dead link, to be dropped.
const INTO_THE_VOID: usize = 256;
/// Free frames with which it is worth asking lanes again that found none.
const PLENTY: usize = 64;

impl Worker {
    /// What workers without a queue of a link send on one of this worker: before the output of the lanes here, so that a lane that has
    /// come from there does not overtake itself.
    #[inline]
    pub(super) fn take_relayed(&mut self) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            if port.relays.is_empty() {
                continue;
            }
            port.find_room();
            for relay in &mut port.relays {
                let n = relay.receive(port.room, &mut port.output);
                port.room -= n;
                busy |= n > 0;
            }
            port.relays_wait = port.relays.iter_mut().any(Relay::ready);
        }
        busy
    }

    /// Output, redirects, news and deadlines of the lanes that did something.
    pub(super) fn look_after_lanes(&mut self) -> bool {
        if !self.waiting.is_empty() {
            self.touch_those_with_room();
        }
        if self.touched.is_empty() {
            return false;
        }
        for port in &mut self.ports {
            port.find_room();
        }
        // Looking after one lane may touch others; those wait for the next turn.
        let mut touched = std::mem::replace(&mut self.touched, std::mem::take(&mut self.spare));
        for lane in touched.drain(..) {
            if self.look_after(lane) {
                self.wait_for_room(lane);
            }
        }
        self.spare = touched;
        if self.waiting.is_empty() {
            self.hungry = None;
        }
        true
    }

    /// A lane has output left: for links without room, or there was no free frame.
    #[cold]
    fn wait_for_room(&mut self, lane: u32) {
        let Some(slot) = &mut self.lanes[lane as usize] else { return };
        let mut full = false;
        for p in self.hosts[slot.host].ports_of(slot.lane.bucket()) {
            let port = &mut self.ports[*p];
            port.wanted |= port.room == 0;
            full |= port.room == 0;
        }
        if !full || self.frames.free() == 0 {
            if self.hungry.is_none() {
                events::no_frames(self.index, self.now, &mut self.hunger_told);
            }
            self.hungry.get_or_insert(Backoff::new(self.now));
        }
        if !slot.waiting {
            slot.waiting = true;
            self.turns.room_waits += 1;
            self.waiting.push(lane);
        }
    }

    /// Touches the lanes that wait, if there is what they may have waited for.
    #[cold]
    fn touch_those_with_room(&mut self) {
        let mut moved = false;
        for port in self.ports.iter_mut().filter(|p| p.wanted) {
            port.find_room();
            if port.room > 0 {
                port.wanted = false;
                moved = true;
            }
        }
        if let Some(hungry) = &mut self.hungry {
            self.frames.gather();
            let plenty = self.frames.free() >= PLENTY;
            if plenty || self.now >= hungry.at {
                moved = true;
                hungry.longer(self.now);
            }
            if plenty {
                self.hungry = None;
            }
        }
        if !moved {
            return;
        }
        // Before the others; each of them once first, so that none takes all the room there is.
        let mut first = std::mem::take(&mut self.waiting);
        if first.len() > 1 {
            first.rotate_left(1);
        }
        let lanes = &mut self.lanes;
        let waited = |lane: &u32| lanes[*lane as usize].as_ref().is_some_and(|slot| slot.waiting);
        self.touched.retain(|lane| !waited(lane));
        let others = std::mem::take(&mut self.touched);
        for lane in first.drain(..) {
            if let Some(slot) = &mut lanes[lane as usize] {
                (slot.waiting, slot.touched) = (false, true);
                self.touched.push(lane);
            }
        }
        self.touched.extend(others);
        self.waiting = first;
    }

    /// `true` if the lane has output for which there was no room.
    fn look_after(&mut self, lane: u32) -> bool {
        let Some(slot) = &mut self.lanes[lane as usize] else { return false };
        slot.touched = false;
        self.spent.add(lane, std::mem::take(&mut slot.work));
        let host = &self.hosts[slot.host];
        if self.taps.is_on() {
            self.taps.mark(slot, host, &self.ports);
        }
        let left = drain_output(slot, host, &mut self.ports, self.now, &self.frames);
        if self.taps.is_on() {
            self.taps.sent(slot, host, &self.ports, &self.shared);
        }
        let deadline = [slot.lane.poll_at(), slot.sleepers.next_deadline()].into_iter().flatten().min();
        self.deadlines[lane as usize] = deadline.unwrap_or(Time::MAX);
        self.next_deadline = self.next_deadline.min(self.deadlines[lane as usize]);
        if slot.lane.tcp_is_short_of_memory(slot.shortage.now) != slot.shortage.now {
            events::shortage(&host.name, &slot.lane, self.now, &mut slot.shortage);
        }
        let h = slot.host;
        self.hosts[h].crowded |= slot.lane.tcp_is_crowded();
        slot.hand_over_flows();
        while let Some(redirect) = self.lanes[lane as usize].as_mut().and_then(|s| s.lane.poll_redirect()) {
            let to = self.hosts[h].first_lane + u32::from(redirect.bucket.0);
            let owner = usize::from(self.hosts[h].owners[usize::from(redirect.bucket.0)]);
            if owner == self.index {
                self.deliver(to, self.index, redirect.class, redirect.frame, false);
            } else {
                let parcel = Parcel::Frame { lane: to, class: redirect.class, frame: redirect.frame };
                self.netisr.send(owner, parcel);
            }
        }
        while let Some(event) = self.lanes[lane as usize].as_mut().and_then(|s| s.lane.poll_event()) {
            if let LaneEvent::AddressDuplicate { address, mac, .. } = event {
                let name = &self.hosts[h].name;
                events::address_duplicate(name, address, mac);
                // Nobody may read it.
                let _ = writeln!(
                    std::io::stderr(),
                    "flowlane: {name}: {address} is not used: {mac} has it on this link, so give one of the two another address"
                );
            }
            self.tell_lanes(h, event, Some(lane));
            for other in (0..self.netisr.workers()).filter(|w| *w != self.index) {
                self.shared.send(other, Message::Event { host: h, event });
            }
        }
        left
    }

    /// Gives the links what the lanes put out, and lets them hand it over.
    pub(super) fn send(&mut self) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            let taken = match port.output.is_empty() {
                true => 0,
                false => port.queue.transmit(&mut port.output),
            };
            busy |= taken > 0;
            let all = port.queue.flush();
            if all && port.output.is_empty() {
                port.relays.iter_mut().for_each(Relay::handed_over);
            }
            if !all || port.wanted || port.relays_wait || !port.output.is_empty() || port.stall.is_some() {
                port.stalls(self.now, taken, all);
            }
        }
        busy
    }

    /// When a link, or the pool, is to be asked again that had nothing to give.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        let links = self.ports.iter().filter_map(|p| p.stall.as_ref()).map(|s| s.retry.at);
        links.chain(self.hungry.map(|h| h.at)).min()
    }
}

impl Port {
    /// How many frames lanes may put out for this link now.
    #[inline]
    pub(crate) fn find_room(&mut self) {
        self.room = self.queue.room().saturating_sub(self.output.len());
        if self.stall.is_some_and(|s| s.is_dead()) {
            self.room = self.room.max(INTO_THE_VOID);
        }
    }

    /// Whether frames of other workers wait that the link may take now. While it stands still nobody need stay awake for them: it is asked
    /// again when that is due.
    pub(crate) fn has_relayed(&mut self) -> bool {
        self.stall.is_none() && self.relays.iter_mut().any(Relay::ready)
    }

    /// The link has not taken all, or did not lately.
    #[cold]
    fn stalls(&mut self, now: Time, taken: usize, all: bool) {
        let room = self.queue.room();
        let stall = self.stall.get_or_insert(Stall::new(now, room));
        let was_dead = stall.is_dead();
        stall.look(now, taken, room);
        if stall.is_dead() != was_dead {
            events::link_dead(self.link, self.index, stall.is_dead());
        }
        if stall.is_dead() {
            self.dropped += self.output.len() as u64;
            self.output.clear();
            self.relays.iter_mut().for_each(Relay::handed_over);
        } else if all && room > 0 && self.output.is_empty() && !self.wanted && !self.relays_wait {
            self.stall = None;
        }
    }
}

/// Moves a lane's output to its ports while they have room. `true` if something is left.
pub(crate) fn drain_output(
    slot: &mut LaneSlot,
    host: &HostView,
    ports: &mut [Port],
    now: Time,
    frames: &Pool,
) -> bool {
    let host_ports = host.ports_of(slot.lane.bucket());
    if let [only] = host_ports[..] {
        let port = &mut ports[only];
        port.room -= slot.lane.drain_output(now, frames, port.room, &mut port.output);
        return slot.lane.has_output();
    }
    if !slot.lane.has_output() {
        return false;
    }
    let LaneSlot { lane, rooms, .. } = slot;
    rooms.clear();
    rooms.extend(host_ports.iter().map(|p| ports[*p].room));
    while let Some(frame) = lane.poll_output_to(now, frames, rooms) {
        let Some(&p) = host_ports.get(usize::from(frame.meta().interface)) else { continue };
        // One that waited behind another, for its neighbour's answer, may come where there is no room.
        let port = &mut ports[p];
        port.room = port.room.saturating_sub(1);
        port.output.push(frame);
        // Several interfaces may be on one link.
        for (room, _) in rooms.iter_mut().zip(host_ports).filter(|(_, q)| **q == p) {
            *room = port.room;
        }
    }
    // What is left waits for room, or for a free frame.
    lane.has_output()
}
