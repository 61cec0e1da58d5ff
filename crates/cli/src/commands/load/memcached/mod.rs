//! `flowlane load memcached`: gets and sets of a memcached, each accounted for, and every value verified if that is asked for.

mod mix;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields, zone};
use flowlane_load::memcached::{MemcachedCounts, MemcachedLoad, MemcachedLoadConfig, REQUESTS};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Run as Report, Snapshot, Usage};
use flowlane_load::{ClientRange, FlowWish, Phase, Sources, flows, timeline};

use super::find::{self, Find, Measured};
use super::home::Home;
use super::near::{AimOptions, Near, Run, aim};
use super::reach::{NOWHERE, Named};
use super::{EVERY, Start, alignment, arrivals, rate_in_words};
use crate::drops;
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::say::say;
use crate::units::{self, show_count};
use mix::MixOptions;

/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(10);
/// Most connections of a run, and most requests in flight on one.
const MOST: u64 = 1_000_000;
const DEEPEST: u64 = 10_000;
/// The port of memcached.
const PORT: u16 = 11211;

/// Send gets and sets to a memcached.
#[derive(Debug, Args)]
pub(crate) struct Memcached {
    /// Server: HOST or HOST:PORT [port: 11211].
    #[arg(value_name = "SERVER", value_parser = server)]
    named: Named,
    /// The one of its addresses that is used.
    #[arg(skip = NOWHERE)]
    target: SocketAddr,
    #[command(flatten)]
    near: Near,
    #[command(flatten)]
    home: Home,
    /// Connections, which stay open.
    #[arg(long, short, default_value = "16", value_parser = units::count)]
    connections: u64,
    /// Most requests in flight on a connection; without --rate there are always so many.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    depth: u64,
    /// Requests per second over all connections, at times fixed in advance [default: as fast as answers come].
    #[arg(long, short, value_parser = units::rate, group = "open_loop")]
    rate: Option<u64>,
    /// Poisson arrivals of requests in place of evenly spaced ones.
    #[arg(long, requires = "open_loop")]
    poisson: bool,
    /// Store all items before the run.
    #[arg(long)]
    fill: bool,
    /// Time before the measurement in which the rate grows evenly from zero.
    #[arg(long, value_parser = units::duration, requires = "rate")]
    ramp: Option<Duration>,
    /// Time before the measurement with the full load.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Duration of the measurement, from when all connections stand and items are stored [default: 10s].
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    timeout: Duration,
    /// Lateness of what is sent above which the schedule counts as not kept [default: the largest of 5ms, 1 % of the median latency and a tenth of
    /// the time between two].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    slip_budget: Option<Duration>,
    #[command(flatten)]
    aim: AimOptions,
    #[command(flatten)]
    mix: MixOptions,
    #[command(flatten)]
    find: Find,
    #[command(flatten)]
    outputs: Outputs,
}

/// A target whose port may be left out.
fn server(text: &str) -> Result<Named, String> {
    let bare = match text.parse::<std::net::IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, PORT).to_string()),
        Err(_) if text.ends_with(']') || !text.contains(':') && !text.is_empty() => {
            Some(format!("{text}:{PORT}"))
        }
        Err(_) => None,
    };
    super::target(bare.as_deref().unwrap_or(text))
}

impl Memcached {
    /// Runs the load.
    pub(crate) fn run(&mut self) -> anyhow::Result<()> {
        let target = if self.near.is_kernel() {
            self.named.choose(true)
        } else {
            self.named.choose_by(|target| self.near.check(target, &self.home).is_ok())
        };
        self.target = self.near.towards(target)?;
        self.check()?;
        let _made = self.outputs.check(&["all"])?;
        let rss = self.near.rss(UdpFields::Two, false, &self.home)?;
        let clients = self.near.clients(self.target)?;
        let config = self.plan(&rss, &clients)?;
        let interrupt = Interrupt::listen()?;
        if let Some(condition) = &self.find.find_rate {
            condition.check(&["all".to_owned()]).context("--find-rate")?;
            let targets = vec![zone::show(self.target).to_string()];
            let config = MemcachedLoadConfig { phases: find::phases(self.warm_up, self.duration), ..config };
            let mut rates = Rates { load: self, config, rss, clients, interrupt: &interrupt };
            let what = ("load memcached", targets);
            return self.find.search(condition, what, &mut rates, &self.outputs, &interrupt);
        }
        let watch = self.outputs.watch(timeline::duration(&config.phases), &["all".to_owned()])?;
        if self.fill && !self.outputs.are_quiet() {
            say!("flowlane: {} items are stored before the run", show_count(self.mix.keys()));
        }
        let run = self.measure(config, &rss, &clients, &interrupt, Some(watch))?;
        self.outputs.write(&run, &interrupt)
    }

