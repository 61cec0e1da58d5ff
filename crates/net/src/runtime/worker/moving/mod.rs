//! Moving a lane from one worker to another while packets flow.
//!
//! ```text
//!   handle        to (B)                            from (A)                     others (C), and B itself
//!     │─ Expect ──▶ holds frames of the lane
//!     │             that others send directly
//!     │             ── Give ───────────────────────▶ parks the lane: holds its frames,
//!     │                                              lets its output leave
//!     │             takes the lane in ◀────ring───── lane, then the held frames, then all that still comes
//!     │                                              ── Gone ─────────────────────▶ sends a marker to A, then
//!     │                                                                             frames of the lane to B
//!     │                                              ◀────────ring──────── marker ─
//!     │             nothing of C's is on its way ◀── marker ─
//!     │             any more: lets C's frames in
//!     │◀─── done ── when all markers are in
//! ```
//!
//! Until A has sent the lane the move can be cancelled, and the lane stays at A ([`Order`]).
//!
//! Each move of a lane has a number, which the markers and the card's answers carry: one that is late counts for no later move.
//!
//! So no frame of a flow overtakes another: frames through A reach B in the order of the ring from A, and frames that C sends directly
//! wait for C's marker, which follows C's last frame through A on the same way. Output of the lane at A has left A's links before B sends
//! for it. Frames still arrive on A's queue, chosen by the card, and are handed over by netisr. If the card's table can be changed, that
//! is the next step ([`requeue`]), and the move is done after it.
//!
//! Kernel sockets are removed from the old worker's epoll instance and added to the new one's, which reports their readiness anew.

mod held;
mod requeue;

pub(crate) use held::Moves;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::held::{Arriving, Leaving};
use super::Worker;
use crate::context;
use crate::events;
use crate::lane::{LaneSlot, UnderWay};
use crate::runtime::netisr::{Marker, Parcel};
use crate::shared::{Expectation, Message, MoveId, Order, Stage};

/// How long a lane waits for its output to leave before it moves.
const LONG_ENOUGH: Duration = Duration::from_millis(100);

impl Worker {
    /// A lane is to come from `from`, who is asked for it.
    pub(crate) fn expect(&mut self, lane: u32, from: usize, expectation: Expectation) {
        debug_assert_ne!(from, self.index);
        if !expectation.0.advance(Stage::Asked, Stage::Expected) {
            return;
        }
        let order = expectation.0.clone();
        self.moves.arriving.push(Arriving::new(lane, from, self.netisr.workers(), expectation));
        self.shared.send(from, Message::Give { lane, to: self.index, order });
    }

    /// Begins to give a lane away: its frames wait, its tasks rest.
    pub(crate) fn give(&mut self, lane: u32, to: usize, order: Arc<Order>) {
        // Who ends keeps what it has: it reports it, and the other may have ended already.
        if self.cycle.is_ending() {
            return;
        }
        let Some(slot) = self.lanes.get_mut(lane) else { return };
        if !order.advance(Stage::Expected, Stage::Given) {
            return;
        }
        slot.parked = context::take_ready_of(lane);
        self.moves.leaving.push(Leaving { lane, since: self.now, to, order, held: VecDeque::new() });
    }

    /// A move that this worker has part in was given up before the lane was sent: the lane goes on where it is.
    pub(crate) fn give_up_move(&mut self, lane: u32) {
        // Nothing can have come by now: nobody knew of another way to the lane.
        self.moves.arriving.retain(|a| a.lane != lane || !a.expectation.0.is_given_up());
        let given_up = |l: &Leaving| l.lane == lane && l.order.is_given_up();
        let Some(i) = self.moves.leaving.iter().position(given_up) else { return };
        self.stay(i);
    }

    /// The lane that was to leave stays: what was held for it is delivered, and its tasks go on.
    fn stay(&mut self, i: usize) {
        let Leaving { lane, held, .. } = self.moves.leaving.swap_remove(i);
        let Some(slot) = self.lanes.touch(lane) else { return };
        for ready in std::mem::take(&mut slot.parked) {
            context::push_ready(ready);
        }
        for (class, frame) in held {
            // Guard: no `self.deliver_now(lane, class, frame, true);` fails moving::tests::a_lane_that_stays
            self.deliver_now(lane, class, frame, true);
        }
    }

    /// Carries moves on as far as they can go now.
    pub(crate) fn advance_moves(&mut self) {
        if !self.moves.arriving.is_empty() {
            self.let_in_what_waits();
        }
        let mut i = 0;
        while let Some(leaving) = self.moves.leaving.get(i) {
            let (lane, waited) = (leaving.lane, self.now.saturating_duration_since(leaving.since));
            // Guard: `!self.output_has_left(lane)` as `false` fails moving::tests::a_lane_goes_when
            if !self.output_has_left(lane) && waited < LONG_ENOUGH {
                i += 1;
            // Guard: `!self.cycle.is_ending()` as `true` fails moving::tests::who_is_told_to_stop
            } else if !self.cycle.is_ending()
                && self.moves.leaving[i].order.advance(Stage::Given, Stage::Sent)
            {
                let leaving = self.moves.leaving.swap_remove(i);
                self.send_lane(leaving);
            } else {
                self.stay(i);
            }
        }
    }

    /// Pushes the lane's output out. `true` once all of it is with the other side of the links. A link that is down keeps no
    /// lane: what has not left after [`LONG_ENOUGH`] stays where it is or goes with the lane, and may be overtaken.
    fn output_has_left(&mut self, lane: u32) -> bool {
        let Some(slot) = self.lanes.get_mut(lane) else { return true };
        let ports = self.hosts.get(slot.host).ports_of(slot.lane.bucket());
        self.ports.find_room();
        self.ports.drain(slot, ports, self.now, &self.frames);
        // Segments that connections have yet to make go with the lane.
        self.ports.push_out(ports) && slot.lane.output_len() == 0
    }

