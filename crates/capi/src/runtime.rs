//! A running runtime: its end, its workers, calls into its lanes, and moves of lanes.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use flowlane::{Bucket, Handle};

use crate::builder::{Builder, Made};
use crate::error::{Error, FLOWLANE_ERR_LANE_FAILED, FLOWLANE_ERR_NO_SUCH, FLOWLANE_ERR_STOPPED, guarded};
use crate::lane::{Ending, Lane, Program};
use crate::pointer::{User, borrowed, give, room};

/// Processors of which a set of a worker has a place.
const PROCESSORS: usize = libc::CPU_SETSIZE as usize;

/// A runtime.
#[derive(Debug)]
pub struct Runtime {
    /// `None` once it has ended.
    running: Mutex<Option<flowlane::Runtime>>,
    handle: Handle,
    programs: Vec<Arc<Program>>,
    ending: Arc<Ending>,
    /// On which processors each worker may run.
    processors: Arc<[OnceLock<Vec<u32>>]>,
}

impl Runtime {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    fn take(&self) -> Option<flowlane::Runtime> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn worker_of(&self, host: u32, bucket: u32) -> Result<usize, Error> {
        let worker = u16::try_from(bucket).ok().and_then(|b| self.handle.worker_of(host as usize, Bucket(b)));
        worker.ok_or_else(|| no_lane(host, bucket))
    }
}

fn no_lane(host: u32, bucket: u32) -> Error {
    Error::new(FLOWLANE_ERR_NO_SUCH, format!("host {host} has no bucket {bucket}"))
}

/// The processors on which this thread may run.
fn processors() -> Vec<u32> {
    // SAFETY: a set of processors is bits, and the call writes no more than its size says.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..PROCESSORS).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).map(|cpu| cpu as u32).collect()
    }
}

/// Starts what was described: opens the links, starts the workers and begins all lanes. The builder is used up, also if the start fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_start(builder: *mut Builder, runtime: *mut *mut Runtime) -> i32 {
    guarded(|| {
        if builder.is_null() || runtime.is_null() {
            return Err(Error::invalid("the builder or the place for the runtime is a null pointer"));
        }
        // SAFETY: made by flowlane_builder_new, and used up here.
        let builder = unsafe { Box::from_raw(builder) };
        let ending = Arc::new(Ending::default());
        let Made { builder, programs, workers } = builder.make(&ending)?;
        let places: Arc<[OnceLock<Vec<u32>>]> = (0..workers).map(|_| OnceLock::new()).collect();
        let seen = places.clone();
        let builder = builder.in_workers(move |worker| drop(seen[worker].set(processors())));
        let running = builder.start()?;
        let handle = running.handle();
        let running = Mutex::new(Some(running));
        let made = Box::new(Runtime { running, handle, programs, ending, processors: places });
        // SAFETY: the program's place for a result.
        unsafe { give(runtime, Box::into_raw(made), "the runtime") }
    })
}

/// Asks the runtime to end; flowlane_runtime_wait then returns. For any thread, and not for handlers of signals.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_end(runtime: *mut Runtime) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        unsafe { borrowed(runtime, "the runtime") }?.ending.ask();
        Ok(())
    })
}

/// Waits until the runtime was asked to end or a lane has failed, and ends it. Not for callbacks, which would wait for themselves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_wait(runtime: *mut Runtime) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let runtime = unsafe { borrowed(runtime, "the runtime") }?;
        outside()?;
        match runtime.take() {
            Some(running) => running.join().map(drop).map_err(|e| Error::new(FLOWLANE_ERR_LANE_FAILED, e)),
            None => Err(Error::plain(FLOWLANE_ERR_STOPPED)),
        }
    })
}

/// Ends the runtime, if it has not ended, and frees it. Its connections have so many nanoseconds to end in order; then they are reset.
/// All `closed` and `stop` callbacks have been called when this returns. A null pointer is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_free(runtime: *mut Runtime, grace_nanos: u64) -> i32 {
    guarded(|| {
        if runtime.is_null() {
            return Ok(());
        }
        outside()?;
        // SAFETY: made by flowlane_runtime_start, and freed once.
        let runtime = unsafe { Box::from_raw(runtime) };
        if let Some(running) = runtime.take() {
            drop(running.stop_within(Duration::from_nanos(grace_nanos)));
        }
        Ok(())
    })
}

/// In a callback the runtime cannot be waited for.
fn outside() -> Result<(), Error> {
    // Guard: `crate::lane::flowlane_lane_current().is_null()` as `true` fails capi/every_function
    if crate::lane::flowlane_lane_current().is_null() {
        return Ok(());
    }
    Err(Error::invalid("a callback cannot wait for its runtime: use flowlane_lane_end_runtime"))
}

/// Number of workers; a null pointer has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_workers(runtime: *const Runtime) -> u32 {
    // SAFETY: the program's handle.
    unsafe { runtime.as_ref() }.map_or(0, |runtime| runtime.handle.workers() as u32)
}

