//! Where a load runs: on kernel sockets, on a link of ours, or over a pair link with a server in the same process.

use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::link::LinkSpec;
use flowlane::{Host, Interface, PairConfig, Prefix, Rss, TcpConfig, UdpFields};
use flowlane_load::ClientRange;
use flowlane_load::http::{Behaviour, HttpLoad, Plan, Pool, Version};

use super::super::given::{self, Later};
use super::super::home::Home;
use super::super::near::{self, FEW_FRAMES};
use super::super::reach::WaitOption;
use super::super::set::changing;
use super::super::side::{Side, Ways};
use crate::address;
use crate::fast_open;
use crate::instruments::{Instruments, Looked};
use crate::io::Work;
use crate::link::{self, give_up_privileges};

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
    #[command(flatten)]
    ways: Ways,
    /// Client addresses, the sources of connections: 10.64.0.0/10, fd00:1::/64, 10.11.2.20-10.11.2.90 [default: our addresses].
    #[arg(long, value_delimiter = ',')]
    pub(super) clients: Vec<ClientRange>,
    /// Allow client addresses outside our networks: the target has a route to them.
    #[arg(long)]
    routed: bool,
    #[command(flatten)]
    pub(super) home: Home,
    #[command(flatten)]
    side: Side,
    /// Seed of keys, choices and send times, for runs that repeat [default: random].
    #[arg(long)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) wait: WaitOption,
    #[command(flatten)]
    pub(super) instruments: Instruments,
}

