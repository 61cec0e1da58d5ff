//! Conducting a run that agents make: from who is there to their results.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use flowlane_agents::crew::{Crew, Kind, Member, Plan};
use flowlane_agents::message::write;
use flowlane_agents::nats::{Bus, Heard, without_password};
use flowlane_agents::{Answer, Ask, Clock, Here, Loss, PROTOCOL, Summary, Work};
use flowlane_load::report::agents::{Agent, join_all};
use flowlane_load::report::model::Ended;
use flowlane_load::report::usage::Generator;
use flowlane_load::report::{About, HomePorts, LaneRecord, Run, SnapshotsTo, Usage};
use flowlane_load::run::outcome::Account;
use flowlane_load::{Phase, timeline};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::agent::secret;
use super::{CrewOptions, closed};
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::say::say;

/// How long all agents of a group are listened for, if no number is wanted.
const ROLL_CALL: Duration = Duration::from_millis(1000);
/// Between two calls, while agents are waited for.
const AGAIN: Duration = Duration::from_millis(500);
/// Between two looks at the display and at ^C.
const EVERY: Duration = Duration::from_millis(100);
/// How long an agent that does not answer is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// What a run may take besides its schedule and its answers.
const SPARE: Duration = Duration::from_secs(60);

/// A load that agents are to make.
#[derive(Debug, Clone)]
pub(in super::super) struct Job {
    /// Its kind, as `http`.
    pub(in super::super) load: &'static str,
    /// The seed of its choices.
    pub(in super::super) seed: u64,
    /// Options that agents are told besides those given.
    pub(in super::super) told: Vec<String>,
    /// The text of its scenario.
    pub(in super::super) scenario: Option<String>,
    /// Pools, and the most requests of one.
    pub(in super::super) pools: usize,
    pub(in super::super) requests: usize,
    /// Its phases, and how long answers may take.
    pub(in super::super) phases: Vec<Phase>,
    pub(in super::super) answers: Duration,
    /// Whether others can take an agent's connections and totals.
    pub(in super::super) shared: bool,
}

/// What agents came to.
#[derive(Debug)]
pub(in super::super) struct Conducted {
    started: SystemTime,
    group: String,
    failed: bool,
    interrupted: bool,
    agents: Vec<(Agent, Vec<LaneRecord>)>,
    summaries: Vec<Summary>,
}

/// The agents of a group, as they answer.
struct Group<'a> {
    options: &'a CrewOptions,
    bus: &'a Bus,
    name: &'a flowlane_agents::Group,
    number: Option<usize>,
}

impl CrewOptions {
    /// Has agents make a run, and writes its report. `judge` completes what it says, when all is over.
    pub(in super::super) fn make(
        &self,
        job: &Job,
        outputs: &Outputs,
        pools: &[String],
        about: About,
        judge: impl FnOnce(&Conducted, About) -> About,
    ) -> anyhow::Result<()> {
        ensure!(
            self.loss() != Loss::Share || about.setup.open_loop || job.shared,
            "--agent-loss share: a closed loop without connections has no rate that others could take; give --rate, or go-on"
        );
        ensure!(!outputs.may_abort(), "--abort: not with --agents; --fail alone judges the run at its end");
        let _made = outputs.check(pools)?;
        let interrupt = Interrupt::listen()?;
        let mut watch = outputs.watch(&job.phases, pools)?;
        watch.0.serve_metrics(None)?;
        let Some(conducted) = self.conduct(job, &interrupt, Some(watch))? else { return Ok(()) };
        let about = judge(&conducted, About { thresholds: outputs.thresholds(), ..about });
        outputs.write(&conducted.report(about), &interrupt)
    }

