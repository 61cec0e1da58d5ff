//! Counters of a lane: plain integers, written by the lane alone and read on request.
//!
//! Names and meanings follow `netstat -s` where it has them. Each group is declared once, by
//! [`figures!`](flowlane_sys::figures!), and can be walked by name, so that text, JSON and metrics are written once. A packet that is dropped is counted once under its
//! [`DropReason`], and once in the counter of its protocol that `netstat` would have used, if there is one.

mod drops;
mod histogram;
mod ip;
mod link_layer;
pub(crate) mod tcp;
mod tunnel;
mod udp;

pub use drops::{DropReason, Drops};
pub use histogram::{CLASSES, Histogram};
pub use ip::{IcmpStats, IpStats};
pub use link_layer::{ArpStats, EthernetStats};
pub use tcp::{SegmentDrops, TcpStats};
pub use tunnel::TunnelStats;
pub use udp::UdpStats;

pub use flowlane_sys::figures::{Figure, Figures, Kind};

/// All counters of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneStats {
    /// Ethernet.
    pub ethernet: EthernetStats,
    /// ARP and neighbour discovery.
    pub arp: ArpStats,
    /// IPv4.
    pub ip: IpStats,
    /// IPv6.
    pub ip6: IpStats,
    /// ICMP for IPv4.
    pub icmp: IcmpStats,
    /// ICMP for IPv6.
    pub icmp6: IcmpStats,
    /// Tunnels of all kinds.
    pub tunnel: TunnelStats,
    /// UDP over both.
    pub udp: UdpStats,
    /// TCP over both, with the segments it dropped.
    pub tcp: TcpStats,
    /// Packets dropped, by reason; TCP counts its own.
    pub drops: Drops,
}

impl LaneStats {
    /// Adds the counters of another lane.
    pub fn add(&mut self, other: &Self) {
        self.ethernet.add(&other.ethernet);
        self.arp.add(&other.arp);
        self.ip.add(&other.ip);
        self.ip6.add(&other.ip6);
        self.icmp.add(&other.icmp);
        self.icmp6.add(&other.icmp6);
        self.tunnel.add(&other.tunnel);
        self.udp.add(&other.udp);
        self.tcp.add(&other.tcp);
        self.drops.add(&other.drops);
    }

    /// Calls `f` with the name of every group and the group.
    pub fn groups(&self, f: &mut dyn FnMut(&'static str, &dyn Figures)) {
        f("ethernet", &self.ethernet);
        f("arp", &self.arp);
        f("ip", &self.ip);
        f("ip6", &self.ip6);
        f("icmp", &self.icmp);
        f("icmp6", &self.icmp6);
        f("tunnel", &self.tunnel);
        f("udp", &self.udp);
        f("tcp", &self.tcp);
        f("drops", &self.drops);
    }
}
