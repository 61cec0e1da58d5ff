//! Options of every load: our end of the link, the client addresses, and the target's buckets to hit.
//!
//! They are checked before a link is opened; an error is one line. Client addresses need no interface: the host claims them, and its
//! lanes answer ARP requests and neighbour solicitations for them.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane::link::{LinkSpec, OpenError};
use flowlane::{
    Bucket, BucketMap, Endpoint, HashConfig, Host, Indirection, Io, Key, OpenLink, Prefix, Protocol, Rss,
    StartError, TcpConfig, Toeplitz, UdpFields,
};
use flowlane_load::{Aim, ClientRange, FlowWish, Sources, Wanted, flows};

use super::given;
use super::home::Home;
use super::reach::WaitOption;
use super::set::{Slot, changing};
use super::side::{Side, Ways, key};
use crate::address;
use crate::asking::Asked;
use crate::instruments::{Instruments, Looked};
use crate::io::Work;
use crate::link::{self, give_up_privileges};
use crate::reassembly::Limits;
use crate::steering;

/// Our end of the link.
#[derive(Debug, Args)]
pub(super) struct Near {
    /// Link: kernel (kernel sockets), tap:NAME, af-packet:NAME[,offload], af-xdp:NAME[,copy][,offload][,queues=0-3], switch:NAME/PORT or pcap:IN,OUT.
    #[arg(long, default_value = "kernel")]
    pub(super) link: LinkSpec,
    #[command(flatten)]
    ways: Ways,
    /// Limits of reassembly in each lane, separated by commas: datagrams=N, fragments=N, bytes=N, per-datagram=N, strangers=N.
    #[arg(long, value_name = "LIMITS")]
    reassembly: Option<Limits>,
    /// Client addresses, the sources of the traffic: 10.11.2.16/28, 10.11.2.20-10.11.2.90 [default: our addresses].
    #[arg(long, value_delimiter = ',')]
    pub(super) clients: Vec<ClientRange>,
    /// Allow client addresses outside our networks: the target has a route to them.
    #[arg(long)]
    routed: bool,
    #[command(flatten)]
    side: Side,
    /// Seed of keys, flows and send times, for runs that repeat [default: random].
    #[arg(long)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) wait: WaitOption,
    #[command(flatten)]
    pub(super) instruments: Instruments,
}

/// Parameters to start a host of the generator.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// What the run is called.
    pub(super) name: &'a str,
    /// The target.
    pub(super) target: SocketAddr,
    /// How our side is steered. `udp`: the load is one of datagrams.
    pub(super) rss: &'a Arc<Rss>,
    /// The client addresses.
    pub(super) clients: &'a [ClientRange],
    /// Limits of TCP.
    pub(super) tcp: TcpConfig,
    /// Frames of each worker, if not the default number.
    pub(super) frames: Option<usize>,
    /// By what kernel sockets are served.
    pub(super) io: Io,
    /// File descriptors that kernel sockets need.
    pub(super) descriptors: usize,
    /// Source ports on kernel sockets.
    pub(super) home: &'a Home,
    /// What changes it while it runs; none of a search.
    pub(super) changer: Option<Slot>,
}

/// Flows to choose.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) target: Endpoint,
    pub(super) protocol: Protocol,
    pub(super) flows: usize,
    /// Whether fewer will not do.
    pub(super) all: bool,
    /// Where among the ports the search begins.
    pub(super) seed: u64,
}

/// Options of the target's buckets.
#[derive(Debug, Args)]
pub(super) struct AimOptions {
    /// Buckets of the target that the flows hit: all, or 0,3,... Needs --target-key.
    #[arg(long)]
    buckets: Option<String>,
    /// RSS key of the target: microsoft, symmetric or hexadecimal digits.
    #[arg(long, value_parser = key)]
    target_key: Option<Key>,
    /// Number of buckets of the target, a power of two.
    #[arg(long, default_value = "8")]
    target_buckets: usize,
}

impl Near {
    /// The target as this end of the link reaches it.
    pub(super) fn towards(&self, target: SocketAddr) -> anyhow::Result<SocketAddr> {
        if self.is_kernel() { Ok(target) } else { address::on_ours(&self.link, target) }
    }

    /// Refuses options with which `target` cannot be reached.
    pub(super) fn check(&self, target: SocketAddr, home: &Home) -> anyhow::Result<()> {
        self.side.checked_workers(Some(&self.link))?;
        self.instruments.check(self.link.is_kernel())?;
        self.wait.check(&self.link, self.link.is_kernel())?;
        check_port(target)?;
        if self.link.is_kernel() {
            address::for_kernel(target)?;
            home.check(true, self.side.key.as_ref())?;
            return self.check_kernel(target.ip(), home.is_wanted());
        }
        home.check(false, None)?;
        ensure!(
            !self.ways.addr.is_empty(),
            "--addr: {} needs addresses of our own, as 10.11.2.2/24",
            self.link
        );
        self.ways.check_asked(Some(&self.link), &self.clients)?;
        self.ways.check_tunnels()?;
        self.ways.check_target(target.ip())
    }

