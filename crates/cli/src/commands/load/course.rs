//! The course of `load tcp`, `load udp`, `load memcached` and `load ws`: which address is the target, a run or the runs of a search, and the report.
//!
//! ```text
//!   the target's address ▸ checks ▸ steering, clients ▸ the plan ▸ a run that is watched, or a search ▸ reports
//! ```
//!
//! Everything that can be refused is refused before a link is opened, by one line.

#[cfg(feature = "agents")]
pub(super) mod part;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{Endpoint, OpenLink, Protocol, Rss, TcpConfig, UdpFields, zone};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Run as Report, SnapshotsTo, Usage};
use flowlane_load::run::lanes::{self, Lanes};
use flowlane_load::{ClientRange, Part, Phase, Sources, timeline};

use super::find::{self, Find, Measured};
use super::given::{self, Later};
use super::home::Home;
use super::near::{self, AimOptions, FEW_FRAMES, Flows, Near, Run};
use super::reach::{NOWHERE, Named};
use super::{EVERY, alignment, arrivals, set};
use crate::drops;
use crate::instruments::Looked;
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::units;

/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(10);

/// Options that these loads share.
#[derive(Debug, Args)]
pub(super) struct Course {
    /// The address of the target that is used.
    #[arg(skip = NOWHERE)]
    pub(super) target: SocketAddr,
    /// Which part of the run this is, if others make the rest.
    #[arg(skip)]
    part: Option<Part>,
    #[command(flatten)]
    pub(super) near: Near,
    #[command(flatten)]
    pub(super) home: Home,
    /// Time before the measurement with the full load.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Duration of the measurement, from when connections that stay are established and items stored [default: 10s].
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Lateness of what is sent above which the schedule counts as not kept [default: the largest of 5ms, 1 % of the median latency and a tenth of
    /// the time between two].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    slip_budget: Option<Duration>,
    #[command(flatten)]
    pub(super) aim: AimOptions,
    #[command(flatten)]
    pub(super) find: Find,
    #[command(flatten)]
    pub(super) outputs: Outputs,
    #[cfg(feature = "agents")]
    #[command(flatten)]
    crew: super::agents::CrewOptions,
}

/// What a host needs for a run.
#[derive(Debug)]
pub(super) struct Needs {
    /// Limits of TCP in each lane.
    pub(super) tcp: TcpConfig,
    /// Frames of each worker, if not the default number.
    pub(super) frames: Option<usize>,
    /// File descriptors, on kernel sockets.
    pub(super) descriptors: usize,
}

/// What a report says of a run's schedule.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) schedule: String,
    /// Whether what is sent does not wait for answers.
    pub(super) open_loop: bool,
    /// The kinds of requests.
    pub(super) requests: Vec<String>,
    pub(super) more: BTreeMap<String, String>,
}

/// Why a run fails without any `--fail`, and whether failures in it make it one.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) failure: Option<String>,
    pub(super) failures_count: bool,
}

/// The counts of a kind's run.
type CountsOf<T> = <<T as Load>::Kind as lanes::Kind>::Counts;

/// One of these loads.
pub(super) trait Load: Sized {
    /// What it is called.
    const NAME: &'static str;
    /// Whether it is one of connections.
    const TCP: bool;
    /// What it sends.
    type Kind: lanes::Kind;
    /// The plan of a run.
    type Config: Clone;
    /// Whether lanes prepare something before the start that is no part of the run: connections, items.
    const PREPARES: bool = false;