/// Number of buckets of a host, which is that of its lanes; 0 if there is no such host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_buckets(runtime: *const Runtime, host: u32) -> u32 {
    // SAFETY: the program's handle.
    let program = unsafe { runtime.as_ref() }.and_then(|runtime| runtime.programs.get(host as usize));
    program.map_or(0, |program| program.rss.buckets.len() as u32)
}

/// Which worker has a lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_worker_of(
    runtime: *const Runtime,
    host: u32,
    bucket: u32,
    worker: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let found = borrowed(runtime, "the runtime")?.worker_of(host, bucket)?;
            give(worker, found as u32, "the worker")
        }
    })
}

/// The processors on which a bucket is handled: those on which its worker may run. At most `size` are written to `cpus`, and to `count` how many
/// there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_bucket_cpus(
    runtime: *const Runtime,
    host: u32,
    bucket: u32,
    cpus: *mut u32,
    size: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and places for results.
        unsafe {
            let runtime = borrowed(runtime, "the runtime")?;
            let worker = runtime.worker_of(host, bucket)?;
            let found =
                runtime.processors.get(worker).and_then(|set| set.get()).map_or(&[][..], Vec::as_slice);
            let to = room(cpus, size, "the list of processors")?;
            to.iter_mut().zip(found).for_each(|(to, cpu)| *to = *cpu);
            give(count, found.len(), "the number of processors")
        }
    })
}

/// What is called in a lane.
pub type LaneCall = Option<unsafe extern "C" fn(lane: *mut Lane, argument: *mut c_void)>;

/// A call that is on its way to a lane.
struct Call {
    function: unsafe extern "C" fn(*mut Lane, *mut c_void),
    argument: User,
    program: Arc<Program>,
    bucket: u16,
}

impl Call {
    async fn make(self) {
        // A lane that has ended has nobody to be called.
        if let Some(lane) = self.program.lane(self.bucket) {
            // SAFETY: the program's function, which it wants called in this lane with this argument.
            lane.call(|lane| unsafe { (self.function)(lane, self.argument.get()) });
        }
    }
}

/// Has a function called in a lane, from any thread: the way into a lane for everybody else. Calls from one thread are made in order. If the runtime
/// ends before, the call is not made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_call(
    runtime: *const Runtime,
    host: u32,
    bucket: u32,
    function: LaneCall,
    argument: *mut c_void,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let runtime = unsafe { borrowed(runtime, "the runtime") }?;
        let function = function.ok_or_else(|| Error::invalid("the function is a null pointer"))?;
        let program = runtime.programs.get(host as usize).ok_or_else(|| no_lane(host, bucket))?.clone();
        let number = u16::try_from(bucket).map_err(|_| no_lane(host, bucket))?;
        let call = Call { function, argument: User::new(argument), program, bucket: number };
        runtime.handle.spawn_on(host as usize, Bucket(number), call.make())?;
        Ok(())
    })
}

/// Has a function called in another lane of the same host, or in this one a moment later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_call(
    lane: *mut Lane,
    bucket: u32,
    function: LaneCall,
    argument: *mut c_void,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let lane = unsafe { Lane::at(lane) }?;
        let function = function.ok_or_else(|| Error::invalid("the function is a null pointer"))?;
        let number = u16::try_from(bucket).map_err(|_| no_lane(0, bucket))?;
        let program = lane.program().clone();
        let call = Call { function, argument: User::new(argument), program, bucket: number };
        flowlane::spawn_on(Bucket(number), call.make())?;
        Ok(())
    })
}

/// Moves a lane to another worker with all that is in it, and waits until it is there. Not for callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_move(
    runtime: *const Runtime,
    host: u32,
    bucket: u32,
    worker: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let runtime = unsafe { borrowed(runtime, "the runtime") }?;
        let number = u16::try_from(bucket).map_err(|_| no_lane(host, bucket))?;
        Ok(runtime.handle.move_lane(host as usize, Bucket(number), worker as usize)?)
    })
}

/// What is called with each counter.
pub type CounterCall =
    Option<unsafe extern "C" fn(group: *const c_char, name: *const c_char, value: u64, user: *mut c_void)>;

/// Calls a function with each counter of a host: the sums of all its lanes, by group and name. Not for callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_runtime_counters(
    runtime: *const Runtime,
    host: u32,
    each: CounterCall,
    user: *mut c_void,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let runtime = unsafe { borrowed(runtime, "the runtime") }?;
        let each = each.ok_or_else(|| Error::invalid("the function is a null pointer"))?;
        outside()?;
        if runtime.programs.get(host as usize).is_none() {
            return Err(Error::new(FLOWLANE_ERR_NO_SUCH, format!("there is no host {host}")));
        }
        let total = runtime.handle.counters().total(host as usize);
        for (group, counters) in flowlane::stats::counter_groups(&total) {
            let group = std::ffi::CString::new(group).unwrap_or_default();
            for (name, value) in counters {
                let name = std::ffi::CString::new(name).unwrap_or_default();
                // SAFETY: the program's function, with texts that are valid until it returns.
                unsafe { each(group.as_ptr(), name.as_ptr(), value, user) };
            }
        }
        Ok(())
    })
}
