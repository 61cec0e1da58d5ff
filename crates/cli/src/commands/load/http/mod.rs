//! `flowlane load http`: requests from many clients, over kernel sockets or any link of ours.
//!
//! Arguments or a scenario file become a plan ([`plan`]), which is checked before a link is opened; an error is one line. Kernel
//! sockets are used unless a link is named ([`place`]).

mod log;
mod login;
mod pair;
#[cfg(feature = "agents")]
mod part;
mod place;
mod plan;
mod replay;
mod via;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use flowlane::Rss;
use flowlane_load::Phase;
use flowlane_load::http::{Behaviour, HttpAim, HttpLoad, HttpOptions, Pace, Plan, Pool, Url};
use flowlane_load::report::model::{Ended, Phase as Shown, Setup};
use flowlane_load::report::{About, Goal, PoolAbout, Run, SnapshotsTo, Usage, join};
use flowlane_load::scenario::Scenario;
use flowlane_load::timeline;

use self::log::{Log, LogOptions};
use self::place::{LinkKind, Place};
use self::plan::PlanOptions;
use self::replay::ReplayOptions;
use super::course::Start;
use super::find::{self, Find, Measured};
use super::given;
use super::set;
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::units;
use crate::{drops, steering};

/// Interval between updates of the display.
const EVERY: Duration = Duration::from_millis(100);

/// Requests one after the other that tell how a target answers with nothing else to do, and how long they may take.
const QUESTIONS: u64 = 11;
const PATIENCE: Duration = Duration::from_secs(2);

/// The scenario's name and text for the report, and the options that replace its figures.
#[derive(Debug, Default)]
struct Source {
    name: String,
    about: String,
    instead: Vec<String>,
}

/// Send HTTP requests, over kernel sockets or any link.
#[derive(Debug, Args)]
pub(crate) struct Http {
    /// Target: http://HOST:PORT/PATH or https://..., each with its scheme; of several, connections take one after the other in turn.
    #[arg(value_name = "URL", required_unless_present_any = ["scenario", "curl"])]
    urls: Vec<Url>,
    /// The request of this command line of curl, as browsers copy it: 'curl https://... -H ... --data-raw ...'. What would be something
    /// else here is refused.
    #[arg(long, value_name = "LINE", conflicts_with_all = ["urls", "scenario", "method", "body", "body_size", "body_file"])]
    curl: Option<String>,
    /// Scenario file in TOML, with tables [[pool]] and [[phase]]; URLs replace its targets. The end of 'flowlane load http --help' shows
    /// one.
    #[arg(long, value_name = "FILE", conflicts_with = "find_rate")]
    scenario: Option<PathBuf>,
    /// Its text, once it was read; a file may be one that is read once.
    #[arg(skip)]
    text: Option<String>,
    #[command(flatten)]
    asked: PlanOptions,
    #[command(flatten)]
    replay: ReplayOptions,
    #[command(flatten)]
    find: Find,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    outputs: Outputs,
    #[command(flatten)]
    log: LogOptions,
    #[cfg(feature = "agents")]
    #[command(flatten)]
    crew: super::agents::CrewOptions,
}