    fn named(&self) -> &Named;
    fn course(&self) -> &Course;
    fn course_mut(&mut self) -> &mut Course;
    /// Refuses options that cannot be meant, by themselves.
    fn check(&self) -> anyhow::Result<()>;
    /// Over which fields UDP is hashed on our side.
    fn fields(&self) -> UdpFields {
        UdpFields::Two
    }
    /// The plan of a run with these phases.
    fn plan(&self, rss: &Rss, clients: &[ClientRange], phases: Vec<Phase>) -> anyhow::Result<Self::Config>;
    /// From where a plan sends.
    fn sources(config: &mut Self::Config) -> &mut Sources;
    /// Time in which the rate grows before the measurement.
    fn ramp(&self) -> Option<Duration>;
    /// The plan's seed.
    fn seed(config: &Self::Config) -> u64;
    /// The same run at another rate.
    fn at(&self, config: Self::Config, per_second: u64) -> Self::Config;
    /// The run that asks one thing after the other.
    fn alone(config: Self::Config, phases: Vec<Phase>) -> Self::Config;
    /// The run after the first of a search.
    fn again(_config: &mut Self::Config) {}
    /// What is said before a run begins.
    fn announce(&self) {}
    /// The run of a plan, or the part of one, which sends snapshots there.
    fn prepared(
        config: Self::Config,
        to: Option<SnapshotsTo>,
        part: Option<Part>,
    ) -> anyhow::Result<Lanes<Self::Kind>>;
    /// The phases of a run, including the opening of connections that stay.
    fn whole(&self, config: &Self::Config) -> anyhow::Result<Vec<Phase>> {
        Ok(Self::prepared(config.clone(), None, None)?.phases().to_vec())
    }
    /// How long an answer may take.
    #[cfg(feature = "agents")]
    fn patience(&self) -> Duration;
    /// Whether others can take the connections of an agent that is lost.
    #[cfg(feature = "agents")]
    fn has_connections(&self) -> bool {
        Self::TCP
    }
    /// Options that agents are told besides those given, where what they have by default depends on the machine.
    #[cfg(feature = "agents")]
    fn told(&self) -> Vec<String> {
        Vec::new()
    }
    fn needs(&self, config: &Self::Config, clients: &[ClientRange]) -> anyhow::Result<Needs>;
    /// Refuses a link on which what is sent does not fit.
    fn fits(&self, open: OpenLink) -> OpenLink {
        open
    }
    fn words(&self, config: &Self::Config) -> Words;
    /// What is made in the place of a run or a search of rates, and what came of it.
    fn instead(&self, _runs: &Runs<'_, Self>) -> Option<anyhow::Result<()>> {
        None
    }
    /// What is known at the end only.
    fn said_at_end(&self, _load: &Lanes<Self::Kind>) -> Option<(String, String)> {
        None
    }
    fn judge(&self, _counts: &CountsOf<Self>, _interrupted: bool) -> Judgement {
        Judgement::default()
    }

    /// Takes an address of the target; refuses what does not go with it.
    fn settle(&mut self, target: SocketAddr) -> anyhow::Result<()> {
        self.course_mut().target = self.course().near.towards(target)?;
        self.check()?;
        self.course().check()
    }

    /// Chooses an address of the target.
    fn choose(&mut self) -> anyhow::Result<()> {
        let course = self.course();
        let target = if course.near.is_kernel() {
            // What cannot be meant is refused before anybody is waited for.
            let first = self.named().0.first().copied().unwrap_or(NOWHERE);
            self.settle(first)?;
            self.course().near.wait.for_one(&self.named().0, Self::TCP);
            self.named().choose(Self::TCP)
        } else {
            self.named().choose_by(|target| course.near.check(target, &course.home).is_ok())
        };
        self.settle(target)
    }

    /// Runs the load.
    fn run(mut self) -> anyhow::Result<()> {
        #[cfg(feature = "agents")]
        if self.course().crew.is_wanted() {
            return part::conduct(self);
        }
        self.choose()?;
        let course = self.course();
        let names = ["all".to_owned()];
        let _made = course.outputs.check(&["all"])?;
        let rss = course.near.rss(self.fields(), !Self::TCP, &course.home)?;
        let clients = course.near.clients(course.target)?;
        let config = self.plan(&rss, &clients, course.phases(self.ramp()))?;
        let interrupt = Interrupt::listen()?;
        course.near.asked()?.announce();
        let mut runs = Runs { load: &self, config, rss, clients, interrupt: &interrupt };
        if let Some(condition) = &course.find.find_rate {
            condition.check(&names).context("--find-rate")?;
            course.near.instruments.keep_open()?;
            let what = (Self::NAME, vec![zone::show(course.target).to_string()]);
            return course.find.search(condition, what, &mut runs, &course.outputs, &interrupt);
        }
        if let Some(made) = self.instead(&runs) {
            return made;
        }
        let config = runs.config.clone();
        // Connections that stay are opened first, in addition to the duration; the load computes how long that takes.
        let watch = course.outputs.watch(&self.whole(&config)?, &names)?;
        self.announce();
        let run = runs.measure(config, Some(watch))?;
        course.outputs.write(&run, &interrupt)
    }
}

