//! The arguments of a service, and the plan that is made from them once they are checked.

mod polling;

use super::Service;
use crate::address::{self, Address};
use crate::asking::{self, Addr, Asked, Asking};
use crate::congestion::CongestionOption;
use crate::cpus::Pinning;
use crate::discovery::Discovery;
use crate::ecn::{EcnOption, chosen};
use crate::fast_open;
use crate::idle::IdleKind;
use crate::instruments::Instruments;
use crate::io::IoOption;
use crate::reassembly::Limits;
use crate::rss_options::{DefaultKey, Steering, buckets};
use crate::steering::{self, RssOption, SteeringOptions};
use crate::suspension::Suspension;
use crate::tunnel::TunnelSpec;
use crate::units;
use anyhow::{Context, bail, ensure};
use flowlane::card::{Cpus, Surroundings};
use flowlane::link::LinkSpec;
use flowlane::rebalance::{Even, Pack, Policy};
use flowlane::watchdog::Watchdog;
use flowlane::{
    Algorithm, Bucket, Ecn, Host, Idle, Interface, Io, Prefix, ReassemblyConfig, Rss, SocketError, Steer,
    TunnelConfig,
};
use flowlane_load::tcp::pattern::LONGEST;
use flowlane_sys::words::counted;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Arguments of every service.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Link: kernel (kernel sockets; the default), kernel:NAME (the same, with workers near the queues of this card), tap:NAME,
    /// af-packet:NAME[,offload], af-xdp:NAME[,copy][,offload][,queues=0-3], switch:NAME/PORT or pcap:IN,OUT.
    #[arg(long, value_name = "LINK")]
    link: Option<LinkSpec>,
    /// Our addresses, each with its prefix length: 10.11.2.1/24,fd00:11:2::1/64. With kernel sockets: one address of the machine
    /// [default: all of them]; a link-local one may have its interface, as fe80::1%eth0. On a link of ours also dhcp, an address of IPv4 that
    /// a server of DHCP gives, and slaac, addresses of the prefixes that IPv6 routers advertise.
    #[arg(long, value_name = "ADDR/LEN", value_delimiter = ',')]
    addr: Vec<Addr>,
    #[command(flatten)]
    asking: Asking,
    /// Default router, one for each address family.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    gateway: Vec<IpAddr>,
    #[command(flatten)]
    discovery: Discovery,
    /// UDP or TCP port of the service.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// 802.1Q VLAN, 1 to 4094 [default: untagged].
    #[arg(long, value_name = "ID")]
    vlan: Option<u16>,
    /// Tunnel that ends here: KIND,local=ADDR,remote=ADDR,addr=ADDR/LEN and optionally ,vni=N ,key=N ,mtu=N with KIND ipip, 6in4, 4in6,
    /// 6in6, gre, gretap, vxlan or geneve. May be repeated.
    #[arg(long, value_name = "TUNNEL")]
    tunnel: Vec<TunnelSpec>,
    /// Limits of reassembly in each lane, separated by commas: datagrams=N, fragments=N, bytes=N, per-datagram=N, strangers=N.
    #[arg(long, value_name = "LIMITS")]
    reassembly: Option<Limits>,
    #[command(flatten)]
    steering: Steering,
    #[command(flatten, next_help_heading = "Steering")]
    rss: RssOption,
    /// With kernel sockets, which lane gets a connection or datagram: cpu, one of the worker bound to the processor on which it arrived;
    /// hash, that of its flow's bucket; none, one of the kernel's choice [default with several workers: cpu with kernel:NAME of a card of
    /// several queues, else hash].
    #[arg(long, value_name = "HOW", value_enum, help_heading = "Steering")]
    steer: Option<SteerKind>,
    /// With kernel sockets, poll the card's queues for so long before a worker sleeps, at most 10ms: shorter waits for processor time. Needs
    /// Linux 6.9.
    #[arg(long, value_name = "TIME", value_parser = units::duration, help_heading = "Steering")]
    busy_poll: Option<Duration>,
    /// With --link kernel:NAME, leave the card's interrupts off while workers are busy, for so long at most [default: 20ms, if given without a
    /// value]. Its settings are put back at the end. Needs Linux 6.13.
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = "20ms", value_parser = units::duration,
        help_heading = "Steering"
    )]
    suspend_irqs: Option<Duration>,
    #[command(flatten)]
    io: IoOption,
    /// Whether there are kernel sockets beside a link of ours.
    #[arg(skip)]
    beside_kernel: bool,
    /// Whether one bucket for each worker is enough, unless lanes move by themselves.
    #[arg(skip)]
    one_a_worker: bool,
    /// Whether port 0 is none.
    #[arg(skip)]
    without_port: bool,
    /// Number of buckets, a power of two [default: at least two for each worker; memcached: one].
    #[arg(long, value_name = "N", help_heading = "Steering")]
    buckets: Option<usize>,
    /// Move lanes between workers while packets flow, by their load: 'even' keeps all workers equally busy, 'pack' uses as few workers as
    /// the load needs. There are 16 buckets a worker then, unless --buckets says otherwise.
    #[arg(
        long, value_name = "POLICY", value_enum, num_args = 0..=1, default_missing_value = "even", help_heading = "Steering"
    )]
    rebalance: Option<PolicyKind>,
    /// What idle workers do.
    #[arg(long, value_enum, default_value_t = IdleKind::Adaptive)]
    idle: IdleKind,
    #[command(flatten)]
    pinning: Pinning,
    /// Print a line for each worker at this interval [default: 1s, if given without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = units::duration)]
    interval: Option<Duration>,
    /// Time for connections to end after a stop, before they are reset; a second ^C ends at once.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::duration)]
    grace: Duration,
    /// Count datagrams or connections by flow; print the list at the end and on SIGUSR1.
    #[arg(long, short = 'd')]
    flows: bool,
    #[command(flatten)]
    instruments: Instruments,
    /// Serve /metrics for Prometheus over HTTP at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening)]
    metrics: Option<SocketAddr>,
    /// Serve a web page that shows lanes, rates, drops and times as they are, at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening)]
    web: Option<SocketAddr>,
    /// Say which worker has not turned for this long, where it is, and why [default: 1s, if given without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = units::duration, help_heading = "Watching")]
    watchdog: Option<Duration>,
    /// End with exit code 3 when the watchdog finds a worker that stands still.
    #[arg(long, requires = "watchdog", help_heading = "Watching")]
    watchdog_ends: bool,
    /// Time for which a task may hold its worker before 'stat' names it; 0s names none.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = units::duration, help_heading = "Watching")]
    task_budget: Duration,
    /// Count cycles, instructions, cache misses and events of the kernel for each worker, for 'stat --perf'.
    #[arg(long, help_heading = "Watching")]
    perf_events: bool,
    /// Print JSON, one document on each line.
    #[arg(long)]
    json: bool,
}

