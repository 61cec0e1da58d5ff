//! Tunnels: interfaces whose link is the lane's own IP output.
//!
//! ```text
//!   in:   link ▸ outer ip (▸ udp) ▸ decapsulate ▸ hash again ▸ lane of the inner flow ▸ inner interface ▸ ip ...
//!   out:  ... ip ▸ inner interface ▸ output queue ▸ pulled: encapsulate ▸ outer ip ▸ link
//! ```
//!
//! A tunnel leads from one of our addresses to one other host. Its far side is configured, and packets of other senders are not accepted.
//! Inside, we have addresses as on any interface: with Ethernet inside (VXLAN, Geneve, optionally GRE) also an Ethernet address, ARP and
//! neighbour discovery; with IP inside there is no address resolution.
//!
//! The inner packet stays in the frame of the outer one: headers are removed from its front, and written to its headroom. The card hashed
//! the outer packet, so the inner one is always hashed again, and is passed to the lane of that hash (`Class::InnerEthernet`,
//! `Class::InnerIp`).
//!
//! **Nesting.** A tunnel has a level: one more than that of the interface which the route to its far side uses; links have
//! level 0. Outer packets of a tunnel come in, and go out, by interfaces of a lower level only. There are no more than
//! [`MAX_LEVEL`] levels, so nothing goes round in circles, whatever is inside of what.
//!
//! RFC 2003, 4213 and 2473 (IP in IP), 2784 and 2890 (GRE), 7348 (VXLAN), 8926 (Geneve), 6040 (ECN), 6935 (checksums).

pub(crate) mod ecn;

use core::net::IpAddr;

use crate::address::{Prefix, number};
use crate::interface::InterfaceConfig;
use crate::packet::Offload;
use crate::route::Routes;
use crate::wire::{EtherType, GreHeader, IpProtocol, MacAddr, ethernet, geneve, ipv4, ipv6, udp, vxlan};

/// Tunnels within tunnels, at most.
pub const MAX_LEVEL: u8 = 4;
/// A tunnel that leads into itself, or is nested too deep.
const NO_LEVEL: u8 = u8::MAX;
/// Longest inner packet that a tunnel always carries, bytes, in outer fragments if need be (RFC 2473 section 7.1).
pub const LEAST_MTU: u16 = ipv6::MIN_MTU as u16;

/// Encapsulation of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelKind {
    /// IP in IP, any family in any: IPIP, 6in4, 4in6, 6in6.
    IpInIp,
    /// GRE. Sequence numbers are taken and not looked at, and not sent: lanes share no counter.
    Gre {
        /// Tells the tunnels between two hosts apart.
        key: Option<u32>,
        /// Carries Ethernet instead of IP.
        ethernet: bool,
    },
    /// VXLAN: Ethernet in UDP.
    Vxlan {
        /// The network, 24 bits.
        vni: u32,
        /// UDP port of both sides.
        port: u16,
    },
    /// Geneve: Ethernet or IP in UDP.
    Geneve {
        /// The network, 24 bits.
        vni: u32,
        /// UDP port of both sides.
        port: u16,
        /// Carries Ethernet instead of IP.
        ethernet: bool,
    },
}

impl TunnelKind {
    /// VXLAN on its usual port.
    #[must_use]
    pub const fn vxlan(vni: u32) -> Self {
        Self::Vxlan { vni, port: vxlan::PORT }
    }

    /// Geneve with Ethernet inside, on its usual port.
    #[must_use]
    pub const fn geneve(vni: u32) -> Self {
        Self::Geneve { vni, port: geneve::PORT, ethernet: true }
    }

    /// Whether Ethernet frames are inside.
    #[must_use]
    pub const fn is_ethernet(&self) -> bool {
        match self {
            Self::IpInIp => false,
            Self::Gre { ethernet, .. } | Self::Geneve { ethernet, .. } => *ethernet,
            Self::Vxlan { .. } => true,
        }
    }

    /// The UDP port, for those in UDP.
    #[must_use]
    pub const fn udp_port(&self) -> Option<u16> {
        match self {
            Self::Vxlan { port, .. } | Self::Geneve { port, .. } => Some(*port),
            Self::IpInIp | Self::Gre { .. } => None,
        }
    }
}