impl Course {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_some_and(|d| d.is_zero()), "--duration must be more than 0");
        if self.is_conducted() {
            // From where it is sent, agents know.
            return near::check_port(self.target);
        }
        self.near.check(self.target, &self.home)?;
        if self.near.is_kernel() {
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    /// Whether agents make the run.
    fn is_conducted(&self) -> bool {
        #[cfg(feature = "agents")]
        let is = self.crew.is_wanted();
        #[cfg(not(feature = "agents"))]
        let is = false;
        is
    }

    /// Whether this process sends from kernel sockets.
    pub(super) fn is_on_kernel(&self) -> bool {
        self.near.is_kernel() && !self.is_conducted()
    }

    /// What is left of `amount` connections or flows to a generator with these lanes: all, or those of its part.
    pub(super) fn share(&self, amount: usize, lanes: usize) -> usize {
        self.part.map_or(amount, |part| part.share(amount as u64, lanes) as usize)
    }

    /// Where connections that stay come from: ports of ours in turn, or, where buckets of the target are aimed at, those that hit them.
    pub(super) fn sources(
        &self,
        rss: &Rss,
        clients: &[ClientRange],
        connections: usize,
        seed: u64,
    ) -> anyhow::Result<Sources> {
        let target = Endpoint::from(self.target);
        let theirs = self.aim.theirs(UdpFields::Two)?;
        if self.near.is_kernel() || theirs.is_none() {
            return self.near.addresses(rss, clients, target);
        }
        let flows = self.share(connections, rss.buckets.len());
        let wanted = Flows { target, protocol: Protocol::TCP, flows, all: true, seed };
        self.near.flows(rss, clients, &theirs, &wanted)
    }

    /// The phases of a run, or of each run of a search.
    fn phases(&self, ramp: Option<Duration>) -> Vec<Phase> {
        match self.find.find_rate {
            Some(_) => find::phases(self.warm_up, self.duration),
            None => timeline::usual(ramp, self.warm_up, self.duration.unwrap_or(DURATION)),
        }
    }

    fn about(&self, command: &str, words: Words, seed: u64) -> About {
        let targets = vec![zone::show(self.target).to_string()];
        let Words { schedule, open_loop, requests, more } = words;
        About {
            pools: vec![PoolAbout {
                name: "all".into(),
                targets: targets.clone(),
                schedule: schedule.clone(),
                requests,
            }],
            setup: Setup {
                command: command.into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets,
                link: self.near.link_name(),
                workers: self.near.workers(),
                seed: Some(seed),
                schedule,
                open_loop,
                more,
                ..Setup::default()
            },
            thresholds: self.outputs.thresholds(),
            slip_budget: self.slip_budget,
            ..About::default()
        }
    }
}

/// The start of a run.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) at: SystemTime,
    pub(super) begun: Instant,
    pub(super) usage: Usage,
}

impl Start {
    pub(super) fn now() -> Self {
        Self { at: SystemTime::now(), begun: Instant::now(), usage: Usage::now() }
    }

    /// The same, or now, of a run that had to wait until it could begin.
    pub(super) fn or_now(self, waited: bool) -> Self {
        if waited { Self::now() } else { self }
    }

    /// Updates the display; `false` if the user ends the run.
    fn goes_on(&self, watch: Option<&mut Watch>, interrupt: &Interrupt) -> bool {
        match (watch, interrupt.came()) {
            (None, came) => !came,
            (Some(watch), false) => watch.tick(self.begun.elapsed()),
            (Some(watch), true) => {
                watch.interrupted();
                false
            }
        }
    }
}

/// Runs of one plan.
#[derive(Debug)]
pub(super) struct Runs<'a, L: Load> {
    load: &'a L,
    pub(super) config: L::Config,
    rss: Arc<Rss>,
    clients: Vec<ClientRange>,
    pub(super) interrupt: &'a Interrupt,
}

