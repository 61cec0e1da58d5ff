//! `flowlane load udp`: sends UDP datagrams and receives the answers.
//!
//! Arguments are checked before a link is opened; an error is one line. On a link of ours, flows are chosen so that answers arrive in
//! the lane that sent the request and, if the target's key is known, so that requests hit chosen buckets there. On kernel sockets each
//! flow is a connected socket, from a port chosen by where answers come if that is asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::impair::{Cycle, Edges, Slots};
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields, zone};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Run as Report, Snapshot, Usage};
use flowlane_load::{
    ClientRange, FlowWish, Load, LoadConfig, MIN_PAYLOAD, Pace, Phase, Sources, flows, timeline,
};

use super::find::{self, Find, Measured};
use super::home::Home;
use super::near::{AimOptions, Near, Run, aim, fits};
use super::reach::{NOWHERE, Named};
use super::{EVERY, Start, alignment, arrivals};
use crate::drops;
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::units::{self, show_count};

/// Rate when neither a rate nor a window is given.
const DEFAULT_RATE: u64 = 10_000;
/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(10);
/// Default number of flows: on a link of ours, where a flow costs nothing, and on kernel sockets.
const FLOWS: u64 = 1024;
const KERNEL_FLOWS: u64 = 64;
/// Largest payload of a UDP datagram over IPv4.
const MAX_PAYLOAD: usize = 65_507;

/// Send UDP datagrams to an echo or discard server.
#[derive(Debug, Args)]
pub(crate) struct Udp {
    /// Target: ADDRESS:PORT, with IPv6 addresses in brackets, or HOST:PORT.
    #[arg(value_name = "TARGET", value_parser = super::target)]
    named: Named,
    /// The one of its addresses that is used.
    #[arg(skip = NOWHERE)]
    target: SocketAddr,
    #[command(flatten)]
    near: Near,
    #[command(flatten)]
    home: Home,
    /// Datagrams per second over all lanes: 100k, 1.5M [default: 10k].
    #[arg(long, short, value_parser = units::rate, conflicts_with = "window")]
    rate: Option<u64>,
    /// Closed loop: send a datagram for each answer, with this many in flight in each lane.
    #[arg(long, value_parser = units::count, conflicts_with = "find_rate")]
    window: Option<u64>,
    /// Poisson arrivals: independent send times in place of evenly spaced ones.
    #[arg(long, conflicts_with = "window")]
    poisson: bool,
    /// Time before the measurement in which the rate grows evenly from zero.
    #[arg(long, value_parser = units::duration, conflicts_with = "window")]
    ramp: Option<Duration>,
    /// Time before the measurement with the full load.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Payload of a datagram in bytes.
    #[arg(long, default_value = "510", value_parser = units::size)]
    size: usize,
    /// Duration of the measurement [default: 10s].
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Time after which an answer counts as late.
    #[arg(long, default_value = "1s", value_parser = units::duration)]
    timeout: Duration,
    /// Flows (pairs of client address and port) over all lanes [default: 1024; kernel sockets, one for each flow: 64].
    #[arg(long, value_parser = units::count)]
    flows: Option<u64>,
    /// Send in slots of a cycle only: 8x2ms is eight slots of 2 ms, by CLOCK_TAI.
    #[arg(long, value_name = "NxTIME", requires = "slot", conflicts_with_all = ["window", "find_rate"])]
    slots: Option<Cycle>,
    /// Which slot, from 0.
    #[arg(long, value_name = "N", requires = "slots")]
    slot: Option<u32>,
    /// Time at the end of a slot in which nothing begins to be sent.
    #[arg(long, default_value = "0", value_parser = units::duration, requires = "slots")]
    guard: Duration,
    /// The target does not answer: measure sending only.
    #[arg(long, conflicts_with = "find_rate")]
    discard: bool,
    /// Lateness of what is sent above which the schedule counts as not kept [default: the largest of 5ms, 1 % of the median latency and a tenth of
    /// the time between two].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    slip_budget: Option<Duration>,
    #[command(flatten)]
    aim: AimOptions,
    /// The target hashes UDP over addresses and ports [default: over addresses alone].
    #[arg(long)]
    target_udp_4tuple: bool,
    /// Hash UDP over addresses and ports on our side [default: over addresses alone].
    #[arg(long)]
    udp_4tuple: bool,
    #[command(flatten)]
    find: Find,
    #[command(flatten)]
    outputs: Outputs,
}

