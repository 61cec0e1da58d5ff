//! Timeouts of futures.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::sleep;

/// The error of a future that was not ready in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct TimedOut;

impl From<TimedOut> for io::Error {
    fn from(error: TimedOut) -> Self {
        Self::new(io::ErrorKind::TimedOut, error)
    }
}

/// Waits for a future, but no longer than this, counted from when it is first awaited. A future that is ready is never late.
/// When the time is over the future is dropped, and its progress is lost.
///
/// # Errors
/// [`TimedOut`].
///
/// # Panics
/// As [`sleep`]: outside a lane and [`block_on`](crate::block_on).
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, TimedOut> {
    let (mut future, mut over) = (pin!(future), pin!(sleep(duration)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Ok(value)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| Err(TimedOut)),
    })
    .await
}
