//! Where a load runs: on kernel sockets, on a link of ours, or over a pair link with a server in the same process.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use flowlane::link::LinkSpec;
use flowlane::{Host, Idle, Interface, Key, PairConfig, Prefix, Rss, TcpConfig, TunnelConfig, UdpFields};
use flowlane_load::ClientRange;
use flowlane_load::http::{Behaviour, HttpLoad, Plan, Pool, Version};

use super::super::home::Home;
use crate::address::{self, with_network};
use crate::fast_open;
use crate::instruments::{Instruments, Looked};
use crate::io::{IoOption, Work};
use crate::link::{self, give_up_privileges};
use crate::steering::{self, Wish, Workers};
use crate::tunnel::TunnelSpec;

/// The link of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// Kernel sockets.
    Kernel,
    /// A pair link in memory, with a server at its other end.
    Pair,
    /// A link of ours.
    Link(LinkSpec),
}

impl FromStr for LinkKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kernel" => Ok(Self::Kernel),
            "pair" => Ok(Self::Pair),
            _ => match text.parse() {
                Ok(LinkSpec::Kernel(_)) => {
                    Err(format!("{text}: a card is named for serve only; give kernel"))
                }
                Ok(link) => Ok(Self::Link(link)),
                Err(e) => Err(format!("{e}, kernel or pair")),
            },
        }
    }
}

impl std::fmt::Display for LinkKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel => f.write_str("kernel"),
            Self::Pair => f.write_str("pair"),
            Self::Link(link) => link.fmt(f),
        }
    }
}

/// Options of the link and our end of it.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// Link: kernel (kernel sockets), pair (with a server in the same process), tap:NAME, af-packet:NAME, af-xdp:NAME.
    #[arg(long, default_value = "kernel")]
    pub(super) link: LinkKind,
    /// Our addresses on the link, each with its prefix length: 10.11.2.2/24[,...].
    #[arg(long, value_name = "ADDR/LEN", value_delimiter = ',', value_parser = with_network)]
    addr: Vec<Prefix>,
    /// Default router, one for each address family.
    #[arg(long, value_delimiter = ',')]
    gateway: Vec<IpAddr>,
    /// Tunnel: KIND,local=ADDR,remote=ADDR,addr=ADDR/LEN and optionally ,vni=N ,key=N ,mtu=N with KIND ipip, 6in4, 4in6, 6in6, gre,
    /// gretap, vxlan or geneve (docs/tunnels.md). Packets to a target in the network of addr go through it. May be repeated.
    #[arg(long, value_name = "TUNNEL")]
    tunnel: Vec<TunnelSpec>,
    /// Client addresses, the sources of connections: 10.64.0.0/10, fd00:1::/64, 10.11.2.20-10.11.2.90 [default: our addresses].
    #[arg(long, value_delimiter = ',')]
    pub(super) clients: Vec<ClientRange>,
    /// Allow client addresses outside our networks: the target has a route to them.
    #[arg(long)]
    routed: bool,
    #[command(flatten)]
    pub(super) home: Home,
    #[command(flatten)]
    workers: Workers,
    /// RSS key of our side: microsoft, symmetric or hexadecimal [default: a random one].
    #[arg(long, value_parser = key)]
    key: Option<Key>,
    /// 802.1Q VLAN, 1 to 4094 [default: untagged].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    #[command(flatten)]
    io: IoOption,
    /// What idle workers do [default: sleep on kernel sockets, else adaptive].
    #[arg(long, value_enum)]
    idle: Option<IdleKind>,
    /// Seed of keys, choices and send times, for runs that repeat [default: random].
    #[arg(long)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    instruments: Instruments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IdleKind {
    /// Poll without pause: most exact, uses the whole core.
    Spin,
    /// Poll for a short time, then sleep.
    Adaptive,
    /// Sleep at once, without polling.
    Sleep,
}