    /// Has agents make a run.
    fn conduct(
        &self,
        job: &Job,
        interrupt: &Interrupt,
        watch: Option<(Watch, SnapshotsTo)>,
    ) -> anyhow::Result<Option<Conducted>> {
        let Some(wanted) = &self.agents else { return Ok(None) };
        let options = closed::to_send(job.load, job.seed, &job.told)?;
        let bus = Bus::connect(&self.nats.server(), "flowlane load").context("--nats")?;
        let group = Group { options: self, bus: &bus, name: &wanted.group, number: wanted.number };
        let agents = group.call(interrupt)?;
        let work = Work {
            program: env!("CARGO_PKG_VERSION").into(),
            protocol: PROTOCOL,
            load: job.load.into(),
            options,
            scenario: job.scenario.clone(),
            share: self.loss() == Loss::Share && job.shared,
            patience_ms: self.timeout().as_millis() as u64,
        };
        ensure!(work.fits(), "options and scenario are longer than agents take: 256 KiB together");
        let plan = Plan {
            run: secret()?,
            work,
            patience: self.timeout(),
            loss: self.loss(),
            pools: job.pools,
            phases: job.phases.len(),
            requests: job.requests,
            longest: timeline::duration(&job.phases) + job.answers * 2 + SPARE,
        };
        let told = vec![false; agents.len()];
        let crew = Crew::new(plan, agents, Instant::now());
        Conductor { group: &group, crew, clock: Clock::default(), watch, interrupted: false, told }
            .run(interrupt)
            .map(Some)
    }
}

impl Group<'_> {
    /// Who is there: as many as are wanted, by name.
    fn call(&self, interrupt: &Interrupt) -> anyhow::Result<Vec<Here>> {
        let patience = self.number.map_or(ROLL_CALL, |_| self.options.wait());
        let until = Instant::now() + patience;
        let mut found: BTreeMap<String, Here> = BTreeMap::new();
        let (to, answers) = mpsc::channel();
        let mut next = Instant::now();
        while Instant::now() < until && !interrupt.came() {
            if Instant::now() >= next {
                next += AGAIN;
                self.bus.ask_all(self.name.call(), write(&Ask::Who, &[]), patience, to.clone());
            }
            if let Ok(bytes) = answers.recv_timeout(EVERY / 4)
                && let Ok((Answer::Here(here), _)) = Answer::read(&bytes)
                && self.name.agent(&here.id).is_some()
                && found.len() < super::MOST
            {
                found.insert(here.id.clone(), here);
            }
            if self.number.is_some_and(|number| found.values().filter(|here| !here.busy).count() >= number) {
                break;
            }
        }
        ensure!(!interrupt.came(), "ended before it began");
        self.choose(found.into_values().collect())
    }

    fn choose(&self, found: Vec<Here>) -> anyhow::Result<Vec<Here>> {
        let (group, server) = (self.name, without_password(self.options.nats.url()));
        ensure!(
            !found.is_empty(),
            "--agents {group}: no agent answers at {server}; start some: flowlane load agent --nats {server} --group {group}"
        );
        let ours = env!("CARGO_PKG_VERSION");
        if let Some(other) =
            found.iter().find(|here| (here.protocol, here.program.as_str()) != (PROTOCOL, ours))
        {
            bail!(
                "--agents {group}: agent {} has version {} of Flowlane, this is {ours}: all have to have the same",
                other.name,
                other.program
            );
        }
        let (busy, mut free): (Vec<Here>, Vec<Here>) = found.into_iter().partition(|here| here.busy);
        let names = |all: &[Here]| all.iter().map(|here| here.name.as_str()).collect::<Vec<_>>().join(", ");
        let busy = if busy.is_empty() {
            String::new()
        } else {
            format!("; busy with another run: {}", names(&busy))
        };
        free.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        match self.number {
            Some(number) if free.len() < number => {
                let (count, wait) = (free.len(), self.options.wait());
                let free = if free.is_empty() { String::new() } else { format!(": {}", names(&free)) };
                bail!(
                    "--agents {group}:{number}: {count} of {number} agents are free within {wait:?}{free}{busy}"
                )
            }
            None if free.is_empty() => bail!("--agents {group}: no agent is free{busy}"),
            number => {
                free.truncate(number.unwrap_or(free.len()));
                Ok(free)
            }
        }
    }
}

/// Whoever conducts.
struct Conductor<'a> {
    group: &'a Group<'a>,
    crew: Crew,
    clock: Clock,
    watch: Option<(Watch, SnapshotsTo)>,
    interrupted: bool,
    /// The agents whose loss was said.
    told: Vec<bool>,
}

/// A question that is on its way.
type Tag = (usize, Kind, Ask);

