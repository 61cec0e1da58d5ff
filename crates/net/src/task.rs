//! Tasks: futures that belong to a lane and run on whichever worker holds it.
//!
//! A task is woken by pushing it into its worker's queue: a plain queue when the waker runs on that worker, which is
//! the rule, and the worker's inbox otherwise. Tasks move with their lane, so they must be `Send`; they never run on
//! two workers at once, so what only they touch needs no lock.
//!
//! A task that panics ends alone, whether it is polled or dropped: who awaits it gets a [`JoinError`], the lane counts it and
//! goes on. Of a lane's first task the runtime says so in a line, and its report does ([`LaneReport::failure`]).
//!
//! [`LaneReport::failure`]: crate::stats::LaneReport::failure

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_task::{Builder, FallibleTask, Runnable};
use flowlane_rss::Bucket;
use flowlane_stack::time::Time;
use flowlane_sys::caught::{self, Caught, Contained, Payload};

use crate::block::{self, TimerId};
use crate::context::{self, NotHere};
use crate::runtime::handle::SpawnError;
use crate::runtime::host::Main;
use crate::runtime::lane_slot::{LaneId, SleepId};
use crate::runtime::mains::Mains;
use crate::runtime::message::Message;
use crate::runtime::shared::Shared;
use crate::stats::Failed;

/// A task that is ready to run, with the lane it belongs to.
pub(crate) type Ready = Runnable<LaneId>;

/// What a task leaves behind.
type Outcome<T> = Result<Contained<T>, Payload>;

/// Waits for a task's result, or learns that there is none: [`JoinError`]. Dropping it lets the task go on by itself.
#[derive(Debug)]
pub struct JoinHandle<T> {
    task: Option<FallibleTask<Outcome<T>, LaneId>>,
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

    /// Whether the task panicked. Only the task ends by that: its lane goes on.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// Whether the task was dropped before its end: its runtime has stopped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.panic.is_none()
    }

    /// What the panic said, for [`std::panic::resume_unwind`].
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
pub fn spawn<F>(future: F) -> Result<JoinHandle<F::Output>, NotInLane>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (id, shared) = context::with_current(|lane, _, shared| (lane.id, shared.clone()))?;
    let (ready, handle) = task_in(id, shared, future);
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
pub fn spawn_on<F>(bucket: Bucket, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let found = context::with_current(|slot, _, shared| {
        let (here, lanes) = (slot.lane.bucket(), slot.lane.rss().buckets.len());
        let first = slot.id.index - u32::from(here.0);
        let id = LaneId { index: first + u32::from(bucket.0), ..slot.id };
        (usize::from(bucket.0) < lanes).then(|| (id, shared.clone()))
    });
    let (id, shared) = found.ok().flatten().ok_or(SpawnError::NoSuchLane)?;
    Ok(spawn_in(id, shared, future))
}

/// Starts a task in a lane.
pub(crate) fn spawn_in<F>(id: LaneId, shared: Arc<Shared>, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (ready, handle) = task_in(id, shared, future);
    ready.schedule();
    handle
}

/// Makes a task that has still to be put where it will run.
fn task_in<F>(id: LaneId, shared: Arc<Shared>, future: F) -> (Ready, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let schedule = move |ready: Ready| schedule(&shared, ready);
    // In no wrapper that awaits it: that would hold it twice.
    let caught = Caught::new(future, count_panic);
    let (ready, task) = Builder::new().metadata(id).spawn(|_| caught, schedule);
    (ready, JoinHandle { task: Some(task.fallible()), runtime: None })
}

/// A task of the lane that is here panicked, or what was dropped with it did.
fn count_panic() {
    let _ = context::with_current(|slot, _, _| slot.counters.panics += 1);
}

/// The first task of a lane. If it fails, the lane says so and remembers why; that it ended the runtime learns.
pub(crate) struct FirstTask {
    pub(crate) main: Main,
    pub(crate) host: Arc<str>,
    pub(crate) mains: Arc<Mains>,
}

