//! What every load has: our end of the link, whose addresses traffic comes from, and the target's buckets to hit.
//!
//! Everything that can be wrong with it is said in one line before a link is opened. Clients' addresses need no
//! interface: the host claims them, and its lanes answer ARP and neighbour solicitation for them.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use flowlane::link::{LinkSpec, OpenError};
use flowlane::{
    Bucket, BucketMap, HashConfig, Host, Idle, Indirection, Interface, Key, OpenLink, Prefix, Rss, Runtime,
    StartError, TcpConfig, Toeplitz, TunnelConfig, UdpFields,
};
use flowlane_load::{Aim, ClientRange, Wanted};

use crate::address::with_network;
use crate::link::{self, give_up_privileges};
use crate::lost;
use crate::reassembly::Limits;
use crate::steering::{self, Wish, Workers};
use crate::tunnel::TunnelSpec;

/// Our end of the link.
#[derive(Debug, Args)]
pub(super) struct Near {
    /// Link to use: kernel (its own sockets), tap:NAME, af-packet:NAME[,offload],
    /// af-xdp:NAME[,copy][,offload][,queues=0-3] or pcap:IN,OUT.
    #[arg(long, default_value = "kernel")]
    pub(super) link: LinkSpec,
    /// Our addresses on the link, each with its network: 10.11.2.2/24[,...].
    #[arg(long, value_name = "ADDR/LEN", value_delimiter = ',', value_parser = with_network)]
    addr: Vec<Prefix>,
    /// Neighbour through which everything else is reached.
    #[arg(long, value_delimiter = ',')]
    gateway: Vec<IpAddr>,
    /// A tunnel to be used, and may be repeated: KIND,local=ADDR,remote=ADDR,addr=ADDR/LEN, and then maybe ,vni=N ,key=N ,mtu=N with
    /// KIND ipip, 6in4, 4in6, 6in6, gre, gretap, vxlan or geneve. A target within a tunnel's network is loaded from its
    /// addr (docs/tunnels.md).
    #[arg(long, value_name = "TUNNEL")]
    tunnel: Vec<TunnelSpec>,
    /// Limits of each lane's fragments, any of datagrams=N fragments=N bytes=N per-datagram=N strangers=N with commas between (docs/fragments.md).
    #[arg(long, value_name = "LIMITS")]
    reassembly: Option<Limits>,
    /// Where traffic comes from: 10.11.2.16/28, 10.11.2.20-10.11.2.90 [default: our addresses].
    #[arg(long, value_delimiter = ',')]
    clients: Vec<ClientRange>,
    /// The far side has a route to client addresses outside our networks.
    #[arg(long)]
    routed: bool,
    #[command(flatten)]
    workers: Workers,
    /// Our own RSS key: microsoft, symmetric or hexadecimal [default: a fresh one].
    #[arg(long, value_parser = key)]
    key: Option<Key>,
    /// 802.1Q VLAN.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// What workers do when there is nothing to do [default: sleep at once on kernel sockets, else adaptive].
    #[arg(long, value_enum)]
    idle: Option<IdleKind>,
    /// Make keys, flows and moments repeat from run to run.
    #[arg(long)]
    seed: Option<u64>,
}

/// What a host of the generator needs to be started.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Where traffic goes.
    pub(super) target: SocketAddr,
    /// How our side is steered.
    pub(super) rss: &'a Arc<Rss>,
    /// Where it comes from.
    pub(super) clients: &'a [ClientRange],
    /// Limits of TCP.
    pub(super) tcp: TcpConfig,
    /// Frames of each worker, if not as many as usual.
    pub(super) frames: Option<usize>,
    /// Descriptors that kernel sockets need.
    pub(super) descriptors: usize,
}

