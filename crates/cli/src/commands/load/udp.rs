//! `flowlane load udp`: source and sink of UDP datagrams.
//!
//! Arguments become a plan, and everything that can be wrong with them is said in one line before a link is opened. The
//! clients' addresses need no interface: the host claims them, and its lanes answer ARP and neighbour solicitation for
//! them. Flows are chosen so that answers come back to the lane that asked, and, when the far side's key is known, so
//! that they hit chosen buckets there.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use flowlane::link::OpenError;
use flowlane::{
    Bucket, BucketMap, Endpoint, HashConfig, Host, Idle, Indirection, Interface, Key, OpenLink, Prefix,
    Protocol, Rss, Runtime, StartError, Toeplitz, UdpFields,
};
use flowlane_load::{
    Aim, ClientRange, FlowWish, Load, LoadConfig, MIN_PAYLOAD, Pace, Threshold, Wanted, flows,
};

use super::report::Report;
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::link::{LinkSpec, give_up_privileges};
use crate::{progress, steering, units};

/// Rate when neither a rate nor a window is given.
const DEFAULT_RATE: u64 = 10_000;
/// Largest payload of a UDP datagram over IPv4.
const MAX_PAYLOAD: usize = 65_507;

/// UDP datagrams to an echo or a sink.
#[derive(Debug, Args)]
pub(crate) struct Udp {
    /// Where to: ADDRESS:PORT, IPv6 addresses in brackets.
    pub(super) target: SocketAddr,
    /// Link to use: tap:NAME, af-packet:NAME, af-xdp:NAME[,zero-copy|,copy] or pcap:IN,OUT.
    #[arg(long)]
    pub(super) link: LinkSpec,
    /// Our addresses on the link, each with its network: 10.11.2.2/24[,...].
    #[arg(long, value_delimiter = ',', required = true)]
    addr: Vec<Prefix>,
    /// Neighbour through which everything else is reached.
    #[arg(long, value_delimiter = ',')]
    gateway: Vec<IpAddr>,
    /// Where datagrams come from: 10.11.2.16/28, 10.11.2.20-10.11.2.90 [default: our addresses].
    #[arg(long, value_delimiter = ',')]
    clients: Vec<ClientRange>,
    /// The far side has a route to client addresses outside our networks.
    #[arg(long)]
    routed: bool,
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
    /// Workers, each a thread on a core of its own.
    #[arg(long, default_value = "1")]
    workers: usize,
    /// The far side does not answer.
    #[arg(long)]
    discard: bool,
    /// Buckets of the target to hit: all, or 0,3,... Needs --target-key.
    #[arg(long)]
    buckets: Option<String>,
    /// RSS key of the target: microsoft, symmetric or hexadecimal.
    #[arg(long, value_parser = key)]
    target_key: Option<Key>,
    /// Buckets of the target: a power of two.
    #[arg(long, default_value = "8")]
    target_buckets: usize,
    /// The target hashes UDP over addresses and ports.
    #[arg(long)]
    target_udp_4tuple: bool,
    /// Our own RSS key: microsoft, symmetric or hexadecimal [default: a fresh one].
    #[arg(long, value_parser = key)]
    key: Option<Key>,
    /// Hash UDP over addresses and ports instead of addresses alone, on our side.
    #[arg(long)]
    udp_4tuple: bool,
    /// 802.1Q VLAN.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// What workers do when there is nothing to do.
    #[arg(long, value_enum, default_value = "adaptive")]
    idle: IdleKind,
    /// Fail the run if this is so: 'p99 > 20ms', 'lost > 0.1%', 'rate < 90k'. May be repeated.
    #[arg(long)]
    pub(super) fail: Vec<Threshold>,
    /// Print JSON (docs/schema/load.json).
    #[arg(long)]
    json: bool,
    /// No progress on the terminal.
    #[arg(long, short)]
    quiet: bool,
    /// Make keys, flows and moments repeat from run to run.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IdleKind {
    /// Look again at once: the most exact, at the price of the core.
    Spin,
    /// Look again for a moment, then sleep.
    Adaptive,
}

/// A key by name or in hexadecimal.
fn key(text: &str) -> Result<Key, flowlane_rss::KeyError> {
    match text {
        "microsoft" => Ok(Key::MICROSOFT),
        "symmetric" => Ok(Key::symmetric()),
        _ => Key::from_hex(text),
    }
}