/// A tunnel of a host. The same in every lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Its encapsulation.
    pub kind: TunnelKind,
    /// Our address on the outside.
    pub local: IpAddr,
    /// The far side's address on the outside.
    pub remote: IpAddr,
    /// Whether GRE packets, or the outer UDP datagrams, are sent with a checksum, and UDP over IPv6 without one is
    /// refused. By default only where IPv6 asks for it.
    pub checksum: Option<bool>,
    /// TTL or hop limit of outer packets.
    pub hop_limit: u8,
    /// Longest inner IP packet, bytes; `None` for what fits the way to the far side, but at least [`LEAST_MTU`].
    pub mtu: Option<u16>,
    /// Our Ethernet address inside; `None` for one made from the outer addresses.
    pub mac: Option<MacAddr>,
    /// Our addresses inside, each with the network it is on.
    pub addresses: Vec<Prefix>,
    /// Networks inside of which every address is ours.
    pub claimed: Vec<Prefix>,
}

impl TunnelConfig {
    /// A tunnel without addresses inside, with the usual settings.
    #[must_use]
    pub fn new(kind: TunnelKind, local: IpAddr, remote: IpAddr) -> Self {
        Self {
            kind,
            local,
            remote,
            checksum: None,
            hop_limit: 64,
            mtu: None,
            mac: None,
            addresses: Vec::new(),
            claimed: Vec::new(),
        }
    }

    /// Bytes that the tunnel puts in front of an inner IP packet.
    #[must_use]
    pub fn overhead(&self) -> usize {
        let ip = if self.remote.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let ethernet = if self.kind.is_ethernet() { ethernet::HEADER_LEN } else { 0 };
        let own = match self.kind {
            TunnelKind::IpInIp => 0,
            TunnelKind::Gre { key, .. } => gre(key, self.with_checksum(), EtherType::IPV4).header_len(),
            TunnelKind::Vxlan { .. } => udp::HEADER_LEN + vxlan::HEADER_LEN,
            TunnelKind::Geneve { .. } => udp::HEADER_LEN + geneve::HEADER_LEN,
        };
        ip + own + ethernet
    }

    /// Our Ethernet address inside, given or made: the two sides of a tunnel make different ones.
    #[must_use]
    pub fn mac(&self) -> MacAddr {
        if let Some(mac) = self.mac {
            return mac;
        }
        let id = match self.kind {
            TunnelKind::IpInIp => 0,
            TunnelKind::Gre { key, .. } => key.unwrap_or(0),
            TunnelKind::Vxlan { vni, .. } | TunnelKind::Geneve { vni, .. } => vni,
        };
        // FNV-1a: anything that both sides compute alike from different input.
        let bytes = number(self.local).to_be_bytes().into_iter().chain(number(self.remote).to_be_bytes());
        let hash = bytes
            .chain(id.to_be_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let [a, b, c, d, e, ..] = hash.to_be_bytes();
        MacAddr([2, a, b, c, d, e])
    }

    /// Whether outer checksums are sent, and wanted.
    fn with_checksum(&self) -> bool {
        self.checksum.unwrap_or(self.kind.udp_port().is_some() && self.remote.is_ipv6())
    }

    /// The interface inside.
    fn interface(&self, mtu: u16) -> InterfaceConfig {
        InterfaceConfig {
            mac: self.mac(),
            mtu,
            addresses: self.addresses.clone(),
            claimed: self.claimed.clone(),
            vlan: None,
            offload: Offload::default(),
        }
    }
}

/// The GRE header of a tunnel.
pub(crate) fn gre(key: Option<u32>, checksum: bool, protocol: EtherType) -> GreHeader {
    GreHeader { protocol, checksum, key, sequence: None }
}

/// Why a tunnel conflicts with the interfaces and tunnels of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TunnelError {
    /// The outer addresses are of two families, the same, or such as no host has.
    Addresses,
    /// The local address is none of ours.
    NotOurAddress,
    /// The VNI has more than 24 bits.
    Vni,
    /// UDP port 0.
    Port,
    /// Another tunnel looks just the same from outside.
    Twice,
    /// There is no route to the far side.
    NoRoute,
    /// The way to the far side leads into the tunnel itself, or through more than [`MAX_LEVEL`] tunnels.
    Nested,
    /// An MTU below [`LEAST_MTU`].
    Mtu,
}

impl core::fmt::Display for TunnelError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Addresses => "local and remote must be two different unicast addresses of one family",
            Self::NotOurAddress => "local is none of our addresses",
            Self::Vni => "the VNI must be below 16777216",
            Self::Port => "port 0 is nobody's",
            Self::Twice => "another tunnel has the same addresses and identifier",
            Self::NoRoute => "there is no route to remote",
            Self::Nested => "remote is reached through the tunnel itself, or through more than four tunnels",
            Self::Mtu => "the MTU must be at least 1280",
        })
    }
}

