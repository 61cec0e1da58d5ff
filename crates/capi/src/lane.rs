//! A lane as its program sees it, and which lane is here: callbacks run in a lane, and what belongs to a lane works in them only.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use flowlane::Rss;

use crate::error::{Error, FLOWLANE_ERR_NO_SUCH, FLOWLANE_ERR_WRONG_LANE, flowlane_last_error, guarded};
use crate::pointer::{User, borrowed, give};
use crate::task::{Task, Wakers};

/// What a program does in each lane of a host.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct LaneEvents {
    /// sizeof(flowlane_lane_events)
    pub size: usize,
    /// The lane begins: called once in each lane, before it has any packet. Another result than 0 fails the lane, and with it the start of
    /// the runtime.
    pub start: Option<unsafe extern "C" fn(lane: *mut Lane, user: *mut c_void) -> c_int>,
    /// The lane has ended, also after a start that failed, and all that was in it: the last callback. It is called on any thread, not in the lane. May be null.
    pub stop: Option<unsafe extern "C" fn(lane: *mut Lane, user: *mut c_void)>,
}

/// A lane: everything of one bucket of a host.
#[derive(Debug)]
pub struct Lane {
    program: Arc<Program>,
    host: usize,
    bucket: u16,
    user: User,
    wakers: Arc<Wakers>,
}

/// Ends what waits in a lane, when the lane lets go of it.
struct Ends(Arc<Wakers>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The program of a host, the same in all its lanes.
#[derive(Debug)]
pub(crate) struct Program {
    events: LaneEvents,
    /// What its lanes begin with.
    user: User,
    pub(crate) rss: Arc<Rss>,
    ending: Arc<Ending>,
    /// Its lanes by bucket, as long as there is something in them.
    lanes: Mutex<Vec<Weak<Lane>>>,
}

impl Program {
    pub(crate) fn new(events: LaneEvents, user: *mut c_void, rss: Arc<Rss>, ending: Arc<Ending>) -> Self {
        let lanes = Mutex::new((0..rss.buckets.len()).map(|_| Weak::new()).collect());
        Self { events, user: User::new(user), rss, ending, lanes }
    }

    /// The lane of a bucket, once it has begun.
    pub(crate) fn lane(&self, bucket: u16) -> Option<Arc<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).get(usize::from(bucket))?.upgrade()
    }

    /// The first task of every lane: the program's start, and then until the runtime is asked to end.
    pub(crate) async fn first_task(self: Arc<Self>) -> Result<(), String> {
        let here = flowlane::current().map_err(|e| e.to_string())?;
        let (host, bucket) = (here.host, here.bucket.0);
        let user = User::new(self.user.get());
        let wakers = Arc::new(Wakers::default());
        flowlane::keep(Ends(wakers.clone())).map_err(|e| e.to_string())?;
        let lane = Arc::new(Lane { program: self.clone(), host, bucket, user, wakers });
        if let Some(place) =
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).get_mut(usize::from(bucket))
        {
            *place = Arc::downgrade(&lane);
        }
        let Some(start) = self.events.start else { return Err("it has no start callback".into()) };
        // SAFETY: the program's callback, with a handle of a lane that lives.
        match lane.call(|lane| unsafe { start(lane, (*lane).user.get()) }) {
            0 => {}
            code => {
                // SAFETY: the words of this thread, which stay until its next error.
                let words = unsafe { CStr::from_ptr(flowlane_last_error()) }.to_string_lossy();
                return Err(format!("its start callback returned {code}; the last error was: '{words}'"));
            }
        }
        self.ending.asked(lane.wakers()).await;
        Ok(())
    }
}

thread_local! {
    /// The lane whose callback runs on this thread.
    static HERE: Cell<*mut Lane> = const { Cell::new(null_mut()) };
}