/// The target's buckets.
#[derive(Debug, Args)]
pub(super) struct AimOptions {
    /// Buckets of the target to hit: all, or 0,3,... Needs --target-key.
    #[arg(long)]
    buckets: Option<String>,
    /// RSS key of the target: microsoft, symmetric or hexadecimal.
    #[arg(long, value_parser = key)]
    target_key: Option<Key>,
    /// Buckets of the target: a power of two.
    #[arg(long, default_value = "8")]
    target_buckets: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IdleKind {
    /// Look again at once: the most exact, at the price of the core.
    Spin,
    /// Look again for a moment, then sleep.
    Adaptive,
    /// Sleep at once.
    Sleep,
}

/// A key by name or in hexadecimal.
fn key(text: &str) -> Result<Key, flowlane_rss::KeyError> {
    match text {
        "microsoft" => Ok(Key::MICROSOFT),
        "symmetric" => Ok(Key::symmetric()),
        _ => Key::from_hex(text),
    }
}

impl Near {
    /// Refuses what cannot reach `target`.
    pub(super) fn check(&self, target: SocketAddr) -> anyhow::Result<()> {
        let workers = self.workers();
        ensure!((1..=64).contains(&workers), "--workers {workers}: from 1 to 64");
        ensure!(target.port() != 0, "{target}: port 0 is nobody's");
        if self.link.is_kernel() {
            return self.check_kernel(target.ip());
        }
        ensure!(!self.addr.is_empty(), "--addr: {} needs addresses of our own, as 10.11.2.2/24", self.link);
        let target = target.ip();
        let all = || self.addr.iter().chain(self.tunnel.iter().flat_map(|t| &t.0.addresses));
        let near = |ip: IpAddr| all().any(|a| a.contains(ip));
        if let Some(TunnelSpec(t)) = self.tunnel.iter().find(|t| all().all(|a| a.address() != t.0.local)) {
            bail!("--tunnel: local={} is none of our addresses (--addr)", t.local);
        }
        if let Some(ours) = all().find(|a| a.address() == target) {
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

    /// Refuses what kernel sockets do not need or know.
    fn check_kernel(&self, target: IpAddr) -> anyhow::Result<()> {
        ensure!(
            self.addr.is_empty(),
            "--addr: kernel sockets have the kernel's addresses; name a --link, or give --clients"
        );
        ensure!(self.gateway.is_empty(), "--gateway: the kernel has its own routes; name a --link");
        ensure!(self.vlan.is_none(), "--vlan: the kernel has its own interfaces; name a --link");
        ensure!(
            self.tunnel.is_empty(),
            "--tunnel: the kernel has its own tunnels (ip link add ...); name a --link"
        );
        ensure!(self.reassembly.is_none(), "--reassembly: the kernel has limits of its own; name a --link");
        ensure!(!self.routed, "--routed: the kernel has its own routes; name a --link");
        ensure!(self.key.is_none(), "--key: the kernel's sockets are not steered by us; name a --link");
        if let Some(range) = self.clients.iter().find(|c| c.is_ipv4() != target.is_ipv4()) {
            bail!("--clients {range}: not of the same family as the target {target}");
        }
        Ok(())
    }

    /// Whether there is no link of ours.
    pub(super) fn is_kernel(&self) -> bool {
        self.link.is_kernel()
    }

    /// The link as reports name it.
    pub(super) fn link_name(&self) -> String {
        if self.is_kernel() { "kernel".to_owned() } else { self.link.to_string() }
    }

    /// Whether workers are to stay awake for a moment before something is due.
    pub(super) fn exact(&self) -> bool {
        !matches!((self.idle, self.is_kernel()), (Some(IdleKind::Sleep), _) | (None, true))
    }

    /// Where traffic comes from, if answers can come back there.
    pub(super) fn clients(&self, target: SocketAddr) -> anyhow::Result<Vec<ClientRange>> {
        if self.is_kernel() {
            return Ok(self.clients.clone());
        }
        if self.clients.is_empty() {
            return Ok(self
                .addresses_towards(target.ip())
                .iter()
                .map(|a| ClientRange::from(a.address()))
                .collect());
        }
        for range in &self.clients {
            for (what, address) in
                std::iter::once(("target", target.ip())).chain(self.gateway.iter().map(|g| ("gateway", *g)))
            {
                ensure!(!range.contains(address), "--clients {range} holds the {what} {address}");
            }
            let near = self.addresses_towards(target.ip()).iter().any(|a| range.is_within(a));
            ensure!(
                near || self.routed || !self.gateway.is_empty(),
                "--clients {range} is not within our networks (--addr), so answers would not come back; if the far \
                 side has a route to it, add --routed"
            );
        }
        Ok(self.clients.clone())
    }

    /// The tunnel that leads to the target.
    fn tunnel_towards(&self, target: IpAddr) -> Option<usize> {
        self.tunnel.iter().position(|t| t.0.addresses.iter().any(|a| a.contains(target)))
    }

    /// Our addresses on the way to the target: the tunnel's, if it is in one.
    fn addresses_towards(&self, target: IpAddr) -> &[Prefix] {
        self.tunnel_towards(target).map_or(&self.addr, |i| &self.tunnel[i].0.addresses)
    }

    /// Bytes that a tunnel puts around a packet to the target.
    pub(super) fn overhead(&self, target: IpAddr) -> usize {
        self.tunnel_towards(target).map_or(0, |i| self.tunnel[i].0.overhead())
    }

    /// How our side is steered.
    pub(super) fn rss(&self, fields: UdpFields) -> anyhow::Result<Arc<Rss>> {
        let wish = Wish {
            of: self.workers.rss_of(),
            workers: self.workers(),
            key: self.key,
            udp_4tuple: fields == UdpFields::Four,
            ours: &[],
            seed: self.seed,
        };
        match steering::by_card(Some(&self.link), &wish)? {
            Some(rss) => Ok(Arc::new(rss)),
            None => Ok(Arc::new(steering::rss(self.workers(), fields, self.key, self.seed)?)),
        }
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers.count(Some(&self.link))
    }

    /// The seed given, or a random one.
    pub(super) fn seed(&self) -> anyhow::Result<u64> {
        steering::seed(self.seed)
    }

    /// Opens the link, gives up privileges and starts the host that runs `main` in every lane. Also its number.
    /// `check` looks at the link before anything is sent.
    pub(super) fn start<F>(
        &self,
        run: Run<'_>,
        main: F,
        check: impl FnOnce(OpenLink) -> OpenLink,
    ) -> anyhow::Result<(Runtime, usize)>
    where
        F: Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static,
    {
        let Run { target, rss, clients, tcp, frames, descriptors } = run;
        let idle = match (self.idle, self.is_kernel()) {
            (Some(IdleKind::Spin), _) => Idle::Spin,
            (Some(IdleKind::Sleep), _) | (None, true) => Idle::Adaptive(std::time::Duration::ZERO),
            _ => Idle::default(),
        };
        let mut builder = self.workers.builder(Some(&self.link)).idle(idle);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        if let Some(frames) = frames {
            builder = builder.frames(frames);
        }
        if self.is_kernel() {
            more_descriptors(descriptors, "connections or flows")?;
            let host = builder.host(Host::kernel("load", rss.clone(), main));
            builder.before_start(give_up_privileges);
            return Ok((lost::start(builder)?, host));
        }
        let claimed: Vec<Prefix> = clients.iter().flat_map(ClientRange::prefixes).collect();
        let through = self.tunnel_towards(target.ip());
        let (claimed, inside) = if through.is_some() { (Vec::new(), claimed) } else { (claimed, Vec::new()) };
        let ours: Vec<Prefix> =
            self.addr.iter().map(|a| Prefix::host(a.address())).chain(claimed.iter().copied()).collect();
        let interface = Interface { addresses: self.addr.clone(), claimed, vlan: self.vlan };
        let mut host = Host::new("load", rss.clone(), main)
            .interface(interface)
            .tcp(tcp)
            .reassembly(self.reassembly.unwrap_or_default().0);
        for (i, TunnelSpec(tunnel)) in self.tunnel.iter().enumerate() {
            let claimed = if through == Some(i) { inside.clone() } else { Vec::new() };
            host = host.tunnel(TunnelConfig { claimed, ..tunnel.clone() });
        }
        for gateway in &self.gateway {
            host = host.gateway(*gateway);
        }
        let host = builder.host(host);
        self.link.fit_frames(&mut builder);
        let open = check(link::open(self.link.clone(), &ours, self.vlan, rss));
        link::put_on(&mut builder, host, &self.link, open);
        builder.before_start(give_up_privileges);
        Ok((lost::start(builder)?, host))
    }
}

/// Raises the limit of descriptors as far as needed and allowed.
pub(super) fn more_descriptors(wanted: usize, what: &str) -> anyhow::Result<()> {
    // What the program itself has open.
    let wanted = wanted as u64 + 64;
    let allowed = flowlane_sys::kernel::limits::descriptors(wanted).context("limit of descriptors")?;
    ensure!(
        allowed >= wanted,
        "{wanted} descriptors are needed and {allowed} allowed: fewer {what}, or 'ulimit -n {wanted}'"
    );
    Ok(())
}

/// Refuses a link whose packets are too small for `size` bytes behind `headers`.
pub(super) fn fits(open: OpenLink, size: usize, headers: usize) -> OpenLink {
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

impl AimOptions {
    /// On kernel sockets the kernel chooses the ports, so nothing can be aimed at.
    pub(super) fn refuse_on_kernel(&self) -> anyhow::Result<()> {
        let none = self.target_key.is_none() && self.buckets.is_none();
        ensure!(none, "--target-key, --buckets: on kernel sockets the kernel chooses ports; name a --link");
        Ok(())
    }

    /// How the target is steered, if its key is given, and which of its buckets to hit.
    pub(super) fn theirs(&self, fields: UdpFields) -> anyhow::Result<Option<(Rss, Wanted)>> {
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
        let theirs = Rss::from_parts(Toeplitz::new(key), HashConfig::with_udp(fields), table, map);
        let wanted = self.wanted(&theirs)?;
        Ok(Some((theirs, wanted)))
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
}

/// The aim of a wish for flows.
pub(super) fn aim(theirs: &Option<(Rss, Wanted)>) -> Option<Aim<'_>> {
    theirs.as_ref().map(|(rss, wanted)| Aim { rss, wanted: wanted.clone() })
}