    fn send_lane(&mut self, leaving: Leaving) {
        let Leaving { lane, to, held, order, .. } = leaving;
        let number = order.number();
        let Some(mut slot) = self.lanes.remove(lane) else { return };
        slot.counters.moves += 1;
        slot.under_way = Some(UnderWay { since: self.now, to, last: self.shared.last_reports.clone() });
        if let Some(kernel) = &mut slot.kernel {
            if let Some(poller) = self.ports.poller() {
                poller.release(lane as usize, kernel);
            }
            kernel.leave();
        }
        // Woken since it was parked.
        slot.parked.extend(context::take_ready_of(lane));
        self.hosts.set_owner(lane, to);
        events::lane_sent(lane, self.index, to, held.len());
        self.netisr.send(to, Parcel::Lane(slot));
        for (class, frame) in held {
            self.netisr.send(to, Parcel::Frame { lane, class, frame });
        }
        for worker in (0..self.netisr.workers()).filter(|w| *w != self.index) {
            self.shared.send(worker, Message::Gone { lane, number, from: self.index, to });
        }
    }

    /// Somebody else's lane has gone from `from` to `to`: the last frame by the old way is followed by a marker.
    pub(crate) fn gone(&mut self, lane: u32, number: u32, from: usize, to: usize) {
        let marker = Marker { lane, number, from: self.index as u16, to: to as u16 };
        self.netisr.send(from, Parcel::Marker(marker));
        self.hosts.set_owner(lane, to);
    }

    /// A marker: passed on by the worker that had the lane, heeded by the one that gets it if it is of this move.
    pub(crate) fn marker(&mut self, marker: Marker) {
        if usize::from(marker.to) != self.index {
            return self.netisr.send(usize::from(marker.to), Parcel::Marker(marker));
        }
        let (lane, marked) = (marker.lane, usize::from(marker.from));
        let Some(i) = self.moves.arriving_by(lane, marker.number) else { return };
        let arriving = &mut self.moves.arriving[i];
        // The old queue's worker has read the card's answer before this one did: that the lane has another queue is still to be learnt.
        // Guard: `arriving.asked && marked == self.index && arriving.answered.is_none()` as `false` fails
        // moving::tests::a_marker_that_comes_before
        if arriving.asked && marked == self.index && arriving.answered.is_none() {
            arriving.emptied = true;
            return;
        }
        arriving.unmarked.retain(|w| *w != marked);
        let (free, held): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut arriving.held).into_iter().partition(|(via, ..)| *via == marked);
        arriving.held = held;
        let arrived = arriving.here && arriving.unmarked.is_empty();
        for (_, class, frame) in free {
            self.deliver_now(lane, class, frame, marked == self.index);
        }
        if arrived {
            self.arrived(i);
        }
    }

    /// The lane is here, and nothing is held for it any more. Where its packets still come on another worker's queue the card is asked to
    /// change that, and what comes by the queues here is held until nothing is on its way from there.
    fn arrived(&mut self, i: usize) {
        let Arriving { lane, .. } = self.moves.arriving[i];
        let asked = MoveId { worker: self.index, number: self.moves.arriving[i].number() };
        if !self.moves.arriving[i].asked
            && let Some(request) = self.comes_elsewhere(lane, asked)
        {
            let arriving = &mut self.moves.arriving[i];
            arriving.asked = true;
            arriving.unmarked = vec![self.index];
            self.hosts.ask_card(request);
            return;
        }
        let arriving = self.moves.arriving.swap_remove(i);
        events::lane_arrived(arriving.lane, self.index);
        arriving.expectation.0.advance(Stage::Sent, Stage::Done);
    }

    /// Takes a lane in.
    pub(crate) fn move_in(&mut self, mut slot: Box<LaneSlot>) {
        let lane = slot.id.index;
        // This turn may have begun before the lane was sent. Time does not go back for it: its timestamps would, which its peers drop (RFC 7323
        // section 5), and answers to what it has just sent would come from the future.
        if let Some(UnderWay { since, .. }) = slot.under_way.take() {
            // Guard: `self.now.max(since)` as `self.now.min(since)` fails
            // moving::tests::time_does_not_go_back
            self.now = self.now.max(since);
        }
        let tasks = std::mem::take(&mut slot.parked);
        if let (Some(kernel), Some(poller)) = (&mut slot.kernel, self.ports.poller()) {
            kernel.enter(poller.epoll.clone(), self.index);
        }
        for (interface, mtu) in self.ports.mtus_of(slot.host) {
            slot.lane.set_mtu(self.now, &self.frames, interface, mtu);
        }
        // Guard: no `slot.watch_as(&self.shared.top.get());` fails
        // moving::tests::a_lane_under_way_follows_the_wish
        slot.watch_as(&self.shared.top.get());
        self.lanes.put(lane, Some(slot));
        self.hosts.set_owner(lane, self.index);
        self.shared.set_owner(lane, self.index);
        for ready in tasks {
            context::push_ready(ready);
        }
        if let Some(i) = self.moves.arriving.iter().position(|a| a.lane == lane) {
            let arriving = &mut self.moves.arriving[i];
            arriving.here = true;
            for ready in std::mem::take(&mut arriving.tasks) {
                context::push_ready(ready);
            }
            if arriving.unmarked.is_empty() {
                self.arrived(i);
            }
        }
        self.end_connections_of_late(lane);
        self.lanes.touch(lane);
    }
}

#[cfg(test)]
mod tests;
