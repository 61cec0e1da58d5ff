//! What a load needs of the agent that makes a part of it: which part, when to start, whether to go on; and where its figures go.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use flowlane_agents::{Clock, Desk, Summary};
use flowlane_load::report::{LaneRecord, Snapshot};
use flowlane_load::run::gone::Gone;
use flowlane_load::{ClientRange, Part};

use super::only::{self, Only};
use crate::interrupt::Interrupt;
use crate::say::say;

/// Between two looks at whether the run has begun or goes on.
pub(in super::super) const EVERY: Duration = Duration::from_millis(20);

/// A part of a run, for whoever makes it.
#[derive(Debug, Clone)]
pub(in super::super) struct Errand {
    pub(super) run: String,
    pub(super) desk: Arc<Mutex<Desk>>,
    pub(super) clock: Clock,
    pub(super) only: Arc<Vec<Only>>,
    pub(super) interrupt: Interrupt,
    /// Whether client addresses are the agent's own, given where it was started.
    own_clients: bool,
    begun: bool,
    /// How many that are gone it has taken shares of.
    gone: usize,
    /// Whether shares of agents that are lost go to the others.
    shares: bool,
}

/// How a part of a run stands.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Stands {
    /// Connections that stand, of those wanted.
    pub(in super::super) standing: (u64, u64),
    /// Whether all is ready for the start.
    pub(in super::super) ready: bool,
    /// Its share is made, with those of so many that are gone.
    pub(in super::super) idle: Option<usize>,
}

/// What a part of a run is to do.
#[derive(Debug)]
pub(in super::super) enum Order {
    /// Begin, at this moment.
    Begin(Instant),
    /// Take a share of what these had, that are gone.
    Share(Vec<Gone>),
    /// All is made, by all.
    Finish,
}

impl Errand {
    pub(super) fn new(
        run: String,
        desk: Arc<Mutex<Desk>>,
        clock: Clock,
        only: Arc<Vec<Only>>,
        interrupt: Interrupt,
    ) -> Self {
        Self { run, desk, clock, only, interrupt, own_clients: false, begun: false, gone: 0, shares: false }
    }

    /// With client addresses of the agent's own, or not.
    pub(super) fn with_own_clients(self, own_clients: bool) -> Self {
        Self { own_clients, ..self }
    }

    /// With what agents leave that are lost, or not.
    pub(super) fn sharing(self, shares: bool) -> Self {
        Self { shares, ..self }
    }

    /// Whether it may still have to make what others leave.
    pub(in super::super) fn shares(&self) -> bool {
        self.shares
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses targets to which this agent does not send. `follows`: redirects are followed.
    pub(in super::super) fn admits(&self, targets: &[SocketAddr], follows: bool) -> anyhow::Result<()> {
        only::check(&self.only, targets, follows)
    }

    /// Says that the load can be made in so many lanes, and waits for the part of it that is dealt to this agent.
    pub(in super::super) fn dealt(&self, lanes: usize) -> anyhow::Result<Part> {
        self.desk().prepared(&self.run, lanes);
        loop {
            self.goes_on()?;
            if let Some((first, of)) = self.desk().part(&self.run) {
                say!("flowlane: has lanes {first} to {} of {of}", first + lanes - 1);
                return Ok(Part { first, of });
            }
            std::thread::sleep(EVERY);
        }
    }

    /// The client addresses of a part, of those that all have together; those that the agent was started with are its own.
    pub(in super::super) fn clients(
        &self,
        part: Part,
        clients: &[ClientRange],
        lanes: usize,
    ) -> anyhow::Result<Vec<ClientRange>> {
        // Guard: `self.own_clients` as `false` fails cli/agents::kinds::clients_are_dealt_out
        if self.own_clients {
            return Ok(clients.to_vec());
        }
        part.clients(clients, lanes)
            .context("no client address is left for this part: --clients has fewer than there are agents")
    }

    /// Whether the run is still wanted.
    ///
    /// # Errors
    /// Why it is not.
    pub(in super::super) fn goes_on(&self) -> anyhow::Result<()> {
        if let Err(why) = self.desk().goes_on(&self.run, Instant::now()) {
            bail!("{why}");
        }
        if self.interrupt.came() {
            bail!("was stopped at its machine");
        }
        Ok(())
    }

    /// While the run is waited for: hands the figures on, and says what it is to do; `false` if it is to stop.
    pub(in super::super) fn tick(
        &mut self,
        from: &Receiver<Snapshot>,
        stands: Stands,
        mut order: impl FnMut(Order),
    ) -> bool {
        let mut desk = self.desk();
        let mut bytes = Vec::new();
        for snapshot in from.try_iter() {
            bytes.clear();
            snapshot.write(&mut bytes);
            desk.snapshot(&self.run, &bytes);
        }
        let mut begun = self.begun;
        if !begun {
            desk.opening(&self.run, stands.standing, stands.ready);
            if let Some(moment) = desk.start(&self.run).and_then(|at| self.clock.moment(at)) {
                order(Order::Begin(moment));
                begun = true;
            }
        }
        let (gone, finished) = (desk.gone(&self.run, self.gone), desk.is_finished(&self.run));
        if gone.is_none() {
            desk.idle(&self.run, stands.idle);
        }
        let part = desk.part(&self.run);
        drop(desk);
        self.begun = begun;
        if let Some(gone) = gone {
            self.gone = gone.len();
            if let Some((of, left)) = part.and_then(|(_, of)| Gone::left(of, &gone)) {
                say!("flowlane: others are gone: {left} of {of} lanes are left, and have their shares");
            }
            order(Order::Share(gone));
        }
        if finished && stands.idle.is_some() {
            order(Order::Finish);
        }
        match self.goes_on() {
            Ok(()) => true,
            Err(why) => {
                say!("flowlane: stops: {why}");
                false
            }
        }
    }

    /// The run is over. Returns what came of it, in words.
    pub(in super::super) fn ended(&self, summary: Summary, records: &[LaneRecord]) -> String {
        let [sent, answered, failed] = records.iter().fold([0; 3], |sum, record| {
            let counts = record.counts();
            [sum[0] + counts[0], sum[1] + counts[1], sum[2] + counts[2]]
        });
        self.desk().ended(&self.run, summary.write(records));
        format!("the run is over: {sent} sent, {answered} answered, {failed} failed")
    }
}

impl Errand {
    /// The run could not be made.
    pub(super) fn failed(&self, why: String) {
        self.desk().failed(&self.run, why);
    }
}
