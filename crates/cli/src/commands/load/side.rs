//! Our side of a load, whatever is sent: its addresses and the ways from them to a target, its workers, and how it is steered.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::Args;
use flowlane::dhcp::{HostAddress, Origin};
use flowlane::link::LinkSpec;
use flowlane::{Builder, Host, Idle, Interface, Io, Key, Prefix, Rss, TunnelConfig, UdpFields};
use flowlane_load::ClientRange;

use super::home::Home;
use crate::asking::{Addr, Asked, Asking, on_link, show};
use crate::congestion::CongestionOption;
use crate::ecn::{EcnOption, chosen};
use crate::idle::IdleKind;
use crate::io::IoOption;
use crate::steering::{self, SteeringOptions, Workers};
use crate::tunnel::TunnelSpec;

/// Our addresses on a link, and the ways from there.
#[derive(Debug, Args)]
pub(super) struct Ways {
    /// Our addresses on the link, each with its prefix length: 10.11.2.2/24[,...]; or dhcp, an address of IPv4 that a server of DHCP gives, and
    /// slaac, addresses of the prefixes that IPv6 routers advertise.
    #[arg(long, value_name = "ADDR/LEN", value_delimiter = ',', value_parser = on_link)]
    pub(super) addr: Vec<Addr>,
    #[command(flatten)]
    asking: Asking,
    /// Default router, one for each address family.
    #[arg(long, value_delimiter = ',')]
    pub(super) gateway: Vec<IpAddr>,
    /// Tunnel: KIND,local=ADDR,remote=ADDR,addr=ADDR/LEN and optionally ,vni=N ,key=N ,mtu=N with KIND ipip, 6in4, 4in6, 6in6, gre,
    /// gretap, vxlan or geneve. Packets to a target in the network of addr go through it. May be repeated.
    #[arg(long, value_name = "TUNNEL")]
    pub(super) tunnel: Vec<TunnelSpec>,
}

impl Ways {
    /// Our addresses on the link that are known before.
    fn fixed(&self) -> impl Iterator<Item = Prefix> {
        self.addr
            .iter()
            .filter_map(|a| if let Addr::Fixed(address) = a { Some(address.prefix()) } else { None })
    }

    /// Our addresses that are known before, those in tunnels too.
    fn addresses(&self) -> impl Iterator<Item = Prefix> {
        self.fixed().chain(self.tunnel.iter().flat_map(|t| t.0.addresses.iter().copied()))
    }

    /// Whether others are asked for an address of the family of `target`.
    fn asks_for(&self, target: IpAddr) -> bool {
        self.addr.contains(if target.is_ipv4() { &Addr::Dhcp } else { &Addr::Slaac })
    }

    /// Whether others are asked for addresses.
    pub(super) fn asks(&self) -> bool {
        self.addr.iter().any(|a| !matches!(a, Addr::Fixed(_)))
    }

    /// What others are asked for.
    ///
    /// # Errors
    /// Options that have no effect, and values that cannot be.
    pub(super) fn asked(&self, kernel: bool) -> anyhow::Result<Asked> {
        self.asking.of(&self.addr, kernel)
    }

    /// Refuses to ask others where nobody could answer, and what contradicts the question.
    pub(super) fn check_asked(&self, link: Option<&LinkSpec>, clients: &[ClientRange]) -> anyhow::Result<()> {
        let asked = self.asked(link.is_none())?;
        link.map_or(Ok(()), |link| asked.check(link))?;
        for gateway in &self.gateway {
            let given = if gateway.is_ipv4() { "dhcp the server" } else { "slaac a router" };
            ensure!(
                !self.asks_for(*gateway),
                "--gateway {gateway}: with --addr {given} says what the default router is"
            );
        }
        if let (true, Some(range)) = (self.asks(), clients.first()) {
            bail!(
                "--clients {range}: with --addr dhcp, slaac the address that is given is the client; for others give addresses, as 10.11.2.2/24"
            );
        }
        Ok(())
    }

