//! The course of a run: the common start, the end, and the outcomes: lanes start together, and stop when asked to.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::changes::Changes;
use super::clock;
use super::door::Door;
use super::gone::Gone;

/// Time between the last lane's arrival and the start, nanoseconds, so that all lanes see the start time before it.
const HEAD_START: u64 = 2_000_000;

/// A barrier for the lanes of a run.
#[derive(Debug)]
pub struct Gate {
    stop: AtomicBool,
    pub(crate) door: Door,
    /// Number of lanes that take part.
    pub(crate) active: usize,
    ready: AtomicUsize,
    /// Start time in nanoseconds; 0 until it is known.
    start: AtomicU64,
    /// Whether somebody else says when to start: generators on several machines start together.
    held: bool,
    /// When, once it was said.
    agreed: Mutex<Option<Instant>>,
    /// By what the rate is multiplied since others are gone, see [`Gate::raise`]; 0 for nothing.
    raised: AtomicU64,
    /// Who is gone, and how many these are.
    gone: Mutex<Vec<Gone>>,
    are_gone: AtomicUsize,
    /// What was changed since the start.
    pub(crate) changes: Changes,
}

impl Gate {
    /// A barrier for `active` lanes.
    pub(crate) fn new(active: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            door: Door::default(),
            active,
            ready: AtomicUsize::new(0),
            start: AtomicU64::new(0),
            held: false,
            agreed: Mutex::new(None),
            raised: AtomicU64::new(0),
            gone: Mutex::default(),
            are_gone: AtomicUsize::new(0),
            changes: Changes::default(),
        }
    }

    /// The same, where all lanes wait until it is said when to start: see [`begin_at`](Self::begin_at).
    pub(crate) fn held(self, held: bool) -> Self {
        Self { held, ..self }
    }

    /// Whether all lanes wait until it is said when to start.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Says when a run starts that is held. What was said first is what holds.
    pub(crate) fn begin_at(&self, moment: Instant) {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(moment);
    }

    /// From now on this part of a run has `of` times its rate for each `left`: the lanes of all generators, and of those that are left.
    pub(crate) fn raise(&self, of: u32, left: u32) {
        self.raised.store(u64::from(of) << 32 | u64::from(left.max(1)), Ordering::Relaxed);
    }

    /// By what the rate of a part is multiplied and divided, if others are gone. Lanes ask at their ticks.
    pub(crate) fn raised(&self) -> Option<(u32, u32)> {
        let raised = self.raised.load(Ordering::Relaxed);
        (raised != 0).then_some(((raised >> 32) as u32, raised as u32))
    }

    /// From now on this part of a run of `of` lanes has its share of what these generators had; the list only grows.
    pub(crate) fn share(&self, of: usize, gone: &[Gone]) {
        let Some((of, left)) = Gone::left(of, gone) else { return };
        self.raise(of, left);
        let mut list = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.clone_into(&mut list);
        self.are_gone.store(list.len(), Ordering::Relaxed);
    }

    /// How many are gone.
    pub(crate) fn are_gone(&self) -> usize {
        self.are_gone.load(Ordering::Relaxed)
    }

    /// Who is gone, if these are more than `known`.
    pub(crate) fn gone(&self, known: usize) -> Option<Vec<Gone>> {
        (self.are_gone() > known).then(|| self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Whether every lane is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) >= self.active
    }

    /// Whether the run was stopped.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops the run.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A lane is ready; the last one sets the start time, unless that is for others to say.
    pub(crate) fn arrive(&self) {
        self.changes.begin();
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.active && !self.held {
            self.start.store(clock() + HEAD_START, Ordering::Release);
        }
    }

    /// The start time, nanoseconds, once every lane is ready.
    #[inline]
    pub(crate) fn start(&self) -> Option<u64> {
        Some(self.start.load(Ordering::Acquire)).filter(|start| *start != 0)
    }

    /// The same, for a lane that waits: it has the clock on which a moment that was agreed becomes a time.
    pub(crate) fn look(&self) -> Option<u64> {
        if self.held
            && self.start.load(Ordering::Acquire) == 0
            && let Some(moment) = *self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
        {
            let (now, there) = (Instant::now(), clock());
            let ahead = moment.saturating_duration_since(now).as_nanos() as u64;
            let late = now.saturating_duration_since(moment).as_nanos() as u64;
            let start = (there + ahead).saturating_sub(late).max(1);
            // An error means that another lane was first, with the same clock.
            let _ = self.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Acquire);
        }
        self.start()
    }

    /// Waits until every lane is ready and returns the start time; `None` if the run was stopped meanwhile.
    pub(crate) async fn start_line(&self) -> Option<u64> {
        self.arrive();
        loop {
            if let Some(start) = self.look() {
                return Some(start);
            }
            if self.stopped() {
                return None;
            }
            flowlane::sleep(Duration::from_micros(500)).await;
        }
    }
}

/// Where the lanes of a run put their outcomes.
#[derive(Debug)]
pub struct Outcomes<T>(Mutex<mpsc::Sender<T>>);

impl<T> Outcomes<T> {
    /// With the other end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<T>) {
        let (to, from) = mpsc::channel();
        (Self(Mutex::new(to)), from)
    }

    /// A lane has ended.
    pub(crate) fn add(&self, outcome: T) {
        // An error means that the receiver has stopped waiting.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(outcome);
    }
}

/// The main function of the lanes of the host that is to run something: in each lane, what `lane` gives for its bucket, if anything.
pub(crate) fn main<F: Future<Output = ()> + Send + 'static>(
    lane: impl Fn(u16) -> Option<F> + Send + Sync + 'static,
) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
    let lane = Arc::new(lane);
    move || {
        let lane = lane.clone();
        Box::pin(async move {
            if let Some(run) = flowlane::current().ok().and_then(|here| lane(here.bucket.0)) {
                run.await;
            }
        })
    }
}

/// How long the results of a run's lanes are waited for.
pub(crate) struct Patience {
    /// Before the start; `None` where lanes limit that themselves.
    pub(crate) before: Option<Duration>,
    /// After it.
    pub(crate) after: Duration,
}

/// Waits for the results of all lanes, as long as `patience` says. `tick` is called about every `every`; when it returns `false` the run
/// is stopped, which is returned with the results.
pub(crate) fn gather<T>(
    outcomes: &mpsc::Receiver<T>,
    gate: &Gate,
    patience: &Patience,
    every: Duration,
    mut tick: impl FnMut() -> bool,
) -> (Vec<T>, bool) {
    let (mut begun, mut started) = (Instant::now(), false);
    let (mut lanes, mut interrupted) = (Vec::new(), false);
    while lanes.len() < gate.active {
        if !started && gate.start().is_some() {
            (begun, started) = (Instant::now(), true);
        }
        let limit = if started || interrupted { Some(patience.after) } else { patience.before };
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            break;
        }
        match outcomes.recv_timeout(every) {
            Ok(lane) => lanes.push(lane),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if !interrupted && !tick() {
                    interrupted = true;
                    if !started {
                        begun = Instant::now();
                    }
                    gate.stop();
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    (lanes, interrupted)
}
