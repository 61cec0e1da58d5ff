//! Messages from other workers and from handles.

use flowlane_stack::LaneEvent;

use std::sync::mpsc::SyncSender;

use super::Worker;
use crate::context;
use crate::lane::LaneSlot;
use crate::shared::Message;
use crate::stats::LaneTop;

impl Worker {
    /// Messages: only those that are there now.
    pub(super) fn take_inbox(&mut self) -> bool {
        let shared = self.shared.clone();
        let inbox = &shared.posts[self.index].inbox;
        let n = inbox.len();
        for _ in 0..n {
            let Some(message) = inbox.pop() else { break };
            self.handle(message);
        }
        n > 0
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Run(ready) => {
                let lane = ready.metadata().lane.index;
                if self.lanes.get(lane).is_some() {
                    context::push_ready(ready);
                } else {
                    self.run_elsewhere(lane, ready);
                }
            }
            Message::Event { host, event } => self.tell_lanes(host, *event, None),
            Message::LinkUp { host, interface } => self.link_up(host, interface),
            Message::Close { lane, socket } => match self.lanes.touch(lane) {
                Some(slot) => slot.close(self.now, &self.frames, socket),
                None => {
                    let owner = self.owner_in_view(lane);
                    if owner != self.index {
                        self.shared.send(owner, Message::Close { lane, socket });
                    }
                }
            },
            // A receiver that is gone has lost interest.
            Message::Report(to, sockets) => drop(to.send(self.report(sockets))),
            Message::WatchFlows => {
                let wish = self.shared.top.get();
                self.lanes.iter_mut().for_each(|slot| slot.watch_as(&wish));
            }
            Message::TopFlows { lane, from, to } => self.top_flows(lane, from, to),
            Message::Capture(tap) => self.taps.add(tap, self.index),
            Message::EndCapture { number } => self.taps.remove(number),
            Message::Expect { lane, from, expectation } => self.expect(lane, from, expectation),
            Message::Give { lane, to, order } => self.give(lane, to, order),
            Message::GivenUp { lane } => self.give_up_move(lane),
            Message::Gone { lane, number, from, to } => self.gone(lane, number, from, to),
            Message::Requeued { lane, asked, queue } => self.requeued(lane, asked, queue),
            Message::Stop(to, grace) => self.begin_to_end(to, grace),
        }
    }

    /// The flows of a lane with most packets and bytes, for who asks; if the lane has moved, its worker is asked.
    fn top_flows(&mut self, lane: u32, from: u32, to: SyncSender<(LaneTop, Option<u32>)>) {
        let owner = self.owner_in_view(lane);
        match self.lanes.get_mut(lane) {
            Some(slot) => {
                let (host, bucket) = (slot.host, slot.lane.bucket().0);
                let (top, next) = slot.top_flows(self.now, from);
                // A receiver that is gone has lost interest.
                let _ = to.try_send((LaneTop { host, bucket, worker: self.index, at: self.now, top }, next));
            }
            None if owner != self.index => {
                self.shared.send(owner, Message::TopFlows { lane, from, to });
            }
            // On its way: who asks sees that there is no answer, and asks again.
            _ => {}
        }
    }

    /// Tells a host's lanes on this worker what one of them, or one elsewhere, learnt.
    pub(super) fn tell_lanes(&mut self, host: usize, event: LaneEvent, except: Option<u32>) {
        let others = |slot: &LaneSlot| slot.host == host && except != Some(slot.id.index);
        self.lanes.touch_all(others).for_each(|slot| slot.lane.tell(self.now, event));
    }
}
