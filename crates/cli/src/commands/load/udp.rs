//! `flowlane load udp`: sends UDP datagrams and receives the answers.
//!
//! Arguments are checked before a link is opened; an error is one line. On a link of ours, flows are chosen so that answers arrive in
//! the lane that sent the request and, if the target's key is known, so that requests hit chosen buckets there. On kernel sockets each
//! flow is a connected socket, from a port chosen by where answers come if that is asked for.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::impair::{Cycle, Edges, Slots};
use flowlane::{Endpoint, OpenLink, Protocol, Rss, TcpConfig, UdpFields};
use flowlane_load::report::SnapshotsTo;
use flowlane_load::{ClientRange, LoadConfig, Pace, Part, PayloadSizes, Phase, Sources, udp};

use super::bursts::BurstOptions;
use super::course::{Course, Load, Needs, Runs, Words};
use super::near::{Flows, fits};
use super::rate_in_words;
use super::reach::Named;
use crate::units::{self, show_count};

/// Rate when neither a rate nor a window is given.
const DEFAULT_RATE: u64 = 10_000;
/// Default number of flows: on a link of ours, where a flow costs nothing, and on kernel sockets.
const FLOWS: u64 = 1024;
const KERNEL_FLOWS: u64 = 64;

/// Values of `--size`.
#[derive(Debug, Clone)]
enum SizeOption {
    Imix,
    Sizes(PayloadSizes),
}

impl FromStr for SizeOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" { Ok(Self::Imix) } else { text.parse().map(Self::Sizes) }
    }
}

/// Send UDP datagrams to an echo or discard server.
#[derive(Debug, Args)]
pub(crate) struct Udp {
    /// Target: ADDRESS:PORT, with IPv6 addresses in brackets, or HOST:PORT.
    #[arg(value_name = "TARGET", value_parser = super::target)]
    named: Named,
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
    /// Payloads in bytes: 510, or several that each flow sends in turn, each with how often it comes: 36x7,548x4,1472; or imix, the simple IMIX of
    /// IP packets of 40 (the least that holds the generator's header), 576 and 1500 bytes.
    #[arg(long, value_name = "SIZES", default_value = "510")]
    size: SizeOption,
    /// Datagrams sent at each moment, with as many moments fewer.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count, conflicts_with_all = ["window", "slots"])]
    burst: u64,
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
    /// The target hashes UDP over addresses and ports [default: over addresses alone].
    #[arg(long)]
    target_udp_4tuple: bool,
    /// Hash UDP over addresses and ports on our side [default: over addresses alone].
    #[arg(long)]
    udp_4tuple: bool,
    #[command(flatten)]
    bursts: BurstOptions,
    #[command(flatten)]
    course: Course,
}