    /// The tunnel that leads to a target.
    pub(super) fn tunnel_towards(&self, target: IpAddr) -> Option<usize> {
        self.tunnel.iter().position(|t| t.0.addresses.iter().any(|a| a.contains(target)))
    }

    /// Our addresses on the way to a target: the tunnel's, if it is in one.
    pub(super) fn addresses_towards(&self, target: IpAddr) -> Vec<Prefix> {
        let inside = self.tunnel_towards(target).map(|i| self.tunnel[i].0.addresses.clone());
        inside.unwrap_or_else(|| self.fixed().collect())
    }

    /// Our addresses on the way to a target, with those that were given.
    pub(super) fn addresses_with(&self, target: IpAddr, given: &[HostAddress]) -> Vec<Prefix> {
        let mut all = self.addresses_towards(target);
        if self.tunnel_towards(target).is_none() {
            let of_family = || given.iter().filter(|a| a.prefix.address().is_ipv4() == target.is_ipv4());
            // Those on the target's network and those that are not deprecated come before others (RFC 6724 section 5).
            let near = |a: &&HostAddress| a.prefix.contains(target);
            let preferred = |a: &&HostAddress| !a.deprecated;
            let best = [of_family().filter(near).collect(), of_family().filter(preferred).collect()];
            let best: Option<Vec<&HostAddress>> = best.into_iter().find(|some: &Vec<_>| !some.is_empty());
            all.extend(best.unwrap_or_else(|| of_family().collect()).iter().map(|a| a.prefix));
        }
        all
    }

    /// An address in the place of each that is still to be given, for the checks that come before.
    pub(super) fn stand_in(&self, target: IpAddr) -> Option<Prefix> {
        // Networks of examples (RFC 5737, RFC 3849), where no target is.
        let v4 = |last| IpAddr::from([192, 0, 2, last]);
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        let all = if target.is_ipv4() { [v4(1), v4(2)] } else { [v6(1), v6(2)] };
        let asked = self.asks_for(target) && self.tunnel_towards(target).is_none();
        all.into_iter().find(|a| asked && *a != target).map(Prefix::host)
    }

    /// Refuses a target to which no way leads from the addresses that were given.
    pub(super) fn check_given(&self, target: IpAddr, given: &[HostAddress]) -> anyhow::Result<()> {
        if let Some(ours) = given.iter().find(|a| a.prefix.address() == target) {
            bail!("the target {target} is our own address {}", show(ours));
        }
        let near =
            self.addresses().any(|a| a.contains(target)) || given.iter().any(|a| a.prefix.contains(target));
        let router = |a: &HostAddress| matches!(a.origin, Origin::Dhcp { router: Some(_), .. });
        // Which routers lead on from prefixes that were advertised, the lanes know.
        let routed = !target.is_ipv4() || !self.gateway.is_empty() || given.iter().any(router);
        ensure!(
            near || routed,
            "{target} is in none of our networks ({}), and the server of DHCP named no router",
            given.iter().map(show).collect::<Vec<_>>().join(", ")
        );
        Ok(())
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
            near(target)
                || self.asks_for(target)
                || self.gateway.iter().any(|g| g.is_ipv4() == target.is_ipv4()),
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
        let own = self.fixed().map(|a| Prefix::host(a.address()));
        let ours = own.chain(claimed.iter().copied()).collect();
        (Interface { addresses: self.fixed().collect(), claimed, vlan }, ours)
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
    #[command(flatten)]
    ecn: EcnOption,
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
        self.ecn.of(true, self.congestion.of(true)?)?;
        Ok(())
    }

    /// Refuses what only connections have.
    pub(super) fn check_without_connections(&self) -> anyhow::Result<()> {
        ensure!(!self.congestion.is_given(), "--congestion: for connections; load udp has datagrams");
        self.ecn.check_absent("for connections; load udp has datagrams")?;
        Ok(())
    }

    /// The host with the congestion control and the ECN that were asked for.
    pub(super) fn with_choices(&self, host: Host, kernel: bool) -> anyhow::Result<Host> {
        let congestion = self.congestion.of(kernel)?;
        Ok(chosen(host, congestion, self.ecn.of(kernel, congestion)?))
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