    /// Makes one run, which is watched or not.
    fn measure(
        &self,
        mut config: MemcachedLoadConfig,
        rss: &Arc<Rss>,
        clients: &[ClientRange],
        interrupt: &Interrupt,
        watch: Option<(Watch, SyncSender<Snapshot>)>,
    ) -> anyhow::Result<Report> {
        let (mut watch, snapshots) = watch.unzip();
        let (connections, about) = (config.connections, self.about(&config));
        config.snapshots = snapshots;
        let load = MemcachedLoad::new(config)?;
        let default = TcpConfig::default();
        let run = Run {
            name: "load memcached",
            target: self.target,
            rss,
            clients,
            // A lane may hold all connections, if the hash puts them there.
            tcp: TcpConfig { max_connections: default.max_connections.max(connections), ..default },
            frames: Some((connections / self.near.workers() * 2).clamp(1 << 13, 1 << 17)),
            io: self.near.io(true)?,
            descriptors: connections,
            home: &self.home,
        };
        let mut start = Start::now();
        let (runtime, host) = self.near.start(run, load.main(), |open| open)?;
        if let Some(watch) = &mut watch {
            watch.serve(runtime.handle(), "load memcached")?;
        }
        let outcome = load.wait(EVERY, |progress| {
            if !progress.running {
                // Connections are opened, and items stored: that is no part of the run.
                start = Start::now();
            }
            start.goes_on(watch.as_mut(), interrupt)
        });
        if let Some(watch) = watch {
            watch.end();
        }
        let usage = Usage::now().since(start.usage).within(start.begun.elapsed());
        let counted = runtime.stop();
        let (interrupted, failure) =
            (outcome.interrupted, self.failure(&outcome.counts, outcome.interrupted));
        Ok(outcome.run(About {
            started: start.at,
            phases: timeline::shown(load.phases()),
            usage,
            alignment: alignment(self.near.is_kernel(), &counted, host),
            arrivals: arrivals(self.near.is_kernel(), &counted, host),
            home_ports: self.home.counted(&counted, host),
            drops: drops::by_reason(&counted, &[("load", host)]),
            thresholds: self.outputs.thresholds(),
            slip_budget: self.slip_budget,
            failures_count: !interrupted,
            failure,
            ..about
        }))
    }

    /// Reasons for which a run fails without any `--fail`.
    fn failure(&self, counts: &MemcachedCounts, interrupted: bool) -> Option<String> {
        if counts.wrong > 0 {
            return Some(format!(
                "{} gets brought a value that is not the one of its key",
                show_count(counts.wrong)
            ));
        }
        if interrupted || counts.answered > 0 || counts.requests == 0 {
            return None;
        }
        Some(format!(
            "{} answers nothing: does a memcached have this port? ({} requests failed)",
            zone::show(self.target),
            show_count(counts.failed())
        ))
    }

    fn about(&self, config: &MemcachedLoadConfig) -> About {
        let mut connections = format!("{} connections", show_count(config.connections as u64));
        if config.depth > 1 {
            connections = format!("{connections} with up to {} requests in flight", config.depth);
        }
        let schedule = match config.rate {
            Some(rate) => format!("{}, {connections}", rate_in_words(rate, config.poisson)),
            None => format!("closed loop, {connections}"),
        };
        let targets = vec![zone::show(self.target).to_string()];
        About {
            pools: vec![PoolAbout {
                name: "all".into(),
                targets: targets.clone(),
                schedule: schedule.clone(),
                requests: REQUESTS.map(str::to_owned).to_vec(),
            }],
            setup: Setup {
                command: "load memcached".into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets,
                link: self.near.link_name(),
                workers: self.near.workers(),
                seed: Some(config.seed),
                schedule,
                open_loop: config.rate.is_some(),
                more: self.mix.words(&config.mix, config.fill),
                ..Setup::default()
            },
            ..About::default()
        }
    }

