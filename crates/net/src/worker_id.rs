//! Which worker the calling thread is, if it is one.

use std::cell::Cell;

thread_local! {
    /// Number of the runtime in the process, and of the worker in that.
    static WORKER: Cell<Option<(u32, usize)>> = const { Cell::new(None) };
}

/// The calling thread is this worker from now on, or none any more.
pub(crate) fn set(worker: Option<(u32, usize)>) {
    WORKER.set(worker);
}

/// Number of the worker whose thread this is.
#[inline]
pub(crate) fn worker() -> Option<usize> {
    WORKER.get().map(|(_, worker)| worker)
}

/// Whether this is the thread of that worker of that runtime.
#[inline]
pub(crate) fn is_worker(runtime: u32, worker: usize) -> bool {
    WORKER.get() == Some((runtime, worker))
}
