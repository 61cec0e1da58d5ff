//! `flowlane load http`: requests from many clients, over kernel sockets or any link of ours.
//!
//! Arguments or a scenario file become a plan ([`plan`]), which is checked before a link is opened; an error is one line. Kernel
//! sockets are used unless a link is named ([`place`]).

mod pair;
mod place;
mod plan;
mod words;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Args;
use flowlane_load::http::{Behaviour, HttpAim, HttpLoad, HttpOptions, Pace, Plan, Pool, Url};
use flowlane_load::report::model::{Ended, Phase, Setup};
use flowlane_load::report::{About, Goal, PoolAbout, Usage, join};
use flowlane_load::scenario::Scenario;
use flowlane_load::timeline;

use self::place::{LinkKind, Place};
use self::plan::Asked;
use crate::interrupt::Interrupt;
use crate::output::Outputs;
use crate::units;
use crate::{drops, steering};

/// Interval between updates of the display.
const EVERY: Duration = Duration::from_millis(100);

/// The scenario's name and text for the report, and the options that replace its figures.
#[derive(Debug, Default)]
struct Said {
    name: String,
    about: String,
    instead: Vec<String>,
}

/// Send HTTP requests, over kernel sockets or any link.
#[derive(Debug, Args)]
pub(crate) struct Http {
    /// Target: http://HOST:PORT/PATH or https://...; of several, connections take one after the other in turn.
    #[arg(value_name = "URL", required_unless_present = "scenario")]
    urls: Vec<Url>,
    /// Scenario file (docs/scenarios.md); URLs replace its targets.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    outputs: Outputs,
}

impl Http {
    /// Runs the load.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (mut plan, said) = self.plan()?;
        let rss = self.place.rss()?;
        let home = (self.place.link != LinkKind::Kernel).then(|| rss.clone());
        if let Some((theirs, law)) = self.asked.aim()? {
            for pool in &mut plan.pools {
                pool.aim = Some(HttpAim { rss: theirs.clone(), home: home.clone(), law: law.clone() });
            }
        }
        self.place.check(&plan)?;
        self.place.more_descriptors(&plan)?;
        let names: Vec<String> = plan.pools.iter().map(|p| p.name.clone()).collect();
        let _made = self.outputs.check(&names)?;
        let about = self.about(&plan, said);
        let duration = plan.duration();

        let slack = self.asked.slack.unwrap_or_default();
        let interrupt = Interrupt::listen()?;
        let (mut watch, snapshots) = self.outputs.watch(duration, &names)?;
        let options = HttpOptions {
            lanes: rss.buckets.len(),
            exact: self.asked.exact,
            slack,
            snapshots: Some(snapshots),
        };
        let load = HttpLoad::new(plan.clone(), options)?;
        let before = Usage::now();
        let (started, begun) = (SystemTime::now(), Instant::now());
        let (runtime, host) = self.place.start(&plan, &rss, &load)?;
        watch.serve(runtime.handle(), "load http")?;
        let mut asked_for_end = false;
        let mut outcome = load.wait(EVERY, || {
            if interrupt.came() {
                watch.interrupted();
                asked_for_end = true;
            }
            match load.connecting() {
                Some((standing, of)) => watch.connecting(begun.elapsed(), standing, of) && !asked_for_end,
                None => watch.tick(begun.elapsed()) && !asked_for_end,
            }
        });
        watch.end();
        let usage = Usage::now().since(before).within(begun.elapsed());
        let counted = runtime.stop();

