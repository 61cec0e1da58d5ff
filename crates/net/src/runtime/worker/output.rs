//! The end of a turn: output, redirects, news and deadlines of the lanes that did something, and what links are given to send.

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::{HostView, Port, Worker};
use crate::runtime::lane_slot::LaneSlot;
use crate::runtime::message::Message;
use crate::runtime::netisr::Parcel;

impl Worker {
    /// Output, redirects, news and deadlines of the lanes that did something.
    pub(super) fn look_after_lanes(&mut self) -> bool {
        if self.touched.is_empty() {
            return false;
        }
        for port in &mut self.ports {
            port.room = port.queue.room().saturating_sub(port.output.len());
        }
        // Looking after one lane may touch others; those wait for the next turn.
        let mut touched = std::mem::replace(&mut self.touched, std::mem::take(&mut self.spare));
        for lane in touched.drain(..) {
            if self.look_after(lane) {
                self.touch(lane);
            }
        }
        self.spare = touched;
        // Those that found no room come first in the next turn; each once before the others, so that none takes it all.
        if self.touched.len() > 1 {
            self.touched.rotate_left(1);
        }
        true
    }

    /// `true` if the lane has output for which there was no room.
    fn look_after(&mut self, lane: u32) -> bool {
        let Some(slot) = &mut self.lanes[lane as usize] else { return false };
        slot.touched = false;
        let host = &self.hosts[slot.host];
        let left = drain_output(slot, host, &mut self.ports, self.now, &self.frames);
        let deadline = [slot.lane.poll_at(), slot.sleepers.next_deadline()].into_iter().flatten().min();
        self.deadlines[lane as usize] = deadline.unwrap_or(Time::MAX);
        self.next_deadline = self.next_deadline.min(self.deadlines[lane as usize]);
        let h = slot.host;
        self.hosts[h].crowded |= slot.lane.tcp_is_crowded();
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
            if !port.output.is_empty() {
                busy |= port.queue.transmit(&mut port.output) > 0;
            }
            port.queue.flush();
        }
        busy
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
    if let [only] = host.ports[..] {
        let port = &mut ports[only];
        port.room -= slot.lane.drain_output(now, frames, port.room, &mut port.output);
        return slot.lane.has_output();
    }
    // Which link the next frame is for is known only when it is out, so all links need room.
    while slot.lane.has_output() {
        if host.ports.iter().any(|p| ports[*p].room == 0) {
            return true;
        }
        let Some(frame) = slot.lane.poll_output(now, frames) else { break };
        if let Some(p) = host.ports.get(usize::from(frame.meta().link)) {
            let port = &mut ports[*p];
            port.room -= 1;
            port.output.push(frame);
        }
    }
    // What is left waits for a free frame.
    slot.lane.has_output()
}