impl Udp {
    /// Runs the load.
    pub(crate) fn run(&mut self) -> anyhow::Result<()> {
        let target = if self.near.is_kernel() {
            self.named.choose(false)
        } else {
            self.named.choose_by(|target| self.near.check(target, &self.home).is_ok())
        };
        self.target = self.near.towards(target)?;
        self.check()?;
        let _made = self.outputs.check(&["all"])?;
        let rss = self.near.rss(fields(self.udp_4tuple), true, &self.home)?;
        let clients = self.near.clients(self.target)?;
        let config = self.plan(&rss, &clients)?;
        let interrupt = Interrupt::listen()?;
        if let Some(condition) = &self.find.find_rate {
            condition.check(&["all".to_owned()]).context("--find-rate")?;
            let targets = vec![zone::show(self.target).to_string()];
            let config = LoadConfig { phases: find::phases(self.warm_up, self.duration), ..config };
            let mut rates = Rates { load: self, config, rss, clients, interrupt: &interrupt };
            return self.find.search(condition, ("load udp", targets), &mut rates, &self.outputs, &interrupt);
        }
        let watch = self.outputs.watch(timeline::duration(&config.phases), &["all".to_owned()])?;
        let run = self.measure(config, &rss, &clients, &interrupt, Some(watch))?;
        self.outputs.write(&run, &interrupt)
    }

    /// Makes one run, which is watched or not.
    fn measure(
        &self,
        mut config: LoadConfig,
        rss: &Arc<Rss>,
        clients: &[ClientRange],
        interrupt: &Interrupt,
        watch: Option<(Watch, SyncSender<Snapshot>)>,
    ) -> anyhow::Result<Report> {
        let (mut watch, snapshots) = watch.unzip();
        let (phases, about) = (config.phases.clone(), self.about(&config));
        config.snapshots = snapshots;
        let load = Load::new(config)?;

        // Refuses, before anything is sent, a link whose MTU is too small for the payload.
        let headers = if self.target.is_ipv4() { 28 } else { 48 } + self.near.overhead(self.target.ip());
        let size = self.size;
        let check = |open| fits(open, size, headers);
        let descriptors = usize::try_from(self.flows()).context("--flows")?;
        let run = Run {
            name: "load udp",
            target: self.target,
            rss,
            clients,
            tcp: TcpConfig::default(),
            frames: None,
            io: self.near.io(false)?,
            descriptors,
            home: &self.home,
        };
        self.home.warn_of_fields(rss, self.target);
        let start = Start::now();
        let (runtime, host) = self.near.start(run, load.main(), check)?;
        if let Some(watch) = &mut watch {
            watch.serve(runtime.handle(), "load udp")?;
        }
        let outcome = load.wait(EVERY, |_| start.goes_on(watch.as_mut(), interrupt));
        if let Some(watch) = watch {
            watch.end();
        }
        let usage = Usage::now().since(start.usage).within(start.begun.elapsed());
        let counted = runtime.stop();
        let mut about = about;
        if let Some(kept) = kept_in_words(&load.edges()) {
            about.setup.more.insert("slots kept".into(), kept);
        }
        Ok(outcome.run(About {
            started: start.at,
            phases: timeline::shown(&phases),
            usage,
            alignment: alignment(self.near.is_kernel(), &counted, host),
            arrivals: arrivals(self.near.is_kernel(), &counted, host),
            home_ports: self.home.counted(&counted, host),
            drops: drops::by_reason(&counted, &[("load", host)]),
            thresholds: self.outputs.thresholds(),
            slip_budget: self.slip_budget,
            ..about
        }))
    }