    /// Refuses options that kernel sockets do not have.
    fn check_kernel(&self, target: IpAddr, key_means: bool) -> anyhow::Result<()> {
        ensure!(
            self.link == LinkSpec::Kernel(None),
            "--link {}: a card is named for serve only; give kernel",
            self.link
        );
        ensure!(
            self.ways.addr.is_empty(),
            "--addr: kernel sockets have the kernel's addresses; name a --link, or give --clients"
        );
        self.ways.check_asked(None, &[])?;
        self.ways.check_kernel()?;
        self.side.check_kernel()?;
        ensure!(
            self.ways.tunnel.is_empty(),
            "--tunnel: the kernel has its own tunnels (ip link add ...); name a --link"
        );
        ensure!(self.reassembly.is_none(), "--reassembly: the kernel has limits of its own; name a --link");
        ensure!(!self.routed, "--routed: the kernel has its own routes; name a --link");
        ensure!(
            key_means || self.side.key.is_none(),
            "--key: the kernel's sockets are not steered by us; name a --link, or choose source ports by it (--home-ports)"
        );
        if let Some(range) = self.clients.iter().find(|c| c.is_ipv4() != target.is_ipv4()) {
            bail!("--clients {range}: not of the same family as the target {target}");
        }
        Ok(())
    }

    /// Refuses options that only connections have.
    pub(super) fn check_without_connections(&self) -> anyhow::Result<()> {
        self.side.check_without_connections()
    }

    /// Whether kernel sockets are used.
    pub(super) fn is_kernel(&self) -> bool {
        self.link.is_kernel()
    }

    /// The link as reports name it.
    pub(super) fn link_name(&self) -> String {
        if self.is_kernel() { "kernel".to_owned() } else { self.link.to_string() }
    }

    /// Whether workers poll shortly before a send time, for exactness.
    pub(super) fn exact(&self) -> bool {
        self.side.exact(self.is_kernel())
    }

    /// The client addresses, checked: answers to them must come back to us.
    pub(super) fn clients(&self, target: SocketAddr) -> anyhow::Result<Vec<ClientRange>> {
        if self.is_kernel() {
            return Ok(self.clients.clone());
        }
        if self.clients.is_empty() {
            let ours = self.ways.addresses_towards(target.ip()).into_iter();
            let ours = ours.chain(self.ways.stand_in(target.ip()));
            return Ok(ours.map(|a| ClientRange::from(a.address())).collect());
        }
        for range in &self.clients {
            self.ways.check_clients(range, target.ip(), self.routed)?;
            if let Some(gateway) = self.ways.gateway.iter().find(|g| range.contains(**g)) {
                bail!("--clients {range} contains the gateway {gateway}");
            }
        }
        Ok(self.clients.clone())
    }

    /// Whether our addresses, or some of them, are given by others.
    pub(super) fn asks(&self) -> bool {
        self.ways.asks()
    }

    /// What others are asked for.
    pub(super) fn asked(&self) -> anyhow::Result<Asked> {
        self.ways.asked(self.is_kernel())
    }

