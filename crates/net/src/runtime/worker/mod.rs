//! A worker: one thread on one core, with its queues of each link and any number of lanes. This is the main loop of Flowlane.
//!
//! ```text
//!   turn:  receive ▸ netisr ▸ inbox ▸ tasks ▸ timers ▸ output ▸ flush        nothing to do? ▸ sleep
//! ```
//!
//! The loop is here, the steps of a turn in [`receive`] (links and netisr), [`inbox`], [`tasks`] and [`output`], what it does between turns
//! in [`sleep`], and lanes that come and go in [`moving`]. What these have in common has owners, whose fields nobody else writes:
//!
//! | | |
//! |---|---|
//! | [`ports`] | queues of links with their output, room and stalls; the poller of kernel sockets |
//! | [`hosts`] | who holds which lane, and how frames arrive |
//! | [`lanes`] | the lanes held here: touched, waiting, in a burst, with their deadlines |
//! | [`moving`] | moves that are under way |
//! | [`captures`] | captures that run |
//! | [`meter`] | counters, times, tasks that take long |
//! | [`cycle`] | whether the loop looks again, sleeps or ends |
//!
//! A worker owns everything it accesses. It never waits for another worker: frames it sends find room or are dropped and counted, and it
//! receives from rings and an inbox.

mod begin;
mod captures;
mod cycle;
mod end;
mod hosts;
mod inbox;
mod lanes;
mod meter;
mod moving;
mod output;
mod ports;
mod receive;
mod report;
mod sleep;
mod tasks;

pub(crate) use begin::Plan;
pub(crate) use hosts::{HostView, lane_index};
pub(crate) use meter::Watched;
pub(crate) use ports::{Door, Doors, Port};

use std::rc::Rc;
use std::sync::Arc;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use self::captures::Taps;
use self::cycle::Cycle;
use self::hosts::{Hosts, Led};
use self::lanes::Lanes;
use self::meter::{Meter, Step};
use self::moving::Moves;
use self::ports::Ports;
use super::netisr::Netisr;
use crate::context;
use crate::kernel::News;
use crate::shared::{Place, Shared};

/// A worker.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    frames: Rc<Pool>,
    /// When this turn began.
    now: Time,
    ports: Ports,
    hosts: Hosts,
    lanes: Lanes,
    netisr: Netisr,
    moves: Moves,
    /// Captures that run.
    taps: Taps,
    /// Where the frames of a burst go; empty between bursts.
    led: Vec<Led>,
    meter: Meter,
    cycle: Cycle,
}

impl Worker {
    /// Works until told to stop. Not inlined, so that an instruction counter can count a worker alone (`benches/instruments.sh`).
    #[inline(never)]
    pub(crate) fn run(&mut self) {
        self.now = self.shared.now();
        self.meter.begin(self.now);
        // Captures that begin with the runtime are to have the first packets, too.
        // Guard: no `self.take_inbox();` fails runtime/capture::a_capture_of_the_runtime
        self.take_inbox();
        while !self.cycle.is_stopped() {
            let now = self.shared.now();
            self.meter.charge_lanes(self.now, now, &mut self.lanes);
            self.now = now;
            self.meter.turn_begins(now);
            let busy = self.turn();
            self.meter.turned(busy);
            if self.cycle.ends_at().is_some() {
                self.end_if_over();
            }
            if self.sleeps_at_once() {
                // The call that sleeps looks at the sockets, too.
                self.cycle.set_found_nothing(false);
                if !self.cycle.is_stopped() {
                    if busy {
                        self.meter.charge_lanes(self.now, self.shared.now(), &mut self.lanes);
                    }
                    self.sleep();
                }
                continue;
            }
            let patience = self.cycle.turned(self.now, busy);
            if busy {
                continue;
            }
            match patience {
                Some(most) if !self.is_due_within(most) => {
                    self.cycle.slept();
                    self.sleep();
                }
                _ => std::hint::spin_loop(),
            }
        }
        self.meter.at(Place::Away);
    }

    /// One turn. `true` if there was anything to do.
    fn turn(&mut self) -> bool {
        self.follow_mtus();
        // Receive and netisr say themselves what of their time was the stack's.
        self.meter.at(Place::Receive);
        let mut busy = self.receive();
        busy |= self.did(Step::Receive, Self::take_events);
        self.meter.at(Place::Netisr);
        busy |= self.take_netisr();
        busy |= self.did(Step::Netisr, Self::take_inbox);
        busy |= self.did(Step::Tasks, Self::run_tasks);
        busy |= self.did(Step::Stack, |w| w.lanes.fire_timers(w.now, &w.frames));
        self.advance_moves();
        busy |= self.did(Step::Transmit, |w| w.ports.take_relayed());
        busy |= self.did(Step::Stack, Self::look_after_lanes);
        busy |= self.did(Step::Transmit, |w| w.ports.send(w.now));
        let waiting = self.netisr.flush(&self.shared);
        self.meter.panicked(flowlane_sys::block::drop_owners().len());
        if self.taps.is_on() {
            self.taps.turned(self.now);
        }
        busy | waiting
    }

    /// Does a step, and charges the time to it if there was something to do.
    #[inline(always)]
    fn did(&mut self, step: Step, work: impl FnOnce(&mut Self) -> bool) -> bool {
        self.meter.at(step.place());
        let busy = work(self);
        if busy {
            self.meter.mark(step);
        }
        busy
    }

    /// Notifies the lanes here of links whose MTU has changed.
    fn follow_mtus(&mut self) {
        let mut from = 0;
        while let Some((port, mtu)) = self.ports.next_new_mtu(from) {
            for Door { host, interface } in self.ports.get(port).doors().all() {
                for slot in self.lanes.touch_all(|slot| slot.host == host) {
                    slot.lane.set_mtu(self.now, &self.frames, interface, mtu);
                }
            }
            from = port + 1;
        }
    }

    /// What the kernel says about its sockets: to their lanes.
    fn take_events(&mut self) -> bool {
        let lanes = &mut self.lanes;
        self.ports.take_news(self.now, self.cycle.found_nothing(), |lane, news| {
            // Those of a lane that has moved are told again where it is now.
            let Some(kernel) = lanes.get_mut(lane as u32).and_then(|l| l.kernel.as_mut()) else { return };
            match news {
                News::Event(event) => kernel.on_event(event),
                News::Completion(completion) => kernel.on_completion(completion),
            }
        })
    }

    /// Tells the lanes here that an interface of a host is up: at the start, and when its link is back.
    fn link_up(&mut self, host: usize, interface: u8) {
        if !self.hosts.get(host).shared().contains(&interface) {
            return;
        }
        for slot in self.lanes.touch_all(|slot| slot.host == host) {
            slot.lane.link_up(self.now, &self.frames, interface);
        }
    }

    /// Who holds a lane by this worker's own map.
    fn owner_in_view(&self, lane: u32) -> usize {
        self.hosts.owner_of(lane).unwrap_or(self.index)
    }

    /// Whether anything waits for this worker: the last look before sleep.
    fn has_work(&mut self) -> bool {
        self.ports.have_work()
            || self.netisr.ready()
            || !self.shared.posts[self.index].inbox.is_empty()
            || context::ready_len() > 0
            || self.lanes.are_touched()
    }
}