/// A key by name or in hexadecimal.
pub(super) fn key(text: &str) -> Result<Key, flowlane_rss::KeyError> {
    match text {
        "microsoft" => Ok(Key::MICROSOFT),
        "symmetric" => Ok(Key::symmetric()),
        _ => Key::from_hex(text),
    }
}

impl Place {
    /// How our side is steered.
    pub(super) fn rss(&self) -> anyhow::Result<Arc<Rss>> {
        let workers = self.workers();
        ensure!((1..=64).contains(&workers), "--workers {workers}: from 1 to 64");
        self.home.check(self.link == LinkKind::Kernel, self.key.as_ref())?;
        if let Some(rss) = self.home.rss(workers)? {
            return Ok(Arc::new(rss));
        }
        let wish = Wish {
            of: self.workers.rss_of(),
            workers,
            key: self.key,
            udp_4tuple: false,
            ours: &[],
            seed: self.seed,
        };
        match steering::by_card(self.card(), &wish)? {
            Some(rss) => Ok(Arc::new(rss)),
            None => Ok(Arc::new(steering::rss(workers, UdpFields::Two, self.key, self.seed)?)),
        }
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers.count(self.card())
    }

    /// The link, if it is one of ours with a name.
    fn card(&self) -> Option<&LinkSpec> {
        match &self.link {
            LinkKind::Link(link) => Some(link),
            _ => None,
        }
    }

