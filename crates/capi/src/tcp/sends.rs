//! Memory of the program's that is lent to a connection, and what of it waits to be queued.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::FLOWLANE_ERR_CLOSED;
use crate::pointer::User;
use crate::task::{Task, Wakers};

/// What a program is told when its memory is free again.
pub type SendDone = Option<unsafe extern "C" fn(data: *mut c_void, len: usize, code: i32, user: *mut c_void)>;

/// Memory of the program's that is lent.
pub(super) struct Memory {
    pub(super) data: *mut c_void,
    pub(super) len: usize,
    pub(super) done: SendDone,
    pub(super) user: User,
}

// SAFETY: the program lends it to the library until `done`, whichever thread has it; it is only read.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it was checked when it was lent, and is the library's until `done`.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) }
    }
}

impl Memory {
    pub(super) fn give_back(&mut self, code: i32) {
        if let Some(done) = self.done.take() {
            // SAFETY: the program's callback, once.
            unsafe { done(self.data, self.len, code, self.user.get()) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.give_back(FLOWLANE_ERR_CLOSED);
    }
}

/// What a connection has still to send without a copy.
#[derive(Debug)]
pub(super) struct Sends {
    pub(super) task: Task,
    /// Sends that are not wholly queued in the stack.
    pub(super) unqueued: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) memory: VecDeque<Memory>,
    pub(super) has_task: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("sends", &self.memory.len()).finish_non_exhaustive()
    }
}

impl Sends {
    pub(super) fn new(wakers: &Arc<Wakers>) -> Self {
        Self { task: Task::new(wakers), unqueued: AtomicUsize::new(0), waiting: Mutex::default() }
    }

    #[inline]
    pub(super) fn all_queued(&self) -> bool {
        self.unqueued.load(Ordering::Relaxed) == 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
