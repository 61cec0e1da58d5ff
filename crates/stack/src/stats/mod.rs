//! Counters of a lane: plain integers, written by the lane alone and read on request.
//!
//! Names and meanings follow `netstat -s` where it has them. Each group is a struct of `u64`s that can be walked by
//! name, so that text, JSON and metrics are written once. A packet that is dropped is counted once under its
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
pub use tcp::TcpStats;
pub use tunnel::TunnelStats;
pub use udp::UdpStats;

/// One counter with its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Name for machines: lower case, words joined by hyphens.
    pub name: &'static str,
    /// Words for people, as `netstat -s` puts them.
    pub text: &'static str,
    /// The number.
    pub value: u64,
    /// Counter or gauge.
    pub kind: Kind,
}

/// Whether a number is a counter or a gauge, which decides how it may be added and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Events since the beginning. It never falls; numbers of several lanes are added, and two readings give a rate.
    Count,
    /// How many there are now. It rises and falls; numbers of several lanes are added.
    Gauge,
    /// The most that there ever were. Of several lanes it is the largest.
    Peak,
}

impl Counter {
    /// A number of events.
    #[must_use]
    pub const fn count(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, value, kind: Kind::Count }
    }

    /// How many there are now.
    #[must_use]
    pub const fn gauge(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, value, kind: Kind::Gauge }
    }

    /// The most that there were.
    #[must_use]
    pub const fn peak(name: &'static str, text: &'static str, value: u64) -> Self {
        Self { name, text, value, kind: Kind::Peak }
    }
}

/// A group of counters.
pub trait Counters {
    /// Calls `f` with every counter, in the order of display.
    fn each(&self, f: &mut dyn FnMut(Counter));

    /// Adds the counters of `other`, of the same group.
    fn add(&mut self, other: &Self);
}

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $slug:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $(#[doc = concat!($text, ".")] pub $field: u64,)+
        }

        impl crate::stats::Counters for $name {
            fn each(&self, f: &mut dyn FnMut(crate::stats::Counter)) {
                $(f(crate::stats::Counter::count($slug, $text, self.$field));)+
            }

            fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}
pub(crate) use counters;

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
    pub fn groups(&self, f: &mut dyn FnMut(&'static str, &dyn CountersRef)) {
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

/// The part of [`Counters`] that works behind a reference to any group.
pub trait CountersRef {
    /// As [`Counters::each`].
    fn each(&self, f: &mut dyn FnMut(Counter));
}

impl<C: Counters> CountersRef for C {
    fn each(&self, f: &mut dyn FnMut(Counter)) {
        Counters::each(self, f);
    }
}
