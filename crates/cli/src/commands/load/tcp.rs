//! `flowlane load tcp`: many connections that write, read, echo, exchange messages, or are opened and closed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields, zone};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Run as Report, Snapshot, Usage};
use flowlane_load::tcp::{Mode, Sources, TcpCounts};
use flowlane_load::{ClientRange, FlowWish, Phase, TcpLoad, TcpLoadConfig, Threshold, flows, timeline};

use super::find::{self, Find, Measured};
use super::home::Home;
use super::near::{AimOptions, Near, Run, aim};
use super::reach::{NOWHERE, Named};
use super::{EVERY, Start, alignment, arrivals, rate_in_words};
use crate::drops;
use crate::fast_open;
use crate::interrupt::Interrupt;
use crate::output::{Outputs, Watch};
use crate::units::{self, show_count};

/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(10);
/// Most connections of a run.
const MOST: u64 = 4_000_000;
/// Most client addresses with Fast Open: each lane keeps a cookie for each, in at most 240 bytes.
const MOST_COOKIES: u128 = 1 << 16;

/// Open TCP connections to an echo, discard or source server.
#[derive(Debug, Args)]
pub(crate) struct Tcp {
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
    /// What connections do.
    #[arg(long, value_enum, default_value = "echo")]
    mode: ModeName,
    /// Concurrent connections; with 'connect' an upper limit [default: 16; connect 128; hold 1000]. With 'syn' and 'half-open': pairs of
    /// client address and port, used in turn [default: 16384].
    #[arg(long, short, value_parser = units::count)]
    connections: Option<u64>,
    /// Messages per second over all connections; 'connect': connections per second [default: as fast as possible; hold: one message on
    /// each connection every 10 s].
    #[arg(long, short, value_parser = units::rate)]
    rate: Option<u64>,
    /// Poisson arrivals of connections in place of evenly spaced ones: 'connect' with --rate.
    #[arg(long)]
    poisson: bool,
    /// Size of a message in bytes [default: 16Ki; connect and hold 64].
    #[arg(long, value_parser = units::size)]
    size: Option<usize>,
    /// Bytes to transfer on each connection before it ends: write, read, echo [default: no limit].
    #[arg(long, value_parser = units::size)]
    total: Option<usize>,
    /// Connections to open per second until all are established; all modes but connect, syn and half-open.
    #[arg(long, default_value = "10k", value_parser = units::rate)]
    opening: u64,
    /// Time before the measurement in which the rate grows evenly from zero: 'connect' with --rate.
    #[arg(long, value_parser = units::duration)]
    ramp: Option<Duration>,
    /// Time before the measurement with the full load.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Duration of the measurement, from when all connections are established [default: 10s].
    #[arg(long, short, value_parser = units::duration)]
    duration: Option<Duration>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    timeout: Duration,
    /// Nagle's algorithm: delay small segments [default: send them at once].
    #[arg(long)]
    nagle: bool,
    /// Compare the bytes read with the pattern of 'serve tcp-source': --mode read. Echoed bytes are always compared.
    #[arg(long)]
    verify: bool,
    /// End connections with a reset instead of a FIN.
    #[arg(long)]
    reset: bool,
    /// TCP Fast Open: send the request with the SYN once the target has given a cookie; --mode connect.
    #[arg(long)]
    fast_open: bool,
    /// Lateness of what is sent above which the schedule counts as not kept [default: the largest of 5ms, 1 % of the median latency and a tenth of
    /// the time between two].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    slip_budget: Option<Duration>,
    #[command(flatten)]
    aim: AimOptions,
    #[command(flatten)]
    find: Find,
    #[command(flatten)]
    outputs: Outputs,
}

/// Values of `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Write to a discard server.
    Write,
    /// Read from a source server.
    Read,
    /// Write to an echo server, and compare the echo byte by byte.
    Echo,
    /// Connect, send a message to an echo server, read the answer, close; repeat.
    Connect,
    /// Open all connections, keep them, and send messages to an echo server at intervals.
    Hold,
    /// Send SYNs at --rate, and answer each SYN-ACK with a reset. Not on kernel sockets.
    Syn,
    /// Send SYNs at --rate, and answer no SYN-ACK. Not on kernel sockets.
    HalfOpen,
}