impl Udp {
    /// Runs it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.check()?;
        let fields = if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two };
        let rss = Arc::new(steering::rss(self.workers, fields, self.key, self.seed)?);
        let clients = self.clients()?;
        let config = self.plan(&rss, &clients)?;
        let open_loop = matches!(config.pace, Pace::Rate { .. });
        let load = Load::new(config)?;
        let interrupt = Interrupt::listen()?;

        let idle = if self.idle == IdleKind::Spin { Idle::Spin } else { Idle::default() };
        let mut builder = Runtime::builder().workers(self.workers).idle(idle);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        let claimed: Vec<Prefix> = clients.iter().flat_map(ClientRange::prefixes).collect();
        let ours: Vec<Prefix> =
            self.addr.iter().map(|a| Prefix::host(a.address())).chain(claimed.iter().copied()).collect();
        let interface = Interface { addresses: self.addr.clone(), claimed, vlan: self.vlan };
        let mut host = Host::new("load", rss.clone(), load.main()).interface(interface);
        for gateway in &self.gateway {
            host = host.gateway(*gateway);
        }
        let host = builder.host(host);
        builder.link(host, 0, self.fits(self.link.clone().open(&ours, &rss)));
        builder.before_start(give_up_privileges);
        let runtime = builder.start()?;
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
        ensure!((1..=64).contains(&self.workers), "--workers {}: from 1 to 64", self.workers);
        ensure!(self.target.port() != 0, "{}: port 0 is nobody's", self.target);
        ensure!((1..=10_000_000).contains(&self.flows), "--flows {}: from 1 to 10M", self.flows);
        let window = self.window.unwrap_or(1);
        ensure!((1..=65_536).contains(&window), "--window {window}: from 1 to 65536");
        let target = self.target.ip();
        let near = |ip: IpAddr| self.addr.iter().any(|a| a.contains(ip));
        if let Some(ours) = self.addr.iter().find(|a| a.address() == target) {
            bail!("the target {target} is our own address {ours}");
        }
        if let Some(far) = self.gateway.iter().find(|g| !near(**g)) {
            bail!("--gateway {far} is in none of our networks (--addr)");
        }
        ensure!(
            near(target) || self.gateway.iter().any(|g| g.is_ipv4() == target.is_ipv4()),
            "{target} is in none of our networks (--addr): give a --gateway"
        );
        Ok(())
    }

    /// Where datagrams come from, if answers can come back there.
    fn clients(&self) -> anyhow::Result<Vec<ClientRange>> {
        if self.clients.is_empty() {
            return Ok(self.addr.iter().map(|a| ClientRange::from(a.address())).collect());
        }
        for range in &self.clients {
            for (what, address) in std::iter::once(("target", self.target.ip()))
                .chain(self.gateway.iter().map(|g| ("gateway", *g)))
            {
                ensure!(!range.contains(address), "--clients {range} holds the {what} {address}");
            }
            let near = self.addr.iter().any(|a| range.is_within(a));
            ensure!(
                near || self.routed || !self.gateway.is_empty(),
                "--clients {range} is not within our networks (--addr), so answers would not come back; if the far \
                 side has a route to it, add --routed"
            );
        }
        Ok(self.clients.clone())
    }

    fn plan(&self, rss: &Rss, clients: &[ClientRange]) -> anyhow::Result<LoadConfig> {
        let target = Endpoint::from(self.target);
        let theirs = self.theirs()?;
        let aim = match &theirs {
            Some(theirs) => Some(Aim { rss: theirs, wanted: self.wanted(theirs)? }),
            None => None,
        };
        let flows = usize::try_from(self.flows).context("--flows")?;
        let flows = flows::choose(&FlowWish { protocol: Protocol::UDP, target, clients, flows, rss, aim })?;
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
            seed: steering::seed(self.seed)?,
        })
    }

    /// How the target is steered, if its key is given.
    fn theirs(&self) -> anyhow::Result<Option<Rss>> {
        let Some(key) = &self.target_key else {
            ensure!(
                self.buckets.is_none(),
                "--buckets needs --target-key: without it nobody knows what they hit"
            );
            return Ok(None);
        };
        let n = self.target_buckets;
        let map = BucketMap::new(n, 1).context("--target-buckets")?;
        let table = Indirection::new(Indirection::DEFAULT_SLOTS.max(n), n).context("--target-buckets")?;
        let fields = if self.target_udp_4tuple { UdpFields::Four } else { UdpFields::Two };
        Ok(Some(Rss::from_parts(Toeplitz::new(key), HashConfig::with_udp(fields), table, map)))
    }

    fn wanted(&self, theirs: &Rss) -> anyhow::Result<Wanted> {
        let all = (0..theirs.buckets.len() as u16).map(Bucket).collect();
        let Some(text) = self.buckets.as_deref().filter(|t| *t != "all") else {
            return Ok(Wanted::Buckets(all));
        };
        let bucket = |s: &str| s.trim().parse().map(Bucket).ok();
        let wanted: Option<Vec<Bucket>> = text.split(',').map(bucket).collect();
        let mut wanted =
            wanted.with_context(|| format!("--buckets '{text}': all, or numbers such as 0,3"))?;
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Wanted::Buckets(wanted))
    }

    /// Refuses a link whose packets are too small for the payload, before anything is sent.
    fn fits(&self, open: OpenLink) -> OpenLink {
        let (size, headers) = (self.size, if self.target.is_ipv4() { 28 } else { 48 });
        Box::new(move |memory, workers| {
            let (info, queues) = open(memory, workers)?;
            let most = usize::from(info.mtu).saturating_sub(headers);
            if size > most {
                let what = format!("--size {size}: with an MTU of {} at most {most} bytes", info.mtu);
                return Err(StartError::Link(OpenError::Option { link: info.name, what }));
            }
            Ok((info, queues))
        })
    }
}
