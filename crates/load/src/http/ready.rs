//! The list of connections that are ready: each connection has its own waker, which adds its number to the lane's list.
//!
//! One task drives all connections of a lane. A connection adds itself at most once until the list is taken; the first addition after the
//! task has gone to sleep wakes the task. The list is behind a lock only because wakers must be usable from any thread; within a lane the
//! lock is never contended. Lists are numbered and a waker remembers the number of the list it is on, so taking a list need not reset the
//! wakers.

use std::sync::atomic::{AtomicU32, Ordering};
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
    /// Number of this list, from 1 on; 0 means none.
    count: u32,
    /// The lane's task, while it sleeps.
    task: Option<Waker>,
}

/// The waker of one connection.
#[derive(Debug)]
pub(super) struct Bell {
    number: u32,
    /// Number of the list it was added to last.
    rung: AtomicU32,
    ready: Arc<Ready>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the list and leaves an empty one.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        let mut list = self.lock();
        if !list.numbers.is_empty() {
            std::mem::swap(&mut list.numbers, into);
            list.count = list.count.checked_add(1).unwrap_or(1);
        }
    }

    /// Registers the task to be woken when a connection is ready. `false` if one is ready already, so the task must not sleep.
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
    /// The waker of connection `number`.
    pub(super) fn waker(number: u32, ready: &Arc<Ready>) -> Waker {
        Waker::from(Arc::new(Self { number, rung: AtomicU32::new(u32::MAX), ready: ready.clone() }))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let task = {
            // Under the lock, so relaxed ordering is enough.
            let mut list = self.ready.lock();
            if self.rung.load(Ordering::Relaxed) == list.count {
                return;
            }
            self.rung.store(list.count, Ordering::Relaxed);
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
    fn a_bell_rings_once_until_the_list_is_taken() {
        let ready = Arc::new(Ready::default());
        let bells: Vec<_> = (0..3).map(|n| Bell::waker(n, &ready)).collect();
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
        bells[2].wake_by_ref();
        assert!(!ready.sleep(&task));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        taken.clear();
        ready.take(&mut taken);
        assert_eq!(taken, [2]);
        // Taking nothing is no new list.
        for _ in 0..3 {
            ready.take(&mut taken);
        }
        bells[0].wake_by_ref();
        bells[0].wake_by_ref();
        taken.clear();
        ready.take(&mut taken);
        assert_eq!(taken, [0]);
    }
}
