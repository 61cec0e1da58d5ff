//! The end of a turn: output, redirects, messages and deadlines of the lanes that did something.
//!
//! A lane is polled for output to links with room. If it has more, it waits and is not polled again before one of the full links has
//! room, so that waiting costs no turns; output to other links continues meanwhile.

use flowlane_stack::LaneEvent;
use flowlane_stack::time::Time;

use super::Worker;
use crate::events;
use crate::runtime::netisr::Parcel;
use crate::shared::Message;

impl Worker {
    /// Output, redirects, news and deadlines of the lanes that did something.
    pub(super) fn look_after_lanes(&mut self) -> bool {
        if self.lanes.are_waiting() {
            self.touch_those_with_room();
        }
        if !self.lanes.are_touched() {
            return false;
        }
        self.ports.find_room();
        // Looking after one lane may touch others; those wait for the next turn.
        let mut touched = self.lanes.take_touched();
        for lane in touched.drain(..) {
            if self.look_after(lane) {
                self.wait_for_room(lane);
            }
        }
        self.lanes.looked_after_all(touched);
        true
    }

    /// A lane has output left: for links without room, or there was no free frame.
    #[cold]
    fn wait_for_room(&mut self, lane: u32) {
        let Some(slot) = self.lanes.get(lane) else { return };
        let full = self.ports.want(self.hosts.get(slot.host).ports_of(slot.lane.bucket()));
        if !full || self.frames.free() == 0 {
            self.lanes.lack_frames(self.index, self.now);
        }
        self.meter.waits_for_room(self.lanes.wait(lane));
    }

    /// Touches the lanes that wait, if there is what they may have waited for.
    #[cold]
    fn touch_those_with_room(&mut self) {
        if self.ports.found_room() | self.lanes.found_frames(self.now, &self.frames) {
            self.lanes.touch_waiting();
        }
    }

    /// `true` if the lane has output for which there was no room.
    fn look_after(&mut self, lane: u32) -> bool {
        let Some(slot) = self.lanes.get_mut(lane) else { return false };
        slot.touched = false;
        self.meter.worked(lane, std::mem::take(&mut slot.work));
        let h = slot.host;
        let host = self.hosts.get_mut(h);
        if self.taps.is_on() {
            self.taps.mark(slot, host, &self.ports);
        }
        let left = self.ports.drain(slot, host.ports_of(slot.lane.bucket()), self.now, &self.frames);
        if self.taps.is_on() {
            self.taps.sent(slot, host, &self.ports, &self.shared);
        }
        let flows = slot.kernel.as_ref().and_then(|kernel| kernel.flows_due());
        let deadline =
            [slot.lane.poll_at(), slot.sleepers.next_deadline(), flows].into_iter().flatten().min();
        if slot.lane.tcp().is_in_shortage(slot.shortage.now) != slot.shortage.now {
            events::shortage(host.name(), &slot.lane, self.now, &mut slot.shortage);
        }
        host.note_crowd(slot.lane.tcp().is_crowded());
        slot.hand_over_flows();
        self.lanes.wake_at(lane, deadline);
        while let Some(redirect) = self.lanes.get_mut(lane).and_then(|s| s.lane.poll_redirect()) {
            let (to, owner) = self.hosts.get(h).lane_of(redirect.bucket);
            if owner == self.index {
                self.deliver(to, self.index, redirect.class, redirect.frame, false);
            } else {
                let parcel = Parcel::Frame { lane: to, class: redirect.class, frame: redirect.frame };
                self.netisr.send(owner, parcel);
            }
        }
        while let Some(event) = self.lanes.get_mut(lane).and_then(|s| s.lane.poll_event()) {
            if let LaneEvent::AddressDuplicate { address, mac, .. } = event {
                events::address_duplicate(self.hosts.get(h).name(), address, mac);
            }
            self.addresses_changed(h, lane, &event);
            self.tell_lanes(h, event, Some(lane));
            for other in (0..self.netisr.workers()).filter(|w| *w != self.index) {
                self.shared.send(other, Message::Event { host: h, event: Box::new(event) });
            }
        }
        left
    }

    /// An address of a host came or went: the list has it, and so has the link, as far as it chooses packets by their addresses.
    fn addresses_changed(&mut self, host: usize, lane: u32, event: &LaneEvent) {
        let (interface, address, ours) = match *event {
            LaneEvent::AddressGiven { interface, prefix, .. } => (interface, prefix.address(), true),
            LaneEvent::AddressTaken { interface, address }
            | LaneEvent::AddressDuplicate { interface, address, .. } => (interface, address, false),
            LaneEvent::AddressReady { .. } => return self.shared.addresses.take(host, event),
            _ => return,
        };
        let given = ours || self.shared.addresses.has(host, address);
        self.shared.addresses.take(host, event);
        // Those of the start are the link's until its end.
        if !given {
            return;
        }
        let slot = self.lanes.get_mut(lane);
        let link = slot.and_then(|slot| slot.groups.get(usize::from(interface))?.clone());
        if let Some(Err(e)) = link.map(|link| link.claim(address, ours)) {
            events::address_not_claimed(self.hosts.get(host).name(), address, &e);
        }
    }

    /// When a link, or the pool, is to be asked again that had nothing to give.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.ports.retry_at().into_iter().chain(self.lanes.retry_at()).min()
    }
}
