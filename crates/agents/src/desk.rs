//! An agent: what it answers, and the one run that it has at a time.
//!
//! ```text
//!   prepare ▸ Preparing ▸ Prepared ── deal ▸ Opening ▸ Ready ── start ▸ Running ▸ Ended ── results, done ▸ free
//!                  └────────▸ Failed                    ^ whoever makes the run says so
//! ```
//!
//! Two sides use a desk: the bus, with [`Desk::answer`], and whoever makes the run, with the rest. Every question is answered the same if it comes
//! again. **Whoever conducts must be heard from**: if nothing has been asked for as long as the run's patience, the run ends, so that no agent
//! sends for somebody who is gone. Results are kept for a minute then, for a server that is started anew.

use std::time::{Duration, Instant};

use flowlane_load::run::gone::Gone;

use crate::clock::Clock;
use crate::message::{Answer, Ask, Here, LONGEST, PROTOCOL, State, Work, cut};

/// How long results wait for whoever conducts.
const KEPT: Duration = Duration::from_secs(60);
/// The patience that a run may have.
const PATIENCE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// What a message needs beside what is behind it.
const HEAD: usize = 4096;

/// An agent.
#[derive(Debug)]
pub struct Desk {
    here: Here,
    /// Bytes that fit behind an answer.
    room: usize,
    current: Option<Current>,
}

/// A run.
#[derive(Debug)]
struct Current {
    run: String,
    /// Until somebody makes it.
    work: Option<Work>,
    patience: Duration,
    /// When a question about it came last.
    heard: Instant,
    state: State,
    part: Option<(usize, usize)>,
    start: Option<u64>,
    stop: Option<String>,
    /// Others that are gone, whose shares it has a part of.
    gone: Vec<Gone>,
    /// Nobody waits for what others may leave.
    finished: bool,
    /// Nobody wants its results.
    forgotten: bool,
    results: Vec<u8>,
    snapshots: Vec<u8>,
}

impl Current {
    /// Whether these can be gone: lanes of others, and no fewer than before.
    fn takes(&self, gone: &[Gone]) -> bool {
        let Some((first, of)) = self.part else { return false };
        // Guard: `gone.iter().any(|g| (g.first..g.first + g.lanes).contains(&first))` as `false` fails
        // desk::tests::a_run_from_its_beginning
        Gone::left(of, gone).is_some()
            && !gone.iter().any(|g| (g.first..g.first + g.lanes).contains(&first))
            && gone.starts_with(&self.gone)
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Ended { .. } | State::Failed { .. })
    }
}

impl Desk {
    /// An agent that is free. `payload`: bytes that a message of the bus can have.
    #[must_use]
    pub fn new(here: Here, payload: usize) -> Self {
        Self { here, room: payload.min(LONGEST).saturating_sub(HEAD).max(HEAD), current: None }
    }