impl Conductor<'_> {
    fn run(mut self, interrupt: &Interrupt) -> anyhow::Result<Conducted> {
        let (to, answers) = mpsc::channel();
        let mut next_look = Instant::now();
        let (begun, started) = (Instant::now(), SystemTime::now());
        while !self.crew.is_over() {
            self.ask(&to)?;
            self.hear(&answers);
            if Instant::now() >= next_look {
                next_look = Instant::now() + EVERY;
                self.tell();
                if !self.look(begun) || interrupt.came() {
                    self.interrupted = true;
                    self.crew.stop("whoever conducts the run was told to end it", Instant::now());
                    if let Some((watch, _)) = &mut self.watch {
                        watch.interrupted();
                    }
                }
            }
        }
        if let Some((watch, _)) = self.watch.take() {
            watch.end();
        }
        self.farewell();
        let started =
            self.crew.start().map_or(started, |moment| started + moment.saturating_duration_since(begun));
        let all = self.crew.lanes();
        Ok(Conducted {
            started,
            group: self.group.name.to_string(),
            failed: self.crew.has_failed(),
            interrupted: self.interrupted,
            summaries: self
                .crew
                .members
                .iter()
                .filter_map(|m| m.results.as_ref().map(|(s, _)| s.clone()))
                .collect(),
            agents: self.crew.members.iter_mut().map(|member| agent(member, all)).collect(),
        })
    }

    /// Says who is lost while the others go on.
    fn tell(&mut self) {
        for (i, told) in self.told.iter_mut().enumerate().filter(|(_, told)| !**told) {
            if let Some(fault) = self.crew.lost(i) {
                let member = &self.crew.members[i];
                let share = member.part.map_or(0.0, |(part, lanes)| lanes as f64 / part.of.max(1) as f64);
                let how = match self.group.options.loss() {
                    Loss::Share => "take",
                    Loss::Fail | Loss::GoOn => "go on without",
                };
                let (name, share) = (member.name(), share * 100.0);
                say!("flowlane: agent {name} {fault}: the others {how} its {share:.1} % of the load");
                *told = true;
            }
        }
    }

    /// Tells all agents that they are free, and waits a moment until they have heard it.
    fn farewell(&self) {
        let (to, answers) = mpsc::channel();
        for member in &self.crew.members {
            if let Some(subject) = self.group.name.agent(&member.here.id) {
                let question = write(&self.crew.farewell(), &[]);
                self.group.bus.ask(subject, question, FAREWELL, self.clock, ((), to.clone()));
            }
        }
        drop(to);
        answers.iter().for_each(drop);
    }

    /// Asks what is to be asked now.
    fn ask(&mut self, to: &Sender<Heard<Tag>>) -> anyhow::Result<()> {
        let options = self.group.options;
        let patience = (options.timeout() / 3).min(Duration::from_secs(1));
        for (i, kind, ask) in self.crew.asks(Instant::now(), &self.clock) {
            let Some(subject) = self.group.name.agent(&self.crew.members[i].here.id) else { continue };
            let question = write(&ask, &[]);
            ensure!(
                question.len() <= self.group.bus.payload(),
                "the options of the load are longer than a message of the NATS server can be: {} and {} bytes",
                question.len(),
                self.group.bus.payload()
            );
            self.group.bus.ask(subject, question, patience, self.clock, ((i, kind, ask), to.clone()));
        }
        Ok(())
    }

    /// Takes what came, and waits a moment if nothing did.
    fn hear(&mut self, answers: &Receiver<Heard<Tag>>) {
        let first = answers.recv_timeout(EVERY / 10).ok();
        for Heard { tag: (i, kind, ask), answer, times } in first.into_iter().chain(answers.try_iter()) {
            let snapshots = self.crew.heard(i, (kind, &ask), answer.as_deref(), times, Instant::now());
            let Some((_, to)) = &self.watch else { continue };
            for snapshot in snapshots {
                // The display is behind: the next one has the counts again.
                let _ = to.try_send(snapshot);
            }
        }
    }

    /// Updates the display; `false` if the user ends the run there.
    fn look(&mut self, begun: Instant) -> bool {
        let Some((watch, _)) = &mut self.watch else { return true };
        let start = self.crew.start().filter(|start| *start <= Instant::now());
        if let Some(start) = start {
            return watch.tick(start.elapsed());
        }
        let standing = self.crew.members.iter().filter_map(Member::standing);
        let (standing, of) =
            standing.fold((0u64, 0u64), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
        of == 0 || watch.connecting(begun.elapsed(), standing, of)
    }
}

