//! A port at one worker: its queues here, or a ring to a worker that has one.

use std::sync::Arc;

use flowlane_sys::frame::Frame;

use crate::link::{Queue, QueueStats};
use crate::runtime::relay::{Relay, RelayQueue};
use crate::wake::Wake;

/// A port at one worker.
pub(super) struct Egress {
    pub(super) queues: Vec<Box<dyn Queue>>,
    /// To the worker that has a queue; frames go there if it is there.
    near: Option<RelayQueue>,
    pub(super) relays: Vec<Relay>,
    /// What this worker had put into its ring when it got the queues itself: it goes before everything else.
    early: Vec<Frame>,
    /// Frames were given to it that are not known to be handed over.
    dirty: bool,
    /// Waiting for its descriptors is of no use any more.
    pub(super) broken: Vec<bool>,
}

/// Sends the first of all; `false`: some wait.
fn sends(queue: &mut dyn Queue, early: &mut Vec<Frame>) -> bool {
    queue.transmit(early);
    early.is_empty()
}

impl Egress {
    pub(super) fn new(queues: Vec<Box<dyn Queue>>, near: Option<RelayQueue>, relays: Vec<Relay>) -> Egress {
        let broken = vec![false; queues.len()];
        Egress { queues, near, relays, early: Vec::new(), dirty: false, broken }
    }

    pub(super) fn transmit(&mut self, frames: &mut Vec<Frame>) {
        self.dirty |= !frames.is_empty();
        if let Some(near) = &mut self.near {
            near.transmit(frames);
        } else if let Some(queue) = self.queues.first_mut()
            && (self.early.is_empty() || sends(queue.as_mut(), &mut self.early))
        {
            queue.transmit(frames);
        }
    }

    /// Whether frames of its own wait for room.
    pub(super) fn waits(&self) -> bool {
        !self.early.is_empty()
    }

    /// Hands over what was given to it. `waits`: more of it waits for room. Whether all that was given has been handed over by the link.
    pub(super) fn flush(&mut self, waits: bool) -> bool {
        if !self.dirty {
            return true;
        }
        let early = match self.queues.first_mut() {
            Some(queue) if !self.early.is_empty() => !sends(queue.as_mut(), &mut self.early),
            _ => false,
        };
        let waits = waits || early;
        // What came from other workers goes by a queue of this one.
        let sent = self.queues.iter_mut().fold(true, |sent, queue| sent & queue.flush());
        // Guard: `sent && !waits` as `true` fails switch::moving::tests::a_port_leaves
        if sent && !waits {
            self.relays.iter_mut().for_each(Relay::handed_over);
        }
        let over = sent & self.near.as_mut().is_none_or(RelayQueue::flush);
        self.dirty = waits || !over;
        !self.dirty
    }

    /// Whether packets are received here.
    pub(super) fn receives(&self) -> bool {
        self.queues.iter().any(|queue| queue.fd().is_some())
    }

    /// Gives away all queues, and the rings that lead to them; from now on frames go by `near`.
    pub(super) fn give(&mut self, near: RelayQueue) -> (Vec<Box<dyn Queue>>, Vec<Relay>) {
        self.broken.clear();
        self.near = Some(near);
        (std::mem::take(&mut self.queues), std::mem::take(&mut self.relays))
    }

    /// Takes queues that another worker has given away.
    pub(super) fn take(&mut self, queues: Vec<Box<dyn Queue>>, relays: Vec<Relay>) {
        self.queues.extend(queues);
        self.broken.resize(self.queues.len(), false);
        self.relays.extend(relays);
        let own = self.near.as_ref().and_then(|near| self.relays.iter().position(|relay| relay.is_of(near)));
        if let (Some(at), Some(mut near)) = (own, self.near.take_if(|_| own.is_some())) {
            let _ = near.flush();
            let _ = self.relays.swap_remove(at).receive(usize::MAX, &mut self.early);
        }
        self.dirty = true;
    }

    /// Has the ring wake the worker that has the queues now.
    pub(super) fn repoint(&mut self, wake: Arc<Wake>) {
        if let Some(near) = &mut self.near {
            near.repoint(wake);
        }
    }

    pub(super) fn stats(&self) -> QueueStats {
        let mut sum = QueueStats::default();
        for queue in &self.queues {
            let one = queue.stats();
            sum.rx_frames += one.rx_frames;
            sum.rx_bytes += one.rx_bytes;
            sum.rx_no_frame += one.rx_no_frame;
            sum.rx_ring_full += one.rx_ring_full;
            sum.rx_bad += one.rx_bad;
            sum.rx_unfinished += one.rx_unfinished;
            sum.tx_frames += one.tx_frames;
            sum.tx_bytes += one.tx_bytes;
            sum.tx_failed += one.tx_failed;
            sum.tx_far_full += one.tx_far_full;
            sum.system_calls += one.system_calls;
        }
        sum
    }
}
