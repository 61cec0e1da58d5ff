//! Tasks: futures that belong to a lane and run on whichever worker holds it.
//!
//! A task is woken by pushing it to its worker's queue: a plain queue if the waker is called on that worker, as is usual, and the
//! worker's inbox otherwise. Tasks move with their lane, so they must be `Send`; they never run on two workers at once, so their own data
//! need no lock.
//!
//! A panic ends only its task, in polling or in dropping: awaiting the task returns a [`JoinError`], and the lane counts it and
//! continues. If a lane's first task panics, the runtime prints a line and reports it ([`LaneReport::failure`]).
//!
//! [`LaneReport::failure`]: crate::stats::LaneReport::failure

mod join;
mod sleep;
mod timeout;

use join::Panics;
pub use join::{JoinError, JoinHandle};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{TimedOut, timeout};

use std::future::Future;
use std::panic::Location;
use std::task::Poll;

use async_task::Builder;
use flowlane_rss::Bucket;
use flowlane_stack::time::Time;
use flowlane_sys::caught::Caught;

use crate::context::{self, LaneRef, NotHere};
use crate::error::SpawnError;
use crate::lane::{Kept, Ready, TaskId};
use crate::worker_id;

/// Not called from a task of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not called from a task that runs in a lane")]
pub struct NotInLane;

impl From<NotHere> for NotInLane {
    fn from(_: NotHere) -> Self {
        Self
    }
}

/// Starts a task in the lane whose task calls this.
///
/// # Errors
/// When called from anywhere else.
#[track_caller]
pub fn spawn<F>(future: F) -> Result<JoinHandle<F::Output>, NotInLane>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (ready, handle) = task_in(LaneRef::current()?, Location::caller(), future);
    // It runs in this turn, so that what it has to say goes out with what this turn sends.
    context::push_fresh(ready);
    Ok(handle)
}

/// Starts a task in another lane of the same host, or in this one. Its result can be awaited here.
///
/// So a task uses what belongs to another lane, as a TCP connection from a port whose replies come there:
///
/// ```no_run
/// # use std::net::SocketAddr;
/// # use flowlane::{Connect, ConnectError, SocketError, TcpStream, spawn_on};
/// async fn greet(connect: Connect) -> Result<(), SocketError> {
///     TcpStream::connect_with(connect, None).await?.write_all(b"hello").await
/// }
///
/// # async fn example(connect: Connect) -> Result<(), Box<dyn std::error::Error>> {
/// match greet(connect).await {
///     Err(SocketError::Connect(ConnectError::OtherLane(bucket))) => spawn_on(bucket, greet(connect))?.await??,
///     greeted => greeted?,
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`SpawnError::NoSuchLane`]: the host has no such bucket, or this is called elsewhere than in a lane.
#[track_caller]
pub fn spawn_on<F>(bucket: Bucket, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let begun = Location::caller();
    Ok(spawn_in(LaneRef::beside(bucket).ok_or(SpawnError::NoSuchLane)?, begun, future))
}

/// Starts a task in a lane. It is known by the line that `begun` names.
pub(crate) fn spawn_in<F>(
    lane: LaneRef,
    begun: &'static Location<'static>,
    future: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (ready, handle) = task_in(lane, begun, future);
    ready.schedule();
    handle
}

/// Makes a task that has still to be put where it will run.
fn task_in<F>(lane: LaneRef, begun: &'static Location<'static>, future: F) -> (Ready, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let id = TaskId { lane: lane.id(), begun };
    // In no wrapper that awaits it: that would hold it twice.
    let caught = Caught::<_, Panics>::new(future);
    let (ready, task) = Builder::new().metadata(id).spawn(|_| caught, lane.scheduler());
    (ready, JoinHandle::of(task.fallible()))
}

/// Has the lane of the calling task keep a value until the runtime ends: it is dropped with the lane.
///
/// # Errors
/// When called from anywhere else; the value is dropped.
pub fn keep<T: Send + 'static>(value: T) -> Result<(), NotInLane> {
    Ok(context::with_current(|lane, _| lane.kept.push(Kept(Box::new(value))))?)
}

/// Where the calling task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneInfo {
    /// The lane's bucket.
    pub bucket: Bucket,
    /// The host it belongs to, by order of configuration.
    pub host: usize,
    /// The worker that holds it now.
    pub worker: usize,
}

/// Tells where the calling task runs.
///
/// # Errors
/// When not called from a task of a lane.
pub fn current() -> Result<LaneInfo, NotInLane> {
    let info = context::with_current(|lane, _| (lane.lane.bucket(), lane.host))?;
    let worker = worker_id::worker().ok_or(NotInLane)?;
    Ok(LaneInfo { bucket: info.0, host: info.1, worker })
}

/// The time of this turn of the worker, on the runtime's clock.
///
/// # Errors
/// When not called from a task of a lane.
pub fn now() -> Result<Time, NotInLane> {
    Ok(context::with_current(|_, now| now)?)
}

/// The time right now, on the runtime's clock: reads the clock, unlike [`now`].
///
/// # Errors
/// When not called from a task of a lane.
pub fn precise_now() -> Result<Time, NotInLane> {
    Ok(context::clock()?)
}

/// Lets the worker do its other work once before going on.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}