/// An agent in the report, with its records.
fn agent(member: &mut Member, all: usize) -> (Agent, Vec<LaneRecord>) {
    let offset = member.clock.at_start().unwrap_or_default();
    let (first, lanes) = member.part.map_or((0, 0), |(part, lanes)| (part.first, lanes));
    let (usage, records) =
        member.results.take().map_or((Usage::default(), Vec::new()), |(s, r)| (s.usage(), r));
    let answered = records.iter().map(|record| record.counts()[1]).sum();
    let agent = Agent {
        name: member.here.name.clone(),
        host: member.here.host.clone(),
        program: member.here.program.clone(),
        share: lanes as f64 / all.max(1) as f64,
        first_lane: first as u64,
        lanes: lanes as u64,
        clock_ahead_ns: offset.ahead,
        clock_uncertainty_ns: offset.uncertainty,
        clock_drift_ns: member.clock.drift(),
        generator: Generator::new(usage, answered),
        fault: member.fault.clone(),
        ..Agent::default()
    };
    (agent, records)
}

/// Counts by name, as they travel.
pub(in super::super) fn counts_of(counts: &impl Serialize) -> serde_json::Result<BTreeMap<String, u64>> {
    serde_json::from_value(serde_json::to_value(counts)?)
}

impl Conducted {
    /// Counts of all agents that gave results. What has another name than they have counts for nothing.
    pub(in super::super) fn counts<C: Account + DeserializeOwned>(&self) -> C {
        let mut sum = C::default();
        for summary in &self.summaries {
            let of = summary.counts.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
            sum.add(&serde_json::from_value(serde_json::Value::Object(of)).unwrap_or_default());
        }
        sum
    }

    /// Whether it ended before its time.
    pub(in super::super) fn is_cut_short(&self) -> bool {
        self.interrupted || self.failed
    }

    /// The report of the run; `about` has everything that is not known here.
    pub(in super::super) fn report(self, about: About) -> Run {
        let most =
            |of: fn(&Summary) -> u64| Duration::from_nanos(self.summaries.iter().map(of).max().unwrap_or(0));
        let mut drops: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in self.summaries.iter().flat_map(|summary| &summary.drops) {
            *drops.entry(reason.clone()).or_default() += count;
        }
        let faults: Vec<String> = self
            .agents
            .iter()
            .filter_map(|(agent, _)| {
                agent.fault.as_ref().map(|fault| format!("agent {} {fault}", agent.name))
            })
            .collect();
        let failure = self.failed.then(|| match faults.is_empty() {
            true => "the agents could not make the run".to_owned(),
            false => faults.join("; "),
        });
        let aligned: Vec<f64> = self.summaries.iter().filter_map(|s| s.alignment).collect();
        let ports: Vec<HomePorts> = self.summaries.iter().filter_map(|s| s.home_ports).collect();
        let mut setup = about.setup.clone();
        setup.link = match self.agents.len() {
            1 => "1 agent".to_owned(),
            n => format!("{n} agents"),
        };
        setup.workers = self.summaries.iter().map(|s| s.workers).sum();
        setup.more.insert("agents".into(), format!("group {}", self.group));
        let about = About {
            setup,
            started: self.started,
            elapsed: most(|s| s.elapsed_ns),
            measured: most(|s| s.measured_ns),
            ended: match (&failure, self.interrupted) {
                (Some(_), _) => Ended::Failed,
                (None, true) => Ended::Interrupted,
                (None, false) => Ended::Done,
            },
            failure: failure.or(about.failure),
            usage: self.summaries.iter().map(Summary::usage).fold(Usage::default(), |sum, usage| sum + usage),
            alignment: (!aligned.is_empty()).then(|| aligned.iter().sum::<f64>() / aligned.len() as f64),
            home_ports: (!ports.is_empty()).then(|| HomePorts {
                home: ports.iter().map(|p| p.home).sum(),
                elsewhere: ports.iter().map(|p| p.elsewhere).sum(),
            }),
            drops,
            ..about
        };
        join_all(about, self.agents)
    }
}
