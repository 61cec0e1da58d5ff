//! `flowlane load udp`: source and sink of UDP datagrams.
//!
//! Arguments become a plan, and everything that can be wrong with them is said in one line before a link is opened.
//! Flows are chosen so that answers come back to the lane that asked, and, when the far side's key is known, so that
//! they hit chosen buckets there.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields};
use flowlane_load::{ClientRange, FlowWish, Load, LoadConfig, MIN_PAYLOAD, Pace, Threshold, flows};

use super::near::{AimOptions, Near, Run, aim, fits};
use super::report::Report;
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::{progress, units};

/// Rate when neither a rate nor a window is given.
const DEFAULT_RATE: u64 = 10_000;
/// Largest payload of a UDP datagram over IPv4.
const MAX_PAYLOAD: usize = 65_507;

/// UDP datagrams to an echo or a sink.
#[derive(Debug, Args)]
pub(crate) struct Udp {
    /// Where to: ADDRESS:PORT, IPv6 addresses in brackets.
    pub(super) target: SocketAddr,
    #[command(flatten)]
    pub(super) near: Near,
    /// Datagrams a second, all lanes together: 100k, 1.5M [default: 10k].
    #[arg(long, value_parser = units::rate, conflicts_with = "window")]
    rate: Option<u64>,
    /// Send as answers come, with so many datagrams on their way in each lane.
    #[arg(long, value_parser = units::count)]
    window: Option<u64>,
    /// Send at independent moments instead of evenly.
    #[arg(long, conflicts_with = "window")]
    poisson: bool,
    /// Payload, bytes.
    #[arg(long, default_value = "510", value_parser = units::size)]
    pub(super) size: usize,
    /// How long to send.
    #[arg(long, default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// How long an answer may take before it counts as late.
    #[arg(long, default_value = "1s", value_parser = units::duration)]
    timeout: Duration,
    /// Pairs of address and port in all.
    #[arg(long, default_value = "1024", value_parser = units::count)]
    flows: u64,
    /// The far side does not answer.
    #[arg(long)]
    discard: bool,
    #[command(flatten)]
    aim: AimOptions,
    /// The target hashes UDP over addresses and ports.
    #[arg(long)]
    target_udp_4tuple: bool,
    /// Hash UDP over addresses and ports instead of addresses alone, on our side.
    #[arg(long)]
    udp_4tuple: bool,
    /// Fail the run if this is so: 'p99 > 20ms', 'lost > 0.1%', 'rate < 90k'. May be repeated.
    #[arg(long)]
    pub(super) fail: Vec<Threshold>,
    /// Print JSON (docs/schema/load.json).
    #[arg(long)]
    json: bool,
    /// No progress on the terminal.
    #[arg(long, short)]
    quiet: bool,
}

impl Udp {
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        let rss = self.near.rss(fields(self.udp_4tuple))?;
        let clients = self.near.clients(self.target)?;
        let config = self.plan(&rss, &clients)?;
        let open_loop = matches!(config.pace, Pace::Rate { .. });
        let load = Load::new(config)?;
        let interrupt = Interrupt::listen()?;

        // Refuses a link whose packets are too small for the payload, before anything is sent.
        let headers = if self.target.is_ipv4() { 28 } else { 48 } + self.near.overhead(self.target.ip());
        let size = self.size;
        let check = |open| fits(open, size, headers);
        let (target, tcp) = (self.target, TcpConfig::default());
        let run = Run { target, rss: &rss, clients: &clients, tcp, frames: None };
        let (runtime, host) = self.near.start(run, load.main(), check)?;
        let outcome = progress::watch(&load, self.duration, &interrupt, self.quiet);
        let counted = runtime.stop();

        let report = Report::new(self, &outcome, &counted, host, open_loop);
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

    /// What is wrong with the arguments by themselves.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.duration.is_zero(), "--duration must be more than nothing");
        ensure!(!self.timeout.is_zero(), "--timeout must be more than nothing");
        ensure!(
            (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&self.size),
            "--size {}: from {MIN_PAYLOAD} (the generator's header) to what the link's MTU allows",
            self.size
        );
        ensure!((1..=10_000_000).contains(&self.flows), "--flows {}: from 1 to 10M", self.flows);
        let window = self.window.unwrap_or(1);
        ensure!((1..=65_536).contains(&window), "--window {window}: from 1 to 65536");
        self.near.check(self.target)
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<LoadConfig> {
        let target = Endpoint::from(self.target);
        let theirs = self.aim.theirs(fields(self.target_udp_4tuple))?;
        let flows = usize::try_from(self.flows).context("--flows")?;
        let wish = FlowWish { target, clients, flows, protocol: Protocol::UDP, rss, aim: aim(&theirs) };
        let flows = flows::choose(&wish)?;
        let pace = match self.window {
            Some(window) => Pace::Window(usize::try_from(window).context("--window")?),
            None => Pace::Rate { per_second: self.rate.unwrap_or(DEFAULT_RATE), poisson: self.poisson },
        };
        Ok(LoadConfig {
            target,
            flows,
            pace,
            size: self.size,
            duration: self.duration,
            timeout: self.timeout,
            discard: self.discard,
            seed: self.near.seed()?,
        })
    }
}

fn fields(four: bool) -> UdpFields {
    if four { UdpFields::Four } else { UdpFields::Two }
}