impl Place {
    /// How our side is steered.
    pub(super) fn rss(&self) -> anyhow::Result<Arc<Rss>> {
        self.side.checked_workers(self.card())?;
        self.home.check(self.link == LinkKind::Kernel, self.side.key.as_ref())?;
        self.side.rss(self.card(), (UdpFields::Two, false), &self.home, self.seed)
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.side.workers(self.card())
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
        self.wait.check(&self.link, kernel)?;
        self.side.io.of(&self.link, kernel, "load http", Work::Connections)?;
        ensure!(
            self.ways.tunnel.is_empty() || matches!(self.link, LinkKind::Link(_)),
            "--tunnel: {} has no packets that could go through one; name a --link",
            self.link
        );
        self.check_fast_open(plan)?;
        if kernel {
            ensure!(
                self.ways.addr.is_empty(),
                "--addr: kernel sockets have the kernel's addresses; name a --link"
            );
            self.ways.check_asked(None, &[])?;
            self.ways.check_kernel()?;
            self.side.check_kernel()?;
        } else if self.link == LinkKind::Pair {
            ensure!(
                !self.ways.asks(),
                "--addr dhcp, slaac: nobody answers on --link pair: leave out --addr, or name another link"
            );
        } else {
            ensure!(
                !self.ways.addr.is_empty(),
                "--addr is needed with --link {}: our addresses there",
                self.link
            );
            let clients = plan.pools.iter().flat_map(|pool| pool.clients.clone());
            self.ways.check_asked(self.card(), &clients.collect::<Vec<_>>())?;
            self.ways.check_tunnels()?;
        }
        plan.pools.iter().try_for_each(|pool| self.check_via(pool))?;
        for pool in &plan.pools {
            ensure!(
                !kernel || pool.behaviour != Behaviour::SynOnly,
                "pool '{}': kernel sockets always complete the handshake; SYN-only clients need a link of ours (--link)",
                pool.name
            );
            let remotes = || pool.targets.iter().flat_map(|t| &t.addresses);
            match &self.link {
                // A name may have other addresses, too.
                LinkKind::Kernel => pool.targets.iter().try_for_each(|target| {
                    let mut usable = target.addresses.iter().map(|remote| address::for_kernel(*remote));
                    usable.find(Result::is_ok).or_else(|| target.addresses.first().map(|first| address::for_kernel(*first))).unwrap_or(Ok(()))
                })?,
                LinkKind::Pair => remotes().try_for_each(|remote| {
                    ensure!(
                        !remote.ip().is_loopback(),
                        "--link pair: {} is a host's loopback and on no link: give any other address, as 10.11.2.1",
                        remote.ip()
                    );
                    Ok(())
                })?,
                LinkKind::Link(link) => {
                    remotes().try_for_each(|remote| {
                        self.reaches(address::on_ours(link, *remote)?, &pool.clients)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks that this link leads to a pool's Unix socket or proxy.
    fn check_via(&self, pool: &Pool) -> anyhow::Result<()> {
        if let Some(path) = &pool.via.unix_socket {
            ensure!(
                self.link == LinkKind::Kernel,
                "--unix-socket: {} has no Unix sockets, the kernel has: leave out --link",
                self.link
            );
            let kind = path.metadata().with_context(|| format!("--unix-socket {}", path.display()))?;
            ensure!(kind.file_type().is_socket(), "--unix-socket {}: this is no socket", path.display());
        }
        ensure!(
            pool.via.proxy.is_none() || self.link != LinkKind::Pair,
            "--proxy: the other end of --link pair is a server, not a proxy: name another link"
        );
        Ok(())
    }

    /// Leaves to each target those of its addresses to which our own lead on a link of ours, if there is any such. Which of them answer, the run
    /// finds out.
    pub(super) fn keep_reachable(&self, plan: &mut Plan) {
        if !matches!(self.link, LinkKind::Link(_)) {
            return;
        }
        for pool in &mut plan.pools {
            for target in &mut pool.targets {
                let leads_there = |a: &SocketAddr| self.reaches(*a, &pool.clients).is_ok();
                let found: Vec<_> = target.addresses.iter().copied().filter(leads_there).collect();
                if !found.is_empty() {
                    target.addresses = found;
                }
            }
        }
    }

    /// Checks that there is QUIC and Fast Open where a pool wants it, and that there is room for the cookies.
    fn check_fast_open(&self, plan: &Plan) -> anyhow::Result<()> {
        let quic = plan.pools.iter().any(|p| matches!(p.version, Version::Http3 { .. }));
        ensure!(
            !quic || self.link != LinkKind::Pair,
            "--http3: the server at the other end of --link pair speaks no QUIC: kernel sockets or another link"
        );
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
        self.ways.check_target(target)?;
        clients.iter().try_for_each(|range| self.ways.check_clients(range, target, self.routed))
    }

    /// Client addresses to claim, of the pools whose targets are reached on the link or through this tunnel.
    fn claimed(&self, plan: &Plan, tunnel: Option<usize>) -> Vec<Prefix> {
        let mut claimed = Vec::new();
        for pool in &plan.pools {
            let mut targets = pool.targets.iter().flat_map(|t| &t.addresses);
            if targets.any(|t| self.ways.tunnel_towards(t.ip()) == tunnel) {
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
        // Who follows redirects keeps a connection to where they lead beside that to the target.
        let each = |p: &Pool| p.connections.saturating_mul(if p.follow.is_some() { 2 } else { 1 });
        let connections = plan.pools.iter().map(each).sum();
        crate::commands::load::near::more_descriptors(connections, "connections (-c)")
    }

    /// Opens the link and starts the host that runs the load in every lane; `may_change`: others may change it while it runs. Lanes begin when
    /// the addresses are there that others give; `stop` ends the wait for these. Returns the run and the host's number.
    pub(super) fn start(
        &self,
        plan: &Plan,
        rss: &Arc<Rss>,
        load: &HttpLoad,
        may_change: bool,
        stop: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<(Looked, usize)> {
        let later = Later::default();
        let connections: usize = plan.pools.iter().map(|p| p.connections).sum();
        let io =
            self.side.io.of(&self.link, self.link == LinkKind::Kernel, "load http", Work::Connections)?;
        let kernel = self.link == LinkKind::Kernel;
        let mut builder = self.side.builder(self.card(), kernel, io, self.seed);
        let claimed = self.claimed(plan, None);
        let recorders = self.instruments.records.open()?;
        let host = match &self.link {
            LinkKind::Kernel => {
                // The kernel has its own, but for datagrams.
                let quic = plan.pools.iter().any(|p| matches!(p.version, Version::Http3 { .. }));
                builder = builder.frames(if quic { frames(connections, self.workers()) } else { FEW_FRAMES });
                let host = Host::kernel("load", rss.clone(), load.main());
                let host = self.home.apply(self.side.with_choices(host, true)?, &mut builder);
                builder.host(recorders.of(host))
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
                let host = self.side.with_choices(host, false)?;
                let host = builder.host(recorders.of(host));
                builder.pair((server, 0), (host, 0), PairConfig::default());
                host
            }
            LinkKind::Link(link) => {
                builder = builder.frames(frames(connections, self.workers()));
                let (interface, ours) = self.ways.interface(claimed, self.side.vlan);
                let host = if self.ways.asks() {
                    Host::new("load", rss.clone(), later.main())
                } else {
                    Host::new("load", rss.clone(), load.main())
                };
                let host = host.interface(interface).tcp(tcp(plan));
                let asked = self.ways.asked(false)?;
                let host = asked.apply(self.side.with_choices(host, false)?);
                let host = self.ways.add_to(host, |i| self.claimed(plan, Some(i)));
                let host = builder.host(recorders.of(host));
                link.fit_frames(&mut builder);
                let open = asked.on(link::open(link.clone(), &ours, self.side.vlan, rss));
                link::put_on(&mut builder, host, link, open);
                host
            }
        };
        // A search opens a link of ours again for its next run.
        if may_change || self.link == LinkKind::Kernel {
            builder.before_start(give_up_privileges);
        }
        let changer = may_change.then(|| Arc::new(load.changer().into()));
        let change = changing(changer, near::allows(self.link == LinkKind::Kernel));
        let runtime = self.instruments.run(builder, "load http", (host, recorders), change)?;
        if self.ways.asks() {
            let given = given::wait(&self.ways.asked(false)?, &runtime.handle(), host, stop)?;
            for target in plan.pools.iter().flat_map(|p| &p.targets).flat_map(|t| &t.addresses) {
                self.ways.check_given(target.ip(), &given)?;
            }
            later.begin(load.main());
        }
        Ok((runtime, host))
    }

    /// Whether our addresses, or some of them, are given by others.
    pub(super) fn asks(&self) -> bool {
        self.ways.asks()
    }

    /// Says which addresses are waited for.
    pub(super) fn announce(&self) -> anyhow::Result<()> {
        self.ways.asked(self.link == LinkKind::Kernel).map(|asked| asked.announce())
    }
}

/// Most cookies of Fast Open in a lane, each in at most 240 bytes.
const MOST_COOKIES: u128 = 1 << 16;

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
