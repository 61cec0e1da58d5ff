//! `flowlane load tcp`: many connections, each writing, reading, asking, or coming and going.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Usage};
use flowlane_load::tcp::{Mode, Sources, TcpCounts};
use flowlane_load::{ClientRange, FlowWish, TcpLoad, TcpLoadConfig, flows, timeline};

use super::near::{AimOptions, Near, Run, aim};
use super::{EVERY, Start, alignment, rate_in_words};
use crate::drops;
use crate::interrupt::Interrupt;
use crate::output::Outputs;
use crate::units::{self, show_count};

/// Most connections of a run.
const MOST: u64 = 4_000_000;
/// Most client addresses with Fast Open: each lane keeps a cookie of each, at most 240 bytes.
const MOST_COOKIES: u128 = 1 << 16;

/// TCP connections to an echo, a sink or a source.
#[derive(Debug, Args)]
pub(crate) struct Tcp {
    /// Where to: ADDRESS:PORT, IPv6 addresses in brackets, or HOST:PORT.
    #[arg(value_parser = super::target)]
    target: SocketAddr,
    #[command(flatten)]
    near: Near,
    /// What connections do.
    #[arg(long, value_enum, default_value = "echo")]
    mode: ModeName,
    /// Connections open at once; those of 'connect' at most [default: 16; connect 128; hold 1000]; with 'syn' and
    /// 'half-open' pairs of address and port that take turns [default: 16384].
    #[arg(long, short, value_parser = units::count)]
    connections: Option<u64>,
    /// Messages ('connect': connections) a second, all together; as fast as possible without [default for hold: one
    /// message of each connection every 10 s].
    #[arg(long, short, value_parser = units::rate)]
    rate: Option<u64>,
    /// Connections at independent moments instead of evenly: 'connect' with --rate.
    #[arg(long)]
    poisson: bool,
    /// Bytes of a message [default: 16Ki; connect and hold 64].
    #[arg(long, value_parser = units::size)]
    size: Option<usize>,
    /// Bytes of each connection; it ends when they are through: write, read, echo.
    #[arg(long, value_parser = units::size)]
    total: Option<usize>,
    /// Connections that stay: begun a second until all stand.
    #[arg(long, default_value = "10k", value_parser = units::rate)]
    opening: u64,
    /// Before the rest, let the rate grow evenly from nothing during this time; not in the figures. 'connect' with --rate.
    #[arg(long, value_parser = units::duration)]
    ramp: Option<Duration>,
    /// Before what is measured, the same load for this time, not in the figures.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// How long, once all stand.
    #[arg(long, short, default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// How long connecting, an answer, and what is left at the end may take.
    #[arg(long, default_value = "5s", value_parser = units::duration)]
    timeout: Duration,
    /// Let small segments wait for company (Nagle); without this they are sent at once.
    #[arg(long)]
    nagle: bool,
    /// Compare what is read with the pattern of 'serve tcp-source': read. What is echoed always is.
    #[arg(long)]
    verify: bool,
    /// End connections with a reset instead of a FIN.
    #[arg(long)]
    reset: bool,
    /// Send the request with the SYN, once the target has given a cookie (TCP Fast Open): connect, over links of ours.
    #[arg(long)]
    fast_open: bool,
    #[command(flatten)]
    aim: AimOptions,
    #[command(flatten)]
    outputs: Outputs,
}

