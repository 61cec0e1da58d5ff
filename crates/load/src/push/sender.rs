//! The thread that pushes, and how figures get to it.
//!
//! A channel holds the newest state only. Each receiver has a task that takes it when it is ready for it, so what waits is one state, however long
//! receivers take. A state that could not be pushed is tried again after a pause that doubles, unless there is a newer one by then.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use flowlane_http::tls::ClientTls;
use flowlane_sys::privilege;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::labels::Labels;
use super::post::{Post, Refused};
use super::state::{State, wall};
use super::target::{Header, Protocol, Target};
use super::{otlp, remote_write};
use crate::report::SnapshotsTo;
use crate::report::live::Live;
use crate::report::model::{Ended, Pushed, Run};

/// How long the last push may take, all that was begun before included.
pub const FAREWELL: Duration = Duration::from_secs(5);
/// How much of that a push has that is under way when the last one comes.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The first and the longest pause before another attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What is pushed where.
#[derive(Debug)]
pub struct Start {
    /// The receivers, each with its header lines.
    pub targets: Vec<(Target, Vec<Header>)>,
    /// For those with https.
    pub tls: Option<ClientTls>,
    /// Labels of all series.
    pub labels: Labels,
    /// Time between two pushes.
    pub every: Duration,
}

/// What is to be pushed next.
#[derive(Debug, Clone)]
enum Order {
    Nothing,
    Push(Arc<State>),
    /// The last, until this moment.
    Last(Arc<State>, Instant),
}

/// What came of it so far.
type Account = Arc<Mutex<Pushed>>;

/// The thread that pushes. It ends with this, or a little later.
#[derive(Debug)]
pub struct Pusher {
    to: Arc<watch::Sender<Order>>,
    accounts: Vec<Account>,
    /// Ends when all tasks have ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// The way of a run's figures to the thread.
#[derive(Debug)]
pub struct Feed {
    to: Arc<watch::Sender<Order>>,
    pools: Vec<String>,
    every: Duration,
    next: Instant,
}

impl Start {
    /// Starts the thread of a run with these pools, which begins now.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(self, pools: &[String]) -> io::Result<(Pusher, Feed)> {
        let (to, from) = watch::channel(Order::Nothing);
        let to = Arc::new(to);
        let (tasks, accounts): (Vec<Task>, Vec<Account>) = self
            .targets
            .into_iter()
            .map(|(target, headers)| {
                let instance = self.labels.instance().to_owned();
                let account: Account =
                    Arc::new(Mutex::new(Pushed { to: target.to_string(), instance, ..Pushed::default() }));
                let tls = self.tls.clone().filter(|_| target.url.https);
                let task = Task {
                    post: Post { target, headers, tls },
                    labels: self.labels.clone(),
                    start: wall(),
                    from: from.clone(),
                    account: account.clone(),
                };
                (task, account)
            })
            .unzip();
        let (ends, ended) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("flowlane-push".into()).spawn(move || {
            // It needs no privilege, and has none before the run gives up its own. The kernel is not expected to refuse.
            // Guard: no `let _ = privilege::drop_all();` fails
            // cli/load_push::a_run_that_is_interrupted_pushes_what_it_had
            let _ = privilege::drop_all();
            drop(ready);
            runtime.block_on(async {
                let mut all = tokio::task::JoinSet::new();
                tasks.into_iter().for_each(|task| drop(all.spawn(task.run())));
                all.join_all().await;
            });
            drop(ends);
            // A name that is being looked up keeps nobody.
            runtime.shutdown_background();
        })?;
        // An error is the end of the channel, which says so.
        let _ = is_ready.recv();
        let feed = Feed { to: to.clone(), pools: pools.to_vec(), every: self.every, next: Instant::now() };
        Ok((Pusher { to, accounts, ended: Mutex::new(ended) }, feed))
    }
}

impl Feed {
    /// Has `live` keep what is pushed.
    pub fn prepare(&self, live: &mut Live) {
        live.add_up();
    }

    /// The way for snapshots that have what is pushed.
    #[must_use]
    pub fn asks(&self, to: SnapshotsTo) -> SnapshotsTo {
        to.with_counts()
    }

    /// Pushes what is known if it is time for it. The first push has no counts, so that all that follow have something to count from.
    pub fn look(&mut self, live: &Live) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        // No pushes are made up for.
        self.next = (self.next + self.every).max(now);
        self.to.send_replace(Order::Push(Arc::new(State::of_live(live, &self.pools))));
    }
}