impl Future for FirstTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let failed = match catch_unwind(AssertUnwindSafe(|| this.main.as_mut().poll_first(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(None)) => None,
            Ok(Poll::Ready(Some(words))) => Some(Failed { panicked: false, words }),
            Err(payload) => Some(Failed { panicked: true, words: caught::words(&*payload).to_owned() }),
        };
        let failed = failed.is_some_and(|failed| {
            let told = context::with_current(|slot, _, _| {
                let counts = failed.panicked || !slot.ending;
                if counts {
                    slot.fail(&this.host, failed);
                }
                counts
            });
            told.unwrap_or(false)
        });
        this.mains.ended(failed);
        Poll::Ready(())
    }
}

/// Puts a task where its worker will find it.
fn schedule(shared: &Arc<Shared>, ready: Ready) {
    let lane = *ready.metadata();
    let owner = shared.owner_of(lane.index);
    if context::is_worker(shared.runtime, owner) {
        context::push_ready(ready);
    } else {
        shared.send(owner, Message::Run(ready));
    }
}

/// Has the lane of the calling task keep a value until the runtime ends: it is dropped with the lane.
///
/// # Errors
/// When called from anywhere else; the value is dropped.
pub fn keep<T: Send + 'static>(value: T) -> Result<(), NotInLane> {
    Ok(context::with_current(|lane, _, _| lane.kept.push(Kept(Box::new(value))))?)
}

/// What [`keep`] was given.
pub(crate) struct Kept(#[expect(dead_code, reason = "is dropped in its time")] Box<dyn Any + Send>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
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
    let info = context::with_current(|lane, _, _| (lane.lane.bucket(), lane.host))?;
    let worker = context::worker().ok_or(NotInLane)?;
    Ok(LaneInfo { bucket: info.0, host: info.1, worker })
}

/// The time of this turn of the worker, on the runtime's clock.
///
/// # Errors
/// When not called from a task of a lane.
pub fn now() -> Result<Time, NotInLane> {
    Ok(context::with_current(|_, now, _| now)?)
}

/// The time right now, on the runtime's clock: reads the clock, unlike [`now`].
///
/// # Errors
/// When not called from a task of a lane.
pub fn precise_now() -> Result<Time, NotInLane> {
    Ok(context::with_current(|_, _, shared| shared.now())?)
}

/// Waits for `duration`, to the nanosecond but for what the worker does meanwhile. In [`block_on`](crate::block_on) the kernel says how
/// exact it is.
///
/// # Panics
/// When it is awaited elsewhere: without a lane nobody would ever wake it.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { state: State::For(duration) }
}

/// Waits until `deadline` on the runtime's clock, which only lanes have.
///
/// # Panics
/// When it is awaited elsewhere.
pub fn sleep_until(deadline: Time) -> Sleep {
    Sleep { state: State::Until(deadline) }
}

/// Future of [`sleep`] and [`sleep_until`].
#[derive(Debug)]
#[must_use = "does nothing until awaited"]
pub struct Sleep {
    state: State,
}

#[derive(Debug)]
enum State {
    For(Duration),
    Until(Time),
    Armed(LaneId, SleepId, Time),
    /// In `block_on`.
    Outside(TimerId),
    Done,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let next = context::with_current(|lane, now, _| {
            let deadline = match self.state {
                State::For(duration) => now + duration,
                State::Until(deadline) => deadline,
                State::Armed(at, id, deadline) if deadline > now && at == lane.id => {
                    lane.sleepers.set_waker(id, cx.waker());
                    return None;
                }
                // Begun in another lane: that of its new task wakes it.
                State::Armed(_, _, deadline) => deadline,
                State::Outside((at, _)) => now + at.saturating_duration_since(Instant::now()),
                State::Done => return Some(State::Done),
            };
            if deadline <= now {
                return Some(State::Done);
            }
            Some(State::Armed(lane.id, lane.sleepers.add(deadline, cx.waker()), deadline))
        });
        match next {
            Ok(Some(State::Done)) => {
                self.cancel();
                self.state = State::Done;
                Poll::Ready(())
            }
            Ok(Some(state)) => {
                self.cancel();
                self.state = state;
                Poll::Pending
            }
            Ok(None) => Poll::Pending,
            Err(NotHere) => self.poll_outside(cx),
        }
    }
}

