//! An HTTP load that agents make: how it is conducted, and how an agent makes its part.

use std::time::Instant;

use anyhow::{Context, ensure};
use flowlane_agents::Summary;
use flowlane_load::http::{HttpLoad, HttpOptions};
use flowlane_load::report::{About, Usage, live};
use flowlane_load::scenario::Scenario;

use super::super::agents::{CrewOptions, Errand, Job, Order, PART_EVERY, Stands};
use super::place::LinkKind;
use super::{Http, goal};
use crate::{drops, steering};

impl Http {
    /// The agents that are to make the run: those of the command line, or of the scenario.
    pub(super) fn crew(&self) -> anyhow::Result<Option<CrewOptions>> {
        let (Some(file), Some(text)) = (&self.scenario, &self.text) else {
            return Ok(self.crew.is_wanted().then(|| self.crew.clone()));
        };
        let in_file = || file.display().to_string();
        let scenario = Scenario::parse(text).with_context(in_file)?;
        let crew = match &scenario.agents {
            Some(agents) => self.crew.or(agents).with_context(|| format!("{}: [agents]", in_file()))?,
            None if self.crew.is_wanted() => self.crew.clone(),
            None => return Ok(None),
        };
        scenario.check_sent().with_context(in_file)?;
        Ok(Some(crew))
    }

    /// Has agents make the run.
    pub(super) fn run_by_agents(&self, crew: &CrewOptions) -> anyhow::Result<()> {
        crew.check("http")?;
        ensure!(self.find.find_rate.is_none(), "--find-rate: not with --agents");
        let (plan, said) = self.plan()?;
        let names: Vec<String> = plan.pools.iter().map(|p| p.name.clone()).collect();
        let job = Job {
            load: "http",
            seed: plan.seed,
            told: Vec::new(),
            scenario: self.text.clone(),
            pools: plan.pools.len(),
            requests: plan.pools.iter().map(|p| p.requests.len()).max().unwrap_or(0),
            phases: plan.phases.clone(),
            answers: plan.timeout + plan.waiting,
            shared: true,
        };
        let about = About {
            slip_budget: self.asked.slip_budget,
            slack: self.asked.slack.unwrap_or_default(),
            failures_count: true,
            goal: goal(&plan),
            ..self.about(&plan, said)
        };
        crew.make(&job, &self.outputs, &names, about, |_, about| about)
    }

    /// Makes a part of a run that others conduct; returns what came of it, in words.
    pub(in super::super) fn make_part(
        &mut self,
        mut errand: Errand,
        scenario: Option<String>,
    ) -> anyhow::Result<String> {
        self.text = scenario;
        if let Some(text) = &self.text {
            // Guard: no `Scenario::parse(text)?.check_sent().context("scenario")?;` fails
            // cli/agents::scenario::a_strangers_scenario
            Scenario::parse(text)?.check_sent().context("scenario")?;
        }
        let (mut plan, _) = self.plan()?;
        let rss = self.place.rss()?;
        self.place.keep_reachable(&mut plan);
        let targets: Vec<_> =
            plan.pools.iter().flat_map(|p| &p.targets).flat_map(|t| t.addresses.clone()).collect();
        errand.admits(&targets, plan.pools.iter().any(|pool| pool.follow.is_some()))?;
        let lanes = rss.buckets.len();
        let part = errand.dealt(lanes)?;
        for pool in &mut plan.pools {
            pool.clients = errand.clients(part, &pool.clients, lanes)?;
        }
        self.place.check(&plan)?;
        let kernel = self.place.link == LinkKind::Kernel;
        if kernel {
            super::super::reach::keep_answering(&mut plan);
        }
        self.place.more_descriptors(&plan)?;
        // The choices of the machine alone, such as of its ports, are not to be those of the others.
        self.place.seed = Some(steering::seed(None)?);
        let (snapshots, from) = live::channel();
        let options = HttpOptions {
            lanes,
            exact: self.asked.exact,
            slack: self.asked.slack.unwrap_or_default(),
            snapshots: Some(snapshots.into()),
            log: None,
            part: Some(part),
            stays: errand.shares(),
        };
        let load = HttpLoad::new(plan.clone(), options)?;
        let (before, begun) = (Usage::now(), Instant::now());
        self.place.announce()?;
        let (runtime, host) = self.place.start(&plan, &rss, &load, true, || errand.goes_on())?;
        let outcome = load.wait(PART_EVERY, || {
            let standing = load.connecting().unwrap_or_default();
            let stands = Stands { standing, ready: load.is_ready(), idle: load.idle() };
            errand.tick(&from, stands, |order| match order {
                Order::Begin(moment) => load.begin_at(moment),
                Order::Share(gone) => load.share(&gone),
                Order::Finish => load.finish(),
            })
        });
        let usage = Usage::now().since(before).within(begun.elapsed());
        let counted = runtime.stop();
        let summary = Summary {
            interrupted: outcome.interrupted,
            failure: outcome.failure,
            workers: self.place.workers(),
            drops: drops::by_reason(&counted, &[("load", host)]),
            alignment: super::super::alignment(kernel, &counted, host),
            home_ports: self.place.home.counted(&counted, host),
            ..Summary::default()
        };
        Ok(errand.ended(summary.taking(outcome.elapsed, outcome.measured).using(usage), &outcome.records))
    }
}