impl Pusher {
    /// Pushes the figures of the report, and waits until all receivers have taken them, for [`FAREWELL`] at most, or for a second if somebody has
    /// ended the run and none has taken anything. Returns what came of all pushes.
    #[must_use]
    pub fn last(self, run: &Run) -> Vec<Pushed> {
        // Guard: `locked(account).taken == 0` as `false` fails cli/load_push::a_run_that_is_interrupted_does_not_wait
        let in_vain = self.accounts.iter().all(|account| locked(account).taken == 0);
        let farewell = if in_vain && run.ended == Ended::Interrupted { UNDER_WAY } else { FAREWELL };
        let until = Instant::now() + farewell;
        self.to.send_replace(Order::Last(Arc::new(State::of_run(run)), until));
        // A little more, for a task that hears at that moment that its time is up.
        let patience = farewell + Duration::from_millis(500);
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(patience);
        self.accounts.iter().map(|account| locked(account).clone()).collect()
    }
}

fn locked(account: &Account) -> std::sync::MutexGuard<'_, Pushed> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pushes to one receiver.
struct Task {
    post: Post,
    labels: Labels,
    start: SystemTime,
    from: watch::Receiver<Order>,
    account: Account,
}

impl Task {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        // An error is the end of the run without a report.
        while self.from.changed().await.is_ok() {
            let order = self.from.borrow_and_update().clone();
            let after = match order {
                Order::Nothing => None,
                Order::Push(state) => self.attempt(&state).await.err().and_then(|refused| refused.again),
                Order::Last(state, until) => return self.push_last(&state, until).await,
            };
            let Some(after) = after else {
                pause = PAUSES.0;
                continue;
            };
            if !self.rest(after.unwrap_or(pause)).await {
                return;
            }
            pause = (pause * 2).min(PAUSES.1);
            // The newest state is next, which may be the same.
            // Guard: no `self.from.mark_changed();` fails
            // cli/load_push::what_is_busy_is_asked_again_and_what_refuses_is_not
            self.from.mark_changed();
        }
    }

    /// Waits so long, or until the last state has come; `false` at the end of the run without a report.
    async fn rest(&self, pause: Duration) -> bool {
        let mut from = self.from.clone();
        tokio::select! {
            last = from.wait_for(|order| matches!(order, Order::Last(..))) => last.is_ok(),
            () = tokio::time::sleep(pause) => true,
        }
    }

    /// Pushes the last state, as often as there is time for.
    async fn push_last(&mut self, state: &State, until: Instant) {
        let mut pause = PAUSES.0 / 4;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(outcome) = timeout(left, self.send(state)).await else {
                self.note(&Err(Refused::unanswered(format!("no answer within {left:.1?}"))));
                return;
            };
            self.note(&outcome);
            let Err(refused) = outcome else {
                locked(&self.account).complete = true;
                return;
            };
            let Some(after) = refused.again else { return };
            let next = Instant::now() + after.unwrap_or(pause);
            pause *= 2;
            if next >= until {
                return;
            }
            sleep_until(next.into()).await;
        }
    }

    /// One attempt, which is given up soon after the last state has come.
    async fn attempt(&mut self, state: &State) -> Result<(), Refused> {
        let mut from = self.from.clone();
        let given_up = async move {
            let _ = from.wait_for(|order| matches!(order, Order::Last(..))).await;
            // Guard: `UNDER_WAY` as `ATTEMPT` fails cli/load_push::receivers_that_hang_or_are_away_end_no_run_late
            tokio::time::sleep(UNDER_WAY).await;
        };
        let began = Instant::now();
        let outcome = tokio::select! {
            outcome = timeout(ATTEMPT, self.send(state)) => outcome.ok(),
            () = given_up => None,
        };
        let outcome = outcome
            .unwrap_or_else(|| Err(Refused::unanswered(format!("no answer within {:.1?}", began.elapsed()))));
        self.note(&outcome);
        outcome
    }

    async fn send(&self, state: &State) -> Result<(), Refused> {
        let body = match self.post.target.protocol {
            Protocol::Otlp => otlp::encode(state, &self.labels, self.start),
            Protocol::RemoteWrite => remote_write::compress(&remote_write::encode(state, &self.labels)),
        };
        self.post.send(body).await
    }

    fn note(&self, outcome: &Result<(), Refused>) {
        let mut account = locked(&self.account);
        match outcome {
            Ok(()) => account.taken += 1,
            Err(refused) => {
                account.failed += 1;
                account.last_error = Some(refused.why.clone());
            }
        }
    }
}
