//! Our side of a load, whatever is sent: its addresses and the ways from them to a target, its workers, and how it is steered.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::Args;
use flowlane::link::LinkSpec;
use flowlane::{Builder, Host, Idle, Interface, Io, Key, Prefix, Rss, TunnelConfig, UdpFields};
use flowlane_load::ClientRange;

use super::home::Home;
use crate::address::with_network;
use crate::congestion::CongestionOption;
use crate::idle::IdleKind;
use crate::io::IoOption;
use crate::steering::{self, SteeringOptions, Workers};
use crate::tunnel::TunnelSpec;

/// Our addresses on a link, and the ways from there.
#[derive(Debug, Args)]
pub(super) struct Ways {
    /// Our addresses on the link, each with its prefix length: 10.11.2.2/24[,...].
    #[arg(long, value_name = "ADDR/LEN", value_delimiter = ',', value_parser = with_network)]
    pub(super) addr: Vec<Prefix>,
    /// Default router, one for each address family.
    #[arg(long, value_delimiter = ',')]
    pub(super) gateway: Vec<IpAddr>,
    /// Tunnel: KIND,local=ADDR,remote=ADDR,addr=ADDR/LEN and optionally ,vni=N ,key=N ,mtu=N with KIND ipip, 6in4, 4in6, 6in6, gre,
    /// gretap, vxlan or geneve. Packets to a target in the network of addr go through it. May be repeated.
    #[arg(long, value_name = "TUNNEL")]
    pub(super) tunnel: Vec<TunnelSpec>,
}

impl Ways {
    /// Our addresses, those in tunnels too.
    fn addresses(&self) -> impl Iterator<Item = &Prefix> {
        self.addr.iter().chain(self.tunnel.iter().flat_map(|t| &t.0.addresses))
    }

    /// The tunnel that leads to a target.
    pub(super) fn tunnel_towards(&self, target: IpAddr) -> Option<usize> {
        self.tunnel.iter().position(|t| t.0.addresses.iter().any(|a| a.contains(target)))
    }

    /// Our addresses on the way to a target: the tunnel's, if it is in one.
    pub(super) fn addresses_towards(&self, target: IpAddr) -> &[Prefix] {
        self.tunnel_towards(target).map_or(&self.addr, |i| &self.tunnel[i].0.addresses)
    }

    /// Refuses tunnels that begin at no address of ours.
    pub(super) fn check_tunnels(&self) -> anyhow::Result<()> {
        let is_ours = |ip| self.addresses().any(|a| a.address() == ip);
        match self.tunnel.iter().find(|t| !is_ours(t.0.local)) {
            Some(TunnelSpec(t)) => bail!("--tunnel: local={} is none of our addresses (--addr)", t.local),
            None => Ok(()),
        }
    }

    /// Refuses options that kernel sockets do not have.
    pub(super) fn check_kernel(&self) -> anyhow::Result<()> {
        ensure!(self.gateway.is_empty(), "--gateway: the kernel has its own routes; name a --link");
        Ok(())
    }

    /// Refuses a target to which no way leads.
    pub(super) fn check_target(&self, target: IpAddr) -> anyhow::Result<()> {
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
        Ok(())
    }

    /// Refuses clients to which a target's answers would not come back; `routed`: it has a route to them.
    pub(super) fn check_clients(
        &self,
        range: &ClientRange,
        target: IpAddr,
        routed: bool,
    ) -> anyhow::Result<()> {
        ensure!(!range.contains(target), "--clients {range} contains the target {target}");
        let near = self.addresses_towards(target).iter().any(|a| range.is_within(a));
        ensure!(
            near || routed || !self.gateway.is_empty(),
            "--clients {range} is not within our networks (--addr), so answers would not come back; if the far \
             side has a route to it, add --routed"
        );
        Ok(())
    }

    /// An interface of these addresses, which claims others, beside what a link has to let through for them.
    pub(super) fn interface(&self, claimed: Vec<Prefix>, vlan: Option<u16>) -> (Interface, Vec<Prefix>) {
        let own = self.addr.iter().map(|a| Prefix::host(a.address()));
        let ours = own.chain(claimed.iter().copied()).collect();
        (Interface { addresses: self.addr.clone(), claimed, vlan }, ours)
    }