/// What the service watches of its workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watches {
    /// A worker that does not turn for so long is told.
    pub(super) watchdog: Option<Duration>,
    /// And ends the service.
    pub(super) ends: bool,
    pub(super) task_budget: Duration,
    pub(super) perf_events: bool,
}

impl Watches {
    fn of(a: &Arguments) -> anyhow::Result<Self> {
        let (shortest, longest) = (Watchdog::SHORTEST, Duration::from_secs(3600));
        if let Some(limit) = a.watchdog {
            ensure!((shortest..=longest).contains(&limit), "--watchdog: must be between 10ms and 1h");
        }
        let (watchdog, ends) = (a.watchdog, a.watchdog_ends);
        Ok(Self { watchdog, ends, task_budget: a.task_budget, perf_events: a.perf_events })
    }
}

/// Arguments of the TCP services.
#[derive(Debug, clap::Args)]
pub(crate) struct TcpArguments {
    #[command(flatten)]
    common: Arguments,
    /// Listen in these buckets only: 0,3 or 0-3. A connection whose hash selects another bucket is refused.
    #[arg(long, value_name = "LIST", help_heading = "Steering")]
    listen_buckets: Option<String>,
    /// TCP Fast Open: accept data in SYNs that carry a cookie, for up to N unfinished handshakes in each lane (256 if given without a
    /// value).
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "256")]
    fast_open: Option<u32>,
    #[command(flatten)]
    congestion: CongestionOption,
    #[command(flatten)]
    ecn: EcnOption,
}

