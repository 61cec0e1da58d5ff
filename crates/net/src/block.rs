//! Blocking on a future on a thread that is not a worker: a program's `main`, a test, another library's thread.
//!
//! A lane's timers need the lane, so [`block_on`] has timers of its own: [`sleep`](crate::sleep) and [`timeout`](crate::timeout) work in
//! it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::worker_id;

/// When somebody is to be woken, and a number of its own.
pub(crate) type TimerId = (Instant, u64);

/// The timers of a thread.
#[derive(Debug, Default)]
struct Timers {
    sleeping: BTreeMap<TimerId, Waker>,
    next: u64,
}

thread_local! {
    static TIMERS: RefCell<Option<Timers>> = const { RefCell::new(None) };
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// The thread's timers, as they were before, when this goes.
struct Before(Option<Timers>);

impl Drop for Before {
    fn drop(&mut self) {
        let over = TIMERS.replace(self.0.take());
        // What wakers drop may have timers here.
        drop(over);
    }
}

/// Waits for a future on the calling thread, and for whatever it waits for: the result of a task in a lane
/// ([`Handle::spawn_on`](crate::Handle::spawn_on)), a channel, [`sleep`](crate::sleep). Sockets work in lanes only.
///
/// # Panics
/// On the thread of a worker, which all its lanes would wait for.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use flowlane::{Bucket, Host, Key, Rss, Runtime};
/// let mut builder = Runtime::builder();
/// let host = builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {}));
/// let runtime = builder.start().unwrap();
/// let task = runtime.handle().spawn_on(host, Bucket(0), async { flowlane::current().unwrap().bucket });
/// let answer = flowlane::block_on(flowlane::timeout(Duration::from_secs(60), task.unwrap()));
/// assert_eq!(answer.expect("in time").expect("no panic"), Bucket(0));
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(
        worker_id::worker().is_none(),
        "flowlane::block_on in a lane, which would stop its worker: use .await"
    );
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let _before = Before(TIMERS.replace(Some(Timers::default())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        match wake_due() {
            None => thread::park(),
            Some(time) => thread::park_timeout(time),
        }
    }
}

/// Wakes who is due; how long the next may sleep.
fn wake_due() -> Option<Duration> {
    loop {
        let due = TIMERS.with_borrow_mut(|timers| {
            let first = timers.as_mut()?.sleeping.first_entry()?;
            let left = first.key().0.saturating_duration_since(Instant::now());
            Some(if left.is_zero() { Ok(first.remove()) } else { Err(left) })
        });
        match due? {
            Ok(waker) => waker.wake(),
            Err(left) => return Some(left),
        }
    }
}

/// Has `waker` woken at `at`, or says that nobody is blocked here.
pub(crate) fn sleep_until(at: Instant, waker: &Waker) -> Option<TimerId> {
    TIMERS.with_borrow_mut(|timers| {
        let timers = timers.as_mut()?;
        timers.next += 1;
        let id = (at, timers.next);
        timers.sleeping.insert(id, waker.clone());
        Some(id)
    })
}

/// Removes the entry: it wakes no task any more.
pub(crate) fn cancel(id: TimerId) {
    TIMERS.with_borrow_mut(|timers| timers.as_mut().and_then(|timers| timers.sleeping.remove(&id)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sleep, timeout};

    #[test]
    fn sleeps_and_time_limits_work_where_there_is_no_lane() {
        const HOUR: Duration = Duration::from_secs(3600);
        let began = Instant::now();
        let short = Duration::from_millis(20);
        block_on(sleep(short));
        assert!(began.elapsed() >= short);
        assert_eq!(block_on(timeout(HOUR, async { 5 })), Ok(5));
        assert!(block_on(timeout(short, sleep(HOUR))).is_err());
        // One inside another has timers of its own, and those of the first are still there.
        block_on(async {
            let mut outer = pin!(sleep(short));
            let polled = std::future::poll_fn(|cx| Poll::Ready(outer.as_mut().poll(cx).is_pending())).await;
            assert!(polled);
            block_on(sleep(short));
            outer.await;
            for _ in 0..10 {
                assert!(timeout(HOUR, async {}).await.is_ok());
            }
            assert_eq!(TIMERS.with_borrow(|timers| timers.as_ref().map(|t| t.sleeping.len())), Some(0));
        });
    }

    #[test]
    #[should_panic(expected = "neither in a lane nor in flowlane::block_on")]
    fn a_sleep_that_nobody_could_end_says_so() {
        let mut sleeping = pin!(sleep(Duration::from_secs(1)));
        let _ = sleeping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}