    /// A host with the tunnels and routers; `claimed`: what a tunnel's end claims.
    pub(super) fn add_to(&self, mut host: Host, claimed: impl Fn(usize) -> Vec<Prefix>) -> Host {
        for (i, TunnelSpec(tunnel)) in self.tunnel.iter().enumerate() {
            host = host.tunnel(TunnelConfig { claimed: claimed(i), ..tunnel.clone() });
        }
        self.gateway.iter().fold(host, |host, gateway| host.gateway(*gateway))
    }
}

/// Workers of our side, and how it is steered.
#[derive(Debug, Args)]
pub(super) struct Side {
    #[command(flatten)]
    workers: Workers,
    /// RSS key of our side: microsoft, symmetric or hexadecimal [default: a random one].
    #[arg(long, value_parser = key)]
    pub(super) key: Option<Key>,
    /// 802.1Q VLAN, 1 to 4094 [default: untagged].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub(super) vlan: Option<u16>,
    #[command(flatten)]
    pub(super) io: IoOption,
    #[command(flatten)]
    congestion: CongestionOption,
    /// What idle workers do [default: sleep on kernel sockets, else adaptive].
    #[arg(long, value_enum)]
    idle: Option<IdleKind>,
}

/// A key by name or in hexadecimal.
pub(super) fn key(text: &str) -> Result<Key, flowlane_rss::KeyError> {
    match text {
        "microsoft" => Ok(Key::MICROSOFT),
        "symmetric" => Ok(Key::symmetric()),
        _ => Key::from_hex(text),
    }
}

impl Side {
    /// Number of workers.
    pub(super) fn workers(&self, link: Option<&LinkSpec>) -> usize {
        self.workers.count(link)
    }

    /// The number of workers, if it is possible.
    pub(super) fn checked_workers(&self, link: Option<&LinkSpec>) -> anyhow::Result<usize> {
        let workers = self.workers(link);
        ensure!((1..=64).contains(&workers), "--workers {workers}: from 1 to 64");
        Ok(workers)
    }

    /// Refuses options that kernel sockets do not have.
    pub(super) fn check_kernel(&self) -> anyhow::Result<()> {
        ensure!(self.vlan.is_none(), "--vlan: the kernel has its own interfaces; name a --link");
        self.congestion.of(true)?;
        Ok(())
    }

    /// Refuses a congestion control for datagrams.
    pub(super) fn check_without_connections(&self) -> anyhow::Result<()> {
        ensure!(!self.congestion.is_given(), "--congestion: for connections; load udp has datagrams");
        Ok(())
    }

    /// The host with the congestion control that was asked for.
    pub(super) fn with_congestion(&self, host: Host, kernel: bool) -> anyhow::Result<Host> {
        Ok(match self.congestion.of(kernel)? {
            Some(algorithm) => host.congestion(algorithm),
            None => host,
        })
    }

    /// What workers do when they are idle: on kernel sockets they sleep, if nothing else was said.
    fn idle(&self, kernel: bool) -> Idle {
        self.idle.unwrap_or(if kernel { IdleKind::Sleep } else { IdleKind::Adaptive }).into()
    }

    /// Whether workers poll shortly before a send time, for exactness.
    pub(super) fn exact(&self, kernel: bool) -> bool {
        self.idle(kernel) != IdleKind::Sleep.into()
    }

    /// A runtime's builder with these workers.
    pub(super) fn builder(
        &self,
        link: Option<&LinkSpec>,
        kernel: bool,
        io: Io,
        seed: Option<u64>,
    ) -> Builder {
        let builder = self.workers.builder(link).idle(self.idle(kernel)).io(io);
        match seed {
            Some(seed) => builder.seed(seed),
            None => builder,
        }
    }

    /// How our side is steered. `udp`: the load is one of datagrams.
    pub(super) fn rss(
        &self,
        link: Option<&LinkSpec>,
        (fields, udp): (UdpFields, bool),
        home: &Home,
        seed: Option<u64>,
    ) -> anyhow::Result<Arc<Rss>> {
        let workers = self.workers(link);
        if let Some(rss) = home.rss(workers)? {
            return Ok(Arc::new(rss));
        }
        let options = SteeringOptions {
            of: self.workers.rss_of(),
            workers,
            key: self.key,
            udp_4tuple: fields == UdpFields::Four,
            udp,
            ours: &[],
            seed,
        };
        match steering::by_card(link, &options)? {
            Some(rss) => Ok(Arc::new(rss)),
            None => Ok(Arc::new(steering::rss(workers, fields, self.key, seed)?)),
        }
    }
}