/// What connections do, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Write, to a sink.
    Write,
    /// Read, from a source.
    Read,
    /// Write to an echo, and compare what comes back byte by byte.
    Echo,
    /// Open, ask an echo, be answered, close; and again.
    Connect,
    /// Open all, keep them, and ask the echo now and then.
    Hold,
    /// Send a SYN at each moment of --rate and reset what answers it. Links of ours only.
    Syn,
    /// Send a SYN at each moment of --rate and never answer what answers it. Links of ours only.
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
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        self.outputs.check(&["all"])?;
        let rss = self.near.rss(UdpFields::Two)?;
        let clients = self.near.clients(self.target)?;
        let mut config = self.plan(&rss, &clients)?;
        let connections = config.connections;
        let interrupt = Interrupt::listen()?;
        let about = self.about(&config);
        // The opening of connections that stay comes before; how long it takes, the load knows.
        let opening = TcpLoad::new(config.clone())?.phases().to_vec();
        let (mut watch, snapshots) = self.outputs.watch(timeline::duration(&opening), &["all".to_owned()]);
        config.snapshots = Some(snapshots);
        let load = TcpLoad::new(config)?;

        let run = Run {
            target: self.target,
            rss: &rss,
            clients: &clients,
            tcp: self.limits(connections, &clients),
            frames: self.frames(connections),
            descriptors: connections,
        };
        let start = Start::now();
        let (runtime, host) = self.near.start(run, load.main(), |open| open)?;
        let outcome = load.wait(EVERY, |_| start.goes_on(&mut watch, &interrupt));
        watch.end();
        let usage = Usage::now().since(start.usage);
        let counted = runtime.stop();
        self.outputs.write(&outcome.run(About {
            started: start.at,
            phases: timeline::shown(load.phases()),
            usage,
            alignment: alignment(self.near.is_kernel(), &counted, host),
            drops: drops::by_reason(&counted, &[("load", host)]),
            thresholds: self.outputs.thresholds(),
            failure: self.failure(&outcome.counts),
            ..about
        }))
    }

    /// Frames for what many connections have on their way, where data waits until it is read; SYNs alone have none.
    fn frames(&self, connections: usize) -> Option<usize> {
        (!self.mode.mode().is_half_open())
            .then(|| (connections / self.near.workers() * 2).clamp(1 << 13, 1 << 17))
    }

    /// What makes a run no success whatever was asked for.
    fn failure(&self, counts: &TcpCounts) -> Option<String> {
        if counts.corrupt > 0 {
            return Some(format!("{} connections brought other bytes than were sent", counts.corrupt));
        }
        if counts.begun == 0 || counts.connected + counts.answers > 0 {
            return None;
        }
        let why = if counts.refused > 0 { "refuses: is a service on this port?" } else { "does not answer" };
        Some(format!("{} {why} ({} connections tried)", self.target, show_count(counts.begun)))
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
        let targets = vec![self.target.to_string()];
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

    /// What a lane may hold: all connections, should the hash put them there, and with Fast Open a cookie of each client address.
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

    /// What is wrong with the arguments by themselves.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_zero(), "--duration must be more than nothing");
        ensure!(!self.timeout.is_zero(), "--timeout must be more than nothing");
        ensure!((1..=1 << 30).contains(&self.size()), "--size {}: from 1 to 1Gi", self.size());
        ensure!(self.total != Some(0), "--total must be more than nothing");
        let n = self.connections.unwrap_or(1);
        ensure!((1..=MOST).contains(&n), "--connections {n}: from 1 to 4M");
        let name = self.mode.name();
        if matches!(self.mode, ModeName::Connect | ModeName::Hold) || self.mode.mode().is_half_open() {
            ensure!(self.total.is_none(), "--total: connections of --mode {name} have no total");
        }
        ensure!(!self.verify || self.mode == ModeName::Read, "--verify: only with --mode read, not {name}");
        if self.mode.mode().is_half_open() {
            ensure!(self.rate.is_some(), "--mode {name}: SYNs are sent at a --rate");
            ensure!(
                !self.near.is_kernel(),
                "--mode {name}: the kernel's sockets finish what they begin; SYNs alone need a link of ours (--link)"
            );
        }
        let paced = !self.mode.mode().stays() && self.rate.is_some();
        ensure!(!self.poisson || paced, "--poisson: only with --mode connect and --rate");
        ensure!(
            self.ramp.is_none() || paced,
            "--ramp: only with --mode connect and --rate (--opening for the rest)"
        );
        if self.fast_open {
            ensure!(
                self.mode == ModeName::Connect,
                "--fast-open: only with --mode connect, whose connections ask at once and are done, not {name}"
            );
            ensure!(
                !self.near.is_kernel(),
                "--fast-open: not with kernel sockets; give a link of ours (--link)"
            );
        }
        self.near.check(self.target)?;
        if self.near.is_kernel() {
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<TcpLoadConfig> {
        let target = Endpoint::from(self.target);
        let theirs = self.aim.theirs(UdpFields::Two)?;
        let mode = self.mode.mode();
        let connections = self.connections.unwrap_or(match self.mode {
            ModeName::Connect => 128,
            // Pairs of address and port that take turns.
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
        if self.fast_open {
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
            // For connections that come and go, enough that an address and port is not wanted again at once.
            let flows = if mode == Mode::Connect { connections.max(1 << 14) } else { connections };
            let wish = FlowWish { target, clients, flows, protocol: Protocol::TCP, rss, aim: aim(&theirs) };
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
            phases: timeline::usual(self.ramp, self.warm_up, self.duration),
            timeout: self.timeout,
            nodelay: !self.nagle,
            verify: self.verify,
            reset: self.reset,
            fast_open: self.fast_open,
            exact: self.near.exact(),
            seed: self.near.seed()?,
            snapshots: None,
        })
    }
}