impl Sleep {
    /// There is no lane.
    #[cold]
    fn poll_outside(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = match self.state {
            State::For(duration) => Instant::now().checked_add(duration),
            State::Outside((at, _)) => Some(at),
            State::Done => return Poll::Ready(()),
            State::Until(_) | State::Armed(..) => {
                panic!("a lane's sleep was awaited elsewhere than in a lane")
            }
        };
        // Beyond what the kernel can tell: for ever.
        let Some(at) = at else { return Poll::Pending };
        self.cancel();
        if at <= Instant::now() {
            self.state = State::Done;
            return Poll::Ready(());
        }
        let id = block::sleep_until(at, cx.waker());
        self.state = State::Outside(
            id.expect("flowlane::sleep was awaited neither in a lane nor in flowlane::block_on"),
        );
        Poll::Pending
    }
}

impl Sleep {
    fn cancel(&mut self) {
        match self.state {
            State::Armed(lane, id, _) => {
                // On another lane than its own the entry stays until it is due, and wakes nobody who minds.
                let _ = context::with_lane(lane, |slot, _, _| slot.sleepers.remove(id));
            }
            State::Outside(id) => block::cancel(id),
            State::For(_) | State::Until(_) | State::Done => {}
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
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

/// Tasks that sleep in one lane.
///
/// A heap of exact deadlines, not a wheel: load generators send by these, and a tick of a millisecond is a thousand
/// times too coarse for them. Cancelled entries stay in the heap until they are due or outnumber the others.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    heap: BinaryHeap<Reverse<(Time, u32, u32)>>,
    slots: Vec<Sleeper>,
    free: Vec<u32>,
    cancelled: usize,
}

#[derive(Debug)]
struct Sleeper {
    waker: Option<Waker>,
    generation: u32,
    /// Its entry is still in the heap.
    queued: bool,
}

impl Sleepers {
    fn add(&mut self, deadline: Time, waker: &Waker) -> SleepId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Sleeper { waker: None, generation: 0, queued: false });
            self.slots.len() as u32 - 1
        });
        let sleeper = &mut self.slots[slot as usize];
        sleeper.waker = Some(waker.clone());
        sleeper.queued = true;
        let generation = sleeper.generation;
        self.heap.push(Reverse((deadline, slot, generation)));
        SleepId { slot, generation }
    }

    fn get(&mut self, id: SleepId) -> Option<&mut Sleeper> {
        self.slots.get_mut(id.slot as usize).filter(|s| s.generation == id.generation)
    }

    fn set_waker(&mut self, id: SleepId, waker: &Waker) {
        if let Some(sleeper) = self.get(id) {
            match &sleeper.waker {
                Some(w) if w.will_wake(waker) => {}
                _ => sleeper.waker = Some(waker.clone()),
            }
        }
    }

    fn remove(&mut self, id: SleepId) {
        let Some(sleeper) = self.get(id) else { return };
        sleeper.generation = sleeper.generation.wrapping_add(1);
        sleeper.waker = None;
        self.cancelled += usize::from(std::mem::take(&mut sleeper.queued));
        self.free.push(id.slot);
        if self.cancelled > 64 && self.cancelled > self.heap.len() / 2 {
            let slots = &self.slots;
            self.heap
                .retain(|Reverse((_, slot, generation))| slots[*slot as usize].generation == *generation);
            self.cancelled = 0;
        }
    }

    /// When the next sleeper is due; an entry that was cancelled may make this too early.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Wakes whoever is due.
    pub(crate) fn wake_due(&mut self, now: Time) {
        while let Some(Reverse((at, slot, generation))) = self.heap.peek().copied() {
            if at > now {
                return;
            }
            self.heap.pop();
            let sleeper = &mut self.slots[slot as usize];
            if sleeper.generation != generation {
                self.cancelled = self.cancelled.saturating_sub(1);
                continue;
            }
            sleeper.queued = false;
            if let Some(waker) = sleeper.waker.take() {
                waker.wake();
            }
        }
    }
}