    /// Checks the arguments by themselves.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_some_and(|d| d.is_zero()), "--duration must be more than 0");
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        let n = self.connections;
        ensure!((1..=MOST).contains(&n), "--connections {n}: from 1 to 1M");
        ensure!((1..=DEEPEST).contains(&self.depth), "--depth {}: from 1 to 10k", self.depth);
        self.near.check(self.target, &self.home)?;
        if self.near.is_kernel() {
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<MemcachedLoadConfig> {
        let (target, seed) = (Endpoint::from(self.target), self.near.seed()?);
        let theirs = self.aim.theirs(UdpFields::Two)?;
        let connections = usize::try_from(self.connections).context("--connections")?;
        let of_family: Vec<_> =
            clients.iter().filter(|c| c.is_ipv4() == target.ip.is_ipv4()).copied().collect();
        let sources = if self.near.is_kernel() || theirs.is_none() {
            ensure!(
                self.near.is_kernel() || !of_family.is_empty(),
                "no client address is of the same family as the target {target}"
            );
            Sources::Addresses { clients: of_family, lanes: rss.buckets.len() }
        } else {
            let protocol = Protocol::TCP;
            let aim = aim(&theirs);
            let wish = FlowWish { target, clients, flows: connections, protocol, rss, aim, start: seed };
            let chosen = flows::choose(&wish)?;
            let had: usize = chosen.iter().map(Vec::len).sum();
            ensure!(
                had == connections,
                "the client addresses have ports for {had} connections, not {connections}: give more --clients"
            );
            Sources::Flows(chosen)
        };
        Ok(MemcachedLoadConfig {
            target,
            sources,
            connections,
            depth: usize::try_from(self.depth).context("--depth")?,
            rate: self.rate,
            poisson: self.poisson,
            mix: self.mix.plan()?,
            fill: self.fill,
            phases: timeline::usual(self.ramp, self.warm_up, self.duration.unwrap_or(DURATION)),
            timeout: self.timeout,
            exact: self.near.exact(),
            seed,
            snapshots: None,
        })
    }
}

/// The runs of a search.
struct Rates<'a> {
    load: &'a Memcached,
    config: MemcachedLoadConfig,
    rss: Arc<Rss>,
    clients: Vec<ClientRange>,
    interrupt: &'a Interrupt,
}

impl Rates<'_> {
    /// A run; the first of them stores the items.
    fn run(&mut self, config: MemcachedLoadConfig) -> anyhow::Result<Report> {
        self.config.fill = false;
        self.load.measure(config, &self.rss, &self.clients, self.interrupt, None)
    }
}

impl Measured for Rates<'_> {
    fn at(&mut self, rate: f64) -> anyhow::Result<Report> {
        self.run(MemcachedLoadConfig { rate: Some(rate.round().max(1.0) as u64), ..self.config.clone() })
    }

    fn alone(&mut self) -> anyhow::Result<Option<Duration>> {
        let phases = vec![Phase::hold(find::QUESTION)];
        let config = self.config.clone();
        let run = self.run(MemcachedLoadConfig { rate: None, connections: 1, depth: 1, phases, ..config })?;
        Ok(find::usual(&run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_may_be_left_out() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:11211"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("::1", "[::1]:11211"),
            ("[::1]", "[::1]:11211"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(server(text).unwrap().0, [address.parse().unwrap()], "{text}");
        }
        let local = server("localhost").unwrap().0;
        assert!(!local.is_empty() && local.iter().all(|a| a.port() == PORT), "{local:?}");
        for wrong in ["", ":7", "localhost:x", "a b:c"] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }
}
