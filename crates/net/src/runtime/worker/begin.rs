//! What a worker begins with, and its first turn.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::captures::Taps;
use super::moving::Moves;
use super::over::Over;
use super::perf::Perf;
use super::spent::Spent;
use super::steps::Steps;
use super::{HostView, Port, Turns, Worker};
use crate::error::Failed;
use crate::kernel::Poller;
use crate::lane::LaneSlot;
use crate::runtime::card::Cards;
use crate::runtime::idle::{Idle, Patience};
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

/// What a worker watches of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// Time for which a task may hold its worker; zero for any.
    pub(crate) task_budget: Duration,
    /// Events of processor and kernel are counted.
    pub(crate) perf: bool,
}

impl Default for Watched {
    fn default() -> Self {
        Self { task_budget: TASK_BUDGET, perf: false }
    }
}

/// A tick of the timer wheel: a task that takes longer makes timers of all lanes of its worker late.
const TASK_BUDGET: Duration = Duration::from_millis(1);

impl Worker {
    /// The worker of this number, on its thread.
    pub(crate) fn new(
        index: usize,
        plan: Plan,
        frames: Rc<Pool>,
        shared: Arc<Shared>,
        cards: Arc<Cards>,
    ) -> Self {
        let Plan { netisr, ports, hosts, lanes, idle, mut poller, watched } = plan;
        if let Some(poller) = &mut poller {
            poller.begin();
        }
        let beat = shared.beats[index].clone();
        let count = lanes.len();
        Self {
            index,
            shared,
            cards,
            frames,
            ports,
            hosts,
            lanes,
            touched: Vec::with_capacity(count),
            waiting: Vec::new(),
            hungry: None,
            spent: Spent::default(),
            steps: Steps::default(),
            beat,
            over: Over::new(watched.task_budget),
            last_lane: 0,
            perf: watched.perf.then(Perf::begin),
            hunger_told: None,
            spare: Vec::with_capacity(count),
            deadlines: vec![Time::MAX; count],
            next_deadline: Time::MAX,
            netisr,
            moves: Moves::default(),
            idle,
            patience: Patience::default(),
            now: Time::ZERO,
            turns: Turns::default(),
            misdirected: Vec::new(),
            burst: Vec::with_capacity(256),
            parcels: Vec::with_capacity(256),
            in_burst: false,
            stopping: false,
            ending: None,
            panics: 0,
            idle_turn: true,
            poller,
            taps: Taps::default(),
        }
    }

    /// Runs every lane's first task, which binds its sockets, before anyone handles a packet. Host and bucket of a lane whose first task
    /// has failed, and how.
    pub(crate) fn begin(&mut self) -> Option<(usize, u16, Failed)> {
        self.run_tasks();
        self.now = self.shared.now();
        for host in 0..self.hosts.len() {
            for interface in self.hosts[host].shared.clone() {
                self.link_up(host, interface);
            }
        }
        let mut lanes = self.lanes.iter().flatten();
        lanes.find_map(|slot| Some((slot.host, slot.lane.bucket().0, slot.failure.clone()?)))
    }

    /// Turns of its loop.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.all
    }
}
