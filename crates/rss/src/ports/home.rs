//! The solver itself: see the parent module for the idea.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use super::coordinates::Coordinates;
use super::set::PortSet;
use super::targets::{Target, Targets};
use crate::{Flow, HashType, Hasher, PacketKind, Protocol, Rss, SlotSet};

/// Source ports whose replies land in given slots, for any destination.
///
/// Made for one configuration and one set of slots, say those of a lane or of a worker; make another when the table or
/// the key changes. Holds three systems of coordinates, at most 36 KiB, usually 20 KiB, and shares the hash tables; five
/// systems where the hash of UDP is another than that of TCP.
#[derive(Clone)]
pub struct HomePorts {
    rss: Rss,
    slots: SlotSet,
    /// By `kind`: IPv4 with ports, IPv6 with ports, without ports; the same two for UDP where they differ.
    systems: Vec<(Coordinates, Targets)>,
    /// What to add to the `kind` of UDP with ports.
    udp: u8,
    /// Whether ports must be tried: the table's size is no power of two, or the hash is not affine in the port.
    trial: bool,
}

const IPV4: u8 = 0;
const IPV6: u8 = 1;
const NO_PORTS: u8 = 2;
/// From the `kind` of TCP to that of UDP.
const UDP: u8 = 3;

/// Why there are no home ports for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HomePortsError {
    /// One address is IPv4 and the other IPv6.
    Families,
    /// The configuration does not hash such packets.
    NotHashed,
}

impl fmt::Display for HomePortsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Families => "local and remote address are of different families",
            Self::NotHashed => "the RSS configuration has no hash type for such packets",
        })
    }
}

impl core::error::Error for HomePortsError {}

impl fmt::Debug for HomePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomePorts").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl HomePorts {
    /// For replies that shall land in `slots`.
    #[must_use]
    pub fn new(rss: &Rss, slots: &SlotSet) -> Self {
        let columns = |kind| rss.hasher().port_columns(kind);
        let tcp = [PacketKind::TcpIpv4, PacketKind::TcpIpv6].map(columns);
        let udp = [PacketKind::UdpIpv4, PacketKind::UdpIpv6].map(columns);
        let affine = tcp.iter().chain(&udp).all(Option::is_some);
        let bits = rss.table.bits().filter(|_| affine);
        let differ = matches!(rss.hasher(), Hasher::General(_)) && udp != tcp;
        let all = tcp.into_iter().chain([None]).chain(udp.into_iter().filter(|_| differ));
        let systems = all.map(|columns| {
            let coordinates = Coordinates::new(columns.unwrap_or_default(), bits.unwrap_or(0));
            let targets = Targets::new(&coordinates, slots);
            (coordinates, targets)
        });
        Self {
            rss: rss.clone(),
            slots: slots.clone(),
            systems: systems.collect(),
            udp: if differ { UDP } else { 0 },
            trial: bits.is_none(),
        }
    }

    /// The home ports for packets from `local` to `remote`. Costs one hash.
    ///
    /// # Errors
    /// If such packets are not hashed.
    #[inline]
    pub fn to(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        protocol: Protocol,
    ) -> Result<Ports<'_>, HomePortsError> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(HomePortsError::Families);
        }
        let reply = Flow::new(remote, SocketAddr::new(local, 0), protocol);
        let (constant, hash_type) = self.rss.software_hash(&reply);
        let kind = match hash_type {
            HashType::None => return Err(HomePortsError::NotHashed),
            _ if !hash_type.has_ports() => NO_PORTS,
            _ => {
                let family = if local.is_ipv4() { IPV4 } else { IPV6 };
                if protocol == Protocol::UDP { family + self.udp } else { family }
            }
        };
        let (coordinates, targets) = &self.systems[usize::from(kind)];
        let (shift, targets) = if self.trial {
            (0, &[Target { pivot: 0, block: 0 }][..])
        } else {
            let (u, syndrome) = coordinates.split(self.rss.table.slot_of(constant));
            (u, targets.with_syndrome(syndrome))
        };
        Ok(Ports { home: self, coordinates, kind, reply, constant, shift, targets })
    }
}

/// The home ports for one destination.
///
/// All 65536 ports are considered, port 0 too: the caller says which it may use when it makes a [`PortSet`].
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    home: &'a HomePorts,
    coordinates: &'a Coordinates,
    kind: u8,
    /// The reply with destination port 0.
    reply: Flow,
    /// Its hash.
    constant: u32,
    /// The constant's pivot part.
    shift: u16,
    /// The slots that can be reached.
    targets: &'a [Target],
}

impl fmt::Debug for Ports<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").field("classes", &self.targets.len()).finish_non_exhaustive()
    }
}

