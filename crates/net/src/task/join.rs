//! The result of a task, and why there may be none.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_task::FallibleTask;
use flowlane_sys::caught::{self, Contained, Payload, Told};

use crate::context;
use crate::lane::TaskId;
use crate::shared::Shared;

/// The count of panics of the lane that is here: a task of it panicked, or what was dropped with it did.
#[derive(Debug)]
pub(super) struct Panics;

impl Told for Panics {
    fn panicked() {
        let _ = context::with_current(|slot, _| slot.counters.panics += 1);
    }
}

/// What a task leaves behind.
pub(super) type Outcome<T> = Result<Contained<T, Panics>, Payload>;

/// Waits for a task's result, or [`JoinError`] if there is none. Dropping it detaches the task, which continues.
#[derive(Debug)]
pub struct JoinHandle<T> {
    task: Option<FallibleTask<Outcome<T>, TaskId>>,
    /// For tasks that were started from outside.
    runtime: Option<Box<Ending>>,
}

/// The end of the runtime, which is awaited, too.
#[derive(Debug)]
struct Ending {
    shared: Arc<Shared>,
    place: Option<usize>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.outside.leave(place);
        }
    }
}

/// Why a task has no result.
#[derive(Debug)]
pub struct JoinError {
    /// What the panic said, and its words; `None`: the task was dropped before its end.
    panic: Option<(Mutex<Payload>, String)>,
}

impl JoinError {
    fn panicked(payload: Payload) -> Self {
        let words = caught::words(&*payload).to_owned();
        Self { panic: Some((Mutex::new(payload), words)) }
    }

    /// Whether the task panicked. A panic ends only the task; its lane continues.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// Whether the task was dropped before its end: its runtime has stopped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.panic.is_none()
    }

    /// The payload of the panic, for [`std::panic::resume_unwind`].
    ///
    /// # Errors
    /// The error itself if the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.panic {
            Some((payload, _)) => Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner)),
            None => Err(self),
        }
    }

    /// As [`JoinError::try_into_panic`].
    ///
    /// # Panics
    /// If the task did not panic.
    #[must_use]
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(error) => panic!("{error}"),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some((_, words)) => write!(f, "the task panicked: {words}"),
            None => f.write_str("the task was dropped before its end"),
        }
    }
}

impl std::error::Error for JoinError {}

impl<T> JoinHandle<T> {
    pub(super) fn of(task: FallibleTask<Outcome<T>, TaskId>) -> Self {
        Self { task: Some(task), runtime: None }
    }

    /// Of a task of that runtime that somebody else may wait for.
    pub(crate) fn awaited_outside(mut self, shared: Arc<Shared>) -> Self {
        self.runtime = Some(Box::new(Ending { shared, place: None }));
        self
    }

    /// Stops the task: it is dropped where it next waits.
    pub fn abort(mut self) {
        drop(self.task.take());
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(task) = &mut this.task else { return Poll::Ready(Err(JoinError { panic: None })) };
        let mut polled = Pin::new(&mut *task).poll(cx);
        if let (Poll::Pending, Some(runtime)) = (&polled, &mut this.runtime)
            && runtime.shared.outside.watch(&mut runtime.place, cx.waker())
        {
            // It may have ended just before.
            polled = Poll::Ready(match Pin::new(task).poll(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => None,
            });
        }
        polled.map(|outcome| match outcome {
            Some(Ok(value)) => Ok(value.into_inner()),
            Some(Err(payload)) => Err(JoinError::panicked(payload)),
            None => Err(JoinError { panic: None }),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}
