//! `flowlane load udp`: source and sink of UDP datagrams.
//!
//! Arguments become a plan, and everything that can be wrong with them is said in one line before a link is opened. On a
//! link of ours flows are chosen so that answers come back to the lane that asked, and, when the far side's key is known,
//! so that they hit chosen buckets there; on kernel sockets each flow is a connected socket.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::{Endpoint, Protocol, Rss, TcpConfig, UdpFields};
use flowlane_load::report::model::Setup;
use flowlane_load::report::{About, PoolAbout, Usage};
use flowlane_load::{ClientRange, FlowWish, Load, LoadConfig, MIN_PAYLOAD, Pace, Sources, flows, timeline};

use super::near::{AimOptions, Near, Run, aim, fits};
use super::{EVERY, Start, alignment};
use crate::drops;
use crate::interrupt::Interrupt;
use crate::output::Outputs;
use crate::units::{self, show_count};

/// Rate when neither a rate nor a window is given.
const DEFAULT_RATE: u64 = 10_000;
/// Flows when none are asked for: on a link of ours, where they cost nothing, and on kernel sockets.
const FLOWS: u64 = 1024;
const KERNEL_FLOWS: u64 = 64;
/// Largest payload of a UDP datagram over IPv4.
const MAX_PAYLOAD: usize = 65_507;

/// UDP datagrams to an echo or a sink.
#[derive(Debug, Args)]
pub(crate) struct Udp {
    /// Where to: ADDRESS:PORT, IPv6 addresses in brackets, or HOST:PORT.
    #[arg(value_parser = super::target)]
    target: SocketAddr,
    #[command(flatten)]
    near: Near,
    /// Datagrams a second, all lanes together: 100k, 1.5M [default: 10k].
    #[arg(long, short, value_parser = units::rate, conflicts_with = "window")]
    rate: Option<u64>,
    /// Send as answers come, with so many datagrams on their way in each lane.
    #[arg(long, value_parser = units::count)]
    window: Option<u64>,
    /// Send at independent moments instead of evenly.
    #[arg(long, conflicts_with = "window")]
    poisson: bool,
    /// Before the rest, let the rate grow evenly from nothing during this time; not in the figures.
    #[arg(long, value_parser = units::duration, conflicts_with = "window")]
    ramp: Option<Duration>,
    /// Before what is measured, the same load for this time, not in the figures.
    #[arg(long, value_parser = units::duration)]
    warm_up: Option<Duration>,
    /// Payload, bytes.
    #[arg(long, default_value = "510", value_parser = units::size)]
    size: usize,
    /// How long to send, and be measured.
    #[arg(long, short, default_value = "10s", value_parser = units::duration)]
    duration: Duration,
    /// How long an answer may take before it counts as late.
    #[arg(long, default_value = "1s", value_parser = units::duration)]
    timeout: Duration,
    /// Pairs of address and port in all [default: 1024; on kernel sockets, where each is a socket, 64].
    #[arg(long, value_parser = units::count)]
    flows: Option<u64>,
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
    #[command(flatten)]
    outputs: Outputs,
}

impl Udp {
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        self.outputs.check(&["all"])?;
        let rss = self.near.rss(fields(self.udp_4tuple))?;
        let clients = self.near.clients(self.target)?;
        let mut config = self.plan(&rss, &clients)?;
        let interrupt = Interrupt::listen()?;
        let phases = config.phases.clone();
        let (mut watch, snapshots) = self.outputs.watch(timeline::duration(&phases), &["all".to_owned()]);
        let about = self.about(&config);
        config.snapshots = Some(snapshots);
        let load = Load::new(config)?;

        // Refuses a link whose packets are too small for the payload, before anything is sent.
        let headers = if self.target.is_ipv4() { 28 } else { 48 } + self.near.overhead(self.target.ip());
        let size = self.size;
        let check = |open| fits(open, size, headers);
        let descriptors = usize::try_from(self.flows()).context("--flows")?;
        let run = Run {
            target: self.target,
            rss: &rss,
            clients: &clients,
            tcp: TcpConfig::default(),
            frames: None,
            descriptors,
        };
        let start = Start::now();
        let (runtime, host) = self.near.start(run, load.main(), check)?;
        let outcome = load.wait(EVERY, |_| start.goes_on(&mut watch, &interrupt));
        watch.end();
        let usage = Usage::now().since(start.usage);
        let counted = runtime.stop();
        self.outputs.write(&outcome.run(About {
            started: start.at,
            phases: timeline::shown(&phases),
            usage,
            alignment: alignment(self.near.is_kernel(), &counted, host),
            drops: drops::by_reason(&counted, &[("load", host)]),
            thresholds: self.outputs.thresholds(),
            ..about
        }))
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
        let most = if self.near.is_kernel() { 100_000 } else { 10_000_000 };
        let flows = self.flows();
        ensure!((1..=most).contains(&flows), "--flows {flows}: from 1 to {}", show_count(most));
        let window = self.window.unwrap_or(1);
        ensure!((1..=65_536).contains(&window), "--window {window}: from 1 to 65536");
        self.near.check(self.target)?;
        if self.near.is_kernel() {
            ensure!(
                !self.udp_4tuple,
                "--udp-4tuple: the kernel's sockets are not steered by us; name a --link"
            );
            self.aim.refuse_on_kernel()?;
        }
        Ok(())
    }

    fn flows(&self) -> u64 {
        self.flows.unwrap_or(if self.near.is_kernel() { KERNEL_FLOWS } else { FLOWS })
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<LoadConfig> {
        let target = Endpoint::from(self.target);
        let flows = usize::try_from(self.flows()).context("--flows")?;
        let sources = if self.near.is_kernel() {
            Sources::Addresses { clients: clients.to_vec(), lanes: rss.buckets.len() }
        } else {
            let theirs = self.aim.theirs(fields(self.target_udp_4tuple))?;
            let wish = FlowWish { target, clients, flows, protocol: Protocol::UDP, rss, aim: aim(&theirs) };
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
            phases: timeline::usual(self.ramp, self.warm_up, self.duration),
            timeout: self.timeout,
            discard: self.discard,
            exact: self.near.exact(),
            seed: self.near.seed()?,
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
        let more = [("size", format!("{} bytes", self.size)), ("flows", show_count(flows as u64))];
        let targets = vec![self.target.to_string()];
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
                more: more.map(|(name, value)| (name.to_owned(), value)).into(),
                ..Setup::default()
            },
            ..About::default()
        }
    }
}

fn fields(four: bool) -> UdpFields {
    if four { UdpFields::Four } else { UdpFields::Two }
}