    /// The answer to a question, with what is behind it. `received`: when it came, on the agent's clock.
    pub fn answer(&mut self, ask: Ask, now: Instant, received: u64, clock: &Clock) -> (Answer, Vec<u8>) {
        let none = |answer| (answer, Vec::new());
        let ask = match ask {
            Ask::Who => return none(Answer::Here(Here { busy: self.is_busy(now), ..self.here.clone() })),
            Ask::Prepare { run, work } => return none(self.prepare(run, work, now)),
            ask => ask,
        };
        let room = self.room;
        let Some(current) = self.current.as_mut().filter(|current| ask.run() == current.run) else {
            return none(Answer::refused("knows nothing of this run"));
        };
        current.heard = now;
        match ask {
            Ask::Deal { first, of, .. } => match (&current.state, current.part) {
                (State::Prepared { lanes }, None) if first + lanes <= of => {
                    current.part = Some((first, of));
                    current.state = State::Opening { standing: 0, of: 0 };
                    none(Answer::Done)
                }
                (_, Some(part)) if part == (first, of) => none(Answer::Done),
                _ => none(Answer::refused("has no use for this part")),
            },
            Ask::Status { .. } => {
                let behind = std::mem::take(&mut current.snapshots);
                let state = current.state.clone();
                (Answer::Status { received, answered: clock.now(), state }, behind)
            }
            Ask::Start { at, .. } => match (&current.state, current.start) {
                (State::Ready, None) if at > received => {
                    (current.start, current.state) = (Some(at), State::Running);
                    none(Answer::Done)
                }
                (State::Ready, None) => {
                    let late = Duration::from_nanos(received - at);
                    none(Answer::refused(format!("heard of the start {late:?} late")))
                }
                (_, Some(start)) if start == at => none(Answer::Done),
                _ => none(Answer::refused("is not ready to start")),
            },
            Ask::Share { gone, .. } => {
                if !current.takes(&gone) {
                    return none(Answer::refused("has no use for these shares"));
                }
                if let State::Idle { .. } = current.state {
                    current.state = State::Running;
                }
                current.gone = gone;
                none(Answer::Done)
            }
            Ask::Finish { .. } => {
                current.finished = true;
                none(Answer::Done)
            }
            Ask::Stop { why, .. } => {
                current.stop.get_or_insert(why);
                none(Answer::Done)
            }
            Ask::Results { part, .. } => match &current.state {
                State::Ended { parts, .. } if part < *parts => {
                    let from = room * part as usize;
                    let to = (from + room).min(current.results.len());
                    (Answer::Results { part }, current.results[from..to].to_vec())
                }
                _ => none(Answer::refused("has no such part of results")),
            },
            Ask::Done { .. } => {
                if current.is_over() {
                    self.current = None;
                } else {
                    current.stop.get_or_insert("whoever conducts the run has given it up".into());
                    current.forgotten = true;
                }
                none(Answer::Done)
            }
            Ask::Who | Ask::Prepare { .. } => none(Answer::Done),
        }
    }

    fn prepare(&mut self, run: String, work: Work, now: Instant) -> Answer {
        if self.current.as_ref().is_some_and(|current| current.run == run) {
            return Answer::Done;
        }
        // Guard: `(work.protocol, &work.program) != (PROTOCOL, &self.here.program)` as `false` fails
        // desk::tests::one_run_at_a_time
        if (work.protocol, &work.program) != (PROTOCOL, &self.here.program) {
            let (ours, theirs) = (&self.here.program, &work.program);
            return Answer::refused(format!("has version {ours}, whoever conducts the run has {theirs}"));
        }
        // Guard: `self.is_busy(now)` as `false` fails desk::tests::one_run_at_a_time
        if self.is_busy(now) {
            return Answer::refused("is busy with another run");
        }
        let patience = Duration::from_millis(work.patience_ms).clamp(*PATIENCE.start(), *PATIENCE.end());
        self.current = Some(Current {
            run,
            work: Some(work),
            patience,
            heard: now,
            state: State::Preparing,
            part: None,
            start: None,
            stop: None,
            gone: Vec::new(),
            finished: false,
            forgotten: false,
            results: Vec::new(),
            snapshots: Vec::new(),
        });
        Answer::Done
    }

    /// Whether it can take no other run. Results that nobody fetches make room.
    #[must_use]
    pub fn is_busy(&self, now: Instant) -> bool {
        self.current.as_ref().is_some_and(|current| {
            !current.is_over() || now.saturating_duration_since(current.heard) <= current.patience
        })
    }

    /// A run that was asked for and that nobody makes yet.
    pub fn take_work(&mut self, now: Instant) -> Option<(String, Work)> {
        let old = |c: &Current| c.is_over() && now.saturating_duration_since(c.heard) > c.patience.max(KEPT);
        if self.current.as_ref().is_some_and(old) {
            self.current = None;
        }
        let current = self.current.as_mut()?;
        current.work.take().map(|work| (current.run.clone(), work))
    }

    fn of(&mut self, run: &str) -> Option<&mut Current> {
        self.current.as_mut().filter(|current| current.run == run)
    }