impl TcpArguments {
    /// There are kernel sockets, though there may be a link of ours.
    pub(super) fn beside_kernel(&mut self, beside: bool) {
        self.common.beside_kernel = beside;
    }

    /// The service is somewhere else: port 0 is none.
    pub(super) fn without_port(&mut self, without: bool) {
        self.common.without_port = without;
    }

    /// The service does better with few lanes.
    pub(super) fn one_bucket_a_worker(&mut self) {
        self.common.one_a_worker = true;
    }
}

/// Arguments of the source.
#[derive(Debug, clap::Args)]
pub(crate) struct SourceArguments {
    #[command(flatten)]
    tcp: TcpArguments,
    /// Bytes of one write, at most 64Ki.
    #[arg(long, value_name = "SIZE", default_value = "16Ki", value_parser = units::size)]
    size: usize,
    /// Bytes to write to each connection before closing it [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    total: Option<usize>,
}

/// By what policy lanes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PolicyKind {
    Even,
    Pack,
}

impl PolicyKind {
    pub(super) fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Even => Box::<Even>::default(),
            Self::Pack => Box::<Pack>::default(),
        }
    }
}

/// Values of `--steer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SteerKind {
    Cpu,
    Hash,
    None,
}

/// How kernel sockets are steered: as was asked for, or as suits the card.
fn steer(
    asked: Option<SteerKind>,
    link: &LinkSpec,
    pinning: &Pinning,
    workers: usize,
) -> anyhow::Result<Steer> {
    if !link.is_kernel() {
        ensure!(asked.is_none(), "--steer: for kernel sockets; {link} has --rss");
        return Ok(Steer::None);
    }
    let pinned = pinning.is_on();
    Ok(match asked {
        Some(SteerKind::Cpu) if !pinned => {
            bail!("--steer cpu: not with --no-pin, since it needs workers bound to processors")
        }
        Some(SteerKind::Cpu) => Steer::Cpu,
        Some(SteerKind::Hash) => Steer::Hash,
        Some(SteerKind::None) => Steer::None,
        None if workers == 1 => Steer::None,
        None => match link {
            LinkSpec::Kernel(Some(_)) if pinned => Steer::Cpu,
            _ => Steer::Hash,
        },
    })
}

/// A card that was named for kernel sockets: that it is there, and a line about what of it does not fit the workers.
fn look_at(card: &str, steer: Steer) -> anyhow::Result<Option<String>> {
    ensure!(
        Path::new("/sys/class/net").join(card).exists(),
        "--link kernel:{card}: no interface has this name"
    );
    let around = Surroundings::read(Path::new("/"), card);
    if steer != Steer::Cpu {
        return Ok(None);
    }
    if around.receive.len() < 2 {
        let all = "it has one receive queue, so all its packets arrive on one processor; '--steer hash' spreads them";
        return Ok(Some(all.to_owned()));
    }
    let unset = around.transmit.iter().filter(|q| q.xps_cpus.as_ref().is_none_or(Cpus::is_empty)).count();
    Ok((unset > 0).then(|| {
        format!(
            "XPS is not set on {unset} of {}: answers leave by any of them ('flowlane rss show' says how to set it)",
            counted(around.transmit.len(), "transmit queue")
        )
    }))
}

/// Buckets for each worker where lanes move by themselves: so many that a worker can give some away.
const BUCKETS_TO_MOVE: usize = 16;

/// Clients that come by kernel sockets: to this address of the machine, or to all of them; and the address's zone, if it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FromKernel(pub(super) Option<IpAddr>, pub(super) u32);

