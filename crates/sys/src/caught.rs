//! A future whose panics are contained: in polling, in dropping it, and in dropping its result.
//!
//! An executor of application futures has to contain all three. `async-task` aborts the process when a future's destructor panics, and a
//! wrapper in safe code would need room for the future twice; so it is in this crate, where manual pinning is allowed.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Message of a panic.
pub type Payload = Box<dyn Any + Send>;

/// Who is told of panics: a type, so that it takes no room in the very many futures that wait.
pub trait Told {
    /// Is called after each panic.
    fn panicked();
}

/// A future that returns a panic as its result. `W` is told of each panic when it happens.
#[derive(Debug)]
pub struct Caught<F, W: Told> {
    inner: ManuallyDrop<F>,
    told: PhantomData<fn() -> W>,
}

impl<F, W: Told> Caught<F, W> {
    /// Wraps `inner`.
    pub fn new(inner: F) -> Self {
        Self { inner: ManuallyDrop::new(inner), told: PhantomData }
    }
}

impl<F: Future, W: Told> Future for Caught<F, W> {
    type Output = Result<Contained<F::Output, W>, Payload>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `inner` is pinned as `self` is: it is never moved, nothing else hands out a reference to it, it is dropped
        // where it is, and `Caught` is `Unpin` only if it is.
        let inner = unsafe { Pin::new_unchecked(&mut *self.get_unchecked_mut().inner) };
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(Poll::Ready(value)) => {
                Poll::Ready(Ok(Contained { value: ManuallyDrop::new(value), told: PhantomData }))
            }
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => {
                W::panicked();
                Poll::Ready(Err(payload))
            }
        }
    }
}

impl<F, W: Told> Drop for Caught<F, W> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else, once.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut self.inner) }));
        if result.is_err() {
            W::panicked();
        }
    }
}

/// A result that may be dropped unused, and whose destructor may panic.
#[derive(Debug)]
pub struct Contained<T, W: Told> {
    value: ManuallyDrop<T>,
    told: PhantomData<fn() -> W>,
}

impl<T, W: Told> Contained<T, W> {
    /// The value, no longer contained.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the value is taken once.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<T, W: Told> Drop for Contained<T, W> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else, once: `into_inner` leaves nothing to drop.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut self.value) }));
        if result.is_err() {
            W::panicked();
        }
    }
}

/// The message of a panic, if its payload is text, as is usual.
#[must_use]
pub fn words(payload: &(dyn Any + Send)) -> &str {
    let words = payload.downcast_ref::<&'static str>().copied();
    words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::resume_unwind;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    static TOLD: AtomicUsize = AtomicUsize::new(0);

    #[derive(Debug)]
    struct Count;

    impl Told for Count {
        fn panicked() {
            TOLD.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn caught<F: Future>(inner: F) -> Caught<F, Count> {
        Caught::new(inner)
    }

    struct Bad;

    impl Drop for Bad {
        fn drop(&mut self) {
            resume_unwind(Box::new("dropped"));
        }
    }

    #[test]
    fn panics_of_polling_dropping_and_the_result_go_no_further() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut future = Box::pin(caught(async { resume_unwind(Box::new("polled")) }));
        let result: Poll<Result<Contained<(), _>, _>> = future.as_mut().poll(&mut cx);
        let Poll::Ready(Err(payload)) = result else { panic!("{result:?}") };
        assert_eq!((words(&*payload), TOLD.load(Ordering::Relaxed)), ("polled", 1));
        drop(future);
        assert_eq!(TOLD.load(Ordering::Relaxed), 1);

        let bad = Bad;
        let waits = async move {
            std::future::pending::<()>().await;
            drop(bad);
        };
        let mut future = Box::pin(caught(waits));
        assert!(future.as_mut().poll(&mut cx).is_pending());
        drop(future);
        assert_eq!(TOLD.load(Ordering::Relaxed), 2);

        let mut future = Box::pin(caught(async { Bad }));
        let Poll::Ready(Ok(result)) = future.as_mut().poll(&mut cx) else { panic!("pending") };
        drop(result);
        assert_eq!(TOLD.load(Ordering::Relaxed), 3);

        let mut future = Box::pin(caught(async { vec![7] }));
        let Poll::Ready(Ok(result)) = future.as_mut().poll(&mut cx) else { panic!("pending") };
        assert_eq!(result.into_inner(), [7]);
        assert_eq!(words(&5), "no words");
        assert_eq!(words(&String::from("said")), "said");
    }
}
