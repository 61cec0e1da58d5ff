//! Which connections have something to do: each has a waker of its own that puts its number on the lane's list.
//!
//! One task of the lane drives all its connections. A connection that can go on wakes by number, once until it is looked
//! at, and the first wake after the task has gone to sleep wakes the task. The list stands behind a lock only because
//! wakers must be usable from any thread; in a lane nobody ever waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The list.
#[derive(Debug, Default)]
pub(super) struct Ready {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    numbers: Vec<u32>,
    /// The lane's task, while it sleeps.
    task: Option<Waker>,
}

/// The waker of one connection.
#[derive(Debug)]
pub(super) struct Bell {
    number: u32,
    rung: AtomicBool,
    ready: Arc<Ready>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is ready, in exchange for an empty list.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        std::mem::swap(&mut self.lock().numbers, into);
    }

    /// The task goes to sleep: wakes it at the next ring, or at once if there was one. `true` if it may sleep.
    pub(super) fn sleep(&self, task: &Waker) -> bool {
        let mut list = self.lock();
        if !list.numbers.is_empty() {
            return false;
        }
        match &list.task {
            Some(waker) if waker.will_wake(task) => {}
            _ => list.task = Some(task.clone()),
        }
        true
    }
}

impl Bell {
    pub(super) fn new(number: u32, ready: &Arc<Ready>) -> Arc<Self> {
        Arc::new(Self { number, rung: AtomicBool::new(false), ready: ready.clone() })
    }

    /// The connection is looked at now: rings from here on count anew.
    pub(super) fn answered(&self) {
        self.rung.store(false, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut list = self.ready.lock();
            list.numbers.push(self.number);
            list.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(std::sync::atomic::AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_bell_rings_once_until_it_is_answered() {
        let ready = Arc::new(Ready::default());
        let bells: Vec<_> = (0..3).map(|n| Bell::new(n, &ready)).collect();
        let count = Arc::new(Count(0.into()));
        let task = Waker::from(count.clone());
        assert!(ready.sleep(&task));
        for n in [2, 0, 2, 2] {
            bells[n].wake_by_ref();
        }
        // The task is woken once, however many rang.
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(!ready.sleep(&task));
        let mut taken = Vec::new();
        ready.take(&mut taken);
        assert_eq!(taken, [2, 0]);
        assert!(ready.sleep(&task));
        bells[2].wake_by_ref();
        assert!(ready.sleep(&task), "it was not answered yet");
        bells[2].answered();
        bells[2].wake_by_ref();
        assert!(!ready.sleep(&task));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
