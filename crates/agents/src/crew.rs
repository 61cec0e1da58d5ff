//! The agents of a run, as whoever conducts it sees them.
//!
//! ```text
//!   all prepared ▸ lanes are dealt out ▸ all ready, clocks compared ▸ start at one moment ▸ status ▸ results ▸ done
//! ```
//!
//! A value: [`Crew::asks`] says what to ask now, [`Crew::heard`] takes what came of it, and time is an argument. What was asked and not answered is
//! asked again. An agent that has not been heard of for the run's patience is lost, and so is one that has forgotten the run, or cannot go on;
//! [`Loss`] says what becomes of the others.

use std::time::{Duration, Instant};

use flowlane_load::Part;
use flowlane_load::report::{LaneRecord, Limits, Snapshot};
use flowlane_load::run::gone::Gone;
use flowlane_load::run::part::MOST_LANES;

use crate::clock::{Clock, Comparison, Sample};
use crate::message::{Answer, Ask, Here, State, Work, cut};
use crate::summary::Summary;

/// Between two questions of how it stands: before the start, when clocks are compared as well, and after.
const OFTEN: Duration = Duration::from_millis(40);
const SELDOM: Duration = Duration::from_millis(250);
/// Samples of a clock before a start is agreed, or how long they are waited for.
const SAMPLES: usize = 12;
const COMPARING: Duration = Duration::from_secs(3);
/// How long before the start agents are told of it, besides what the longest round trip takes.
const AHEAD: Duration = Duration::from_millis(400);
/// How long an agent may look at a load before it says whether it can make it: names are resolved, and no connection is opened.
const PREPARING: Duration = Duration::from_secs(30);
/// How long a run that was stopped may take to end.
const ENDING: Duration = Duration::from_secs(30);
/// Most bytes of an agent's results.
const MOST_RESULTS: u64 = 256 << 20;

/// What becomes of a run that has lost an agent after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loss {
    /// It is stopped, and has failed.
    #[default]
    Fail,
    /// The others go on.
    GoOn,
    /// The others go on, and have its share: of the rate, and, where the load can, of connections and totals.
    Share,
}

/// What a run is to be.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name, which nobody else knows.
    pub run: String,
    /// The load.
    pub work: Work,
    /// After how long without an answer an agent is lost.
    pub patience: Duration,
    /// What becomes of the run then.
    pub loss: Loss,
    /// Pools, phases and requests of a pool.
    pub pools: usize,
    /// Phases.
    pub phases: usize,
    /// Most requests of a pool.
    pub requests: usize,
    /// How long it may take from its start until its results are there.
    pub longest: Duration,
}

/// A question, in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// How it stands.
    Status,
    /// Anything else.
    Other,
}

/// An agent.
#[derive(Debug)]
pub struct Member {
    /// Who it is.
    pub here: Here,
    /// Its clock.
    pub clock: Comparison,
    /// Its part, and lanes.
    pub part: Option<(Part, usize)>,
    /// What it came to.
    pub results: Option<(Summary, Vec<LaneRecord>)>,
    /// What is wrong with it, and how long after the start that was found.
    pub fault: Option<String>,
    state: Option<State>,
    heard: Instant,
    flying: [bool; 2],
    next_status: Instant,
    acknowledged: [bool; 4],
    /// How many that are gone it was told of.
    told: usize,
    bytes: Vec<u8>,
    got: u32,
    over: bool,
}

/// Questions that are asked until they are acknowledged.
const DEAL: usize = 0;
const START: usize = 1;
const STOP: usize = 2;
const FINISH: usize = 3;

impl Member {
    fn new(here: Here, now: Instant) -> Self {
        Self {
            here,
            clock: Comparison::default(),
            part: None,
            results: None,
            fault: None,
            state: None,
            heard: now,
            flying: [false; 2],
            next_status: now,
            acknowledged: [false; 4],
            told: 0,
            bytes: Vec::new(),
            got: 0,
            over: false,
        }
    }

    /// Its name, with its machine if that is another word.
    #[must_use]
    pub fn name(&self) -> String {
        let Here { name, host, .. } = &self.here;
        if name == host { name.clone() } else { format!("{name} ({host})") }
    }

    /// Connections that stand, of those wanted, while they are opened.
    #[must_use]
    pub fn standing(&self) -> Option<(u64, u64)> {
        match self.state {
            Some(State::Opening { standing, of }) => Some((standing, of)),
            _ => None,
        }
    }

    fn limits(&self, plan: &Plan) -> Limits {
        let (part, lanes) = self.part.unwrap_or((Part { first: 0, of: 0 }, 0));
        let number = |lane: usize| u16::try_from(lane).unwrap_or(u16::MAX);
        let lanes = number(part.first)..number(part.first + lanes);
        Limits { lanes, pools: plan.pools, phases: plan.phases, requests: plan.requests }
    }
}