    /// Whether the run goes on.
    ///
    /// # Errors
    /// Why it is to stop.
    pub fn goes_on(&mut self, run: &str, now: Instant) -> Result<(), String> {
        let Some(current) = self.of(run) else { return Err("the run is forgotten".into()) };
        let silent = now.saturating_duration_since(current.heard);
        if let Some(why) = &current.stop {
            return Err(why.clone());
        }
        // Guard: `silent > current.patience` as `false` fails desk::tests::who_is_not_heard_of
        if silent > current.patience {
            return Err(format!(
                "nothing was heard of whoever conducts the run for {:.1} s",
                silent.as_secs_f64()
            ));
        }
        Ok(())
    }

    /// The run can be made in so many lanes.
    pub fn prepared(&mut self, run: &str, lanes: usize) {
        if let Some(current) = self.of(run).filter(|current| current.state == State::Preparing) {
            current.state = State::Prepared { lanes };
        }
    }

    /// The part that was dealt: its first lane, and lanes of all.
    pub fn part(&mut self, run: &str) -> Option<(usize, usize)> {
        self.of(run)?.part
    }

    /// How many connections stand; `ready` if all is.
    pub fn opening(&mut self, run: &str, (standing, of): (u64, u64), ready: bool) {
        if let Some(current) = self.of(run).filter(|current| matches!(current.state, State::Opening { .. })) {
            current.state = if ready { State::Ready } else { State::Opening { standing, of } };
        }
    }

    /// When the run starts, on the agent's clock, once that is agreed.
    pub fn start(&mut self, run: &str) -> Option<u64> {
        self.of(run)?.start
    }

    /// The others that are gone beyond the first `known`, if there are any: all of them.
    pub fn gone(&mut self, run: &str, known: usize) -> Option<Vec<Gone>> {
        self.of(run).map(|current| &current.gone).filter(|gone| gone.len() > known).cloned()
    }

    /// The part has made its share and knows that so many are gone; or not.
    pub fn idle(&mut self, run: &str, gone: Option<usize>) {
        if let Some(current) = self.of(run).filter(|c| matches!(c.state, State::Running | State::Idle { .. }))
        {
            current.state = gone.map_or(State::Running, |gone| State::Idle { gone });
        }
    }

    /// Whether nobody waits any more for what others may leave.
    pub fn is_finished(&mut self, run: &str) -> bool {
        self.of(run).is_some_and(|current| current.finished)
    }

    /// Adds a snapshot for the next status, if there is room: a lost one does no harm.
    pub fn snapshot(&mut self, run: &str, snapshot: &[u8]) {
        let room = self.room;
        if let Some(current) = self.of(run)
            && current.snapshots.len() + snapshot.len() <= room
        {
            current.snapshots.extend_from_slice(snapshot);
        }
    }

    /// The run is over, with these results.
    pub fn ended(&mut self, run: &str, results: Vec<u8>) {
        let room = self.room;
        let Some(current) = self.of(run) else { return };
        let parts = results.len().div_ceil(room) as u32;
        current.state = State::Ended { parts, bytes: results.len() as u64 };
        current.results = results;
        if current.forgotten {
            self.current = None;
        }
    }

    /// The run could not be made.
    pub fn failed(&mut self, run: &str, why: String) {
        let Some(current) = self.of(run) else { return };
        current.state = State::Failed { why: cut(why) };
        if current.forgotten {
            self.current = None;
        }
    }
}

impl Ask {
    /// The run that it is about; empty for none.
    fn run(&self) -> &str {
        match self {
            Self::Who => "",
            Self::Prepare { run, .. }
            | Self::Deal { run, .. }
            | Self::Status { run }
            | Self::Start { run, .. }
            | Self::Share { run, .. }
            | Self::Finish { run }
            | Self::Stop { run, .. }
            | Self::Results { run, .. }
            | Self::Done { run } => run,
        }
    }
}

#[cfg(test)]
mod tests;