impl std::error::Error for TunnelError {}

/// What tells a tunnel's packets from those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// IP protocol, or UDP port.
    pub(crate) shape: u32,
    /// GRE key or VNI; `None` for no key.
    pub(crate) id: Option<u32>,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

impl Key {
    fn of(config: &TunnelConfig) -> Self {
        let (shape, id) = match config.kind {
            TunnelKind::IpInIp => (u32::from(IpProtocol::IPV4.0), None),
            TunnelKind::Gre { key, .. } => (u32::from(IpProtocol::GRE.0), key),
            TunnelKind::Vxlan { vni, port } | TunnelKind::Geneve { vni, port, .. } => {
                (in_udp(port), Some(vni))
            }
        };
        Self { shape, id, local: config.local, remote: config.remote }
    }
}

/// A UDP port as a shape, apart from the IP protocols.
pub(crate) const fn in_udp(port: u16) -> u32 {
    1 << 16 | port as u32
}

/// A tunnel inside a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tunnel {
    pub(crate) kind: TunnelKind,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) checksum: bool,
    pub(crate) hop_limit: u8,
    pub(crate) level: u8,
    /// Bytes in front of an inner IP packet.
    pub(crate) overhead: u16,
    /// The MTU is what fits the way to the far side.
    pub(crate) follows_path: bool,
}

/// A host's tunnels inside a lane. Their interfaces follow those of the links.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    /// How many links there are, and so the first tunnel's interface.
    links: u8,
    all: Vec<Tunnel>,
    /// By key; the value is the place in `all`.
    pub(crate) by_key: Vec<(Key, u8)>,
    /// UDP ports with the addresses of ours that they are taken on, and whether they are VXLAN's.
    pub(crate) ports: Vec<(u16, IpAddr, bool)>,
}

impl Tunnels {
    /// The tunnels of a host with these links, and the interfaces that they are inside.
    pub(crate) fn new(
        links: &[InterfaceConfig],
        tunnels: &[TunnelConfig],
        more: &[crate::route::Route],
    ) -> (Self, Vec<InterfaceConfig>) {
        // Sizes do not matter to the routes, and the routes give the sizes.
        let mut interfaces: Vec<_> = tunnels.iter().map(|t| t.interface(0)).collect();
        let all: Vec<_> = links.iter().chain(&interfaces).cloned().collect();
        let levels = Levels::new(&all, links.len(), tunnels, &Routes::new(&all, more));
        for (i, interface) in interfaces.iter_mut().enumerate() {
            interface.mtu = levels.mtu[links.len() + i];
        }
        let mut by_key: Vec<_> = tunnels.iter().enumerate().map(|(i, t)| (Key::of(t), i as u8)).collect();
        by_key.sort_unstable();
        let port = |t: &TunnelConfig| {
            t.kind.udp_port().map(|port| (port, t.local, matches!(t.kind, TunnelKind::Vxlan { .. })))
        };
        let mut ports: Vec<_> = tunnels.iter().filter_map(port).collect();
        ports.sort_unstable();
        ports.dedup();
        let tunnel = |(i, t): (usize, &TunnelConfig)| Tunnel {
            kind: t.kind,
            local: t.local,
            remote: t.remote,
            checksum: t.with_checksum(),
            hop_limit: t.hop_limit,
            level: levels.level[links.len() + i],
            overhead: t.overhead() as u16,
            follows_path: t.mtu.is_none(),
        };
        let all = tunnels.iter().enumerate().map(tunnel).collect();
        (Self { links: links.len() as u8, all, by_key, ports }, interfaces)
    }

