//! An HTTP load that agents make: how it is conducted, and how an agent makes its part.

use std::time::Instant;

use anyhow::ensure;
use flowlane_agents::Summary;
use flowlane_load::http::{HttpLoad, HttpOptions};
use flowlane_load::report::{About, Usage, live};

use super::super::agents::{Errand, Job, PART_EVERY};
use super::place::LinkKind;
use super::{Http, goal};
use crate::interrupt::Interrupt;
use crate::{drops, steering};

impl Http {
    /// Has agents make the run.
    pub(super) fn run_by_agents(&self) -> anyhow::Result<()> {
        ensure!(
            !self.outputs.may_abort(),
            "--abort: not with --agents; --fail alone judges the run at its end"
        );
        self.crew.check("http")?;
        ensure!(self.find.find_rate.is_none(), "--find-rate: not with --agents");
        ensure!(self.scenario.is_none(), "--scenario: not with --agents");
        let (plan, said) = self.plan()?;
        let names: Vec<String> = plan.pools.iter().map(|p| p.name.clone()).collect();
        let _made = self.outputs.check(&names)?;
        let interrupt = Interrupt::listen()?;
        let about = self.about(&plan, said);
        let watch = self.outputs.watch(&plan.phases, &names)?;
        let job = Job {
            load: "http",
            seed: plan.seed,
            pools: plan.pools.len(),
            requests: plan.pools.iter().map(|p| p.requests.len()).max().unwrap_or(0),
            phases: plan.phases.len(),
            duration: plan.duration(),
            answers: plan.timeout + plan.waiting,
        };
        let Some(conducted) = self.crew.conduct(&job, &interrupt, Some(watch))? else { return Ok(()) };
        let run = conducted.report(About {
            thresholds: self.outputs.thresholds(),
            slip_budget: self.asked.slip_budget,
            slack: self.asked.slack.unwrap_or_default(),
            failures_count: true,
            goal: goal(&plan),
            ..about
        });
        self.outputs.write(&run, &interrupt)
    }

    /// Makes a part of a run that others conduct; returns what came of it, in words.
    pub(in super::super) fn make_part(&mut self, mut errand: Errand) -> anyhow::Result<String> {
        let (mut plan, _) = self.plan()?;
        let rss = self.place.rss()?;
        self.place.keep_reachable(&mut plan);
        let targets: Vec<_> =
            plan.pools.iter().flat_map(|p| &p.targets).flat_map(|t| t.addresses.clone()).collect();
        errand.admits(&targets, plan.pools.iter().any(|pool| pool.follow.is_some()))?;
        let lanes = rss.buckets.len();
        let part = errand.dealt(lanes)?;
        for pool in &mut plan.pools {
            pool.clients = Errand::clients(part, &pool.clients, lanes)?;
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
        };
        let load = HttpLoad::new(plan.clone(), options)?;
        let (before, begun) = (Usage::now(), Instant::now());
        let (runtime, host) = self.place.start(&plan, &rss, &load)?;
        let outcome = load.wait(PART_EVERY, || {
            let standing = || load.connecting().unwrap_or_default();
            errand.tick(&from, standing, load.is_ready(), |moment| load.begin_at(moment))
        });
        let usage = Usage::now().since(before).within(begun.elapsed());
        let counted = runtime.stop();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let summary = Summary {
            elapsed_ns: nanos(outcome.elapsed),
            measured_ns: nanos(outcome.measured),
            interrupted: outcome.interrupted,
            failure: outcome.failure,
            workers: self.place.workers(),
            drops: drops::by_reason(&counted, &[("load", host)]),
            alignment: super::super::alignment(kernel, &counted, host),
            home_ports: self.place.home.counted(&counted, host),
            ..Summary::default()
        };
        let [sent, answered, failed] = outcome.records.iter().fold([0; 3], |sum, record| {
            let counts = record.counts();
            [sum[0] + counts[0], sum[1] + counts[1], sum[2] + counts[2]]
        });
        errand.ended(summary.using(usage), &outcome.records);
        Ok(format!("the run is over: {sent} sent, {answered} answered, {failed} failed"))
    }
}
