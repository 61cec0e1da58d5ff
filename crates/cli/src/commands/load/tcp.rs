//! `flowlane load tcp`: many connections that write, read, echo, exchange messages, or are opened and closed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields, zone};
use flowlane_load::report::SnapshotsTo;
use flowlane_load::tcp::{Mode, TcpCounts};
use flowlane_load::{ClientRange, Part, Phase, Sources, TcpLoad, TcpLoadConfig, Threshold};

use super::course::{Course, Judgement, Load, Needs, Words};
use super::near::Flows;
use super::rate_in_words;
use super::reach::Named;
use crate::fast_open;
use crate::units::{self, show_count};

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
    #[command(flatten)]
    course: Course,
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

impl Load for Tcp {
    const NAME: &'static str = "load tcp";
    const TCP: bool = true;
    type Kind = flowlane_load::tcp::Common;
    type Config = TcpLoadConfig;

    fn named(&self) -> &Named {
        &self.named
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn check(&self) -> anyhow::Result<()> {
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
                !self.course.is_on_kernel(),
                "--mode {name}: kernel sockets always complete the handshake; SYNs alone need a link of ours (--link)"
            );
        }
        let finds = self.course.find.find_rate.is_some();
        ensure!(
            // Guard: `!finds || self.mode == ModeName::Connect` as `true` fails
            // cli/load_find::what_makes_no_search
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
            if self.course.is_on_kernel() {
                fast_open::check_kernel(fast_open::End::Client)?;
            }
        }
        Ok(())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange], phases: Vec<Phase>) -> anyhow::Result<TcpLoadConfig> {
        let near = &self.course.near;
        let (target, seed) = (Endpoint::from(self.course.target), near.seed()?);
        let theirs = self.course.aim.theirs(UdpFields::Two)?;
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
        // The kernel keeps the cookies of its sockets itself, for each server address.
        if self.fast_open && !near.is_kernel() {
            let addresses = self.addresses(clients);
            ensure!(
                addresses <= MOST_COOKIES,
                "--fast-open: at most {MOST_COOKIES} client addresses (--clients), not {addresses}: a lane keeps a cookie of each"
            );
        }
        // For connections that are opened and closed: enough pairs that one is not reused at once.
        let flows = if mode == Mode::Connect { connections.max(1 << 14) } else { connections };
        let (protocol, all) = (Protocol::TCP, mode.stays());
        let sources = if near.is_kernel() || mode == Mode::Connect && theirs.is_none() {
            near.addresses(rss, clients, target)?
        } else {
            let flows = self.course.share(flows, rss.buckets.len());
            near.flows(rss, clients, &theirs, &Flows { target, protocol, flows, all, seed })?
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
            phases,
            timeout: self.timeout,
            nodelay: !self.nagle,
            verify: self.verify,
            reset: self.reset,
            fast_open: self.fast_open,
            exact: near.exact(),
            seed,
            snapshots: None,
        })
    }

    fn sources(config: &mut TcpLoadConfig) -> &mut Sources {
        &mut config.sources
    }

    fn ramp(&self) -> Option<Duration> {
        self.ramp
    }

    fn seed(config: &TcpLoadConfig) -> u64 {
        config.seed
    }

    fn at(&self, config: TcpLoadConfig, per_second: u64) -> TcpLoadConfig {
        TcpLoadConfig { rate: Some(per_second), ..config }
    }

    fn alone(config: TcpLoadConfig, phases: Vec<Phase>) -> TcpLoadConfig {
        TcpLoadConfig { rate: None, connections: 1, phases, ..config }
    }

    fn prepared(
        config: TcpLoadConfig,
        to: Option<SnapshotsTo>,
        part: Option<Part>,
    ) -> anyhow::Result<TcpLoad> {
        Ok(TcpLoad::part(TcpLoadConfig { snapshots: to, ..config }, part)?)
    }

    fn whole(&self, config: &TcpLoadConfig) -> anyhow::Result<Vec<Phase>> {
        Ok(config.all_phases())
    }

    #[cfg(feature = "agents")]
    fn patience(&self) -> Duration {
        self.timeout
    }

    #[cfg(feature = "agents")]
    fn has_connections(&self) -> bool {
        !self.mode.mode().is_half_open()
    }

    fn needs(&self, config: &TcpLoadConfig, clients: &[ClientRange]) -> anyhow::Result<Needs> {
        let connections = self.course.share(config.connections, config.sources.lanes());
        Ok(Needs {
            tcp: self.limits(connections, clients),
            frames: self.frames(connections),
            descriptors: connections,
        })
    }

    fn words(&self, config: &TcpLoadConfig) -> Words {
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
        Words { schedule, open_loop: config.rate.is_some(), requests: Vec::new(), more }
    }

    fn judge(&self, counts: &TcpCounts, interrupted: bool) -> Judgement {
        Judgement { failure: self.failure(counts, interrupted), ..Judgement::default() }
    }
}

impl Tcp {
    /// Frames for the data of many connections in flight and waiting to be read; SYN modes need none.
    fn frames(&self, connections: usize) -> Option<usize> {
        (!self.mode.mode().is_half_open())
            .then(|| (connections / self.course.near.workers() * 2).clamp(1 << 13, 1 << 17))
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
        Some(format!(
            "{} {why} ({} connections tried)",
            zone::show(self.course.target),
            show_count(counts.begun)
        ))
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
            zone::show(self.course.target)
        ))
    }

    /// Whether more connections failed than did what they are for, and no condition says how many may.
    fn most_failed(&self, counts: &TcpCounts) -> Option<String> {
        let told = self.course.outputs.thresholds().iter().any(Threshold::is_about_all_errors);
        if told || self.mode.mode().is_half_open() || counts.failed() <= counts.begun / 2 {
            return None;
        }
        let (failed, begun) = (show_count(counts.failed()), show_count(counts.begun));
        Some(format!("{failed} of {begun} connections failed (--fail 'errors > SHARE' says what may be)"))
    }

    /// Client addresses of the target's family.
    fn addresses(&self, clients: &[ClientRange]) -> u128 {
        let of_family = clients.iter().filter(|c| c.is_ipv4() == self.course.target.is_ipv4());
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
}
