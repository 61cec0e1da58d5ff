//! How a worker's loop goes on: with another look, with a sleep, or not any more.

use std::sync::mpsc::Sender;
use std::time::Duration;

use flowlane_stack::time::Time;

use crate::runtime::idle::{Idle, Patience};
use crate::stats::WorkerReport;

/// How a worker's loop goes on.
pub(crate) struct Cycle {
    idle: Idle,
    patience: Patience,
    /// Since when there has been nothing to do.
    idle_since: Option<Time>,
    /// The last turn found nothing to do.
    found_nothing: bool,
    /// Told to stop, with time until then to end its lanes' connections: who wants the last report.
    ending: Option<(Sender<WorkerReport>, Time)>,
    stopped: bool,
}

impl Cycle {
    pub(super) fn new(idle: Idle) -> Self {
        Self {
            idle,
            patience: Patience::default(),
            idle_since: None,
            found_nothing: true,
            ending: None,
            stopped: false,
        }
    }

    /// Whether the worker looks again, whatever there is to do.
    #[inline]
    pub(super) fn spins(&self) -> bool {
        self.idle == Idle::Spin
    }

    /// Whether the last turn found nothing to do.
    #[inline]
    pub(super) fn found_nothing(&self) -> bool {
        self.found_nothing
    }

    /// What the kernel's sockets have to say comes first in the next turn, or not.
    #[inline]
    pub(super) fn set_found_nothing(&mut self, nothing: bool) {
        self.found_nothing = nothing;
    }

    /// A turn that began at `now` is over: for how long the worker would have looked in vain before it sleeps, if it sleeps now.
    #[inline]
    pub(super) fn turned(&mut self, now: Time, busy: bool) -> Option<Duration> {
        self.found_nothing = !busy;
        if busy {
            if let Some(since) = self.idle_since.take() {
                self.patience.worked(now.saturating_duration_since(since));
            }
            return None;
        }
        let waited = now.saturating_duration_since(*self.idle_since.get_or_insert(now));
        match self.idle {
            Idle::Adaptive(most) if waited >= self.patience.limit(most) => Some(most),
            _ => None,
        }
    }

    /// The worker goes to sleep, having looked for long enough.
    pub(super) fn slept(&mut self) {
        self.patience.slept();
        self.idle_since = None;
    }

    /// Told to stop, with time until then to end connections.
    pub(super) fn begin_to_end(&mut self, to: Sender<WorkerReport>, until: Time) {
        self.ending = Some((to, until));
    }

    /// Until when connections may end, if the worker was told to stop.
    #[inline]
    pub(super) fn ends_at(&self) -> Option<Time> {
        self.ending.as_ref().map(|(_, until)| *until)
    }

    /// No turn follows. Who wants the last report.
    pub(super) fn stop(&mut self) -> Option<Sender<WorkerReport>> {
        self.stopped = true;
        self.ending.take().map(|(to, _)| to)
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Whether it was told to stop.
    pub(super) fn is_ending(&self) -> bool {
        self.stopped || self.ending.is_some()
    }
}
