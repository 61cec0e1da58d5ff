//! The threads of the workers: all begin, or none.
//!
//! They begin in two steps, after each of which everyone waits for the word of the thread that starts them: a worker has its
//! processor and memory; every lane's first task has run to its first wait. If either failed anywhere, all of them end, and
//! the start is an error.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc};

use flowlane_stack::time::Time;
use flowlane_sys::caught;
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
use crate::task::{FirstTask, spawn_in};

pub(super) fn start(
    plans: Vec<Plan>,
    memory: &FrameMemory,
    shared: &Arc<Shared>,
    cpus: &[usize],
    hosts: &[Host],
) -> Result<Runtime, StartError> {
    let mut threads = Vec::new();
    let (failed, failures) = mpsc::channel();
    let (ran, first) = mpsc::channel();
    let workers = plans.len();
    let go: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
    let all_ran: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
    for (index, plan) in plans.into_iter().enumerate() {
        let (memory, shared, failed) = (memory.clone(), shared.clone(), failed.clone());
        let cpu = cpus.get(index).copied();
        let mains: Vec<First> = hosts.iter().map(|h| (h.main.clone(), h.name.as_str().into())).collect();
        let (ran, go, all_ran) = (ran.clone(), go.clone(), all_ran.clone());
        let body = move || {
            let pool = pin(cpu).and_then(|()| memory.attach(index).map_err(io::Error::other));
            let (pool, error) = match pool {
                Ok(pool) => (Some(pool), None),
                Err(e) => (None, Some(e)),
            };
            let _ = failed.send(error);
            // All or none: a worker that could not begin would leave the others waiting for it.
            if let (Some(pool), true) = (pool, *go.wait()) {
                work(index, plan, Rc::new(pool), shared, &mains, &|failure| {
                    let _ = ran.send(failure);
                    *all_ran.wait()
                });
            }
        };
        let thread = std::thread::Builder::new().name(format!("{THREAD}{index}")).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
    }
    drop((failed, ran));
    let error = failures.into_iter().take(workers).flatten().next();
    // Nobody else sets it.
    let _ = go.set(error.is_none());
    let error = match error {
        Some(e) => Some(StartError::Thread(e)),
        None => first.into_iter().take(workers).flatten().next().map(|(host, bucket, words)| {
            let host = hosts.get(host).map_or(String::new(), |h| h.name.clone());
            StartError::Panicked { host, bucket, words }
        }),
    };
    let _ = all_ran.set(error.is_none());
    match error {
        Some(e) => {
            for thread in threads {
                let _ = thread.join();
            }
            Err(e)
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

/// What begins in each lane of a host, and the host's name.
type First = (Arc<dyn Fn() -> Main + Send + Sync>, Arc<str>);

/// Host and bucket of a lane whose first task panicked, and what it said.
type Failure = (usize, u16, String);

/// The life of a worker's thread. `ran` is told how the first tasks fared, and says whether to go on.
fn work(
    index: usize,
    plan: Plan,
    frames: Rc<Pool>,
    shared: Arc<Shared>,
    mains: &[First],
    ran: &dyn Fn(Option<Failure>) -> bool,
) {
    context::begin(index, frames.clone(), shared.clone());
    flowlane_sys::kernel::limits::exact_timers();
    flowlane_sys::block::keep_owners();
    let mut lanes = plan.lanes;
    for slot in lanes.iter_mut().flatten() {
        let (main, host) = &mains[slot.host];
        match catch_unwind(AssertUnwindSafe(|| main())) {
            Ok(main) => {
                let first = FirstTask { main, host: host.clone() };
                spawn_in(slot.id, shared.clone(), first);
            }
            Err(payload) => slot.fail(host, caught::words(&*payload)),
        }
    }
    let count = lanes.len();
    let mut worker = Worker {
        index,
        shared,
        frames,
        ports: plan.ports,
        hosts: plan.hosts,
        lanes,
        touched: Vec::with_capacity(count),
        waiting: Vec::new(),
        hungry: None,
        spare: Vec::with_capacity(count),
        deadlines: vec![Time::MAX; count],
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
        ending: None,
        panics: 0,
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
    let failed = worker.lanes.iter().flatten().find(|slot| slot.failure.is_some());
    let failure =
        failed.map(|slot| (slot.host, slot.lane.bucket().0, slot.failure.clone().unwrap_or_default()));
    if ran(failure) {
        worker.run();
    }
    // What is dropped now is the applications', too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
    context::end();
    flowlane_sys::block::stop_keeping_owners();
}