/// A service whose arguments have been checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) service: Service,
    pub(super) link: LinkSpec,
    pub(super) addresses: Vec<Prefix>,
    /// The addresses that others are asked for.
    pub(super) asked: Asked,
    /// In which zone a link-local address of kernel sockets is; 0 if that was not said.
    pub(super) zone: u32,
    pub(super) tunnels: Vec<TunnelConfig>,
    pub(super) reassembly: ReassemblyConfig,
    pub(super) gateways: Vec<IpAddr>,
    pub(super) discovery: Discovery,
    /// 0: none, the service has another, or is at a path.
    pub(super) port: u16,
    /// A service of TCP that has a UDP port as well.
    pub(super) udp_port: Option<u16>,
    /// The Unix socket of a service that has no port.
    pub(super) path: Option<PathBuf>,
    /// Whether its connections are encrypted.
    pub(super) tls: bool,
    pub(super) vlan: Option<u16>,
    pub(super) rss: Arc<Rss>,
    /// How kernel sockets are steered, and a line about their card.
    pub(super) steer: Steer,
    pub(super) busy_poll: Option<Duration>,
    pub(super) suspension: Option<Suspension>,
    pub(super) io: Io,
    pub(super) note: Option<String>,
    /// Buckets to listen in; `None` for all.
    pub(super) listen: Option<Vec<Bucket>>,
    /// TCP Fast Open, with at most this many unfinished handshakes in each lane.
    pub(super) fast_open: Option<u32>,
    /// Congestion control of connections, if it was said.
    pub(super) congestion: Option<Algorithm>,
    /// Which ECN connections negotiate, if it was said.
    pub(super) ecn: Option<Ecn>,
    /// Clients come by kernel sockets, though the link is one of ours.
    pub(super) from_kernel: Option<FromKernel>,
    pub(super) workers: usize,
    /// By what policy lanes move by themselves.
    pub(super) rebalance: Option<PolicyKind>,
    /// Control socket, flows, capture.
    pub(super) instruments: Instruments,
    pub(super) idle: Idle,
    pub(super) pinning: Pinning,
    pub(super) interval: Option<Duration>,
    /// Time for connections to end when the service is stopped.
    pub(super) grace: Duration,
    pub(super) flows: bool,
    /// Where `/metrics` is served.
    pub(super) metrics: Option<SocketAddr>,
    /// Where the web page is served.
    pub(super) web: Option<SocketAddr>,
    pub(super) watches: Watches,
    pub(super) json: bool,
}