impl ModeName {
    fn mode(self) -> Mode {
        match self {
            Self::Write => Mode::Write,
            Self::Read => Mode::Read,
            Self::Echo => Mode::Echo,
            Self::Connect => Mode::Connect,
            Self::Hold => Mode::Hold,
            Self::Syn => Mode::Syn,
            Self::HalfOpen => Mode::HalfOpen,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Echo => "echo",
            Self::Connect => "connect",
            Self::Hold => "hold",
            Self::Syn => "syn",
            Self::HalfOpen => "half-open",
        }
    }
}

impl Tcp {
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
            let config = TcpLoadConfig { phases: find::phases(self.warm_up, self.duration), ..config };
            let mut rates = Rates { load: self, config, rss, clients, interrupt: &interrupt };
            return self.find.search(condition, ("load tcp", targets), &mut rates, &self.outputs, &interrupt);
        }
        // Connections that stay are opened first, in addition to the duration; the load computes how long that takes.
        let opening = TcpLoad::new(config.clone())?.phases().to_vec();
        let watch = self.outputs.watch(timeline::duration(&opening), &["all".to_owned()])?;
        let run = self.measure(config, &rss, &clients, &interrupt, Some(watch))?;
        self.outputs.write(&run, &interrupt)
    }

    /// Makes one run, which is watched or not.
    fn measure(
        &self,
        mut config: TcpLoadConfig,
        rss: &Arc<Rss>,
        clients: &[ClientRange],
        interrupt: &Interrupt,
        watch: Option<(Watch, SyncSender<Snapshot>)>,
    ) -> anyhow::Result<Report> {
        let (mut watch, snapshots) = watch.unzip();
        let (connections, about) = (config.connections, self.about(&config));
        config.snapshots = snapshots;
        let load = TcpLoad::new(config)?;

        let run = Run {
            name: "load tcp",
            target: self.target,
            rss,
            clients,
            tcp: self.limits(connections, clients),
            frames: self.frames(connections),
            io: self.near.io(true)?,
            descriptors: connections,
            home: &self.home,
        };
        let start = Start::now();
        let (runtime, host) = self.near.start(run, load.main(), |open| open)?;
        if let Some(watch) = &mut watch {
            watch.serve(runtime.handle(), "load tcp")?;
        }
        let outcome = load.wait(EVERY, |_| start.goes_on(watch.as_mut(), interrupt));
        if let Some(watch) = watch {
            watch.end();
        }
        let usage = Usage::now().since(start.usage).within(start.begun.elapsed());
        let counted = runtime.stop();
        let failure = self.failure(&outcome.counts, outcome.interrupted);
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
            failure,
            ..about
        }))
    }

    /// Frames for the data of many connections in flight and waiting to be read; SYN modes need none.
    fn frames(&self, connections: usize) -> Option<usize> {
        (!self.mode.mode().is_half_open())
            .then(|| (connections / self.near.workers() * 2).clamp(1 << 13, 1 << 17))
    }

    /// Reasons for which a run fails without any `--fail`.
    fn failure(&self, counts: &TcpCounts, interrupted: bool) -> Option<String> {
        if counts.corrupt > 0 {
            return Some(format!("received bytes differ from those sent on {} connections", counts.corrupt));
        }
        if counts.begun == 0 {
            return None;
        }
        if counts.connected + counts.answers > 0 {
            // Who ends a run early may do so before the first answer.
            let failure = || self.nothing_done(counts).or_else(|| self.most_failed(counts));
            return if interrupted { None } else { failure() };
        }
        let why = if counts.refused > 0 { "refuses: is a service on this port?" } else { "does not answer" };
        Some(format!("{} {why} ({} connections tried)", zone::show(self.target), show_count(counts.begun)))
    }

    /// Whether connections that were made did nothing of what they are for.
    fn nothing_done(&self, counts: &TcpCounts) -> Option<String> {
        let (failed, begun) = (counts.failed(), counts.begun);
        let (asked, service) = match self.mode.mode() {
            Mode::Echo | Mode::Connect | Mode::Hold => (counts.messages + failed > 0, "tcp-echo"),
            Mode::Read => (true, "tcp-source"),
            Mode::Write if failed < begun => return None,
            Mode::Write => (true, "tcp-discard"),
            Mode::Syn | Mode::HalfOpen => return None,
        };
        if !asked || counts.bytes_read > 0 {
            return None;
        }
        let what = if service == "tcp-discard" { "takes" } else { "sends" };
        let (failed, begun) = (show_count(failed), show_count(begun));
        Some(format!(
            "{} {what} nothing: does 'flowlane serve {service}' have this port? ({failed} of {begun} connections failed)",
            zone::show(self.target)
        ))
    }

    /// Whether more connections failed than did what they are for, and no condition says how many may.
    fn most_failed(&self, counts: &TcpCounts) -> Option<String> {
        let told = self.outputs.thresholds().iter().any(Threshold::is_about_all_errors);
        if told || self.mode.mode().is_half_open() || counts.failed() <= counts.begun / 2 {
            return None;
        }
        let (failed, begun) = (show_count(counts.failed()), show_count(counts.begun));
        Some(format!("{failed} of {begun} connections failed (--fail 'errors > SHARE' says what may be)"))
    }

    fn about(&self, config: &TcpLoadConfig) -> About {
        let what = if config.mode.is_half_open() { "addresses and ports" } else { "connections" };
        let connections = format!("{} {what}", show_count(config.connections as u64));
        let schedule = match config.rate {
            Some(rate) => format!("{}, {connections}", rate_in_words(rate, config.poisson)),
            None => format!("closed loop, {connections}"),
        };
        let mut more = BTreeMap::from([("mode".to_owned(), self.mode.name().to_owned())]);
        if !config.mode.is_half_open() {
            more.insert("size".to_owned(), format!("{} bytes", config.size));
        }
        if self.fast_open {
            more.insert("fast-open".to_owned(), "the request goes with the SYN".to_owned());
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
                command: "load tcp".into(),
                program: env!("CARGO_PKG_VERSION").into(),
                targets,
                link: self.near.link_name(),
                workers: self.near.workers(),
                seed: Some(config.seed),
                schedule,
                open_loop: config.rate.is_some(),
                more,
                ..Setup::default()
            },
            ..About::default()
        }
    }

    /// Client addresses of the target's family.
    fn addresses(&self, clients: &[ClientRange]) -> u128 {
        let of_family = clients.iter().filter(|c| c.is_ipv4() == self.target.is_ipv4());
        of_family.map(ClientRange::count).fold(0, u128::saturating_add)
    }

    /// Limits of a lane: it may hold all connections, if the hash puts them there, and with Fast Open a cookie for each client address.
    fn limits(&self, connections: usize, clients: &[ClientRange]) -> TcpConfig {
        let config = TcpConfig::default();
        let cookies = if self.fast_open { self.addresses(clients).min(MOST_COOKIES) as usize } else { 0 };
        TcpConfig {
            max_connections: config.max_connections.max(connections),
            fast_open_peers: config.fast_open_peers.max(cookies),
            ..config
        }
    }

    /// Bytes of a message.
    fn size(&self) -> usize {
        let small =
            matches!(self.mode, ModeName::Connect | ModeName::Hold) || self.mode.mode().is_half_open();
        self.size.unwrap_or(if small { 64 } else { 16 << 10 })
    }

    /// Checks the arguments by themselves.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_some_and(|d| d.is_zero()), "--duration must be more than 0");
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        ensure!((1..=1 << 30).contains(&self.size()), "--size {}: from 1 to 1Gi", self.size());
        ensure!(self.total != Some(0), "--total must be more than 0");
        let n = self.connections.unwrap_or(1);
        ensure!((1..=MOST).contains(&n), "--connections {n}: from 1 to 4M");
        let name = self.mode.name();
        if matches!(self.mode, ModeName::Connect | ModeName::Hold) || self.mode.mode().is_half_open() {
            ensure!(self.total.is_none(), "--total: connections of --mode {name} have no total");
        }
        ensure!(!self.verify || self.mode == ModeName::Read, "--verify: only with --mode read, not {name}");
        if self.mode.mode().is_half_open() {
            ensure!(self.rate.is_some(), "--mode {name} needs --rate");
            ensure!(
                !self.near.is_kernel(),
                "--mode {name}: kernel sockets always complete the handshake; SYNs alone need a link of ours (--link)"
            );
        }
        let finds = self.find.find_rate.is_some();
        ensure!(
            !finds || self.mode == ModeName::Connect,
            "--find-rate: only with --mode connect, not {name}"
        );
        let paced = !self.mode.mode().stays() && (self.rate.is_some() || finds);
        ensure!(!self.poisson || paced, "--poisson: only with --mode connect and --rate");
        ensure!(
            self.ramp.is_none() || paced,
            "--ramp: only with --mode connect and --rate (--opening for the rest)"
        );
        if self.fast_open {
            ensure!(self.mode == ModeName::Connect, "--fast-open: only with --mode connect, not {name}");
            if self.near.is_kernel() {
                fast_open::check_kernel(fast_open::End::Client)?;
            }
        }
        self.near.check(self.target, &self.home)?;
        if self.near.is_kernel() {
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<TcpLoadConfig> {
        let (target, seed) = (Endpoint::from(self.target), self.near.seed()?);
        let theirs = self.aim.theirs(UdpFields::Two)?;
        let mode = self.mode.mode();
        let connections = self.connections.unwrap_or(match self.mode {
            ModeName::Connect => 128,
            // Pairs of address and port that are used in turn.
            ModeName::Syn | ModeName::HalfOpen => 1 << 14,
            ModeName::Hold => 1000,
            _ => 16,
        });
        let rate = match self.rate {
            None if mode == Mode::Hold => Some((connections / 10).max(1)),
            given => given,
        };
        let connections = usize::try_from(connections).context("--connections")?;
        let of_family: Vec<_> =
            clients.iter().filter(|c| c.is_ipv4() == target.ip.is_ipv4()).copied().collect();
        // The kernel keeps the cookies of its sockets itself, for each server address.
        if self.fast_open && !self.near.is_kernel() {
            let addresses = self.addresses(clients);
            ensure!(
                addresses <= MOST_COOKIES,
                "--fast-open: at most {MOST_COOKIES} client addresses (--clients), not {addresses}: a lane keeps a cookie of each"
            );
        }
        let sources = if self.near.is_kernel() {
            Sources::Addresses { clients: clients.to_vec(), lanes: rss.buckets.len() }
        } else if mode == Mode::Connect && theirs.is_none() {
            ensure!(!of_family.is_empty(), "no client address is of the same family as the target {target}");
            Sources::Addresses { clients: of_family, lanes: rss.buckets.len() }
        } else {
            // For connections that are opened and closed: enough pairs that one is not reused at once.
            let flows = if mode == Mode::Connect { connections.max(1 << 14) } else { connections };
            let wish = FlowWish {
                target,
                clients,
                flows,
                protocol: Protocol::TCP,
                rss,
                aim: aim(&theirs),
                start: seed,
            };
            let chosen = flows::choose(&wish)?;
            let had: usize = chosen.iter().map(Vec::len).sum();
            ensure!(
                !mode.stays() || had == connections,
                "the client addresses have ports for {had} connections, not {connections}: give more --clients"
            );
            Sources::Flows(chosen)
        };
        Ok(TcpLoadConfig {
            target,
            mode,
            sources,
            connections,
            rate,
            poisson: self.poisson,
            size: self.size(),
            total: self.total.map(|t| t as u64),
            opening: self.opening,
            phases: timeline::usual(self.ramp, self.warm_up, self.duration.unwrap_or(DURATION)),
            timeout: self.timeout,
            nodelay: !self.nagle,
            verify: self.verify,
            reset: self.reset,
            fast_open: self.fast_open,
            exact: self.near.exact(),
            seed,
            snapshots: None,
        })
    }
}

/// The runs of a search.
struct Rates<'a> {
    load: &'a Tcp,
    config: TcpLoadConfig,
    rss: Arc<Rss>,
    clients: Vec<ClientRange>,
    interrupt: &'a Interrupt,
}

impl Rates<'_> {
    fn run(&self, config: TcpLoadConfig) -> anyhow::Result<Report> {
        self.load.measure(config, &self.rss, &self.clients, self.interrupt, None)
    }
}

impl Measured for Rates<'_> {
    fn at(&mut self, rate: f64) -> anyhow::Result<Report> {
        self.run(TcpLoadConfig { rate: Some(rate.round().max(1.0) as u64), ..self.config.clone() })
    }

    fn alone(&mut self) -> anyhow::Result<Option<Duration>> {
        let phases = vec![Phase::hold(find::QUESTION)];
        let run = self.run(TcpLoadConfig { rate: None, connections: 1, phases, ..self.config.clone() })?;
        Ok(find::usual(&run))
    }
}