impl<'a> Ports<'a> {
    /// Whether a reply to this port comes home.
    #[must_use]
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        let hash = if self.home.trial {
            self.home.rss.software_hash(&Flow { dst_port: port, ..self.reply }).0
        } else {
            self.constant ^ self.coordinates.hash_of(port)
        };
        self.home.slots.contains(self.home.rss.table.slot_of(hash))
    }

    /// Number of home ports, 0 to 65536. Constant time, but where ports are tried.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.home.trial {
            self.iter().count()
        } else {
            self.targets.len() << self.coordinates.log2_class()
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        if self.home.trial { self.iter().next().is_none() } else { self.targets.is_empty() }
    }

    /// The `n`-th home port, each once, in no particular order. Constant time, but for tables whose size is no power of
    /// two, where it counts from the first.
    #[must_use]
    #[inline]
    pub fn nth(&self, n: usize) -> Option<u16> {
        if self.home.trial {
            return self.iter().nth(n);
        }
        let class = self.coordinates.log2_class();
        let &target = self.targets.get(n >> class)?;
        let place = n & ((1 << class) - 1);
        Some(self.coordinates.port(self.run_of(target) | place as u16))
    }

    /// All home ports, each once; the order is that of [`nth`](Self::nth).
    pub fn iter(&self) -> impl Iterator<Item = u16> + 'a {
        let ports = *self;
        let class = ports.coordinates.log2_class();
        // In trial there is one target, whose class is all ports.
        (0..ports.targets.len() << class)
            .map(move |n| {
                let place = n & ((1 << class) - 1);
                ports.coordinates.port(ports.run_of(ports.targets[n >> class]) | place as u16)
            })
            .filter(move |&port| !ports.home.trial || ports.contains(port))
    }

    /// First coordinate of the run of a slot.
    #[inline]
    fn run_of(&self, target: Target) -> u16 {
        // A class of all 65536 ports has no bits left above it.
        (u32::from(target.pivot ^ self.shift) << self.coordinates.log2_class()) as u16
    }

    /// A set in which all ports of `range` but port 0 are free, home or not.
    ///
    /// Takes 130 to 200 µs; a clone, which serves other destinations of the kind as well, a fraction of one.
    #[must_use]
    pub fn all_free(&self, range: RangeInclusive<u16>) -> PortSet {
        let mut set = PortSet::empty(self.kind, range.clone());
        for port in range.filter(|&port| port != 0) {
            set.put(self.coordinates.coordinate(port));
        }
        set
    }

    /// Takes a free home port out of the set, or `None` if none is left.
    ///
    /// `random` is 32 fresh random bits: they choose slot and starting place, and a free port near there is taken. The
    /// cost does not depend on how many ports are in use where the slots are those of buckets that take turns in the
    /// table; a set of scattered slots is looked through piece by piece once most pieces are full.
    ///
    /// # Panics
    /// If the set was made for another family or kind of hash.
    #[inline]
    pub fn pick(&self, random: u32, set: &mut PortSet) -> Option<u16> {
        self.check(set);
        if self.home.trial {
            return self.pick_by_trial(random, set);
        }
        let count = self.targets.len();
        let class = self.coordinates.log2_class();
        let place = (random & ((1 << class) - 1)) as u16;
        let mut at = ((random >> 16) as usize * count) >> 16;
        let mut seen = 0;
        while seen < count {
            let target = self.targets[at];
            let block = u32::from(target.block);
            if let Some(y) = set.find_in_run(self.run_of(target) | place, class + block) {
                set.take_free(y);
                return Some(self.coordinates.port(y));
            }
            // On to the first slot behind this block, round the end.
            let size = 1_usize << block;
            seen += size;
            at += size - usize::from(target.pivot) % size;
            at = if at < count { at } else { 0 };
        }
        None
    }

    /// The same where the slots have no structure: ports are tried one after the other.
    fn pick_by_trial(&self, random: u32, set: &mut PortSet) -> Option<u16> {
        let mut from_start = (0..=u16::MAX).map(|i| i.wrapping_add(random as u16));
        let y = from_start.find(|&y| set.is_free(y) && self.contains(self.coordinates.port(y)))?;
        set.take_free(y);
        Some(self.coordinates.port(y))
    }

    /// Takes this port out of the set; whether it was free.
    ///
    /// # Panics
    /// If the set was made for another family or kind of hash.
    pub fn reserve(&self, port: u16, set: &mut PortSet) -> bool {
        self.check(set);
        set.take(self.coordinates.coordinate(port))
    }

    /// Gives a port back; whether it was in use. Ports outside the set's range are not taken in.
    ///
    /// # Panics
    /// If the set was made for another family or kind of hash.
    #[inline]
    pub fn release(&self, port: u16, set: &mut PortSet) -> bool {
        self.check(set);
        port != 0 && set.range.contains(&port) && set.put(self.coordinates.coordinate(port))
    }

    #[inline]
    fn check(&self, set: &PortSet) {
        assert!(set.kind == self.kind, "a set of ports was used with another family or kind of hash");
    }

    /// A home port that `is_used` denies, for callers with their own book of ports, and how many were passed over.
    ///
    /// Starts at the home port of this number, counted modulo [`len`](Self::len), and goes through them one after the
    /// other, so the cost grows as they run out: at 99 % used a hundred questions are asked. [`pick`](Self::pick) does not
    /// have that fault. Who wants them in turn starts behind the one that it was given.
    pub fn pick_unused(&self, first: u32, is_used: impl Fn(u16) -> bool) -> Option<(u16, u32)> {
        let count = self.len();
        let start = first as usize % count.max(1);
        let ports = (start..count).chain(0..start).filter_map(|n| self.nth(n));
        ports.zip(0..).find(|&(port, _)| !is_used(port))
    }
}