impl Plan {
    pub(super) fn new(service: Service, arguments: Arguments) -> anyhow::Result<Self> {
        let mut a = arguments;
        // Ordinary sockets, as with other servers.
        let link = a.link.clone().unwrap_or(LinkSpec::Kernel(None));
        let asked = a.asking.of(&a.addr, link.is_kernel())?;
        let fixed = asking::fixed(&a.addr);
        let addresses = if link.is_kernel() {
            check_kernel(&a, &fixed)?;
            check_records(service, &a)?;
            let ours = |a: &Address| address::ours_for_kernel(a.prefix().address(), a.zone());
            fixed.iter().try_for_each(|addr| ours(addr).context("--addr"))?;
            // The kernel has put fragments together before it looks for a socket, so ports are always there.
            a.steering.udp_4tuple = true;
            fixed.iter().map(|addr| addr.prefix()).collect()
        } else {
            if a.addr.is_empty() {
                bail!("--addr: {link} needs addresses of our own, as 10.11.2.1/24, or dhcp");
            }
            addresses_on(&link, &a, &fixed, &asked)?
        };
        check_values(&a)?;
        a.instruments.check(link.is_kernel())?;
        let workers = steering::workers_on(a.steering.workers, a.pinning.most(), Some(&link));
        ensure!((1..=64).contains(&workers), "--workers {workers}: must be from 1 to 64");
        let steer = steer(a.steer, &link, &a.pinning, workers)?;
        let io = polling::check_io(service, &a, &link)?;
        let suspension = polling::check_suspension(&a, &link)?;
        let note = match &link {
            LinkSpec::Kernel(Some(card)) => look_at(card, steer)?.map(|note| format!("{card}: {note}")),
            _ => None,
        };
        let ours = [("--slots", a.steering.slots.is_some()), ("--buckets", a.buckets.is_some())];
        let ours: Vec<&str> = ours.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
        let options = SteeringOptions {
            of: a.rss.rss.clone(),
            workers,
            key: a.steering.named_key()?,
            udp_4tuple: a.steering.udp_4tuple,
            udp: !service.is_tcp(),
            ours: &ours,
            seed: None,
        };
        let rss = match steering::by_card(Some(&link), &options)? {
            Some(rss) => rss,
            None => {
                let to_move = a.rebalance.map(|_| (workers * BUCKETS_TO_MOVE).next_power_of_two());
                let to_move = to_move.or(a.one_a_worker.then(|| workers.next_power_of_two()));
                a.steering.build_for(workers, a.buckets.or(to_move), DefaultKey::Random, true)?
            }
        };
        let watches = Watches::of(&a)?;
        Ok(Self {
            service,
            link,
            addresses,
            zone: fixed.first().map_or(0, |addr| addr.zone()),
            asked,
            tunnels: a.tunnel.into_iter().map(|t| t.0).collect(),
            reassembly: a.reassembly.unwrap_or_default().0,
            gateways: a.gateway,
            discovery: a.discovery,
            port: a.port,
            udp_port: None,
            path: None,
            tls: false,
            vlan: a.vlan,
            workers,
            rss: Arc::new(rss),
            steer,
            // Suspended interrupts leave it to the worker to look, if but once before it sleeps.
            busy_poll: a.busy_poll.or(suspension.is_some().then_some(Duration::ZERO)),
            suspension,
            io,
            note,
            listen: None,
            fast_open: None,
            congestion: None,
            ecn: None,
            from_kernel: None,
            rebalance: a.rebalance,
            idle: a.idle.into(),
            pinning: a.pinning,
            interval: a.interval,
            grace: a.grace,
            flows: a.flows,
            instruments: a.instruments,
            metrics: a.metrics,
            web: a.web,
            watches,
            json: a.json,
        })
    }

    pub(super) fn tcp(service: Service, arguments: TcpArguments) -> anyhow::Result<Self> {
        let beside_kernel = arguments.common.beside_kernel;
        let mut plan = Self::new(service, arguments.common)?;
        plan.congestion = arguments.congestion.of(plan.link.is_kernel() || beside_kernel)?;
        plan.ecn = arguments.ecn.of(plan.link.is_kernel(), plan.congestion)?;
        if let Some(text) = &arguments.listen_buckets {
            plan.listen = Some(buckets("--listen-buckets", text, plan.rss.buckets.len())?);
        }
        if arguments.fast_open == Some(0) {
            bail!("--fast-open 0: must be at least 1");
        }
        if arguments.fast_open.is_some() && plan.link.is_kernel() {
            fast_open::check_kernel(fast_open::End::Server)?;
        }
        plan.fast_open = arguments.fast_open;
        Ok(plan)
    }

    /// A relay of UDP, whose arguments are those of the relay of TCP.
    pub(super) fn udp_relay(arguments: TcpArguments) -> anyhow::Result<Self> {
        for (option, given) in [
            ("--listen-buckets", arguments.listen_buckets.is_some()),
            ("--fast-open", arguments.fast_open.is_some()),
            ("--congestion", arguments.congestion.is_given()),
            ("--ecn", arguments.ecn.is_given()),
        ] {
            ensure!(!given, "{option}: not with --udp: it is for connections");
        }
        Self::new(Service::RelayUdp, arguments.common)
    }

    pub(super) fn source(arguments: SourceArguments) -> anyhow::Result<Self> {
        let size = arguments.size;
        if !(1..=LONGEST).contains(&size) {
            bail!("--size {size}: from 1 to 64Ki");
        }
        if arguments.total == Some(0) {
            bail!("--total: must be more than 0");
        }
        Self::tcp(Service::TcpSource(size, arguments.total.map(|t| t as u64)), arguments.tcp)
    }

