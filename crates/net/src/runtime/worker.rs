//! A worker: one thread, one core, one queue of each link, any number of lanes. This page is the centre of Flowlane.
//!
//! ```text
//!   turn:  receive ▸ netisr ▸ inbox ▸ tasks ▸ timers ▸ output ▸ flush        nothing to do? ▸ sleep
//! ```
//!
//! A worker owns all it touches. It never waits for another worker: what it sends finds room or is counted as
//! dropped, what it receives lies in rings and an inbox. Lanes whose state changed in a turn are noted, and only those
//! are asked for output, news and deadlines at its end, so that a turn costs nothing for lanes that had nothing to do.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Bucket, Rss};
use flowlane_stack::steering::{HashSource, steer};
use flowlane_stack::time::Time;
use flowlane_stack::{Class, LaneEvent};
use flowlane_sys::frame::{Frame, Pool};

use super::idle::Patience;
use super::lane_slot::LaneSlot;
use super::message::Message;
use super::moving::Moves;
use super::netisr::{Netisr, Parcel};
use super::shared::Shared;
use crate::context;
use crate::kernel::Poller;
use crate::link::Queue;
use crate::stats::{Misdirected, SteeringStats};

/// Frames taken from one queue in one turn.
const BURST: usize = 64;
/// Tasks that run in the turn in which they were begun.
const FRESH: usize = 1024;
/// Examples kept of frames on a wrong queue.
const EXAMPLES: usize = 8;

/// What a worker does when there is nothing to do.
///
/// A worker that serves kernel sockets and no link sleeps at once unless told to spin: there is nothing to look at
/// without a system call, and the call that looks can as well wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once, for ever: the shortest latency, at the price of the core.
    Spin,
    /// Looks again for this long at most, then sleeps until something happens. Where looking has not paid lately, since
    /// what came took longer than going to sleep costs, it sleeps at once.
    Adaptive(Duration),
}

impl Default for Idle {
    fn default() -> Self {
        Self::Adaptive(Duration::from_micros(50))
    }
}

/// A queue of a link at its worker.
pub(crate) struct Port {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) host: usize,
    /// Interface of the host.
    pub(crate) link: u8,
    /// Number of the queue within the link.
    pub(crate) index: u16,
    /// Frames to be sent.
    pub(crate) output: Vec<Frame>,
    pub(crate) room: usize,
    /// Its descriptor is not worth waiting for any more.
    pub(crate) broken: bool,
}

/// A host as one worker sees it.
pub(crate) struct HostView {
    pub(crate) rss: Arc<Rss>,
    /// Index of its first lane among all.
    pub(crate) first_lane: u32,
    /// Who holds the lane of each bucket: this worker's own copy.
    pub(crate) owners: Vec<u16>,
    /// Queue that the card should choose for each bucket.
    pub(crate) queue_of: Vec<u16>,
    /// For each interface, the port to send on.
    pub(crate) ports: Vec<usize>,
    pub(crate) stats: SteeringStats,
    /// A lane here has had very many connections: bursts are looked over before they are handled.
    pub(crate) crowded: bool,
}

/// Counters of the loop.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) all: u64,
    pub(crate) busy: u64,
    pub(crate) sleeps: u64,
}

/// A worker.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) frames: Rc<Pool>,
    pub(crate) ports: Vec<Port>,
    pub(crate) hosts: Vec<HostView>,
    /// All lanes of the runtime by index; `Some` for those held here.
    pub(crate) lanes: Vec<Option<Box<LaneSlot>>>,
    /// Lanes to be looked after at the end of this turn.
    pub(crate) touched: Vec<u32>,
    /// The other of two lists that take turns.
    pub(crate) spare: Vec<u32>,
    /// When each lane wants to be woken.
    pub(crate) deadlines: Vec<Time>,
    /// No later than the earliest of `deadlines`.
    pub(crate) next_deadline: Time,
    pub(crate) netisr: Netisr,
    pub(crate) moves: Moves,
    pub(crate) idle: Idle,
    pub(crate) patience: Patience,
    /// The last turn found nothing to do.
    pub(crate) idle_turn: bool,
    pub(crate) now: Time,
    pub(crate) turns: Turns,
    pub(crate) misdirected: Vec<Misdirected>,
    pub(crate) burst: Vec<Frame>,
    pub(crate) parcels: Vec<Parcel>,
    /// More frames of a burst follow: lanes may hold segments until its end.
    pub(crate) in_burst: bool,
    pub(crate) stopping: bool,
    /// Where there are sockets of the kernel.
    pub(crate) poller: Option<Poller>,
}