impl Load for Udp {
    const NAME: &'static str = "load udp";
    const TCP: bool = false;
    type Kind = udp::Common;
    type Config = LoadConfig;

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
        self.course.near.check_without_connections()?;
        self.bursts.check(&self.course.find)?;
        ensure!(!self.timeout.is_zero(), "--timeout must be more than 0");
        ensure!((1..=65_536).contains(&self.burst), "--burst {}: from 1 to 65536", self.burst);
        let most = if self.course.is_on_kernel() { 100_000 } else { 10_000_000 };
        let flows = self.flows();
        ensure!((1..=most).contains(&flows), "--flows {flows}: from 1 to {}", show_count(most));
        let window = self.window.unwrap_or(1);
        ensure!((1..=65_536).contains(&window), "--window {window}: from 1 to 65536");
        if self.course.is_on_kernel() {
            self.course.home.check_fields(self.udp_4tuple)?;
        }
        Ok(())
    }

    fn fields(&self) -> UdpFields {
        fields(self.udp_4tuple)
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange], phases: Vec<Phase>) -> anyhow::Result<LoadConfig> {
        let near = &self.course.near;
        let (target, seed) = (Endpoint::from(self.course.target), near.seed()?);
        let flows = usize::try_from(self.flows()).context("--flows")?;
        let sources = if near.is_kernel() {
            near.addresses(rss, clients, target)?
        } else {
            let theirs = self.course.aim.theirs(fields(self.target_udp_4tuple))?;
            let flows = self.course.share(flows, rss.buckets.len());
            let wanted = Flows { target, protocol: Protocol::UDP, flows, all: false, seed };
            near.flows(rss, clients, &theirs, &wanted)?
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
            sizes: self.sizes(),
            burst: u32::try_from(self.burst).context("--burst")?,
            phases,
            timeout: self.timeout,
            discard: self.discard,
            exact: near.exact(),
            seed,
            slots: self.slots()?,
            bursts: None,
            snapshots: None,
        })
    }

    fn sources(config: &mut LoadConfig) -> &mut Sources {
        &mut config.sources
    }

    fn ramp(&self) -> Option<Duration> {
        self.ramp
    }

    fn seed(config: &LoadConfig) -> u64 {
        config.seed
    }

    fn at(&self, config: LoadConfig, per_second: u64) -> LoadConfig {
        LoadConfig { pace: Pace::Rate { per_second, poisson: self.poisson }, ..config }
    }

    fn alone(config: LoadConfig, phases: Vec<Phase>) -> LoadConfig {
        LoadConfig { pace: Pace::Window(1), phases, ..config }
    }

    fn prepared(
        config: LoadConfig,
        to: Option<SnapshotsTo>,
        part: Option<Part>,
    ) -> anyhow::Result<udp::Load> {
        Ok(udp::Load::part(LoadConfig { snapshots: to, ..config }, part)?)
    }

    #[cfg(feature = "agents")]
    fn patience(&self) -> Duration {
        self.timeout
    }

    #[cfg(feature = "agents")]
    fn told(&self) -> Vec<String> {
        self.flows.is_none().then(|| format!("--flows={}", self.flows())).into_iter().collect()
    }

    fn needs(&self, config: &LoadConfig, _: &[ClientRange]) -> anyhow::Result<Needs> {
        let descriptors = self.course.share(config.flows, config.sources.lanes());
        Ok(Needs { tcp: TcpConfig::default(), frames: None, descriptors })
    }

    fn fits(&self, open: OpenLink) -> OpenLink {
        let headers = self.headers() + self.course.near.overhead(self.course.target.ip());
        fits(open, self.sizes().ends().1, headers)
    }

    fn words(&self, config: &LoadConfig) -> Words {
        let (schedule, open_loop) = match config.pace {
            Pace::Window(window) => {
                (format!("closed loop, {} on their way in each lane", show_count(window as u64)), false)
            }
            Pace::Rate { per_second, poisson } => (rate_in_words(per_second, poisson), true),
        };
        let flows = match &config.sources {
            Sources::Flows(flows) => flows.iter().map(Vec::len).sum(),
            Sources::Addresses { .. } => config.flows,
        };
        let ((smallest, largest), mean) = (config.sizes.ends(), config.sizes.mean());
        let size = match &self.size {
            _ if config.sizes.is_one() => format!("{largest} bytes"),
            SizeOption::Imix => format!("IMIX, {smallest} to {largest} bytes, {mean:.0} in the mean"),
            SizeOption::Sizes(_) => format!("{smallest} to {largest} bytes, {mean:.0} in the mean"),
        };
        let mut more = vec![("size", size), ("flows", show_count(flows as u64))];
        if config.burst > 1 {
            more.push(("burst", format!("{} datagrams at a time", show_count(config.burst.into()))));
        }
        if let Some(slots) = config.slots {
            let (cycle, slot, guard) = (slots.cycle(), slots.slot(), units::show_nanos(slots.guard()));
            more.push(("slots", format!("slot {slot} of {cycle}, guard {guard}")));
        }
        let more = more.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Words { schedule, open_loop, requests: Vec::new(), more }
    }

    fn instead(&self, runs: &Runs<'_, Self>) -> Option<anyhow::Result<()>> {
        self.bursts.is_wanted().then(|| self.bursts.search(runs, &self.course))
    }

    fn said_at_end(&self, load: &udp::Load) -> Option<(String, String)> {
        kept_in_words(&load.edges()).map(|kept| ("slots kept".into(), kept))
    }
}

impl Udp {
    /// Bytes of headers before the payload, those of a tunnel not included.
    fn headers(&self) -> usize {
        if self.course.target.is_ipv4() { 28 } else { 48 }
    }

    fn sizes(&self) -> PayloadSizes {
        match &self.size {
            SizeOption::Imix => PayloadSizes::imix(self.headers()),
            SizeOption::Sizes(sizes) => sizes.clone(),
        }
    }

    fn flows(&self) -> u64 {
        let usual = match self.course.near.is_kernel() {
            // Of which one is used: lanes have flows by their hashes.
            true if self.bursts.is_wanted() => 1,
            true => KERNEL_FLOWS,
            false => FLOWS,
        };
        self.flows.unwrap_or(usual)
    }

    fn slots(&self) -> anyhow::Result<Option<Slots>> {
        let Some((cycle, slot)) = self.slots.zip(self.slot) else { return Ok(None) };
        let guard = u64::try_from(self.guard.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(Slots::new(cycle, slot, guard).context("--slots")?))
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
