//! A worker: one thread on one core, with its queues of each link and any number of lanes. This is the main loop of Flowlane.
//!
//! ```text
//!   turn:  receive ▸ netisr ▸ inbox ▸ tasks ▸ timers ▸ output ▸ flush        nothing to do? ▸ sleep
//! ```
//!
//! What it owns and its loop are here, the steps of a turn in [`receive`] (links and netisr), [`inbox`], [`tasks`] and [`output`], what
//! it does between turns in [`sleep`], and lanes that come and go in [`moving`].
//!
//! A worker owns everything it accesses. It never waits for another worker: frames it sends find room or are dropped and counted, and it
//! receives from rings and an inbox. Lanes whose state changed in a turn are noted, and only these are polled for output, messages and
//! deadlines at its end, so idle lanes cost nothing.

mod begin;
mod captures;
mod doors;
mod end;
mod inbox;
mod moving;
mod output;
mod over;
mod perf;
mod receive;
mod report;
mod sleep;
mod spent;
mod stall;
mod steps;
mod tasks;
mod trust;

pub(crate) use begin::{Plan, Watched};
pub(crate) use doors::{Door, Doors};
pub(crate) use trust::Trust;

use std::rc::Rc;
use std::sync::Arc;

use flowlane_rss::{Bucket, Rss};
use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, Pool};

use self::captures::Taps;
use self::moving::{Late, Moves};
use self::over::Over;
use self::perf::Perf;
use self::spent::Spent;
use self::steps::{Step, Steps};
use super::card::Cards;
use super::idle::{Idle, Patience};
use super::netisr::{Netisr, Parcel};
use super::relay::Relay;
use crate::context;
use crate::kernel::{News, Poller};
use crate::lane::LaneSlot;
use crate::link::{Life, Queue};
use crate::shared::{Beat, Place, Shared};
use crate::stats::{Misdirected, SteeringStats};

/// A queue of a link at its worker, or what stands for the link at a worker that has none of its queues.
pub(crate) struct Port {
    pub(crate) queue: Box<dyn Queue>,
    /// Number of the link among those of the runtime.
    pub(crate) link: usize,
    /// Number of the queue within the link; `None` for one of another worker.
    pub(crate) index: Option<u16>,
    /// The interfaces on the link.
    pub(crate) doors: Doors,
    /// What comes from workers that have no queue of the link.
    pub(crate) relays: Vec<Relay>,
    /// Some of it found no room.
    pub(crate) relays_wait: bool,
    /// The interface under it, and the MTU of its that the lanes here know.
    pub(crate) life: Option<Life>,
    pub(crate) mtu: u16,
    /// Frames to be sent.
    pub(crate) output: Vec<Frame>,
    pub(crate) room: usize,
    /// A lane has output for it, and there was no room.
    pub(crate) wanted: bool,
    /// It did not take all lately.
    pub(crate) stall: Option<stall::Stall>,
    /// Frames dropped because the link is dead.
    pub(crate) dropped: u64,
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
    /// The steering is a card's own, so every frame should come on that queue.
    pub(crate) of_card: bool,
    /// The card's table can be changed, and this worker has a queue of it: it follows lanes that come here.
    pub(crate) follows: bool,
    /// Buckets whose queue has changed lately.
    pub(crate) late: Vec<Late>,
    /// Frames that had strayed when that was said last, and when.
    pub(crate) strays_told: (u64, Option<Time>),
    /// Whether the hash that comes with frames is believed.
    pub(crate) trust: Trust,
    /// The host's name, for messages.
    pub(crate) name: String,
    /// Interfaces on links that others are on: addresses are announced there, and groups reported.
    pub(crate) shared: Vec<u8>,
    /// For each bucket and each interface in turn, the port to send on.
    pub(crate) ports: Vec<usize>,
    /// Interfaces that are on links.
    pub(crate) interfaces: usize,
    /// How its frames arrived, by port.
    pub(crate) stats: Vec<SteeringStats>,
    /// Frames that came on another queue than their hash names, on all ports.
    pub(crate) strayed: u64,
    /// A lane here has had very many connections: bursts are looked over before they are handled.
    pub(crate) crowded: bool,
}

