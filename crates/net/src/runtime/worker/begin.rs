//! What a worker begins with, and its first turn.

use std::rc::Rc;
use std::sync::Arc;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::Worker;
use super::captures::Taps;
use super::cycle::Cycle;
use super::hosts::{HostView, Hosts};
use super::lanes::Lanes;
use super::meter::{Meter, Watched};
use super::moving::Moves;
use super::ports::{Port, Ports};
use crate::error::Failed;
use crate::kernel::Poller;
use crate::lane::LaneSlot;
use crate::runtime::card::Cards;
use crate::runtime::idle::Idle;
use crate::runtime::netisr::Netisr;
use crate::shared::Shared;

/// What one worker starts with: all of it can be sent to its thread.
pub(crate) struct Plan {
    pub(crate) netisr: Netisr,
    pub(crate) ports: Vec<Port>,
    pub(crate) hosts: Vec<HostView>,
    /// All lanes of the runtime by index; `Some` for those of this worker.
    pub(crate) lanes: Vec<Option<Box<LaneSlot>>>,
    pub(crate) idle: Idle,
    pub(crate) poller: Option<Poller>,
    pub(crate) watched: Watched,
}

impl Worker {
    /// The worker of this number, on its thread.
    pub(crate) fn new(
        index: usize,
        plan: Plan,
        frames: Rc<Pool>,
        shared: Arc<Shared>,
        cards: Arc<Cards>,
    ) -> Self {
        let Plan { netisr, ports, hosts, lanes, idle, poller, watched } = plan;
        Self {
            index,
            frames,
            hosts: Hosts::new(hosts, cards),
            ports: Ports::new(ports, poller),
            lanes: Lanes::new(lanes),
            netisr,
            moves: Moves::default(),
            meter: Meter::new(watched, shared.beats[index].clone()),
            taps: Taps::default(),
            led: Vec::new(),
            cycle: Cycle::new(idle),
            now: Time::ZERO,
            shared,
        }
    }

    /// Runs every lane's first task, which binds its sockets, before anyone handles a packet. Host and bucket of a lane whose first task
    /// has failed, and how.
    pub(crate) fn begin(&mut self) -> Option<(usize, u16, Failed)> {
        self.run_tasks();
        self.now = self.shared.now();
        for (host, interface) in self.hosts.shared_interfaces() {
            self.link_up(host, interface);
        }
        self.lanes.iter().find_map(|slot| Some((slot.host, slot.lane.bucket().0, slot.failure.clone()?)))
    }

    /// Turns of its loop.
    pub(crate) fn turns(&self) -> u64 {
        self.meter.turns().all
    }
}