    /// The client addresses once those of a host are there that others give. `stop` ends the wait.
    pub(super) fn given(
        &self,
        (runtime, host): (&Looked, usize),
        target: IpAddr,
        stop: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<ClientRange>> {
        let given = given::wait(&self.asked()?, &runtime.handle(), host, stop)?;
        self.ways.check_given(target, &given)?;
        let ours = self.ways.addresses_with(target, &given);
        Ok(ours.iter().map(|a| ClientRange::from(a.address())).collect())
    }

    /// Sources whose ports are chosen as connections are opened, on kernel sockets by the kernel.
    pub(super) fn addresses(
        &self,
        rss: &Rss,
        clients: &[ClientRange],
        target: Endpoint,
    ) -> anyhow::Result<Sources> {
        let clients: Vec<_> =
            clients.iter().filter(|c| c.is_ipv4() == target.ip.is_ipv4()).copied().collect();
        ensure!(
            self.is_kernel() || !clients.is_empty(),
            "no client address is of the same family as the target {target}"
        );
        Ok(Sources::Addresses { clients, lanes: rss.buckets.len() })
    }

    /// Sources whose answers arrive in the lane that sends, and whose packets hit the buckets of the target that are wanted.
    pub(super) fn flows(
        &self,
        rss: &Rss,
        clients: &[ClientRange],
        theirs: &Option<(Rss, Wanted)>,
        wanted: &Flows,
    ) -> anyhow::Result<Sources> {
        let Flows { target, protocol, flows, all, seed } = *wanted;
        let aim = theirs.as_ref().map(|(rss, wanted)| Aim { rss, wanted: wanted.clone() });
        let chosen = flows::choose(&FlowWish { target, clients, flows, protocol, rss, aim, start: seed })?;
        let had: usize = chosen.iter().map(Vec::len).sum();
        ensure!(
            !all || had == flows,
            "the client addresses have ports for {had} connections, not {flows}: give more --clients"
        );
        Ok(Sources::Flows(chosen))
    }

    /// Bytes that a tunnel adds to a packet to the target.
    pub(super) fn overhead(&self, target: IpAddr) -> usize {
        self.ways.tunnel_towards(target).map_or(0, |i| self.ways.tunnel[i].0.overhead())
    }

    /// How our side is steered.
    pub(super) fn rss(&self, fields: UdpFields, udp: bool, home: &Home) -> anyhow::Result<Arc<Rss>> {
        self.side.rss(Some(&self.link), (fields, udp), home, self.seed)
    }

    /// By what kernel sockets are served. `tcp`: the load is one of connections.
    pub(super) fn io(&self, tcp: bool) -> anyhow::Result<Io> {
        let work = if tcp { Work::Connections } else { Work::Datagrams };
        self.side.io.of(&self.link, self.is_kernel(), "load udp", work)
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.side.workers(Some(&self.link))
    }

    /// The seed given, or a random one.
    pub(super) fn seed(&self) -> anyhow::Result<u64> {
        steering::seed(self.seed)
    }

    /// Opens the link, gives up privileges and starts the host that runs `main` in every lane. Returns the run and the host's number.
    /// `check` is called with the link before anything is sent.
    pub(super) fn start<F>(
        &self,
        run: Run<'_>,
        main: F,
        check: impl FnOnce(OpenLink) -> OpenLink,
    ) -> anyhow::Result<(Looked, usize)>
    where
        F: Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static,
    {
        let Run { name, target, rss, clients, tcp, frames, io, descriptors, home, changer } = run;
        let is_search = changer.is_none();
        let change = changing(changer, allows(self.is_kernel()));
        let mut builder = self.side.builder(Some(&self.link), self.is_kernel(), io, self.seed);
        if let Some(frames) = frames {
            builder = builder.frames(frames);
        }
        let recorders = self.instruments.records.open()?;
        if self.is_kernel() {
            more_descriptors(descriptors, "connections or flows")?;
            let host = self.side.with_choices(Host::kernel("load", rss.clone(), main), true)?;
            let host = home.apply(host, &mut builder);
            let host = builder.host(recorders.of(host));
            builder.before_start(give_up_privileges);
            return Ok((self.instruments.run(builder, name, (host, recorders), change)?, host));
        }
        let claimed: Vec<Prefix> = clients.iter().flat_map(ClientRange::prefixes).collect();
        let through = self.ways.tunnel_towards(target.ip());
        let (claimed, inside) = if through.is_some() { (Vec::new(), claimed) } else { (claimed, Vec::new()) };
        let (interface, ours) = self.ways.interface(claimed, self.side.vlan);
        let host = Host::new("load", rss.clone(), main)
            .interface(interface)
            .tcp(tcp)
            .reassembly(self.reassembly.unwrap_or_default().0);
        let asked = self.asked()?;
        let host = asked.apply(self.side.with_choices(host, false)?);
        let host = self.ways.add_to(host, |i| if through == Some(i) { inside.clone() } else { Vec::new() });
        let host = builder.host(recorders.of(host));
        self.link.fit_frames(&mut builder);
        let open = check(asked.on(link::open(self.link.clone(), &ours, self.side.vlan, rss)));
        link::put_on(&mut builder, host, &self.link, open);
        // A search opens the link again for its next run.
        if !is_search {
            builder.before_start(give_up_privileges);
        }
        Ok((self.instruments.run(builder, name, (host, recorders), change)?, host))
    }
}

/// Refuses a target without a port.
pub(super) fn check_port(target: SocketAddr) -> anyhow::Result<()> {
    ensure!(target.port() != 0, "{target}: must have a port from 1 to 65535");
    Ok(())
}

/// Frames of a worker that needs none: streams of the kernel's have their own memory. Its datagrams are received into frames.
pub(super) const FEW_FRAMES: usize = 64;

/// Whether a load that runs may have so many connections: as many as there are descriptors, on kernel sockets.
pub(super) fn allows(is_kernel: bool) -> impl Fn(usize) -> anyhow::Result<()> + Send + Sync {
    move |n| if is_kernel { more_descriptors(n, "connections") } else { Ok(()) }
}

/// Raises the limit of file descriptors as far as needed and allowed.
pub(super) fn more_descriptors(wanted: usize, what: &str) -> anyhow::Result<()> {
    // Descriptors of the program itself.
    let wanted = wanted as u64 + 64;
    let allowed = flowlane_sys::kernel::limits::descriptors(wanted).context("limit of descriptors")?;
    ensure!(
        allowed >= wanted,
        "{wanted} descriptors are needed and {allowed} allowed: use fewer {what}, or 'ulimit -n {wanted}'"
    );
    Ok(())
}

/// Refuses a link whose MTU is too small for `size` bytes of payload and `headers` bytes of headers.
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
    /// Refuses aiming on kernel sockets, whose ports the kernel chooses.
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
                "--buckets needs --target-key: without it the target's buckets are not known"
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