impl HostView {
    /// How its frames arrived, on all ports.
    pub(crate) fn arrived(&self) -> SteeringStats {
        let mut all = SteeringStats::default();
        self.stats.iter().for_each(|stats| all.add(stats));
        all
    }

    /// For each interface, the port that the lane of a bucket sends on.
    #[inline]
    pub(crate) fn ports_of(&self, bucket: Bucket) -> &[usize] {
        let first = usize::from(bucket.0) * self.interfaces;
        &self.ports[first..first + self.interfaces]
    }
}

/// Counters of the loop.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) all: u64,
    pub(crate) busy: u64,
    pub(crate) sleeps: u64,
    /// Sleeps that another thread ended.
    pub(crate) woken: u64,
    /// Bursts cut short because a ring to another worker had no room for more.
    pub(crate) held_back: u64,
    /// Times a lane began to wait for room on a link, or for a free frame.
    pub(crate) room_waits: u64,
}

/// A worker.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    cards: Arc<Cards>,
    frames: Rc<Pool>,
    ports: Vec<Port>,
    hosts: Vec<HostView>,
    /// All lanes of the runtime by index; `Some` for those held here.
    lanes: Vec<Option<Box<LaneSlot>>>,
    /// Lanes to be looked after at the end of this turn.
    touched: Vec<u32>,
    /// Lanes that have output and wait for room or frames.
    waiting: Vec<u32>,
    /// There were too few free frames for a lane's output.
    hungry: Option<stall::Backoff>,
    /// What the lanes did in this turn.
    spent: Spent,
    /// Where the time goes.
    steps: Steps,
    /// Where others see this worker.
    beat: Arc<Beat>,
    /// Tasks that take long.
    over: Over,
    /// The lane of the task that ran last.
    last_lane: u32,
    /// What processor and kernel count for this thread.
    perf: Option<Perf>,
    /// When that was told last.
    hunger_told: Option<Time>,
    /// The other of two lists that take turns.
    spare: Vec<u32>,
    /// When each lane wants to be woken.
    deadlines: Vec<Time>,
    /// No later than the earliest of `deadlines`.
    next_deadline: Time,
    netisr: Netisr,
    moves: Moves,
    idle: Idle,
    patience: Patience,
    /// The last turn found nothing to do.
    idle_turn: bool,
    now: Time,
    turns: Turns,
    misdirected: Vec<Misdirected>,
    burst: Vec<Frame>,
    parcels: Vec<Parcel>,
    /// More frames of a burst follow: lanes may hold segments until its end.
    in_burst: bool,
    stopping: bool,
    /// Told to stop, with time to end its lanes' connections.
    ending: Option<end::Ending>,
    /// Panics of what applications gave away, when it was dropped.
    panics: u64,
    /// Where there are sockets of the kernel.
    poller: Option<Poller>,
    /// Captures that run.
    taps: Taps,
}