        let kernel = self.place.link == LinkKind::Kernel;
        let records = std::mem::take(&mut outcome.records);
        let mut run = join(
            About {
                started,
                elapsed: outcome.elapsed,
                measured: outcome.measured,
                ended: match (&outcome.failure, outcome.interrupted) {
                    (Some(_), _) => Ended::Failed,
                    (None, true) => Ended::Interrupted,
                    (None, false) => Ended::Done,
                },
                failure: outcome.failure.clone(),
                usage,
                alignment: super::alignment(kernel, &counted, host),
                arrivals: super::arrivals(kernel, &counted, host),
                home_ports: self.place.home.counted(&counted, host),
                drops: drops::by_reason(&counted, &[("load", host)]),
                thresholds: self.outputs.thresholds(),
                slip_budget: self.asked.slip_budget,
                slack,
                failures_count: true,
                goal: goal(&plan),
                ..about
            },
            &records,
        );
        // Merging the lanes' records takes memory as well.
        run.generator.memory_bytes = run.generator.memory_bytes.max(Usage::now().memory);
        self.outputs.write(&run)
    }

    /// The plan, and the scenario's description.
    fn plan(&self) -> anyhow::Result<(Plan, Said)> {
        let seed = steering::seed(self.place.seed)?;
        let Some(file) = &self.scenario else {
            return Ok((self.asked.plan(&self.urls, &self.place.clients, seed)?, Said::default()));
        };
        let in_file = || file.display().to_string();
        let text = crate::description::read(file)?;
        let scenario = Scenario::parse(&text).with_context(in_file)?;
        let plan = scenario.plan(&self.urls, seed, file.parent().filter(|p| *p != Path::new("")));
        let mut plan = plan.with_context(in_file)?;
        if !self.place.clients.is_empty() {
            plan.pools.iter_mut().for_each(|p| p.clients.clone_from(&self.place.clients));
        }
        let instead = self.asked.instead().apply(&mut plan)?;
        Ok((plan, Said { name: scenario.name, about: scenario.about, instead }))
    }

    fn about(&self, plan: &Plan, said: Said) -> About {
        let loads = plan.phases.iter().map(|phase| words::load(&plan.pools, phase));
        let phases = timeline::shown(&plan.phases).into_iter().zip(loads);
        let phases = phases.map(|(phase, load)| Phase { load, ..phase }).collect();
        let instead = "in the place of the scenario's".to_owned();
        let more = (!said.instead.is_empty()).then(|| (instead, said.instead.join(", ")));
        let fast = ("fast-open".to_owned(), "requests go with the SYN".to_owned());
        let fast = plan.pools.iter().any(|p| p.fast_open).then_some(fast);
        let pool = |p: &Pool| PoolAbout {
            name: p.name.clone(),
            targets: targets(p),
            schedule: words::schedule(p, &plan.phases),
            requests: p.requests.iter().map(flowlane_load::http::Request::title).collect(),
        };
        let mut all: Vec<String> = plan.pools.iter().flat_map(targets).collect();
        all.dedup();
        let schedules: Vec<String> = plan.pools.iter().map(|p| words::schedule(p, &plan.phases)).collect();
        About {
            setup: Setup {
                command: "load http".into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets: all,
                link: self.place.link.to_string(),
                workers: self.place.workers(),
                seed: Some(plan.seed),
                schedule: schedules.join("; "),
                open_loop: plan.pools.iter().any(|p| matches!(p.pace, Pace::Rate { .. })),
                scenario: self.scenario.as_ref().map(|f| f.display().to_string()),
                name: said.name,
                about: said.about,
                more: more.into_iter().chain(fast).collect(),
            },
            phases,
            pools: plan.pools.iter().map(pool).collect(),
            ..About::default()
        }
    }
}

fn targets(pool: &Pool) -> Vec<String> {
    pool.targets.iter().map(|t| t.url.to_string()).collect()
}

/// A number that must be above zero.
fn positive(text: &str) -> Result<u64, String> {
    match units::count(text) {
        Ok(0) => Err(format!("'{text}': at least 1")),
        other => other.map_err(|e| e.to_string()),
    }
}

/// What the pools are there for: the most that one of them does.
fn goal(plan: &Plan) -> Goal {
    let any = |behaviour| plan.pools.iter().any(|pool| pool.behaviour == behaviour);
    match () {
        () if any(Behaviour::Normal) => Goal::Requests,
        () if any(Behaviour::HalfOpen) => Goal::Connections,
        () => Goal::Attempts,
    }
}