/// The agents of a run.
#[derive(Debug)]
pub struct Crew {
    plan: Plan,
    /// In the order in which they have their parts.
    pub members: Vec<Member>,
    /// Since when it is.
    begun: Instant,
    /// Since when all are ready.
    ready: Option<Instant>,
    /// The moment of the start, and the time on our clock.
    start: Option<(Instant, u64)>,
    stop: Option<(Instant, String)>,
    /// Whether the run has failed for want of an agent.
    failed: bool,
    /// Those that are gone, whose shares the others have.
    gone: Vec<Gone>,
    /// Whether all shares are made.
    finished: bool,
}

impl Crew {
    /// The agents that make a run.
    #[must_use]
    pub fn new(plan: Plan, agents: Vec<Here>, now: Instant) -> Self {
        let members = agents.into_iter().map(|here| Member::new(here, now)).collect();
        let (ready, start, stop) = (None, None, None);
        Self {
            plan,
            members,
            begun: now,
            ready,
            start,
            stop,
            failed: false,
            gone: Vec::new(),
            finished: false,
        }
    }

    /// When the run started, or will.
    #[must_use]
    pub fn start(&self) -> Option<Instant> {
        self.start.map(|(moment, _)| moment)
    }

    /// Whether the run has failed for want of an agent.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// What is wrong with an agent that was lost while the others go on.
    #[must_use]
    pub fn lost(&self, i: usize) -> Option<&str> {
        self.members[i].fault.as_deref().filter(|_| self.stop.is_none())
    }