impl Http {
    /// Runs the load.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        self.text = self.scenario.as_deref().map(crate::description::read).transpose()?;
        #[cfg(feature = "agents")]
        if let Some(crew) = self.crew()? {
            return self.run_by_agents(&crew);
        }
        let (mut plan, said) = self.plan()?;
        let rss = self.place.rss()?;
        let home = (self.place.link != LinkKind::Kernel).then(|| rss.clone());
        if let Some((theirs, law)) = self.asked.aim()? {
            for pool in &mut plan.pools {
                pool.aim = Some(HttpAim { rss: theirs.clone(), home: home.clone(), law: law.clone() });
            }
        }
        self.place.keep_reachable(&mut plan);
        self.place.check(&plan)?;
        if self.place.link == LinkKind::Kernel {
            self.place.wait.for_all(&plan);
            super::reach::keep_answering(&mut plan);
        }
        self.place.more_descriptors(&plan)?;
        let names: Vec<String> = plan.pools.iter().map(|p| p.name.clone()).collect();
        let _made = self.outputs.check(&names)?;
        let interrupt = Interrupt::listen()?;
        self.place.announce()?;
        if let Some(condition) = &self.find.find_rate {
            condition.check(&names).context("--find-rate")?;
            self.place.instruments.keep_open()?;
            let mut rates =
                Rates { load: &self, plan: self.asked.of_a_search(plan), rss, interrupt: &interrupt };
            let about = ("load http", targets(&rates.plan.pools[0]));
            return self.find.search(condition, about, &mut rates, &self.outputs, &interrupt);
        }
        let log = self.log.open()?;
        let about = self.about(&plan, said);
        let watch = self.outputs.watch(&plan.phases, &names)?;
        let run = self.measure(&plan, about, &rss, &interrupt, (Some(watch), log))?;
        self.outputs.write(&run, &interrupt)
    }

    /// Makes one run, which is watched or not.
    fn measure(
        &self,
        plan: &Plan,
        about: About,
        rss: &Arc<Rss>,
        interrupt: &Interrupt,
        (watch, log): (Option<(Watch, SnapshotsTo)>, Option<Log>),
    ) -> anyhow::Result<Run> {
        let slack = self.asked.slack.unwrap_or_default();
        let (mut watch, snapshots) = watch.unzip();
        let (log, writing) = log.map(|log| log.begin(plan)).transpose()?.unzip();
        let options = HttpOptions {
            lanes: rss.buckets.len(),
            exact: self.asked.exact,
            slack,
            snapshots,
            log,
            part: None,
            stays: false,
        };
        let load = HttpLoad::new(plan.clone(), options)?;
        let may_change = watch.is_some();
        let stop = || given::goes_on(watch.as_mut(), interrupt);
        let before = Start::now();
        let (runtime, host) = self.place.start(plan, rss, &load, may_change, stop)?;
        let Start { usage: before, at: started, begun } = before.or_now(self.place.asks());
        if let Some(watch) = &mut watch {
            watch.serve(runtime.handle(), "load http")?;
        }
        let mut asked_for_end = false;
        let mut outcome = load.wait(EVERY, || {
            if interrupt.came() {
                asked_for_end = true;
                if let Some(watch) = &mut watch {
                    watch.interrupted();
                }
            }
            let Some(watch) = &mut watch else { return !asked_for_end };
            match load.connecting() {
                Some((standing, of)) => watch.connecting(begun.elapsed(), standing, of) && !asked_for_end,
                None => watch.tick(begun.elapsed()) && !asked_for_end,
            }
        });
        let aborted = watch.and_then(Watch::end);
        let usage = Usage::now().since(before).within(begun.elapsed());
        let counted = runtime.stop();
        // With it the last sender is gone.
        drop(load);
        if let Some(writing) = writing {
            writing.end();
        }

        let kernel = self.place.link == LinkKind::Kernel;
        let records = std::mem::take(&mut outcome.records);
        let mut about = about;
        about.setup.more.extend(set::said(&outcome.changes));
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
                aborted,
                usage,
                alignment: super::alignment(kernel, &counted, host),
                arrivals: super::arrivals(kernel, &counted, host),
                home_ports: self.place.home.counted(&counted, host),
                drops: drops::by_reason(&counted, &[("load", host)]),
                thresholds: self.outputs.thresholds(),
                slip_budget: self.asked.slip_budget,
                slack,
                failures_count: true,
                goal: goal(plan),
                ..about
            },
            records,
        );
        // Merging the lanes' records takes memory as well.
        run.generator.memory_bytes = run.generator.memory_bytes.max(Usage::now().memory);
        Ok(run)
    }

    /// The plan, and the scenario's description.
    fn plan(&self) -> anyhow::Result<(Plan, Source)> {
        let seed = steering::seed(self.place.seed)?;
        let Some(file) = &self.scenario else {
            let curl = self.curl.as_deref().map(flowlane_load::http::curl::Curl::parse).transpose();
            let curl = curl.map_err(|why| anyhow!("--curl: {why}"))?;
            let urls = match &curl {
                Some(curl) => vec![curl.url.parse().context("--curl")?],
                None => self.urls.clone(),
            };
            let mut plan = self.asked.plan(&urls, curl.as_ref(), &self.place.clients, seed)?;
            self.asked.replay(&self.replay, &mut plan)?;
            return Ok((plan, Source::default()));
        };
        let in_file = || file.display().to_string();
        let scenario = Scenario::parse(self.text.as_deref().unwrap_or_default()).with_context(in_file)?;
        #[cfg(not(feature = "agents"))]
        anyhow::ensure!(
            scenario.agents.is_none(),
            "{}: [agents]: this flowlane was built without agents",
            in_file()
        );
        let plan = scenario.plan(&self.urls, seed, file.parent().filter(|p| *p != Path::new("")));
        let mut plan = plan.with_context(in_file)?;
        if !self.place.clients.is_empty() {
            plan.pools.iter_mut().for_each(|p| p.clients.clone_from(&self.place.clients));
        }
        let instead = self.asked.instead().apply(&mut plan)?;
        Ok((plan, Source { name: scenario.name, about: scenario.about, instead }))
    }

    fn about(&self, plan: &Plan, said: Source) -> About {
        let loads = plan.phases.iter().map(|phase| words::load(&plan.pools, phase));
        let phases = timeline::shown(&plan.phases).into_iter().zip(loads);
        let phases = phases.map(|(phase, load)| Shown { load, ..phase }).collect();
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
                more: more
                    .into_iter()
                    .chain(fast)
                    .chain(via::shown(plan))
                    .chain(login::shown(plan))
                    .chain(self.replay.shown(plan))
                    .collect(),
            },
            phases,
            pools: plan.pools.iter().map(pool).collect(),
            ..About::default()
        }
    }
}

/// The runs of a search.
struct Rates<'a> {
    load: &'a Http,
    plan: Plan,
    rss: Arc<Rss>,
    interrupt: &'a Interrupt,
}

impl Rates<'_> {
    fn run(&self, plan: &Plan) -> anyhow::Result<Run> {
        self.load.measure(
            plan,
            self.load.about(plan, Source::default()),
            &self.rss,
            self.interrupt,
            (None, None),
        )
    }
}

impl Measured for Rates<'_> {
    fn at(&mut self, rate: f64) -> anyhow::Result<Run> {
        let mut plan = self.plan.clone();
        plan.pools[0].pace = Pace::Rate { per_second: rate, poisson: self.load.asked.poisson() };
        self.run(&plan)
    }

    fn alone(&mut self) -> anyhow::Result<Option<Duration>> {
        let mut plan = self.plan.clone();
        plan.phases = vec![Phase::hold(PATIENCE)];
        plan.pools[0] = Pool {
            pace: Pace::Closed,
            connections: 1,
            total_requests: Some(QUESTIONS),
            ..plan.pools[0].clone()
        };
        Ok(find::usual(&self.run(&plan)?))
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