    /// The host that serves, with `main` in every lane.
    pub(super) fn host<F, R>(&self, main: F) -> Host
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), SocketError>> + Send + 'static,
    {
        let chosen = |host: Host| chosen(host, self.congestion, self.ecn);
        if self.link.is_kernel() {
            let host = Host::kernel("server", self.rss.clone(), main).steer(self.steer).zone(self.zone);
            return chosen(host);
        }
        let interface =
            Interface { addresses: self.addresses.clone(), vlan: self.vlan, ..Interface::default() };
        let host =
            Host::new("server", self.rss.clone(), main).interface(interface).reassembly(self.reassembly);
        let host = self.asked.apply(chosen(host).ip(self.discovery.ip()));
        let host = self.tunnels.iter().fold(host, |host, tunnel| host.tunnel(tunnel.clone()));
        self.gateways.iter().fold(host, |host, gateway| host.gateway(*gateway))
    }

    /// The address to bind to; `None` for all of ours.
    pub(super) fn bind(&self) -> Option<IpAddr> {
        if let Some(FromKernel(address, _)) = self.from_kernel {
            return address;
        }
        self.addresses.first().filter(|_| self.link.is_kernel()).map(Prefix::address)
    }

    /// Whether lanes need a privilege to bind their sockets: those of the kernel, on a port below 1024.
    pub(super) fn binds_low_ports(&self) -> bool {
        (self.link.is_kernel() || self.from_kernel.is_some()) && (1..1024).contains(&self.low_port())
    }

    /// The lowest of its ports.
    pub(super) fn low_port(&self) -> u16 {
        [Some(self.port), self.udp_port].into_iter().flatten().filter(|port| *port > 0).min().unwrap_or(0)
    }

    /// Our addresses with full prefix length: the addresses whose packets the link takes.
    pub(super) fn ours(&self) -> Vec<Prefix> {
        self.addresses.iter().map(|a| Prefix::host(a.address())).collect()
    }
}

/// What is wrong with single values, whatever the link.
fn check_values(a: &Arguments) -> anyhow::Result<()> {
    if a.port == 0 && !a.without_port {
        bail!("--port 0: must be from 1 to 65535");
    }
    if let Some(vlan) = a.vlan.filter(|vlan| !(1..=4094).contains(vlan)) {
        bail!("--vlan {vlan}: must be from 1 to 4094");
    }
    if a.interval.is_some_and(|every| every < Duration::from_millis(10)) {
        bail!("--interval: must be at least 10ms");
    }
    Ok(())
}

/// Refuses options that kernel sockets do not have.
fn check_kernel(a: &Arguments, fixed: &[Address]) -> anyhow::Result<()> {
    if let [_, second, ..] = fixed[..] {
        bail!("--addr {}: with kernel sockets one address, or none for all the machine has", second.prefix());
    }
    if let Some(addr) = fixed.iter().map(|a| a.prefix()).find(|addr| addr.address().is_multicast()) {
        bail!("--addr {addr}: a multicast address");
    }
    if let Some(gateway) = a.gateway.first() {
        bail!("--gateway {gateway}: with kernel sockets the kernel's routes are used");
    }
    if let Some(vlan) = a.vlan {
        bail!("--vlan {vlan}: with kernel sockets the kernel's interfaces are used");
    }
    if !a.tunnel.is_empty() {
        bail!("--tunnel: with kernel sockets the kernel's tunnels are used (ip link add ... type gre)");
    }
    a.discovery.check_kernel()
}

/// Refuses records of flows where none would be made: a server's UDP socket on kernel sockets is one for all peers.
fn check_records(service: Service, a: &Arguments) -> anyhow::Result<()> {
    if matches!(service, Service::UdpEcho | Service::UdpDiscard)
        && let Some(option) = a.instruments.records.given()
    {
        bail!(
            "{option}: a UDP server on kernel sockets has one socket for all its peers, and the kernel does not count \
             by peer; use a link of ours (--link af-packet:NAME, ...)"
        );
    }
    Ok(())
}

