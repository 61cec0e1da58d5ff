//! `flowlane load tcp`: many connections, each writing, reading, asking, or coming and going.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields};
use flowlane_load::tcp::{Mode, Sources};
use flowlane_load::{ClientRange, FlowWish, TcpLoad, TcpLoadConfig, TcpThreshold, flows};

use super::near::{AimOptions, Near, Run, aim};
use super::tcp_report::Report;
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::{progress, units};

/// Most connections of a run.
const MOST: u64 = 4_000_000;

/// TCP connections to an echo, a sink or a source.
#[derive(Debug, Args)]
pub(crate) struct Tcp {
    /// Where to: ADDRESS:PORT, IPv6 addresses in brackets.
    pub(super) target: SocketAddr,
    #[command(flatten)]
    pub(super) near: Near,
    /// What connections do.
    #[arg(long, value_enum, default_value = "echo")]
    pub(super) mode: ModeName,
    /// Connections open at once; those of 'connect' at most [default: 16; connect 128; hold 1000].
    #[arg(long, value_parser = units::count)]
    connections: Option<u64>,
    /// Messages ('connect': connections) a second, all together; as fast as possible without [default for hold: one
    /// message of each connection every 10 s].
    #[arg(long, value_parser = units::rate)]
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
    /// Connections begun a second until all stand.
    #[arg(long, default_value = "10k", value_parser = units::rate)]
    ramp: u64,
    /// How long, once all stand.
    #[arg(long, default_value = "10s", value_parser = units::duration)]
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
    #[command(flatten)]
    aim: AimOptions,
    /// Fail the run if this is so: 'p99 > 20ms', 'failed > 0', 'read < 1G'. May be repeated.
    #[arg(long)]
    pub(super) fail: Vec<TcpThreshold>,
    /// Print JSON (docs/schema/load-tcp.json).
    #[arg(long)]
    json: bool,
    /// No progress on the terminal.
    #[arg(long, short)]
    quiet: bool,
}

/// What connections do, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeName {
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
}

impl ModeName {
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Write => Mode::Write,
            Self::Read => Mode::Read,
            Self::Echo => Mode::Echo,
            Self::Connect => Mode::Connect,
            Self::Hold => Mode::Hold,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Echo => "echo",
            Self::Connect => "connect",
            Self::Hold => "hold",
        }
    }
}

impl Tcp {
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        let rss = self.near.rss(UdpFields::Two)?;
        let clients = self.near.clients(self.target)?;
        let config = self.plan(&rss, &clients)?;
        let connections = config.connections;
        let load = TcpLoad::new(config)?;
        let interrupt = Interrupt::listen()?;

        let limits = limits(connections);
        // Frames for what many connections have on their way: data waits in frames until it is read.
        let frames = (connections / self.near.workers * 2).clamp(1 << 13, 1 << 17);
        let run =
            Run { target: self.target, rss: &rss, clients: &clients, tcp: limits, frames: Some(frames) };
        let (runtime, host) = self.near.start(run, load.main(), |open| open)?;
        let outcome = progress::watch_tcp(&load, &interrupt, self.quiet);
        let counted = runtime.stop();

        let report = Report::new(self, connections, &outcome, &counted, host);
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            report.print(&mut out)?;
        }
        match report.failure() {
            Some(failure) => bail!(Missed(failure)),
            None => Ok(()),
        }
    }

    /// Whether moments are fixed beforehand.
    pub(super) fn open_loop(&self) -> bool {
        self.rate.is_some() || self.mode == ModeName::Hold
    }

    /// Bytes of a message.
    pub(super) fn size(&self) -> usize {
        let small = matches!(self.mode, ModeName::Connect | ModeName::Hold);
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
        if matches!(self.mode, ModeName::Connect | ModeName::Hold) {
            ensure!(self.total.is_none(), "--total: connections of --mode {name} have no total");
        }
        ensure!(!self.verify || self.mode == ModeName::Read, "--verify: only with --mode read, not {name}");
        let paced = self.mode == ModeName::Connect && self.rate.is_some();
        ensure!(!self.poisson || paced, "--poisson: only with --mode connect and --rate");
        self.near.check(self.target)
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<TcpLoadConfig> {
        let target = Endpoint::from(self.target);
        let theirs = self.aim.theirs(UdpFields::Two)?;
        let mode = self.mode.mode();
        let connections = self.connections.unwrap_or(match self.mode {
            ModeName::Connect => 128,
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
        let sources = if mode == Mode::Connect && theirs.is_none() {
            ensure!(!of_family.is_empty(), "no client address is of the same family as the target {target}");
            Sources::Addresses { clients: of_family, lanes: rss.buckets.len() }
        } else {
            // For connections that come and go, enough that an address and port is not wanted again at once.
            let flows = if mode == Mode::Connect { connections.max(1 << 14) } else { connections };
            let wish = FlowWish { target, clients, flows, protocol: Protocol::TCP, rss, aim: aim(&theirs) };
            let chosen = flows::choose(&wish)?;
            let had: usize = chosen.iter().map(Vec::len).sum();
            ensure!(
                mode == Mode::Connect || had == connections,
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
            ramp: self.ramp,
            duration: self.duration,
            timeout: self.timeout,
            nodelay: !self.nagle,
            verify: self.verify,
            reset: self.reset,
            seed: self.near.seed()?,
        })
    }
}

/// What a lane may hold: all connections, should the hash put them there.
fn limits(connections: usize) -> TcpConfig {
    let config = TcpConfig::default();
    TcpConfig { max_connections: config.max_connections.max(connections), ..config }
}