impl Worker {
    /// Works until told to stop. Not inlined, so that an instruction counter can count a worker alone (`benches/instruments.sh`).
    #[inline(never)]
    pub(crate) fn run(&mut self) {
        let mut idle_since: Option<Time> = None;
        self.now = self.shared.now();
        self.steps = Steps::new(self.now);
        // Captures that begin with the runtime are to have the first packets, too.
        self.take_inbox();
        while !self.stopping {
            let now = self.shared.now();
            self.charge_lanes(now);
            self.steps.turn_begins(now);
            self.now = now;
            self.turns.all += 1;
            self.beat.turn(self.turns.all);
            let busy = self.turn();
            self.turns.busy += u64::from(busy);
            self.steps.turned(busy);
            if self.ending.is_some() {
                self.end_if_over();
            }
            if self.sleeps_at_once() {
                // The call that sleeps looks at the sockets, too.
                self.idle_turn = false;
                if !self.stopping {
                    if busy {
                        self.charge_lanes(self.shared.now());
                    }
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
        self.beat.at(Place::Away);
    }

    /// One turn. `true` if there was anything to do.
    fn turn(&mut self) -> bool {
        self.follow_mtus();
        // Receive and netisr say themselves what of their time was the stack's.
        self.beat.at(Place::Receive);
        let mut busy = self.receive();
        busy |= self.did(Step::Receive, Self::take_events);
        self.beat.at(Place::Netisr);
        busy |= self.take_netisr();
        busy |= self.did(Step::Netisr, Self::take_inbox);
        busy |= self.did(Step::Tasks, Self::run_tasks);
        busy |= self.did(Step::Stack, Self::fire_timers);
        self.advance_moves();
        busy |= self.did(Step::Transmit, Self::take_relayed);
        busy |= self.did(Step::Stack, Self::look_after_lanes);
        busy |= self.did(Step::Transmit, Self::send);
        let waiting = self.netisr.flush(&self.shared);
        self.panics += flowlane_sys::block::drop_owners().len() as u64;
        if self.taps.is_on() {
            self.taps.turned(self.now);
        }
        busy | waiting
    }

    /// Notifies the lanes here of links whose MTU has changed.
    fn follow_mtus(&mut self) {
        for p in 0..self.ports.len() {
            let port = &mut self.ports[p];
            let Some(mtu) = port.life.as_ref().map(Life::mtu).filter(|mtu| *mtu != port.mtu) else {
                continue;
            };
            port.mtu = mtu;
            for Door { host, interface } in port.doors.clone().all() {
                for lane in 0..self.lanes.len() {
                    if let Some(slot) = self.lanes[lane].as_mut().filter(|slot| slot.host == host) {
                        slot.lane.set_mtu(self.now, &self.frames, interface, mtu);
                        self.touch(lane as u32);
                    }
                }
            }
        }
    }

    /// What the kernel says about its sockets: to their lanes.
    fn take_events(&mut self) -> bool {
        let Some(poller) = &mut self.poller else { return false };
        if !poller.look(self.now, self.idle_turn) {
            return false;
        }
        let lanes = &mut self.lanes;
        poller.drain(|lane, news| {
            // Those of a lane that has moved are told again where it is now.
            let slot = lanes.get_mut(lane).and_then(Option::as_mut);
            let Some(kernel) = slot.and_then(|l| l.kernel.as_mut()) else { return };
            match news {
                News::Event(event) => kernel.on_event(event),
                News::Completion(completion) => kernel.on_completion(completion),
            }
        });
        true
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

    /// Tells the lanes here that an interface of a host is up: at the start, and when its link is back.
    pub(crate) fn link_up(&mut self, host: usize, interface: u8) {
        if !self.hosts.get(host).is_some_and(|h| h.shared.contains(&interface)) {
            return;
        }
        for lane in 0..self.lanes.len() {
            if let Some(slot) = &mut self.lanes[lane]
                && slot.host == host
            {
                slot.lane.link_up(self.now, &self.frames, interface);
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

    /// Who holds a lane by this worker's own map.
    pub(crate) fn owner_in_view(&self, lane: u32) -> usize {
        let host = self.hosts.iter().rev().find(|h| h.first_lane <= lane);
        host.map_or(self.index, |h| usize::from(h.owners[(lane - h.first_lane) as usize]))
    }

    /// Whether anything waits for this worker: the last look before sleep.
    pub(crate) fn has_work(&mut self) -> bool {
        self.ports.iter_mut().any(|p| p.queue.ready() || p.has_relayed())
            || self.netisr.ready()
            || !self.shared.posts[self.index].inbox.is_empty()
            || context::ready_len() > 0
            || !self.touched.is_empty()
    }
}

/// Index of a bucket's lane among all lanes.
pub(crate) fn lane_index(first: u32, bucket: Bucket) -> u32 {
    first + u32::from(bucket.0)
}