    /// Looks for mistakes: the first tunnel that cannot work, by its place, and why.
    ///
    /// # Errors
    /// See [`TunnelError`].
    pub(crate) fn check(
        links: &[InterfaceConfig],
        tunnels: &[TunnelConfig],
        more: &[crate::route::Route],
    ) -> Result<(), (usize, TunnelError)> {
        let interfaces = tunnels.iter().map(|t| t.interface(0));
        let all: Vec<_> = links.iter().cloned().chain(interfaces).collect();
        let routes = Routes::new(&all, more);
        let levels = Levels::new(&all, links.len(), tunnels, &routes);
        for (i, t) in tunnels.iter().enumerate() {
            let ours = |a: &InterfaceConfig| {
                let mut own = a.addresses.iter().map(Prefix::address);
                own.any(|a| a == t.local) || a.claimed.iter().any(|p| p.contains(t.local))
            };
            let vni = match t.kind {
                TunnelKind::Vxlan { vni, .. } | TunnelKind::Geneve { vni, .. } => vni,
                TunnelKind::IpInIp | TunnelKind::Gre { .. } => 0,
            };
            let bad = |a: IpAddr| a.is_unspecified() || a.is_multicast() || a.is_loopback();
            let error = if t.local.is_ipv4() != t.remote.is_ipv4()
                || t.local == t.remote
                || bad(t.local)
                || bad(t.remote)
            {
                TunnelError::Addresses
            } else if vni >= 1 << 24 {
                TunnelError::Vni
            } else if t.kind.udp_port() == Some(0) {
                TunnelError::Port
            } else if !all.iter().any(ours) {
                TunnelError::NotOurAddress
            } else if tunnels[..i].iter().any(|other| Key::of(other) == Key::of(t)) {
                TunnelError::Twice
            } else if t.mtu.is_some_and(|mtu| mtu < LEAST_MTU) {
                TunnelError::Mtu
            } else if routes.hop(t.remote).is_none() {
                TunnelError::NoRoute
            } else if levels.level[links.len() + i] == NO_LEVEL {
                TunnelError::Nested
            } else {
                continue;
            };
            return Err((i, error));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether packets on an interface begin with an Ethernet header.
    pub(crate) fn carries_ethernet(&self, interface: usize) -> bool {
        let tunnel = interface.checked_sub(usize::from(self.links)).and_then(|i| self.all.get(i));
        tunnel.is_none_or(|t| t.kind.is_ethernet())
    }

    /// Whether this interface is a tunnel.
    #[inline]
    pub(crate) fn is_tunnel(&self, interface: u8) -> bool {
        interface >= self.links
    }

    #[inline]
    pub(crate) fn get(&self, interface: u8) -> Option<Tunnel> {
        self.all.get(usize::from(interface.checked_sub(self.links)?)).copied()
    }

    /// The far side of the tunnel that an interface is; `None` for a link.
    pub(crate) fn remote(&self, interface: u8) -> Option<IpAddr> {
        Some(self.all.get(usize::from(interface.checked_sub(self.links)?))?.remote)
    }

    pub(crate) fn level(&self, interface: u8) -> u8 {
        self.get(interface).map_or(0, |t| t.level)
    }

    /// The interface inside of a tunnel that packets like this belong to, and the tunnel.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(u8, Tunnel)> {
        let at = self.by_key.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
        let (_, i) = self.by_key[at];
        Some((self.links + i, self.all[usize::from(i)]))
    }

    /// Whether datagrams to this port of this address of ours are packets of a tunnel.
    #[inline]
    pub(crate) fn takes_port(&self, port: u16, local: IpAddr) -> bool {
        self.ports.iter().any(|p| p.0 == port && p.1 == local)
    }

    /// Whether packets of this protocol may be a tunnel's.
    #[inline]
    pub(crate) fn takes_protocol(&self, protocol: u8) -> bool {
        !self.all.is_empty()
            && matches!(IpProtocol(protocol), IpProtocol::IPV4 | IpProtocol::IPV6 | IpProtocol::GRE)
    }
}

/// Levels and MTUs of all interfaces.
struct Levels {
    level: Vec<u8>,
    mtu: Vec<u16>,
}

impl Levels {
    fn new(all: &[InterfaceConfig], links: usize, tunnels: &[TunnelConfig], routes: &Routes) -> Self {
        let mut level: Vec<u8> = (0..all.len()).map(|i| if i < links { 0 } else { NO_LEVEL }).collect();
        let mut mtu: Vec<u16> = all.iter().map(|i| i.mtu).collect();
        for next in 1..=MAX_LEVEL {
            for (i, t) in tunnels.iter().enumerate() {
                let Some(under) = routes.hop(t.remote).map(|hop| usize::from(hop.interface)) else {
                    continue;
                };
                if level[links + i] == NO_LEVEL && level.get(under) == Some(&(next - 1)) {
                    level[links + i] = next;
                    let fits = mtu[under].saturating_sub(t.overhead() as u16).max(LEAST_MTU);
                    mtu[links + i] = t.mtu.unwrap_or(fits);
                }
            }
        }
        for (mtu, _) in mtu.iter_mut().zip(&level).filter(|(_, level)| **level == NO_LEVEL) {
            *mtu = LEAST_MTU;
        }
        Self { level, mtu }
    }
}

#[cfg(test)]
mod tests;