impl Worker {
    /// Works until told to stop.
    pub(crate) fn run(&mut self) {
        let mut idle_since: Option<Time> = None;
        while !self.stopping {
            self.now = self.shared.now();
            self.turns.all += 1;
            let busy = self.turn();
            self.turns.busy += u64::from(busy);
            if self.sleeps_at_once() {
                if !self.stopping {
                    self.sleep();
                }
                continue;
            }
            self.idle_turn = !busy;
            if busy {
                if let Some(since) = idle_since.take() {
                    self.patience.worked(self.now.saturating_duration_since(since));
                }
                continue;
            }
            let waited = self.now.saturating_duration_since(*idle_since.get_or_insert(self.now));
            match self.idle {
                Idle::Adaptive(most) if waited >= self.patience.limit(most) && !self.is_due_within(most) => {
                    self.patience.slept();
                    self.sleep();
                    idle_since = None;
                }
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// One turn. `true` if there was anything to do.
    fn turn(&mut self) -> bool {
        let mut busy = self.receive();
        busy |= self.take_events();
        busy |= self.take_netisr();
        busy |= self.take_inbox();
        busy |= self.run_tasks();
        busy |= self.fire_timers();
        self.advance_moves();
        busy |= self.look_after_lanes();
        busy |= self.send();
        let waiting = self.netisr.flush(&self.shared);
        busy | waiting
    }

    /// A burst from each queue: to the lane if it is here, to the worker that has it if not.
    fn receive(&mut self) -> bool {
        let mut busy = false;
        for p in 0..self.ports.len() {
            let port = &mut self.ports[p];
            let n = port.queue.receive(&self.frames, &mut self.burst, BURST);
            if n == 0 {
                continue;
            }
            busy = true;
            let (host, link, queue) = (port.host, port.link, port.index);
            let mut burst = std::mem::take(&mut self.burst);
            self.hosts[host].stats.received += n as u64;
            if n > 1 && self.hosts[host].crowded {
                self.look_ahead(host, &mut burst);
            }
            self.in_burst = n > 1;
            for frame in burst.drain(..) {
                self.classify(host, link, queue, frame);
            }
            self.end_burst();
            self.burst = burst;
        }
        busy
    }

    /// What the kernel says about its sockets: to their lanes.
    fn take_events(&mut self) -> bool {
        let Some(poller) = &mut self.poller else { return false };
        if !poller.look(self.now, self.idle_turn) {
            return false;
        }
        let lanes = &mut self.lanes;
        poller.drain(|lane, event| {
            // Those of a lane that has moved are told again where it is now.
            if let Some(kernel) = lanes.get_mut(lane).and_then(Option::as_mut).and_then(|l| l.kernel.as_mut())
            {
                kernel.on_event(event);
            }
        });
        true
    }

    /// Asks for the memory of a burst's connections, where a lane has too many to find them in the caches.
    #[inline(never)]
    fn look_ahead(&self, h: usize, burst: &mut [Frame]) {
        let host = &self.hosts[h];
        let mut expected = [None; BURST];
        for (frame, place) in burst.iter_mut().zip(&mut expected) {
            let meta = *frame.meta();
            let (bucket, _) = steer(&host.rss, frame);
            // To be steered once more, as if for the first time.
            *frame.meta_mut() = meta;
            let lane = (host.first_lane + u32::from(bucket.0)) as usize;
            if let Some(slot) = self.lanes[lane].as_ref().filter(|slot| slot.lane.tcp_is_crowded()) {
                *place = slot.lane.tcp_expect(frame).map(|expected| (lane, expected));
            }
        }
        for (lane, expected) in expected.into_iter().flatten() {
            if let Some(slot) = &self.lanes[lane] {
                slot.lane.tcp_expect_connection(expected);
            }
        }
    }

    #[inline]
    fn classify(&mut self, h: usize, link: u8, queue: u16, mut frame: Frame) {
        let host = &mut self.hosts[h];
        frame.meta_mut().link = link;
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

    /// Who holds a lane by this worker's own map.
    pub(crate) fn owner_in_view(&self, lane: u32) -> usize {
        let host = self.hosts.iter().rev().find(|h| h.first_lane <= lane);
        host.map_or(self.index, |h| usize::from(h.owners[(lane - h.first_lane) as usize]))
    }

    /// What other workers handed over: from each only what is there now.
    fn take_netisr(&mut self) -> bool {
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

    /// Messages: only those that are there now.
    fn take_inbox(&mut self) -> bool {
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
                let lane = ready.metadata().index;
                if self.lanes[lane as usize].is_some() {
                    context::push_ready(ready);
                } else {
                    self.run_elsewhere(lane, ready);
                }
            }
            Message::Event { host, event } => self.tell_lanes(host, event, None),
            Message::Close { lane, socket } => match &mut self.lanes[lane as usize] {
                Some(slot) => {
                    slot.close(self.now, &self.frames, socket);
                    self.touch(lane);
                }
                None => {
                    let owner = self.owner_in_view(lane);
                    if owner != self.index {
                        self.shared.send(owner, Message::Close { lane, socket });
                    }
                }
            },
            // A receiver that is gone has lost interest.
            Message::Report(to) => drop(to.send(self.report())),
            Message::Expect { lane, from, done, ready } => {
                self.moves.expect(lane, from, self.netisr.workers(), self.index, done);
                let _ = ready.send(());
            }
            Message::Give { lane, to } => self.give(lane, to),
            Message::Gone { lane, from, to } => self.gone(lane, from, to),
            Message::Stop(to) => {
                self.stopping = true;
                drop(to.send(self.report()));
            }
        }
    }

    /// Runs each task that is ready now once, and then those that they begin.
    pub(crate) fn run_tasks(&mut self) -> bool {
        let n = context::ready_len();
        let (mut left, mut fresh) = (n, FRESH);
        let mut lent: Option<u32> = None;
        loop {
            let ready = if left > 0 {
                left -= 1;
                context::pop_ready()
            } else if fresh > 0 {
                fresh -= 1;
                context::pop_fresh()
            } else {
                None
            };
            let Some(ready) = ready else { break };
            let lane = ready.metadata().index;
            if lent != Some(lane) {
                self.take_back(lent);
                lent = None;
                let Some(mut slot) = self.lanes.get_mut(lane as usize).and_then(Option::take) else {
                    self.run_elsewhere(lane, ready);
                    continue;
                };
                if self.moves.is_leaving(lane) {
                    slot.parked.push(ready);
                    self.lanes[lane as usize] = Some(slot);
                    continue;
                }
                if !slot.touched {
                    slot.touched = true;
                    self.touched.push(lane);
                }
                slot.counters.task_runs += 1;
                context::enter(slot, self.now);
                lent = Some(lane);
            }
            // A task that panics takes nothing with it but itself: its lane's sockets stay whole, since no call into
            // the lane runs user code.
            if std::panic::catch_unwind(AssertUnwindSafe(|| ready.run())).is_err() {
                let _ = context::with_current(|slot, _, _| slot.counters.panics += 1);
            }
        }
        self.take_back(lent);
        context::defer_fresh();
        n > 0
    }

    fn take_back(&mut self, lent: Option<u32>) {
        if let Some(lane) = lent {
            self.lanes[lane as usize] = context::leave();
        }
    }

    fn fire_timers(&mut self) -> bool {
        if self.now < self.next_deadline {
            return false;
        }
        for lane in 0..self.lanes.len() {
            if self.deadlines[lane] > self.now {
                continue;
            }
            let Some(slot) = &mut self.lanes[lane] else {
                self.deadlines[lane] = Time::MAX;
                continue;
            };
            slot.lane.on_timer(self.now, &self.frames);
            slot.sleepers.wake_due(self.now);
            if !slot.touched {
                slot.touched = true;
                self.touched.push(lane as u32);
            }
        }
        self.next_deadline = self.deadlines.iter().copied().min().unwrap_or(Time::MAX);
        true
    }

    /// Output, redirects, news and deadlines of the lanes that did something.
    fn look_after_lanes(&mut self) -> bool {
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

    /// Tells a host's lanes on this worker what one of them, or one elsewhere, learnt.
    fn tell_lanes(&mut self, host: usize, event: LaneEvent, except: Option<u32>) {
        for lane in 0..self.lanes.len() {
            if except == Some(lane as u32) {
                continue;
            }
            if let Some(slot) = &mut self.lanes[lane]
                && slot.host == host
            {
                slot.lane.tell(self.now, event);
                self.touch(lane as u32);
            }
        }
    }

    pub(crate) fn touch(&mut self, lane: u32) {
        if let Some(slot) = &mut self.lanes[lane as usize]
            && !slot.touched
        {
            slot.touched = true;
            self.touched.push(lane);
        }
    }

    /// Gives the links what the lanes put out, and lets them hand it over.
    fn send(&mut self) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            if !port.output.is_empty() {
                busy |= port.queue.transmit(&mut port.output) > 0;
            }
            port.queue.flush();
        }
        busy
    }

    /// A task of a lane that is not here: to whoever has it, or to be run when it comes.
    fn run_elsewhere(&mut self, lane: u32, ready: crate::task::Ready) {
        if let Some(ready) = self.moves.park_task(lane, ready) {
            let owner = self.owner_in_view(lane);
            if owner != self.index {
                self.shared.send(owner, Message::Run(ready));
            }
        }
    }

    /// Whether anything waits for this worker: the last look before sleep.
    pub(crate) fn has_work(&mut self) -> bool {
        self.ports.iter_mut().any(|p| p.queue.ready() || !p.output.is_empty())
            || self.netisr.ready()
            || !self.shared.posts[self.index].inbox.is_empty()
            || context::ready_len() > 0
            || !self.touched.is_empty()
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

/// Index of a bucket's lane among all lanes.
pub(crate) fn lane_index(first: u32, bucket: Bucket) -> u32 {
    first + u32::from(bucket.0)
}
