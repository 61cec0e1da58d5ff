//! The phases of a service's end, and their notification.
//!
//! ```text
//!   Serving ── stop ──▶ Stopping ── the grace is over ──▶ Resetting
//!              listeners take what waits, and close;      connections that are left are reset
//!              HTTP/1: answers say `Connection: close`, idle connections end (RFC 9112 §9.6)
//!              HTTP/2: GOAWAY, then the streams that were begun (RFC 9113 §6.8)
//! ```
//!
//! Each connection registers its waker here when it begins and removes it when it ends, so that waiting connections can be notified. While
//! requests are answered only one word here is read.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How far the end of a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Phase {
    /// It has not begun.
    Serving,
    /// Requests that have come are answered, and no more are taken.
    Stopping,
    /// Connections that are left are reset.
    Resetting,
}

/// Who is to be told of a server's end. Alignment keeps what is read for each request away from what is written.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stop {
    phase: AtomicU8,
    lanes: Vec<Mutex<Waiting>>,
    /// Connections and listeners that have not ended, all lanes together.
    left: Mutex<usize>,
    ended: Condvar,
}

/// Wakers of one lane, and which places are free.
#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stop {
    pub(super) fn new(lanes: usize) -> Self {
        let lanes = (0..lanes).map(|_| Mutex::default()).collect();
        Self { phase: AtomicU8::new(0), lanes, left: Mutex::new(0), ended: Condvar::new() }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        // Ordered with what `join` puts in: one of the two sees the other.
        match self.phase.load(SeqCst) {
            0 => Phase::Serving,
            1 => Phase::Stopping,
            _ => Phase::Resetting,
        }
    }

    /// To be told from now on, until [`Stop::leave`]; the place.
    pub(super) fn join(&self, lane: usize, waker: &Waker) -> usize {
        let mut waiting = lock(&self.lanes[lane]);
        let place = waiting.free.pop().unwrap_or(waiting.wakers.len());
        if place == waiting.wakers.len() {
            waiting.wakers.push(None);
        }
        waiting.wakers[place] = Some(waker.clone());
        drop(waiting);
        self.hold();
        place
    }

    /// The end of one.
    pub(super) fn leave(&self, lane: usize, place: usize) {
        let mut waiting = lock(&self.lanes[lane]);
        let waker = waiting.wakers.get_mut(place).and_then(Option::take);
        if waker.is_none() {
            // Abandoned.
        } else if waiting.wakers.len() == waiting.free.len() + 1 {
            // After a burst the memory goes, too.
            *waiting = Waiting::default();
        } else {
            waiting.free.push(place);
        }
        // What a waker drops may end here, too.
        drop(waiting);
        drop(waker);
        self.let_go();
    }

    /// One that has not ended, and is not told of anything, until [`Stop::let_go`].
    pub(super) fn hold(&self) {
        *lock(&self.left) += 1;
    }

    pub(super) fn let_go(&self) {
        let mut left = lock(&self.left);
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.ended.notify_all();
        }
    }

    /// Goes on to a phase, and tells everybody.
    fn tell(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, SeqCst);
        for lane in &self.lanes {
            let wakers: Vec<Waker> = lock(lane).wakers.iter().flatten().cloned().collect();
            wakers.iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Waits for the end of all; how many have not ended.
    fn wait(&self, until: Instant) -> usize {
        let mut left = lock(&self.left);
        while *left > 0 {
            let time = until.saturating_duration_since(Instant::now());
            if time.is_zero() {
                break;
            }
            left = self.ended.wait_timeout(left, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        *left
    }

    /// Stops, waits for the grace, and has reset who is left; how many those are.
    pub(super) fn stop_within(&self, grace: Duration) -> usize {
        let until = Instant::now() + grace;
        self.tell(Phase::Stopping);
        let left = self.wait(until);
        if left > 0 {
            self.tell(Phase::Resetting);
            self.wait(Instant::now() + RESETS);
        }
        left
    }

    /// A lane is gone with everything that waited there: lets go of what is kept for it.
    pub(super) fn abandon(&self, lane: usize) {
        // Outside the lock: what wakers drop leaves.
        let waiting = std::mem::take(&mut *lock(&self.lanes[lane]));
        drop(waiting);
    }
}

/// Until connections that were told to have been reset; only a worker that is stuck takes longer than one turn.
const RESETS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Told(AtomicUsize);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn everybody_is_told_and_places_are_used_again() {
        let (told, stop) = (Arc::new(Told::default()), Stop::new(2));
        let waker = Waker::from(told.clone());
        assert_eq!([stop.join(0, &waker), stop.join(0, &waker), stop.join(1, &waker)], [0, 1, 0]);
        stop.leave(0, 0);
        assert_eq!(stop.join(0, &waker), 0);
        assert_eq!(stop.stop_within(Duration::ZERO), 3);
        assert_eq!((told.0.load(SeqCst), stop.phase()), (6, Phase::Resetting), "once for each phase");
        for (lane, place) in [(0, 0), (0, 1), (1, 0)] {
            stop.leave(lane, place);
        }
        assert_eq!(Arc::strong_count(&told), 2, "nothing is kept of who has left");
        assert_eq!(stop.stop_within(Duration::from_secs(3600)), 0, "nobody is waited for");
        stop.hold();
        assert_eq!(stop.stop_within(Duration::ZERO), 1, "on its way");
        stop.let_go();
        assert_eq!(stop.stop_within(Duration::from_secs(3600)), 0);
        stop.join(1, &waker);
        stop.abandon(1);
        assert_eq!(Arc::strong_count(&told), 2);
    }
}