impl Lane {
    /// Calls the program in this lane.
    pub(crate) fn call<R>(self: &Arc<Self>, callback: impl FnOnce(*mut Lane) -> R) -> R {
        /// What was here before comes back, whatever happens.
        struct Before(*mut Lane);
        impl Drop for Before {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let lane = Arc::as_ptr(self).cast_mut();
        let _before = Before(HERE.replace(lane));
        callback(lane)
    }

    /// Whether a callback of this lane is running on this thread.
    #[inline]
    pub(crate) fn here(&self) -> Result<(), Error> {
        // Guard: `std::ptr::eq(HERE.get(), self)` as `true` fails capi/every_function
        if std::ptr::eq(HERE.get(), self) { Ok(()) } else { Err(Error::plain(FLOWLANE_ERR_WRONG_LANE)) }
    }

    /// The lane of a handle, if its callback is running on this thread.
    ///
    /// # Safety
    /// The handle is null or valid.
    pub(crate) unsafe fn at(lane: *mut Self) -> Result<Arc<Self>, Error> {
        // SAFETY: the caller's.
        let found = unsafe { borrowed(lane, "the lane") }?;
        found.here()?;
        // SAFETY: handles of lanes are those of an `Arc`, which lives while its callback runs.
        unsafe {
            Arc::increment_strong_count(lane.cast_const());
            Ok(Arc::from_raw(lane.cast_const()))
        }
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.program
    }

    pub(crate) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    pub(crate) fn rss(&self) -> &Rss {
        &self.program.rss
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(stop) = self.program.events.stop {
            // SAFETY: the program's callback; the handle is valid until it returns.
            unsafe { stop(self, self.user.get()) };
        }
    }
}

/// Whether a runtime was asked to end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    asked: AtomicBool,
    /// The first task of every lane, which waits for that.
    waiting: Mutex<Vec<Weak<Task>>>,
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Task>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        let waiting = self.lock().clone();
        waiting.iter().filter_map(Weak::upgrade).for_each(|task| task.wake());
    }

    async fn asked(&self, wakers: &Arc<Wakers>) {
        let task = Arc::new(Task::new(wakers));
        self.lock().push(Arc::downgrade(&task));
        std::future::poll_fn(|cx| {
            task.runs(cx);
            if self.asked.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The lane whose callback calls this; a null pointer elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn flowlane_lane_current() -> *mut Lane {
    HERE.get()
}

/// The number of its host, in order of configuration. A null pointer has the number 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_host(lane: *const Lane) -> u32 {
    // SAFETY: the program's handle.
    unsafe { lane.as_ref() }.map_or(0, |lane| lane.host as u32)
}

/// Its bucket. A null pointer has the number 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_bucket(lane: *const Lane) -> u32 {
    // SAFETY: the program's handle.
    unsafe { lane.as_ref() }.map_or(0, |lane| u32::from(lane.bucket))
}

/// The worker that has the lane now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_worker(lane: *mut Lane, worker: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            Lane::at(lane)?;
            let info = flowlane::current().map_err(|e| Error::new(FLOWLANE_ERR_NO_SUCH, e))?;
            give(worker, info.worker as u32, "the worker")
        }
    })
}

/// Nanoseconds on the runtime's clock, which begins with the runtime: of the worker's turn, without looking at a clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_now(lane: *mut Lane, nanos: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            Lane::at(lane)?;
            let now = flowlane::now().map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
            give(nanos, now.as_nanos(), "the time")
        }
    })
}

/// The program's pointer of this lane: at first that of its host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_user(lane: *const Lane) -> *mut c_void {
    // SAFETY: the program's handle.
    unsafe { lane.as_ref() }.map_or(null_mut(), |lane| lane.user.get())
}

/// Gives the lane another pointer of the program's; null pointers of a lane are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_set_user(lane: *mut Lane, user: *mut c_void) {
    // SAFETY: the program's handle.
    if let Some(lane) = unsafe { lane.as_ref() } {
        lane.user.set(user);
    }
}

/// Asks the lane's runtime to end, as flowlane_runtime_end does from outside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_lane_end_runtime(lane: *mut Lane) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        unsafe { Lane::at(lane) }?.program.ending.ask();
        Ok(())
    })
}
