//! The threads of the workers: all begin, or none.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Barrier, OnceLock, mpsc};

use flowlane_stack::time::Time;
use flowlane_sys::frame::{FrameMemory, Pool};

use super::StartError;
use super::plan::Plan;
use super::processors::THREAD;
use crate::context;
use crate::runtime::handle::Runtime;
use crate::runtime::host::{Host, Main};
use crate::runtime::idle::Patience;
use crate::runtime::moving::Moves;
use crate::runtime::shared::Shared;
use crate::runtime::worker::{Turns, Worker};
use crate::task::spawn_in;

pub(super) fn start(
    plans: Vec<Plan>,
    memory: &FrameMemory,
    shared: &Arc<Shared>,
    cpus: &[usize],
    hosts: &[Host],
) -> Result<Runtime, StartError> {
    let mut threads = Vec::new();
    let (failed, failures) = mpsc::channel();
    let together = Arc::new(Barrier::new(plans.len()));
    let workers = plans.len();
    let go: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
    for (index, plan) in plans.into_iter().enumerate() {
        let (memory, shared, failed) = (memory.clone(), shared.clone(), failed.clone());
        let cpu = cpus.get(index).copied();
        let mains: Vec<_> = hosts.iter().map(|h| h.main.clone()).collect();
        let (together, go) = (together.clone(), go.clone());
        let body = move || {
            let pool = pin(cpu).and_then(|()| memory.attach(index).map_err(io::Error::other));
            let (pool, error) = match pool {
                Ok(pool) => (Some(pool), None),
                Err(e) => (None, Some(e)),
            };
            let _ = failed.send(error);
            // All or none: a worker that could not begin would leave the others waiting for it.
            if let (Some(pool), true) = (pool, *go.wait()) {
                work(index, plan, Rc::new(pool), shared, &mains, &together);
            }
        };
        let thread = std::thread::Builder::new().name(format!("{THREAD}{index}")).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
    }
    drop(failed);
    let error = failures.into_iter().take(workers).flatten().next();
    // Nobody else sets it.
    let _ = go.set(error.is_none());
    match error {
        Some(e) => {
            for thread in threads {
                let _ = thread.join();
            }
            Err(StartError::Thread(e))
        }
        None => Ok(Runtime::new(shared.clone(), threads, hosts)),
    }
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The life of a worker's thread.
fn work(
    index: usize,
    plan: Plan,
    frames: Rc<Pool>,
    shared: Arc<Shared>,
    mains: &[Arc<dyn Fn() -> Main + Send + Sync>],
    together: &Barrier,
) {
    context::begin(index, frames.clone(), shared.clone());
    flowlane_sys::kernel::limits::exact_timers();
    for slot in plan.lanes.iter().flatten() {
        spawn_in(slot.id, shared.clone(), mains[slot.host]());
    }
    let lanes = plan.lanes.len();
    let mut worker = Worker {
        index,
        shared,
        frames,
        ports: plan.ports,
        hosts: plan.hosts,
        lanes: plan.lanes,
        touched: Vec::with_capacity(lanes),
        waiting: Vec::new(),
        hungry: None,
        spare: Vec::with_capacity(lanes),
        deadlines: vec![Time::MAX; lanes],
        next_deadline: Time::MAX,
        netisr: plan.netisr,
        moves: Moves::default(),
        idle: plan.idle,
        patience: Patience::default(),
        now: Time::ZERO,
        turns: Turns::default(),
        misdirected: Vec::new(),
        burst: Vec::with_capacity(256),
        parcels: Vec::with_capacity(256),
        in_burst: false,
        stopping: false,
        idle_turn: true,
        poller: plan.poller,
    };
    // Every lane's first task has run, and bound its sockets, before anyone handles a packet.
    worker.run_tasks();
    worker.now = worker.shared.now();
    for host in 0..worker.hosts.len() {
        for interface in worker.hosts[host].shared.clone() {
            worker.link_up(host, interface);
        }
    }
    together.wait();
    worker.run();
    drop(worker);
    context::end();
}
