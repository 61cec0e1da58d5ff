//! `flowlane load http`: requests from many clients, over kernel sockets or any link of ours.
//!
//! Arguments, or a scenario file, become a plan ([`plan`]); everything that can be wrong with it is said in one line before
//! a link is opened. The near end is the kernel's own sockets unless a link is named ([`place`]).

mod pair;
mod place;
mod plan;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Args;
use flowlane_load::http::{self as load, Behaviour, HttpAim, HttpLoad, HttpOptions, Pace, Plan, Pool, Url};
use flowlane_load::report::model::{Ended, Phase, Setup};
use flowlane_load::report::{About, PoolAbout, Usage, join};
use flowlane_load::scenario::Scenario;

use self::place::{LinkKind, Place};
use self::plan::Asked;
use crate::interrupt::Interrupt;
use crate::output::Outputs;
use crate::units::{self, show_count, show_frequency};
use crate::{drops, steering};

/// How often a run is looked at.
const EVERY: Duration = Duration::from_millis(100);

/// HTTP requests, over the kernel's sockets or any link.
#[derive(Debug, Args)]
pub(crate) struct Http {
    /// Where to; connections take several in turn: http://HOST:PORT/PATH, https://...
    #[arg(value_name = "URL", required_unless_present = "scenario")]
    urls: Vec<Url>,
    /// Do what this file says (docs/scenarios.md); URLs stand in the place of its targets.
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
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut plan = self.plan()?;
        let rss = self.place.rss()?;
        let home = (self.place.link != LinkKind::Kernel).then(|| rss.clone());
        if let Some((theirs, law)) = self.asked.aim()? {
            for pool in &mut plan.pools {
                pool.aim = Some(HttpAim { rss: theirs.clone(), home: home.clone(), law: law.clone() });
            }
        }
        self.place.check(&plan)?;
        let names: Vec<String> = plan.pools.iter().map(|p| p.name.clone()).collect();
        self.outputs.check(&names)?;
        let about = self.about(&plan);
        let duration = plan.duration();

        let interrupt = Interrupt::listen()?;
        let (mut watch, snapshots) = self.outputs.watch(duration, &names);
        let options =
            HttpOptions { lanes: rss.buckets.len(), exact: self.asked.exact, snapshots: Some(snapshots) };
        let load = HttpLoad::new(plan.clone(), options)?;
        let before = Usage::now();
        let (started, begun) = (SystemTime::now(), Instant::now());
        let (runtime, host) = self.place.start(&plan, &rss, &load)?;
        let mut asked_for_end = false;
        let mut outcome = load.wait(EVERY, || {
            if interrupt.came() {
                watch.interrupted();
                asked_for_end = true;
            }
            watch.tick(begun.elapsed()) && !asked_for_end
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
                alignment: (!kernel).then(|| counted.steering(host).alignment()),
                drops: drops::by_reason(&counted, &[("load", host)]),
                thresholds: self.outputs.thresholds(),
                slip_budget: self.asked.slip_budget,
                failures_count: true,
                ..about
            },
            &records,
        );
        // Joining the lanes' books takes memory, too.
        run.generator.memory_bytes = run.generator.memory_bytes.max(Usage::now().memory);
        self.outputs.write(&run)
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let seed = steering::seed(self.place.seed)?;
        let Some(file) = &self.scenario else {
            return self.asked.plan(&self.urls, &self.place.clients, seed);
        };
        let in_file = || file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(in_file)?;
        let scenario = Scenario::parse(&text).with_context(in_file)?;
        let plan = scenario.plan(&self.urls, seed, file.parent().filter(|p| *p != Path::new("")));
        let mut plan = plan.with_context(in_file)?;
        if !self.place.clients.is_empty() {
            plan.pools.iter_mut().for_each(|p| p.clients.clone_from(&self.place.clients));
        }
        Ok(plan)
    }

    fn about(&self, plan: &Plan) -> About {
        let mut at = 0.0;
        let phases = plan.phases.iter().map(|phase| {
            let from = at;
            at += phase.duration.as_secs_f64();
            Phase { name: phase.name.clone(), from_seconds: from, to_seconds: at, measured: phase.measured }
        });
        let phases: Vec<Phase> = phases.collect();
        let pool = |p: &Pool| PoolAbout {
            name: p.name.clone(),
            targets: targets(p),
            schedule: schedule(p, &plan.phases),
        };
        let mut all: Vec<String> = plan.pools.iter().flat_map(targets).collect();
        all.dedup();
        let schedules: Vec<String> = plan.pools.iter().map(|p| schedule(p, &plan.phases)).collect();
        About {
            setup: Setup {
                command: "load http".into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets: all,
                link: self.place.link.to_string(),
                workers: self.place.workers,
                seed: Some(plan.seed),
                schedule: schedules.join("; "),
                open_loop: plan.pools.iter().any(|p| matches!(p.pace, Pace::Rate { .. })),
                scenario: self.scenario.as_ref().map(|f| f.display().to_string()),
                ..Setup::default()
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

/// When a pool's requests are sent, in words: the load that the measured phases ask for, which need not be the nominal one.
fn schedule(pool: &Pool, phases: &[load::Phase]) -> String {
    let any = phases.iter().any(|p| p.measured);
    let shares = || phases.iter().filter(|p| p.measured || !any).flat_map(|p| [p.from, p.to]);
    let least = shares().fold(f64::INFINITY, f64::min);
    let most = shares().fold(0.0, f64::max);
    let range = |of: f64, show: fn(f64) -> String| {
        let (least, most) = (show(of * least), show(of * most));
        if least == most { most } else { format!("{least} to {most}") }
    };
    let (all, part) = (show_count(pool.connections as u64), range(pool.connections as f64, up));
    let connections = if pool.pace == Pace::Closed { part } else { all };
    let what = match pool.behaviour {
        Behaviour::Normal => "",
        Behaviour::HalfOpen => ", half open",
        Behaviour::SynOnly => ", SYN only",
    };
    match pool.pace {
        Pace::Closed => format!("closed loop, {connections} connections{what}"),
        Pace::Rate { per_second, poisson } => {
            let law = if poisson { "Poisson" } else { "constant" };
            format!("{law} {}/s, {connections} connections{what}", range(per_second, show_frequency))
        }
    }
}

/// Whole connections, and no more than there are.
fn up(connections: f64) -> String {
    show_count(connections.ceil() as u64)
}

/// A number that must be above zero.
fn positive(text: &str) -> Result<u64, String> {
    match units::count(text) {
        Ok(0) => Err(format!("'{text}': at least 1")),
        other => other.map_err(|e| e.to_string()),
    }
}
