//! A watchdog: notices a worker that stands still, says where it is, and goes on or ends the process.
//!
//! A worker turns many thousand times a second, or sleeps. One that does neither for a set time is held by something: a task that computes or waits
//! in a system call, a page that does not come, a debugger. While it stands still none of its lanes gets packets, timers or tasks.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! # use flowlane::{Host, Key, Rss, Runtime};
//! use flowlane::watchdog::Watchdog;
//! # let mut builder = Runtime::builder();
//! # builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {}));
//! # let runtime = builder.start().unwrap();
//! let watching = Watchdog::new(Duration::from_secs(1)).on_stall(|stall| eprintln!("{stall}")).start(runtime.handle()).unwrap();
//! // ...
//! # drop(watching);
//! ```
//!
//! * `judge` tells a worker that stands still from one that sleeps, one that has no processor, and a process that was stopped;
//! * `thread` is what the kernel says of its thread;
//! * `symbols` gives the addresses of its stack (`flowlane_sys::trace`) their names.
//!
//! What workers do for it is a store when a step of a turn or a task begins. The watchdog's thread looks four times in each limit.

mod judge;
mod symbols;
mod thread;

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowlane_sys::trace;

pub use crate::stats::{Stall, StallCounts, WatchdogReport};

use self::judge::{Judge, Verdict};
use self::symbols::Symbols;
use crate::events;
use crate::runtime::handle::Handle;
use crate::shared::Seen;

/// Time that a thread is given to walk its own stack.
const PATIENCE: Duration = Duration::from_millis(200);

/// Called with a stall.
type Told = Box<dyn FnMut(&Stall) + Send>;

/// Describes a watchdog.
pub struct Watchdog {
    limit: Duration,
    ends: Option<i32>,
    told: Option<Told>,
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog")
            .field("limit", &self.limit)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Watchdog {
    /// The shortest limit that makes sense: the kernel itself may take a processor away for some milliseconds.
    pub const SHORTEST: Duration = Duration::from_millis(10);

    /// A worker that has not turned for `limit`, at least [`SHORTEST`](Self::SHORTEST), stands still.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit: limit.max(Self::SHORTEST), ends: None, told: None }
    }

    /// Ends the process with this exit code at the first stall, after it was told.
    #[must_use]
    pub fn ends_process(mut self, code: i32) -> Self {
        self.ends = Some(code);
        self
    }

    /// Calls `f` with each stall, on the watchdog's thread.
    #[must_use]
    pub fn on_stall(mut self, f: impl FnMut(&Stall) + Send + 'static) -> Self {
        self.told = Some(Box::new(f));
        self
    }

    /// Starts to watch the workers of a runtime. Stalls are counted ([`Report::watchdog`](crate::stats::Report::watchdog)), and told as events.
    ///
    /// # Errors
    /// There is no thread to be had. That traces are not to be had is no error: stalls are told without.
    pub fn start(self, handle: Handle) -> io::Result<Watching> {
        // What the signal's handler needs is set up before anything is wrong. Why not, if not, is told with each stall.
        let _ = trace::prepare();
        handle.stalls().begin(self.limit, handle.workers());
        let (stop, stopped) = mpsc::channel::<()>();
        let body = move || watch(self, &handle, &stopped);
        let thread = std::thread::Builder::new().name("flowlane-watch".into()).spawn(body)?;
        Ok(Watching { stop: Some(stop), thread: Some(thread) })
    }
}

/// A watchdog that watches. Dropping it ends that.
#[derive(Debug)]
pub struct Watching {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(mut dog: Watchdog, handle: &Handle, stopped: &mpsc::Receiver<()>) {
    let period = dog.limit / 4;
    let mut judges: Vec<Judge> = handle.beats().iter().map(|_| Judge::new(dog.limit)).collect();
    let mut stalls: Vec<Option<Stall>> = judges.iter().map(|_| None).collect();
    let mut looked = Instant::now();
    while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = Instant::now();
        // Who is late itself, because the process was stopped or the machine slept, knows nothing of the time in between.
        if judge::is_late(now.saturating_duration_since(looked), period, dog.limit) {
            judges.iter_mut().for_each(Judge::forget);
        }
        for (worker, beat) in handle.beats().iter().enumerate() {
            let seen = beat.see();
            let (judge, stall) = (&mut judges[worker], &mut stalls[worker]);
            match judge.look(now, &seen, || thread::ran(seen.thread), || thread::letter(seen.thread)) {
                Verdict::Turns => {
                    if let Some(over) = stall.take() {
                        ended(handle, over);
                    }
                }
                Verdict::Starved => {
                    events::worker_starved(worker, dog.limit);
                    handle.stalls().count(|c| c.workers[worker].starved += 1);
                }
                Verdict::Stands(lasted) => {
                    let found = described(handle, worker, &seen, lasted);
                    let trace = found.no_trace.clone().unwrap_or_else(|| found.trace.join(" < "));
                    events::worker_stalled(worker, found.task.as_deref(), &trace, &found);
                    handle.stalls().count(|c| c.add(found.clone()));
                    if let Some(told) = &mut dog.told {
                        told(&found);
                    }
                    if let Some(code) = dog.ends {
                        std::process::exit(code);
                    }
                    *stall = Some(found);
                }
                Verdict::StillStands(lasted) => {
                    if let Some(stall) = stall {
                        stall.lasted = lasted;
                        handle.stalls().count(|c| c.lasts(stall));
                    }
                }
                Verdict::Unknown => {}
            }
        }
        looked = Instant::now();
    }
}

fn ended(handle: &Handle, mut stall: Stall) {
    stall.is_over = true;
    stall.lasted = handle.now().saturating_duration_since(stall.began);
    events::worker_goes_on(stall.worker, stall.lasted);
    handle.stalls().count(|c| c.lasts(&stall));
}

/// What is to be said of a worker that stands still. Its thread walks its stack, if it takes the signal.
fn described(handle: &Handle, worker: usize, seen: &Seen, lasted: Duration) -> Stall {
    let thread = thread::State::read(seen.thread).to_string();
    let (trace, no_trace) = match trace::of_thread(seen.thread, PATIENCE) {
        Ok(addresses) => (Symbols::read().names(&addresses), None),
        Err(why) => (Vec::new(), Some(why.to_string())),
    };
    let lane = seen.lane.and_then(|lane| handle.lane_of(lane));
    let began = flowlane_stack::time::Time::from_nanos(
        handle.now().as_nanos().saturating_sub(lasted.as_nanos() as u64),
    );
    Stall {
        worker,
        began,
        lasted,
        is_over: false,
        step: seen.place.name(),
        lane: lane.map(|(host, bucket)| (host.name.clone(), bucket)),
        task: seen.task.map(ToString::to_string),
        thread,
        trace,
        no_trace,
    }
}

#[cfg(test)]
mod tests;