/// The addresses of a host on a link of ours.
fn addresses_on(
    link: &LinkSpec,
    a: &Arguments,
    fixed: &[Address],
    asked: &Asked,
) -> anyhow::Result<Vec<Prefix>> {
    let addresses = address::on_link(fixed)?;
    check_addresses(&addresses)?;
    let inside = a.tunnel.iter().flat_map(|t| &t.0.addresses);
    let all: Vec<Prefix> = addresses.iter().chain(inside).copied().collect();
    check_tunnels(&a.tunnel, &all)?;
    check_gateways(&a.gateway, &all)?;
    check_asked(asked, a, link)?;
    a.discovery.check(&addresses, asked.family(false))?;
    Ok(addresses)
}

/// Refuses to ask others for an address where nobody could answer, and what contradicts the question.
fn check_asked(asked: &Asked, a: &Arguments, link: &LinkSpec) -> anyhow::Result<()> {
    asked.check(link)?;
    if asked.dhcp.is_some() && a.gateway.iter().any(IpAddr::is_ipv4) {
        bail!("--gateway: with --addr dhcp the server names the router of IPv4");
    }
    Ok(())
}

fn check_addresses(addresses: &[Prefix]) -> anyhow::Result<()> {
    flowlane::address::check(addresses).map_err(|why| anyhow::anyhow!("--addr {why}"))
}

fn check_tunnels(tunnels: &[TunnelSpec], all: &[Prefix]) -> anyhow::Result<()> {
    check_addresses(all).context("--tunnel")?;
    for TunnelSpec(tunnel) in tunnels {
        if !all.iter().any(|a| a.address() == tunnel.local) {
            bail!("--tunnel: local={} is none of our addresses (--addr)", tunnel.local);
        }
    }
    Ok(())
}

fn check_gateways(gateways: &[IpAddr], addresses: &[Prefix]) -> anyhow::Result<()> {
    for (i, gateway) in gateways.iter().enumerate() {
        if addresses.iter().any(|a| a.address() == *gateway) {
            bail!("--gateway {gateway}: is our own address");
        }
        let link_local =
            Prefix::LINK_LOCAL.contains(*gateway) && addresses.iter().any(|a| a.address().is_ipv6());
        if !link_local && !addresses.iter().any(|a| a.contains(*gateway)) {
            bail!("--gateway {gateway}: is on none of the networks given by --addr");
        }
        if gateways[..i].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            bail!("--gateway {gateway}: one gateway for each family");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(addresses: &str) -> Option<String> {
        let list: Vec<Prefix> = addresses.split(',').map(|a| a.parse().unwrap()).collect();
        check_addresses(&list).err().map(|e| e.to_string())
    }

    #[test]
    fn absurd_addresses() {
        assert_eq!(refused("10.11.2.1/24,fd00::1/64,10.0.0.1/32,10.0.0.2/31"), None);
        for bad in [
            "0.0.0.0/24",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "255.255.255.255/24",
            "10.11.2.255/24",
            "10.11.2.0/24",
            "10.0.0.1/0",
            "10.0.0.1/24,10.0.0.1/24",
            "::/64",
            "::1/64",
            "ff02::1/64",
        ] {
            assert!(refused(bad).is_some_and(|why| !why.contains('\n')), "{bad}");
        }
    }

    #[test]
    fn gateways_must_be_neighbours() {
        let ours: Vec<Prefix> = vec!["10.11.2.1/24".parse().unwrap(), "fd00::1/64".parse().unwrap()];
        let check = |gateways: &[&str]| {
            let list: Vec<IpAddr> = gateways.iter().map(|g| g.parse().unwrap()).collect();
            check_gateways(&list, &ours).is_ok()
        };
        assert!(check(&["10.11.2.254", "fe80::1"]));
        assert!(!check(&["10.11.3.1"]));
        assert!(!check(&["10.11.2.1"]));
        assert!(!check(&["10.11.2.3", "10.11.2.4"]));
    }
}
