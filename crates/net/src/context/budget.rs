//! How much a task may do on sockets in one go.
//!
//! A peer that sends as fast as it can keeps a socket readable for ever, and a task that reads until there is no more would never end its
//! turn: no timer of its lane would run, no other task, no end of a run. So what a task reads, writes and accepts is counted while it runs.
//! Once its budget is spent, sockets that are polled say "not now" and wake the task at once: it goes on in the worker's next turn, behind
//! the others. Nothing is lost and nobody waits for the peer. Libraries that drive sockets in a lane (TLS, HTTP/2) need not know of it.
//!
//! Operations that return at once (`try_read` and the like) are counted and never refused, because their callers would take that for an
//! empty socket; whoever calls them in a loop waits for readiness between them.

use std::cell::Cell;
use std::task::{Context, Poll};

/// What one run of a task may spend: as many operations, or a megabyte.
const BUDGET: u32 = 1024;
/// An operation costs one, and one more for each so many bytes.
const BYTES: usize = 1024;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(BUDGET) };
}

/// A task begins to run.
#[inline]
pub(crate) fn begin() {
    LEFT.set(BUDGET);
}

/// An operation that moved `bytes` is counted.
#[inline]
pub(crate) fn spend(bytes: usize) {
    LEFT.set(LEFT.get().saturating_sub(1 + u32::try_from(bytes / BYTES).unwrap_or(u32::MAX - 1)));
}

/// Operations are counted that moved few bytes each.
#[inline]
pub(crate) fn spend_operations(operations: usize) {
    LEFT.set(LEFT.get().saturating_sub(u32::try_from(operations).unwrap_or(u32::MAX)));
}

/// Ready if the task may go on; if not, it is woken for the next turn.
#[inline]
pub(crate) fn poll(cx: &Context<'_>) -> Poll<()> {
    // Guard: `LEFT.get() > 0` as `true` fails budget::tests::a_budget_is_spent
    if LEFT.get() > 0 {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_budget_is_spent_by_operations_and_by_bytes() {
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(count.clone());
        let cx = Context::from_waker(&waker);
        for bytes in [0, 100_000, usize::MAX] {
            begin();
            let mut operations = 0;
            while poll(&cx).is_ready() {
                operations += 1;
                spend(bytes);
            }
            assert_eq!(
                operations,
                match bytes {
                    0 => 1024,
                    100_000 => 11,
                    _ => 1,
                }
            );
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 3, "who is refused is woken");
        begin();
        assert!(poll(&cx).is_ready());
    }
}
