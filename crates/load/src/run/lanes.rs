//! A run by the lanes of a host: a task in each that takes part, progress while they run, and their outcomes as one.

use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::{ConnectError, Endpoint};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::changer::{Changeable, Changer};
use super::changes::{Change, Unchanged};
use super::gate::{self, Gate, Outcomes, Patience, gather};
use super::gone::Gone;
use super::outcome::{Account, LaneOutcome, Outcome};
use super::timeline::{self, Phase};

/// What is sent, and what the lanes of its run share.
pub trait Kind: Debug + Send + Sync + 'static {
    /// What a lane counts.
    type Counts: Account + Debug + Send + Serialize + DeserializeOwned;
    /// What is known while it runs.
    type Progress;

    /// The common start and end.
    fn gate(&self) -> &Gate;
    /// Where lanes put their outcomes.
    fn outcomes(&self) -> &Outcomes<LaneOutcome<Self::Counts>>;
    /// The parts of the run.
    fn phases(&self) -> &[Phase];
    /// Who is sent to.
    fn target(&self) -> Endpoint;
    /// How a target says that nobody listens.
    fn refusal() -> &'static str {
        "connection refused"
    }
    /// Limit for an answer.
    fn timeout(&self) -> Duration;
    /// Whether what lanes do before the start ends by timeouts of its own.
    fn prepares(&self) -> bool {
        false
    }
    /// The rate of its schedule, per second, if lanes follow a change of it.
    fn rate(&self) -> Result<f64, Unchanged>;
    /// Whether there may be so many connections from some moment on.
    fn may_have(&self, _connections: u32) -> Result<(), Unchanged> {
        Err(Unchanged::OtherConnections)
    }
    /// Whether a lane has anything to do.
    fn takes_part(&self, bucket: u16) -> bool;
    /// Progress, at most 50 ms old.
    fn progress(&self) -> Self::Progress;
    /// What a lane does, from before the start to its outcome.
    fn lane(self: Arc<Self>, bucket: u16) -> impl Future<Output = LaneOutcome<Self::Counts>> + Send;
}

impl<K: Kind> Changeable for K {
    fn gate(&self) -> &Gate {
        Kind::gate(self)
    }

    fn duration(&self) -> Duration {
        timeline::duration(self.phases())
    }

    fn rate(&self, change: Change) -> Result<f64, Unchanged> {
        let Change::Connections(n) = change else { return Kind::rate(self) };
        self.may_have(n)?;
        Ok(Kind::rate(self).unwrap_or_default())
    }
}

/// A run.
#[derive(Debug)]
pub struct Lanes<K: Kind> {
    kind: Arc<K>,
    outcomes: mpsc::Receiver<LaneOutcome<K::Counts>>,
}

impl<K: Kind> Lanes<K> {
    /// A run of what `kind` makes with the place for its lanes' outcomes.
    pub(crate) fn of(kind: impl FnOnce(Outcomes<LaneOutcome<K::Counts>>) -> K) -> Self {
        let (to, outcomes) = Outcomes::new();
        Self { kind: Arc::new(kind(to)), outcomes }
    }

    /// What its lanes share.
    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    /// The main function of the lanes of the host that is to run it.
    pub fn main(&self) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
        let kind = self.kind.clone();
        gate::main(move |bucket| {
            let kind = kind.clone();
            kind.takes_part(bucket).then_some(async move {
                let outcome = kind.clone().lane(bucket).await;
                kind.outcomes().add(outcome);
            })
        })
    }

    /// What changes it while it runs.
    #[must_use]
    pub fn changer(&self) -> Changer {
        Changer::of(self.kind.clone())
    }

    /// Ends the run. Its lanes notice soon, and still wait for outstanding answers.
    pub fn stop(&self) {
        self.kind.gate().stop();
    }

    /// Progress, at most 50 ms old.
    #[must_use]
    pub fn progress(&self) -> K::Progress {
        self.kind.progress()
    }

    /// Whether all lanes were ready: connections that the run needs stand, and items are stored.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.kind.gate().start().is_some()
    }

    /// Whether all lanes are ready for the start.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.kind.gate().is_ready()
    }

    /// Says when a part of a run starts, once all its lanes [are ready](Self::is_ready).
    pub fn begin_at(&self, moment: Instant) {
        self.kind.gate().begin_at(moment);
    }

    /// From now on this part of a run of `of` lanes has its share of what generators had that are gone: of the rate, and of connections where the load has any;
    /// the list only grows.
    pub fn share(&self, of: usize, gone: &[Gone]) {
        self.kind.gate().share(of, gone);
    }

    /// The phases of the run, including the opening of connections that stay.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        self.kind.phases()
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(K::Progress) -> bool) -> Outcome<K::Counts> {
        let (gate, phases) = (self.kind.gate(), self.kind.phases());
        // The run, what is outstanding at its end, and as much again for a busy machine.
        let after = timeline::duration(phases) + self.kind.timeout() * 2 + Duration::from_secs(20);
        // Who waits for others ends by what these say, or by their silence.
        let limited = !self.kind.prepares() && !gate.is_held();
        let patience = Patience { before: limited.then_some(after), after };
        let (lanes, interrupted) = gather(&self.outcomes, gate, &patience, every, || tick(self.progress()));
        let missing = gate.active - lanes.len();
        let mut outcome = Outcome::merge(lanes, phases, interrupted, missing);
        outcome.changes = gate.changes.within(outcome.elapsed);
        if gate.door.is_shut() {
            let target = SocketAddr::from(self.kind.target());
            outcome.failure = Some(match gate.door.is_lost() {
                true => format!("{target}: {}", ConnectError::NoRoute),
                false => format!("nothing listens at {target}: {}", K::refusal()),
            });
        }
        outcome
    }
}