    /// Whether all is over: every agent has given its results, or is lost.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.members.iter().all(|member| member.over)
    }

    /// Lanes of all.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.members.iter().filter_map(|member| member.part).map(|(_, lanes)| lanes).sum()
    }

    /// Stops the run; what was measured is still fetched.
    pub fn stop(&mut self, why: &str, now: Instant) {
        self.stop.get_or_insert_with(|| (now, cut(why.to_owned())));
    }

    /// What to ask now: of which agent, and what.
    pub fn asks(&mut self, now: Instant, clock: &Clock) -> Vec<(usize, Kind, Ask)> {
        self.look(now, clock);
        let (run, stopped, finished) = (self.plan.run.clone(), self.stop.is_some(), self.finished);
        let gone = self.gone.clone();
        let mut asks = Vec::new();
        let every = if self.start.is_some_and(|(moment, _)| now >= moment) { SELDOM } else { OFTEN };
        for (i, member) in self.members.iter_mut().enumerate().filter(|(_, member)| !member.over) {
            let run = run.clone();
            if member.state.is_some() && !member.flying[Kind::Status as usize] && now >= member.next_status {
                member.next_status = now + every;
                asks.push((i, Kind::Status, Ask::Status { run: run.clone() }));
            }
            let ask = match (&member.state, member.part) {
                (None, _) => Some(Ask::Prepare { run, work: self.plan.work.clone() }),
                (Some(State::Ended { parts, .. }), _) if member.got < *parts => {
                    Some(Ask::Results { run, part: member.got })
                }
                _ if stopped && !member.acknowledged[STOP] => {
                    let why = self.stop.as_ref().map_or(String::new(), |(_, why)| why.clone());
                    Some(Ask::Stop { run, why })
                }
                (_, Some((part, _))) if !member.acknowledged[DEAL] && !stopped => {
                    Some(Ask::Deal { run, first: part.first, of: part.of })
                }
                _ if member.told < gone.len() && !stopped && !finished => {
                    Some(Ask::Share { run, gone: gone.clone() })
                }
                _ if finished && !member.acknowledged[FINISH] && !stopped => Some(Ask::Finish { run }),
                _ => match (self.start, member.clock.at_start()) {
                    (Some((_, at)), Some(offset)) if !member.acknowledged[START] && !stopped => {
                        Some(Ask::Start { run, at: at.saturating_add_signed(offset.ahead) })
                    }
                    _ => None,
                },
            };
            if let Some(ask) = ask.filter(|_| !member.flying[Kind::Other as usize]) {
                asks.push((i, Kind::Other, ask));
            }
        }
        for (i, kind, _) in &asks {
            self.members[*i].flying[*kind as usize] = true;
        }
        asks
    }

    /// An agent is gone after the start: the others are to have what it had, but for what it sent that is in the report.
    fn leave_share(&mut self, i: usize) {
        let member = &self.members[i];
        if let (Loss::Share, true, Some((part, lanes))) = (self.plan.loss, self.start.is_some(), member.part)
        {
            let records = member.results.iter().flat_map(|(_, records)| records);
            let mut sent = vec![0; self.plan.pools];
            for record in records {
                if let Some(sent) = sent.get_mut(record.pool()) {
                    *sent += record.counts()[0];
                }
            }
            sent.truncate(sent.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1));
            self.gone.push(Gone { first: part.first, lanes, sent });
        }
    }

    /// Whether every agent that is left has made its share, with those of all that are gone.
    fn all_is_made(&self) -> bool {
        let left = || self.members.iter().filter(|member| !member.over);
        // Guard: `State::Idle { gone: self.gone.len() }` as `State::Idle { gone: 0 }` fails
        // crew::tests::an_agent_that_waits
        let idle = |state: &Option<State>| *state == Some(State::Idle { gone: self.gone.len() });
        left().any(|m| idle(&m.state))
            && left().all(|m| idle(&m.state) || matches!(m.state, Some(State::Ended { .. })))
    }

    /// Looks for who is lost, and whether the next step can be made.
    fn look(&mut self, now: Instant, clock: &Clock) {
        let patience = self.plan.patience;
        for i in 0..self.members.len() {
            let silent = now.saturating_duration_since(self.members[i].heard);
            // Guard: `!self.members[i].over && silent > patience` as `false` fails
            // crew::tests::an_agent_that_falls_silent
            if !self.members[i].over && silent > patience {
                self.lose(i, &format!("has not answered for {:.1} s", silent.as_secs_f64()), now);
            }
        }
        if now.saturating_duration_since(self.begun) > PREPARING {
            for i in 0..self.members.len() {
                if matches!(self.members[i].state, None | Some(State::Preparing)) {
                    self.lose(i, "has not said whether it can make the load", now);
                }
            }
        }
        let deadline = match (&self.stop, self.start) {
            (Some((since, _)), _) => Some(*since + ENDING),
            (None, Some((moment, _))) => Some(moment + self.plan.longest),
            _ => None,
        };
        if deadline.is_some_and(|deadline| now > deadline) {
            (0..self.members.len()).for_each(|i| self.lose(i, "has not ended in time", now));
        }
        if self.stop.is_some() {
            return;
        }
        if self.members.iter().all(|m| matches!(m.state, Some(State::Prepared { .. })) && m.part.is_none()) {
            self.deal(now);
        }
        let ready = |m: &Member| m.state == Some(State::Ready);
        if self.start.is_none() && self.members.iter().all(ready) {
            let since = *self.ready.get_or_insert(now);
            let compared = self.members.iter().all(|m| m.clock.count() >= SAMPLES);
            if compared || now.saturating_duration_since(since) > COMPARING {
                self.agree(now, clock);
            }
        }
        self.finished |= self.all_is_made();
        if let Some((moment, _)) = self.start {
            for i in 0..self.members.len() {
                // From here on it would be late if it heard of it.
                if !self.members[i].acknowledged[START] && !self.members[i].over && now > moment {
                    self.lose(i, "comes late: it has not confirmed the start in time", now);
                }
            }
        }
    }

    /// Deals out the lanes, one agent's after another's.
    fn deal(&mut self, now: Instant) {
        let lanes: Vec<usize> = self
            .members
            .iter()
            .map(|m| if let Some(State::Prepared { lanes }) = m.state { lanes } else { 0 })
            .collect();
        let of: usize = lanes.iter().sum();
        if of > MOST_LANES {
            self.failed = true;
            self.stop(&format!("{of} lanes of all agents are more than {MOST_LANES}"), now);
            return;
        }
        let mut first = 0;
        for (member, lanes) in self.members.iter_mut().zip(lanes) {
            member.part = Some((Part { first, of }, lanes));
            first += lanes;
        }
    }

    /// Agrees on a start.
    fn agree(&mut self, now: Instant, clock: &Clock) {
        let settled = self.members.iter_mut().map(|member| member.clock.settle());
        let slowest = settled.flatten().map(|offset| offset.uncertainty).max().unwrap_or(0);
        let moment = now + AHEAD + Duration::from_nanos(slowest.saturating_mul(8)).min(self.plan.patience);
        self.start = Some((moment, clock.at(moment)));
    }

    /// An agent is lost.
    fn lose(&mut self, i: usize, why: &str, now: Instant) {
        if !self.members[i].over {
            self.members[i].over = true;
            self.fault(i, why, now);
        }
    }

    /// Something is wrong with an agent, which may still have results.
    fn fault(&mut self, i: usize, why: &str, now: Instant) {
        let since = self.start.map(|(moment, _)| now.saturating_duration_since(moment));
        let member = &mut self.members[i];
        if member.fault.is_some() {
            return;
        }
        let when = since
            .filter(|s| !s.is_zero())
            .map_or(String::new(), |s| format!(", {:.1} s after the start", s.as_secs_f64()));
        member.fault = Some(format!("{why}{when}"));
        self.leave_share(i);
        // Where nobody is left, nobody goes on.
        let alone = self.members.iter().all(|member| member.fault.is_some());
        // Guard: `alone` as `false` fails crew::tests::where_all_are_lost
        if self.stop.is_none() && (self.plan.loss == Loss::Fail || since.is_none() || alone) {
            self.failed = true;
            let words = format!("agent {} {why}", self.members[i].name());
            self.stop(&words, now);
        }
    }

    /// Takes what came of a question; returns the snapshots that came with it.
    pub fn heard(
        &mut self,
        i: usize,
        (kind, ask): (Kind, &Ask),
        answer: Option<&[u8]>,
        (asked, heard): (u64, u64),
        now: Instant,
    ) -> Vec<Snapshot> {
        let Some(member) = self.members.get_mut(i) else { return Vec::new() };
        member.flying[kind as usize] = false;
        // What is not understood is no sign of life.
        let Some(Ok((answer, behind))) = answer.map(Answer::read).filter(|_| !member.over) else {
            return Vec::new();
        };
        member.heard = now;
        match (ask, answer) {
            (_, Answer::Refused { why }) => {
                let lost = !matches!(ask, Ask::Results { .. } | Ask::Stop { .. });
                if lost {
                    self.lose(i, &why, now);
                }
            }
            (Ask::Prepare { .. }, Answer::Done) => member.state = Some(State::Preparing),
            (Ask::Deal { .. }, Answer::Done) => member.acknowledged[DEAL] = true,
            (Ask::Start { .. }, Answer::Done) => member.acknowledged[START] = true,
            (Ask::Share { gone, .. }, Answer::Done) => member.told = gone.len(),
            (Ask::Finish { .. }, Answer::Done) => member.acknowledged[FINISH] = true,
            (Ask::Stop { .. }, Answer::Done) => member.acknowledged[STOP] = true,
            (Ask::Status { .. }, Answer::Status { received, answered, state }) => {
                member.clock.add(Sample { asked, received, answered, heard });
                return self.stands(i, state, behind, now);
            }
            (Ask::Results { part, .. }, Answer::Results { part: came })
                if *part == came && came == member.got =>
            {
                member.bytes.extend_from_slice(behind);
                member.got += 1;
                self.complete(i, now);
            }
            _ => {}
        }
        Vec::new()
    }

    fn stands(&mut self, i: usize, state: State, behind: &[u8], now: Instant) -> Vec<Snapshot> {
        let stopped = self.stop.is_some();
        let limits = self.members[i].limits(&self.plan);
        match &state {
            State::Failed { why } => {
                if stopped {
                    self.members[i].over = true;
                } else {
                    self.lose(i, why, now);
                }
            }
            // Guard: `*bytes > MOST_RESULTS` as `false` fails crew::tests::answers_of_others
            State::Ended { parts, bytes } if *bytes > MOST_RESULTS || u64::from(*parts) > (*bytes).max(1) => {
                self.lose(i, "has more results than there can be", now);
            }
            _ => {}
        }
        // A state that was overtaken on its way does not come back.
        let ended = |state: &Option<State>| matches!(state, Some(State::Ended { .. }));
        if !ended(&self.members[i].state) {
            self.members[i].state = Some(state);
        }
        self.complete(i, now);
        let mut snapshots = Vec::new();
        let mut rest = behind;
        while !rest.is_empty() {
            let Ok(snapshot) = Snapshot::read(&mut rest, &limits) else { break };
            snapshots.push(snapshot);
        }
        snapshots
    }

    /// Reads the results once they are there.
    fn complete(&mut self, i: usize, now: Instant) {
        let (limits, longest) = (self.members[i].limits(&self.plan), self.plan.longest);
        let member = &mut self.members[i];
        let Some(State::Ended { parts, bytes }) = &member.state else { return };
        if member.bytes.len() as u64 > *bytes {
            return self.lose(i, "has sent more results than it said", now);
        }
        if member.over || member.got < *parts {
            return;
        }
        match Summary::read(&std::mem::take(&mut member.bytes), &limits, longest) {
            Ok((summary, records)) => {
                member.over = true;
                let why = match (&summary.failure, summary.interrupted && self.stop.is_none()) {
                    (Some(why), _) => Some(format!("says: {why}")),
                    (None, true) => Some("was stopped at its machine".to_owned()),
                    _ => None,
                };
                member.results = Some((summary, records));
                if let Some(why) = why {
                    self.fault(i, &why, now);
                }
            }
            Err(e) => self.lose(i, &format!("has given {e}"), now),
        }
    }

    /// What to tell agents at the end, whatever became of them.
    #[must_use]
    pub fn farewell(&self) -> Ask {
        Ask::Done { run: self.plan.run.clone() }
    }
}

#[cfg(test)]
mod tests;