    /// Checks the arguments by themselves.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_some_and(|d| d.is_zero()), "--duration must be more than 0");
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        ensure!(
            (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&self.size),
            "--size {}: from {MIN_PAYLOAD} (the generator's header) to what the link's MTU allows",
            self.size
        );
        let most = if self.near.is_kernel() { 100_000 } else { 10_000_000 };
        let flows = self.flows();
        ensure!((1..=most).contains(&flows), "--flows {flows}: from 1 to {}", show_count(most));
        let window = self.window.unwrap_or(1);
        ensure!((1..=65_536).contains(&window), "--window {window}: from 1 to 65536");
        self.near.check(self.target, &self.home)?;
        if self.near.is_kernel() {
            self.home.check_fields(self.udp_4tuple)?;
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    fn flows(&self) -> u64 {
        self.flows.unwrap_or(if self.near.is_kernel() { KERNEL_FLOWS } else { FLOWS })
    }

    fn slots(&self) -> anyhow::Result<Option<Slots>> {
        let Some((cycle, slot)) = self.slots.zip(self.slot) else { return Ok(None) };
        let guard = u64::try_from(self.guard.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(Slots::new(cycle, slot, guard).context("--slots")?))
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<LoadConfig> {
        let (target, seed) = (Endpoint::from(self.target), self.near.seed()?);
        let flows = usize::try_from(self.flows()).context("--flows")?;
        let sources = if self.near.is_kernel() {
            Sources::Addresses { clients: clients.to_vec(), lanes: rss.buckets.len() }
        } else {
            let theirs = self.aim.theirs(fields(self.target_udp_4tuple))?;
            let wish = FlowWish {
                target,
                clients,
                flows,
                protocol: Protocol::UDP,
                rss,
                aim: aim(&theirs),
                start: seed,
            };
            Sources::Flows(flows::choose(&wish)?)
        };
        let pace = match self.window {
            Some(window) => Pace::Window(usize::try_from(window).context("--window")?),
            None => Pace::Rate { per_second: self.rate.unwrap_or(DEFAULT_RATE), poisson: self.poisson },
        };
        Ok(LoadConfig {
            target,
            sources,
            flows,
            pace,
            size: self.size,
            phases: timeline::usual(self.ramp, self.warm_up, self.duration.unwrap_or(DURATION)),
            timeout: self.timeout,
            discard: self.discard,
            exact: self.near.exact(),
            seed,
            slots: self.slots()?,
            snapshots: None,
        })
    }

    fn about(&self, config: &LoadConfig) -> About {
        let schedule = match config.pace {
            Pace::Window(window) => {
                format!("closed loop, {} on their way in each lane", show_count(window as u64))
            }
            Pace::Rate { per_second, poisson } => super::rate_in_words(per_second, poisson),
        };
        let flows = match &config.sources {
            Sources::Flows(flows) => flows.iter().map(Vec::len).sum(),
            Sources::Addresses { .. } => config.flows,
        };
        let mut more = vec![("size", format!("{} bytes", self.size)), ("flows", show_count(flows as u64))];
        if let Some(slots) = config.slots {
            let (cycle, slot, guard) = (slots.cycle(), slots.slot(), units::show_nanos(slots.guard()));
            more.push(("slots", format!("slot {slot} of {cycle}, guard {guard}")));
        }
        let targets = vec![zone::show(self.target).to_string()];
        About {
            pools: vec![PoolAbout {
                name: "all".into(),
                targets: targets.clone(),
                schedule: schedule.clone(),
                ..PoolAbout::default()
            }],
            setup: Setup {
                command: "load udp".into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets,
                link: self.near.link_name(),
                workers: self.near.workers(),
                seed: Some(config.seed),
                schedule,
                open_loop: matches!(config.pace, Pace::Rate { .. }),
                more: more.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                ..Setup::default()
            },
            ..About::default()
        }
    }
}

/// The runs of a search.
struct Rates<'a> {
    load: &'a Udp,
    config: LoadConfig,
    rss: Arc<Rss>,
    clients: Vec<ClientRange>,
    interrupt: &'a Interrupt,
}

impl Rates<'_> {
    fn run(&self, config: LoadConfig) -> anyhow::Result<Report> {
        self.load.measure(config, &self.rss, &self.clients, self.interrupt, None)
    }
}

impl Measured for Rates<'_> {
    fn at(&mut self, rate: f64) -> anyhow::Result<Report> {
        let pace = Pace::Rate { per_second: rate.round().max(1.0) as u64, poisson: self.load.poisson };
        self.run(LoadConfig { pace, ..self.config.clone() })
    }

    fn alone(&mut self) -> anyhow::Result<Option<Duration>> {
        let phases = vec![Phase::hold(find::QUESTION)];
        let run = self.run(LoadConfig { pace: Pace::Window(1), phases, ..self.config.clone() })?;
        Ok(find::usual(&run))
    }
}

/// How slots were kept; `None` if none were asked for, or nothing was sent.
fn kept_in_words(edges: &Edges) -> Option<String> {
    let counts = edges.counts();
    let all = counts.inside + counts.outside;
    let late =
        |share| edges.quantile(share).map_or("-".to_owned(), |us| units::show_nanos(u64::from(us) * 1000));
    (all > 0).then(|| {
        format!(
            "{:.3} % of {} inside, late at the edge p50 {}, p99.9 {}, max {}",
            counts.inside as f64 / all as f64 * 100.0,
            show_count(all),
            late(0.5),
            late(0.999),
            units::show_nanos(counts.latest)
        )
    })
}

fn fields(four: bool) -> UdpFields {
    if four { UdpFields::Four } else { UdpFields::Two }
}
