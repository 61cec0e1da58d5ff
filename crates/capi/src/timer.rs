//! Timers of a lane.
//!
//! A timer is a task that sleeps. Setting it costs no memory: the task exists from the beginning.

use std::ffi::c_void;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use flowlane::Time;

use crate::error::{Error, FLOWLANE_ERR_WRONG_LANE, guarded};
use crate::lane::Lane;
use crate::pointer::{User, borrowed, give, sized};
use crate::task::Task;

/// What a program is told of a timer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TimerEvents {
    /// sizeof(flowlane_timer_events)
    pub size: usize,
    /// Its time has come.
    pub due: Option<unsafe extern "C" fn(timer: *mut Timer, user: *mut c_void)>,
    /// The last callback: the timer was closed, or its lane has ended. May be null.
    pub closed: Option<unsafe extern "C" fn(timer: *mut Timer, user: *mut c_void)>,
}

/// A timer of a lane.
#[derive(Debug)]
pub struct Timer {
    lane: Arc<Lane>,
    task: Task,
    events: TimerEvents,
    user: User,
    /// Nanoseconds on the runtime's clock; `UNSET`: none.
    due: AtomicU64,
    closing: AtomicBool,
}

const UNSET: u64 = u64::MAX;

/// The task's hold of its timer; its end is the timer's.
struct Serving(Arc<Timer>);

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(closed) = self.0.events.closed {
            // SAFETY: the program's callback, the last of this timer, which lives until it returns.
            unsafe { closed(Arc::as_ptr(&self.0).cast_mut(), self.0.user.get()) };
        }
    }
}

async fn serve(serving: Serving) {
    let timer = &serving.0;
    while !timer.closing.load(Ordering::Relaxed) {
        let due = timer.due.load(Ordering::Relaxed);
        let mut sleep = pin!((due != UNSET).then(|| flowlane::sleep_until(Time::from_nanos(due))));
        let is_due = std::future::poll_fn(|cx| {
            timer.task.runs(cx);
            if timer.closing.load(Ordering::Relaxed) || timer.due.load(Ordering::Relaxed) != due {
                return Poll::Ready(false);
            }
            match sleep.as_mut().as_pin_mut() {
                Some(sleep) => sleep.poll(cx).map(|()| true),
                None => Poll::Pending,
            }
        })
        .await;
        if is_due {
            timer.due.store(UNSET, Ordering::Relaxed);
            if let Some(callback) = timer.events.due {
                let handle = Arc::as_ptr(timer).cast_mut();
                // SAFETY: the program's callback, with a handle of a timer that lives.
                timer.lane.call(|_| unsafe { callback(handle, timer.user.get()) });
            }
        }
    }
}

/// Makes a timer in a lane; it is not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_timer_new(
    lane: *mut Lane,
    events: *const TimerEvents,
    user: *mut c_void,
    timer: *mut *mut Timer,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, struct and place for a result.
        unsafe {
            let lane = Lane::at(lane)?;
            let events = sized(events, std::mem::offset_of!(TimerEvents, closed), "the timer's events")?;
            if events.due.is_none() {
                return Err(Error::invalid("a timer needs the callback 'due'"));
            }
            let made = Arc::new(Timer {
                task: Task::new(lane.wakers()),
                lane,
                events,
                user: User::new(user),
                due: AtomicU64::new(UNSET),
                closing: AtomicBool::new(false),
            });
            give(timer, Arc::as_ptr(&made).cast_mut(), "the timer")?;
            flowlane::spawn(serve(Serving(made))).map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
            Ok(())
        }
    })
}

/// Sets a timer to so many nanoseconds from now, instead of what it was set to. It comes once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_timer_set(timer: *mut Timer, nanos: u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let timer = unsafe { borrowed(timer, "the timer") }?;
        timer.lane.here()?;
        let now = flowlane::now().map_err(|e| Error::new(FLOWLANE_ERR_WRONG_LANE, e))?;
        timer.due.store(now.as_nanos().saturating_add(nanos).min(UNSET - 1), Ordering::Relaxed);
        timer.task.wake();
        Ok(())
    })
}

/// Unsets a timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_timer_unset(timer: *mut Timer) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let timer = unsafe { borrowed(timer, "the timer") }?;
        timer.lane.here()?;
        timer.due.store(UNSET, Ordering::Relaxed);
        timer.task.wake();
        Ok(())
    })
}

/// Closes a timer: after `closed` its handle is not valid any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_timer_close(timer: *mut Timer) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let timer = unsafe { borrowed(timer, "the timer") }?;
        timer.lane.here()?;
        timer.closing.store(true, Ordering::Relaxed);
        timer.task.wake();
        Ok(())
    })
}
