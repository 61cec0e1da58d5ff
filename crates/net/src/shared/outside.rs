//! Notification of the end of a runtime, for waiters outside it, so that they do not wait for ever.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Who waits from outside.
#[derive(Debug, Default)]
pub(crate) struct Outside(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    ended: bool,
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Outside {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the runtime has ended. If not, `waker` is woken when it does; `place` is whoever waits remembers.
    pub(crate) fn watch(&self, place: &mut Option<usize>, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        if waiting.ended {
            return true;
        }
        let at = *place.get_or_insert_with(|| {
            let at = waiting.free.pop().unwrap_or(waiting.wakers.len());
            if at == waiting.wakers.len() {
                waiting.wakers.push(None);
            }
            at
        });
        let before = waiting.wakers[at].replace(waker.clone());
        drop(waiting);
        drop(before);
        false
    }

    /// Nobody waits there any more.
    pub(crate) fn leave(&self, place: usize) {
        let mut waiting = self.lock();
        let waker = waiting.wakers.get_mut(place).and_then(Option::take);
        if waker.is_some() {
            waiting.free.push(place);
        }
        drop(waiting);
        drop(waker);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// The runtime has ended.
    pub(crate) fn end(&self) {
        let mut waiting = self.lock();
        waiting.ended = true;
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}