impl<L: Load> Runs<'_, L> {
    /// Makes one run, which is watched or not.
    pub(super) fn measure(
        &self,
        config: L::Config,
        watch: Option<(Watch, SnapshotsTo)>,
    ) -> anyhow::Result<Report> {
        let (kind, course) = (self.load, self.load.course());
        let (mut watch, snapshots) = watch.unzip();
        let needs = kind.needs(&config, &self.clients)?;
        let mut about = course.about(L::NAME, kind.words(&config), L::seed(&config));
        let start = Start::now();
        let stop = || given::goes_on(watch.as_mut(), self.interrupt);
        let (load, runtime, host) =
            begin(kind, config, (&self.rss, &self.clients), (needs, snapshots), stop)?;
        let mut start = start.or_now(course.near.asks());
        if let Some(watch) = &mut watch {
            watch.serve(runtime.handle(), L::NAME)?;
        }
        let outcome = load.wait(EVERY, |_| {
            if L::PREPARES && !load.has_begun() {
                start = Start::now();
            }
            start.goes_on(watch.as_mut(), self.interrupt)
        });
        let aborted = watch.and_then(Watch::end);
        let usage = Usage::now().since(start.usage).within(start.begun.elapsed());
        let counted = runtime.stop();
        let Judgement { failure, failures_count } = kind.judge(&outcome.counts, outcome.interrupted);
        about.setup.more.extend(kind.said_at_end(&load));
        about.setup.more.extend(set::said(&outcome.changes));
        let kernel = course.near.is_kernel();
        Ok(outcome.run(About {
            started: start.at,
            phases: timeline::shown(load.phases()),
            usage,
            alignment: alignment(kernel, &counted, host),
            arrivals: arrivals(kernel, &counted, host),
            home_ports: course.home.counted(&counted, host),
            drops: drops::by_reason(&counted, &[("load", host)]),
            failures_count,
            failure,
            aborted,
            ..about
        }))
    }
}

/// Begins a run, or a part of one: its lanes, the runtime that has them, and the number of their host. `stop` ends the wait for addresses that
/// others give.
fn begin<L: Load>(
    kind: &L,
    config: L::Config,
    (rss, clients): (&Arc<Rss>, &[ClientRange]),
    (needs, snapshots): (Needs, Option<SnapshotsTo>),
    stop: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(Lanes<L::Kind>, Looked, usize)> {
    let course = kind.course();
    // The runs of a search have their rates from it alone.
    let changer = course.find.find_rate.is_none().then(set::Slot::default);
    let may_change = |load: &Lanes<L::Kind>| changer.as_ref().map(|slot| slot.set(load.changer()));
    let run = Run {
        name: L::NAME,
        target: course.target,
        rss,
        clients,
        tcp: needs.tcp,
        frames: if L::TCP && course.near.is_kernel() { Some(FEW_FRAMES) } else { needs.frames },
        io: course.near.io(L::TCP)?,
        descriptors: needs.descriptors,
        home: &course.home,
        changer: changer.clone(),
    };
    if !L::TCP {
        course.home.warn_of_fields(rss, course.target);
    }
    if !course.near.asks() {
        let load = L::prepared(config, snapshots, course.part)?;
        may_change(&load);
        let (runtime, host) = course.near.start(run, load.main(), |open| kind.fits(open))?;
        return Ok((load, runtime, host));
    }
    let later = Later::default();
    let (runtime, host) = course.near.start(run, later.main(), |open| kind.fits(open))?;
    let clients = course.near.given((&runtime, host), course.target.ip(), stop)?;
    let mut planned = kind.plan(rss, &clients, course.phases(kind.ramp()))?;
    let mut config = config;
    std::mem::swap(L::sources(&mut config), L::sources(&mut planned));
    let load = L::prepared(config, snapshots, course.part)?;
    may_change(&load);
    later.begin(load.main());
    Ok((load, runtime, host))
}

impl<L: Load> Measured for Runs<'_, L> {
    fn at(&mut self, rate: f64) -> anyhow::Result<Report> {
        let config = self.load.at(self.config.clone(), rate.round().max(1.0) as u64);
        self.measure(config, None)
    }

    fn alone(&mut self) -> anyhow::Result<Option<Duration>> {
        let config = L::alone(self.config.clone(), vec![Phase::hold(find::QUESTION)]);
        L::again(&mut self.config);
        Ok(find::usual(&self.measure(config, None)?))
    }
}
