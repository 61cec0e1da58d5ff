//! The threads of the workers: all start, or none.
//!
//! They start in two steps, and wait after each for the thread that starts them: first a worker gets its processor and memory; then every
//! lane's first task runs to its first wait. If either fails anywhere, all of them end and the start returns an error. The same happens
//! if a thread cannot be created.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use flowlane_sys::caught;
use flowlane_sys::frame::{FrameMemory, Pool};

use super::InWorkers;
use super::processors::THREAD;
use crate::context::{self, LaneRef};
use crate::error::{Failed, StartError};
use crate::events;
use crate::runtime::card::Cards;
use crate::runtime::first_task::{FirstTask, Mains};
use crate::runtime::handle::{Handle, Runtime};
use crate::runtime::host::{Host, Main};
use crate::runtime::leases;
use crate::runtime::worker::{Plan, Worker};
use crate::shared::Shared;
use crate::task::spawn_in;

/// What a worker's thread does.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// The thread of a worker.
pub(super) fn thread(worker: usize, body: Body) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("{THREAD}{worker}")).spawn(body)
}

/// What all threads of a runtime have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) cards: Arc<Cards>,
    pub(super) mains: Arc<Mains>,
}

/// What all workers start with; each has a [`Plan`] of its own.
pub(super) struct Start<'a> {
    pub(super) memory: &'a FrameMemory,
    pub(super) common: Common,
    /// Processors to bind workers to; none for those beyond.
    pub(super) cpus: &'a [usize],
    pub(super) hosts: &'a [Host],
    pub(super) in_workers: Option<&'a InWorkers>,
    /// To the runtime that this becomes.
    pub(super) handle: Handle,
}

impl Start<'_> {
    /// Starts all workers, on threads made by `thread`.
    pub(super) fn workers(
        self,
        plans: Vec<Plan>,
        mut thread: impl FnMut(usize, Body) -> io::Result<JoinHandle<()>>,
    ) -> Result<Runtime, StartError> {
        let Self { memory, common, cpus, hosts, in_workers, handle } = self;
        let mut threads = Vec::new();
        let mut none = None;
        let (failed, failures) = mpsc::channel();
        let (ran, first) = mpsc::channel();
        let workers = plans.len();
        let go: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
        let all_ran: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
        for (index, plan) in plans.into_iter().enumerate() {
            let (memory, common, failed) = (memory.clone(), common.clone(), failed.clone());
            let cpu = cpus.get(index).copied();
            let begin: Vec<Begin> =
                hosts.iter().map(|h| (leases::first_tasks(h), h.name.as_str().into(), h.begun)).collect();
            let (ran, go, all_ran) = (ran.clone(), go.clone(), all_ran.clone());
            let in_workers = in_workers.cloned();
            let body = move || {
                let pool = pin(cpu).and_then(|()| memory.attach(index).map_err(io::Error::other));
                let carried = pool.and_then(|pool| Ok((pool, carry(in_workers.as_ref(), index)?)));
                let (pool, carried, error) = match carried {
                    Ok((pool, carried)) => (Some(pool), carried, None),
                    Err(e) => (None, None, Some(e)),
                };
                let _ = failed.send(error);
                // All or none: a worker that could not begin would leave the others waiting for it.
                if let (Some(pool), true) = (pool, *go.wait()) {
                    events::worker_began(index, cpu);
                    work(index, plan, Rc::new(pool), common, &begin, &|failure| {
                        let _ = ran.send(failure);
                        *all_ran.wait()
                    });
                }
                drop(carried);
            };
            match thread(index, Box::new(body)) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    none = Some(e);
                    break;
                }
            }
        }
        drop((failed, ran));
        // One that was not begun says nothing, and is not waited for.
        let error = none.or_else(|| failures.into_iter().take(workers).flatten().next());
        // Nobody else sets it.
        let _ = go.set(error.is_none());
        let error = match error {
            Some(e) => Some(StartError::Thread(e)),
            None => first.into_iter().take(workers).flatten().next().map(|(host, bucket, failed)| {
                let host = hosts.get(host).map_or(String::new(), |h| h.name.clone());
                StartError::FirstTask { host, bucket, failed }
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
            None => Ok(Runtime::new(handle, common.mains, threads)),
        }
    }
}

/// What the application has this thread carry.
fn carry(begin: Option<&InWorkers>, worker: usize) -> io::Result<Option<Box<dyn Any>>> {
    let Some(begin) = begin else { return Ok(None) };
    catch_unwind(AssertUnwindSafe(|| Some(begin(worker))))
        .map_err(|payload| io::Error::other(caught::words(&*payload).to_owned()))
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// What begins in each lane of a host, the host's name, and the line that made the host.
type Begin = (Arc<dyn Fn() -> Main + Send + Sync>, Arc<str>, &'static Location<'static>);

/// Host and bucket of a lane whose first task failed, and how.
type Failure = (usize, u16, Failed);

/// The life of a worker's thread. `ran` is told how the first tasks fared, and says whether to go on.
fn work(
    index: usize,
    mut plan: Plan,
    frames: Rc<Pool>,
    Common { shared, cards, mains }: Common,
    begin: &[Begin],
    ran: &dyn Fn(Option<Failure>) -> bool,
) {
    context::begin(index, frames.clone(), shared.clone());
    shared.beats[index].begins();
    flowlane_sys::kernel::limits::exact_timers();
    flowlane_sys::block::keep_owners();
    for slot in plan.lanes.iter_mut().flatten() {
        let (main, host, begun) = &begin[slot.host];
        match catch_unwind(AssertUnwindSafe(|| main())) {
            Ok(main) => {
                let first = FirstTask { main, host: host.clone(), mains: mains.clone() };
                spawn_in(LaneRef::new(slot.id, shared.clone()), begun, first);
            }
            Err(payload) => {
                slot.fail(host, Failed { panicked: true, words: caught::words(&*payload).to_owned() });
                mains.ended(true);
            }
        }
    }
    let mut worker = Worker::new(index, plan, frames, shared, cards);
    if ran(worker.begin()) {
        worker.run();
        events::worker_ended(index, worker.turns());
    }
    // What is dropped now is the applications', too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
    context::end();
    flowlane_sys::block::stop_keeping_owners();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Rss};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The threads that began end, whichever could not be begun, and the start says why.
    #[test]
    fn a_thread_that_is_not_to_be_had_ends_the_others() {
        let ended = Arc::new(AtomicUsize::new(0));
        for missing in 0..3 {
            let mut builder = Runtime::builder().workers(3).pin(false);
            let rss = Arc::new(Rss::new(Key::MICROSOFT, 3));
            builder.host(Host::kernel("host", rss, std::future::pending::<()>));
            let error = builder.start_by(|index, body| {
                if index == missing {
                    return Err(io::Error::other("no more of them"));
                }
                let ended = ended.clone();
                std::thread::Builder::new().spawn(move || {
                    body();
                    ended.fetch_add(1, Ordering::SeqCst);
                })
            });
            let error = error.expect_err("it started");
            assert!(matches!(error, StartError::Thread(_)), "{error}");
            assert!(error.to_string().contains("no more of them"), "{error}");
            assert_eq!(ended.swap(0, Ordering::SeqCst), missing, "all have ended");
        }
    }
}
