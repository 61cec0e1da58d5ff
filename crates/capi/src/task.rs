//! How an object of C has its task woken.
//!
//! A waker keeps its task, and the task has the object: an object that had its task's waker would keep itself for ever. So the wakers are with the
//! lane, which lets go of them at its end ([`Wakers::end`]), and an object has the number of its own.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

/// The wakers of a lane's tasks.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
    /// The lane has ended.
    over: bool,
}

impl Wakers {
    /// Held for moments, and by the lane's own thread but for the end of the runtime.
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waker: &Waker) -> usize {
        let mut places = self.lock();
        let waker = (!places.over).then(|| waker.clone());
        match places.free.pop() {
            Some(place) => {
                places.wakers[place] = waker;
                place
            }
            None => {
                places.wakers.push(waker);
                places.wakers.len() - 1
            }
        }
    }

    fn wake(&self, place: usize) {
        let waker = self.lock().wakers.get(place).cloned().flatten();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn remove(&self, place: usize) {
        let mut places = self.lock();
        let waker = places.wakers.get_mut(place).and_then(Option::take);
        places.free.push(place);
        drop(places);
        drop(waker);
    }

    /// Lets go of all tasks, which end with that.
    pub(crate) fn end(&self) {
        let wakers: Vec<Waker> = {
            let mut places = self.lock();
            places.over = true;
            // Guard: `places.wakers.iter_mut().filter_map(Option::take).collect()` as `Vec::new()` fails
            // capi/every_function
            places.wakers.iter_mut().filter_map(Option::take).collect()
        };
        drop(wakers);
    }
}

/// The task of an object: how it is woken.
#[derive(Debug)]
pub(crate) struct Task {
    wakers: Arc<Wakers>,
    place: OnceLock<usize>,
}

impl Task {
    pub(crate) fn new(wakers: &Arc<Wakers>) -> Self {
        Self { wakers: wakers.clone(), place: OnceLock::new() }
    }

    /// Called by the task itself, when it is polled.
    #[inline]
    pub(crate) fn runs(&self, cx: &Context<'_>) {
        self.place.get_or_init(|| self.wakers.add(cx.waker()));
    }

    /// Has the task run. One that has not run yet will do so anyway.
    pub(crate) fn wake(&self) {
        if let Some(place) = self.place.get() {
            self.wakers.wake(*place);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(place) = self.place.get() {
            self.wakers.remove(*place);
        }
    }
}