    /// Checks the options for this plan.
    pub(super) fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        let kernel = self.link == LinkKind::Kernel;
        self.instruments.check(kernel)?;
        self.io.of(&self.link, kernel, "load http", Work::Connections)?;
        ensure!(
            self.tunnel.is_empty() || matches!(self.link, LinkKind::Link(_)),
            "--tunnel: {} has no packets that could go through one; name a --link",
            self.link
        );
        self.check_fast_open(plan)?;
        if kernel {
            ensure!(
                self.addr.is_empty(),
                "--addr: kernel sockets have the kernel's addresses; name a --link"
            );
            ensure!(self.gateway.is_empty(), "--gateway: the kernel has its own routes; name a --link");
            ensure!(self.vlan.is_none(), "--vlan: the kernel has its own interfaces; name a --link");
        } else if self.link != LinkKind::Pair {
            ensure!(!self.addr.is_empty(), "--addr is needed with --link {}: our addresses there", self.link);
            if let Some(TunnelSpec(t)) =
                self.tunnel.iter().find(|t| self.addresses().all(|a| a.address() != t.0.local))
            {
                bail!("--tunnel: local={} is none of our addresses (--addr)", t.local);
            }
        }
        for pool in &plan.pools {
            ensure!(
                !kernel || pool.behaviour != Behaviour::SynOnly,
                "pool '{}': kernel sockets always complete the handshake; SYN-only clients need a link of ours (--link)",
                pool.name
            );
            let remotes = || pool.targets.iter().flat_map(|t| &t.addresses);
            match self.link {
                // A name may have other addresses, too.
                LinkKind::Kernel => pool.targets.iter().try_for_each(|target| {
                    let mut usable = target.addresses.iter().map(|remote| address::for_kernel(remote.ip()));
                    usable.find(Result::is_ok).or_else(|| target.addresses.first().map(|first| address::for_kernel(first.ip()))).unwrap_or(Ok(()))
                })?,
                LinkKind::Pair => remotes().try_for_each(|remote| {
                    ensure!(
                        !remote.ip().is_loopback(),
                        "--link pair: {} is a host's loopback and on no link: give any other address, as 10.11.2.1",
                        remote.ip()
                    );
                    Ok(())
                })?,
                LinkKind::Link(_) => {
                    remotes().try_for_each(|remote| self.reaches(*remote, &pool.clients))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that there is Fast Open where a pool wants it, and that there is room for the cookies.
    fn check_fast_open(&self, plan: &Plan) -> anyhow::Result<()> {
        let wanted = plan.pools.iter().any(|p| p.fast_open);
        if wanted && self.link == LinkKind::Kernel {
            return fast_open::check_kernel(fast_open::End::Client);
        }
        let cookies = cookies(plan);
        ensure!(
            cookies <= MOST_COOKIES,
            "--fast-open: at most {MOST_COOKIES} pairs of client address (--clients) and target, not {cookies}: a lane keeps a cookie of each"
        );
        Ok(())
    }

    /// Checks that a target can be reached, and that its answers come back to all clients.
    fn reaches(&self, remote: SocketAddr, clients: &[ClientRange]) -> anyhow::Result<()> {
        let target = remote.ip();
        let near = |ip: IpAddr| self.addresses().any(|a| a.contains(ip));
        if let Some(ours) = self.addresses().find(|a| a.address() == target) {
            bail!("the target {target} is our own address {ours}");
        }
        if let Some(far) = self.gateway.iter().find(|g| !near(**g)) {
            bail!("--gateway {far} is in none of our networks (--addr)");
        }
        ensure!(
            near(target) || self.gateway.iter().any(|g| g.is_ipv4() == target.is_ipv4()),
            "{target} is in none of our networks (--addr): give a --gateway"
        );
        for range in clients {
            ensure!(!range.contains(target), "--clients {range} contains the target {target}");
            let near = self.addresses_towards(target).iter().any(|a| range.is_within(a));
            ensure!(
                near || self.routed || !self.gateway.is_empty(),
                "--clients {range} is not within our networks (--addr), so answers would not come back; if the far \
                 side has a route to it, add --routed"
            );
        }
        Ok(())
    }

    /// Our addresses, those in tunnels too.
    fn addresses(&self) -> impl Iterator<Item = &Prefix> {
        self.addr.iter().chain(self.tunnel.iter().flat_map(|t| &t.0.addresses))
    }

    /// The tunnel that leads to a target.
    fn tunnel_towards(&self, target: IpAddr) -> Option<usize> {
        self.tunnel.iter().position(|t| t.0.addresses.iter().any(|a| a.contains(target)))
    }

    /// Our addresses on the way to a target: the tunnel's, if it is in one.
    fn addresses_towards(&self, target: IpAddr) -> &[Prefix] {
        self.tunnel_towards(target).map_or(&self.addr, |i| &self.tunnel[i].0.addresses)
    }

    /// Client addresses to claim, of the pools whose targets are reached on the link or through this tunnel.
    fn claimed(&self, plan: &Plan, tunnel: Option<usize>) -> Vec<Prefix> {
        let mut claimed = Vec::new();
        for pool in &plan.pools {
            let mut targets = pool.targets.iter().flat_map(|t| &t.addresses);
            if targets.any(|t| self.tunnel_towards(t.ip()) == tunnel) {
                let new = pool.clients.iter().flat_map(ClientRange::prefixes);
                for prefix in new {
                    if !claimed.contains(&prefix) {
                        claimed.push(prefix);
                    }
                }
            }
        }
        claimed
    }

    /// Raises the limit of file descriptors for kernel sockets, as far as needed and allowed.
    pub(super) fn more_descriptors(&self, plan: &Plan) -> anyhow::Result<()> {
        if self.link != LinkKind::Kernel {
            return Ok(());
        }
        let connections = plan.pools.iter().map(|p| p.connections).sum();
        crate::commands::load::near::more_descriptors(connections, "connections (-c)")
    }

    /// Opens the link and starts the host that runs the load in every lane. Returns the run and the host's number.
    pub(super) fn start(
        &self,
        plan: &Plan,
        rss: &Arc<Rss>,
        load: &HttpLoad,
    ) -> anyhow::Result<(Looked, usize)> {
        let idle = match (self.idle, &self.link) {
            (Some(IdleKind::Spin), _) => Idle::Spin,
            (Some(IdleKind::Sleep), _) | (None, LinkKind::Kernel) => {
                Idle::Adaptive(std::time::Duration::ZERO)
            }
            _ => Idle::default(),
        };
        let connections: usize = plan.pools.iter().map(|p| p.connections).sum();
        let io = self.io.of(&self.link, self.link == LinkKind::Kernel, "load http", Work::Connections)?;
        let mut builder = self.workers.builder(self.card()).idle(idle).io(io);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        let claimed = self.claimed(plan, None);
        let host = match &self.link {
            LinkKind::Kernel => {
                // The kernel has its own.
                builder = builder.frames(FEW_FRAMES);
                let host = self.home.apply(Host::kernel("load", rss.clone(), load.main()), &mut builder);
                builder.host(host)
            }
            LinkKind::Pair => {
                builder = builder.frames(frames(connections, self.workers()));
                let targets = plan.pools.iter().flat_map(|p| &p.targets).flat_map(|t| &t.addresses);
                let targets: Vec<SocketAddr> = targets.copied().collect();
                let ours = super::pair::ours(&targets);
                let fast_open = plan.pools.iter().any(|p| p.fast_open);
                let http2 = plan.pools.iter().any(|p| matches!(p.version, Version::Http2 { .. }));
                let server = builder.host(super::pair::server(rss, &targets, &ours, http2, fast_open)?);
                let interface = Interface { addresses: ours, claimed, vlan: None };
                let host = Host::new("load", rss.clone(), load.main()).interface(interface).tcp(tcp(plan));
                let host = builder.host(host);
                builder.pair((server, 0), (host, 0), PairConfig::default());
                host
            }
            LinkKind::Link(link) => {
                builder = builder.frames(frames(connections, self.workers()));
                let ours: Vec<Prefix> = self
                    .addr
                    .iter()
                    .map(|a| Prefix::host(a.address()))
                    .chain(claimed.iter().copied())
                    .collect();
                let interface = Interface { addresses: self.addr.clone(), claimed, vlan: self.vlan };
                let mut host =
                    Host::new("load", rss.clone(), load.main()).interface(interface).tcp(tcp(plan));
                for (i, TunnelSpec(tunnel)) in self.tunnel.iter().enumerate() {
                    let claimed = self.claimed(plan, Some(i));
                    host = host.tunnel(TunnelConfig { claimed, ..tunnel.clone() });
                }
                for gateway in &self.gateway {
                    host = host.gateway(*gateway);
                }
                let host = builder.host(host);
                link.fit_frames(&mut builder);
                link::put_on(&mut builder, host, link, link::open(link.clone(), &ours, self.vlan, rss));
                host
            }
        };
        builder.before_start(give_up_privileges);
        Ok((self.instruments.run(builder, "load http")?, host))
    }
}

/// Most cookies of Fast Open in a lane, each in at most 240 bytes.
const MOST_COOKIES: u128 = 1 << 16;
/// Frames of a worker that needs none.
const FEW_FRAMES: usize = 64;

/// Frames of a worker. Only packets in flight hold frames, and rings bound their number; idle connections hold none. Frames stay
/// resident, 2 KiB each.
fn frames(connections: usize, workers: usize) -> usize {
    (connections / workers.max(1) * 2).clamp(1 << 13, 1 << 14)
}

/// Cookies that a lane may have to keep: one for each client address and target address, in pools with Fast Open.
fn cookies(plan: &Plan) -> u128 {
    let of = |pool: &Pool| {
        let clients = pool.clients.iter().map(ClientRange::count).fold(0, u128::saturating_add);
        let targets: usize = pool.targets.iter().map(|t| t.addresses.len()).sum();
        clients.max(1).saturating_mul(targets as u128)
    };
    plan.pools.iter().filter(|p| p.fast_open).map(of).fold(0, u128::saturating_add)
}

/// TCP limits of a host that opens very many connections, and with Fast Open keeps cookies.
fn tcp(plan: &Plan) -> TcpConfig {
    let config = TcpConfig { max_connections: 4 << 20, max_time_wait: 1 << 18, ..TcpConfig::default() };
    let cookies = cookies(plan).min(MOST_COOKIES) as usize;
    TcpConfig { fast_open_peers: config.fast_open_peers.max(cookies), ..config }
}
