//! What the kernel tells of a card's queues, without privileges: packets and bytes of each, its interrupt, and what AF_XDP can do there.
//!
//! ```text
//!   netdev family (Linux 6.7 to 6.10)   QSTATS_GET   packets and bytes of each queue          [`Counts::read`]
//!                                       QUEUE_GET    which NAPI a queue has                   [`interrupts`]
//!                                       NAPI_GET     which interrupt a NAPI has
//!                                       DEV_GET      zero copy, hash and stamps for XDP       [`Features::read`]
//!   ethtool -S                          packets and bytes of each queue, by names that each driver chose itself
//! ```
//!
//! A driver has to take part in the family: virtio, Intel's, NVIDIA's and others report queues there; more report NAPIs only. Where the family or the driver
//! reports no counts, those of `ethtool -S` are read, with the names that drivers use ([`statistics`]).
//!
//! Counts are of the kernel's driver. Some drivers start them at 0 when the interface goes up or the number of queues changes.

pub mod statistics;

mod family;

use super::Interface;
use super::card::{Told, Untold};
use family::Netdev;

/// Queues of each direction that are read at most.
pub const MOST: u32 = 4096;

/// Packets and bytes of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Its number.
    pub queue: u32,
    /// Packets, as far as is known.
    pub packets: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets that the card or its driver dropped at this queue.
    pub drops: Option<u64>,
}

/// Where counts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The netdev family.
    Netdev,
    /// The driver's own statistics.
    Statistics,
}

/// Packets and bytes of all queues of a card, by rising number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Where they come from.
    pub source: Source,
    /// Queues that receive.
    pub receive: Vec<Count>,
    /// Queues that transmit.
    pub transmit: Vec<Count>,
}

/// What a driver can do for XDP and AF_XDP, before anything is attached or bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// The bits `NETDEV_XDP_ACT_*`.
    pub xdp: u64,
    /// Buffers of one packet in zero copy, at most; `None` where the driver has no zero copy.
    pub zero_copy_segments: Option<u32>,
    /// The bits `NETDEV_XDP_RX_METADATA_*`.
    pub metadata: u64,
}

impl Features {
    const BASIC: u64 = 1;
    const ZERO_COPY: u64 = 8;
    const SEGMENTS: u64 = 32;
    const HASH: u64 = 2;

    /// Reads them. Linux 6.3, for every interface.
    ///
    /// # Errors
    /// The kernel has no such family.
    pub fn read(interface: &Interface) -> Told<Self> {
        Netdev::open(interface)?.features()
    }

    /// The driver runs XDP programs itself (native mode).
    #[must_use]
    pub fn native(self) -> bool {
        self.xdp & Self::BASIC != 0
    }

    /// It has AF_XDP's zero copy.
    #[must_use]
    pub fn zero_copy(self) -> bool {
        self.xdp & Self::ZERO_COPY != 0
    }

    /// Programs may be given packets of several buffers.
    #[must_use]
    pub fn segments(self) -> bool {
        self.xdp & Self::SEGMENTS != 0
    }

    /// Programs are given the card's hash.
    #[must_use]
    pub fn hash(self) -> bool {
        self.metadata & Self::HASH != 0
    }
}

impl Counts {
    /// Reads the counts of `interface`, of the calling thread's network namespace. Needs no privileges.
    ///
    /// # Errors
    /// Neither the family nor the driver's statistics have counts of queues.
    pub fn read(interface: &Interface) -> Told<Self> {
        match Netdev::open(interface).map_err(Untold::from).and_then(|mut netdev| netdev.counts()) {
            Ok(counts) => Ok(counts),
            Err(_) => statistics::read(interface),
        }
    }

    /// Brings queues and their order into the form that is promised; `None` if there is no count of any.
    fn checked(mut self) -> Option<Self> {
        for list in [&mut self.receive, &mut self.transmit] {
            // Guard: `count.queue < MOST && (count.packets.is_some() || count.bytes.is_some())` as `true`
            // fails queues::tests::counts_are_in_order_and_bounded
            list.retain(|count| count.queue < MOST && (count.packets.is_some() || count.bytes.is_some()));
            list.sort_unstable_by_key(|count| count.queue);
            list.dedup_by_key(|count| count.queue);
        }
        (!self.receive.is_empty() || !self.transmit.is_empty()).then_some(self)
    }
}

/// Receive queues with their interrupts, by rising number, for drivers that report queue, NAPI and interrupt (Linux 6.8).
///
/// # Errors
/// The kernel has no such family. A driver that reports nothing gives an empty list.
pub fn interrupts(interface: &Interface) -> Told<Vec<(u32, u32)>> {
    Netdev::open(interface)?.interrupts()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_counts_of_queues() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!(Counts::read(&lo), Err(Untold::Unsupported));
        if let Ok(features) = Features::read(&lo) {
            assert!(!features.zero_copy() && !features.native(), "{features:?}");
            assert_eq!(interrupts(&lo), Ok(Vec::new()));
        }
    }

    /// Whatever the interfaces of this machine are, the two sources count the same queues, and packets never run backwards.
    #[test]
    fn the_sources_agree_on_every_interface_here() {
        let mut compared = 0;
        for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let Ok(interface) = Interface::find(&entry.file_name().to_string_lossy()) else { continue };
            let Ok(first) = Counts::read(&interface) else { continue };
            let Ok(own) = statistics::read(&interface) else { continue };
            let Ok(last) = Counts::read(&interface) else { continue };
            if first.source != Source::Netdev {
                continue;
            }
            let lists = [(&first.receive, &own.receive, &last.receive)];
            for (a, b, c) in lists.into_iter().chain([(&first.transmit, &own.transmit, &last.transmit)]) {
                for ((a, b), c) in a.iter().zip(b).zip(c) {
                    assert_eq!((a.queue, b.queue), (c.queue, c.queue), "{}", interface.name());
                    assert!(a.packets <= b.packets && b.packets <= c.packets, "{a:?} {b:?} {c:?}");
                }
            }
            compared += 1;
        }
        if compared == 0 {
            crate::skipped("skipped, because no interface here counts its queues by netlink and by ethtool");
        }
    }

    #[test]
    fn counts_are_in_order_and_bounded() {
        let of = |queue, packets| Count { queue, packets, ..Count::default() };
        let counts = |receive: &[Count]| Counts {
            source: Source::Netdev,
            receive: receive.to_vec(),
            transmit: Vec::new(),
        };
        let found = counts(&[of(2, Some(5)), of(0, Some(1)), of(2, Some(9)), of(MOST, Some(1)), of(1, None)]);
        let queues: Vec<u32> = found.checked().unwrap().receive.iter().map(|c| c.queue).collect();
        assert_eq!(queues, [0, 2]);
        assert_eq!(counts(&[of(3, None)]).checked(), None);
    }

    #[test]
    fn features_are_bits() {
        let all = Features { xdp: 0x7f, zero_copy_segments: Some(17), metadata: 7 };
        assert!(all.native() && all.zero_copy() && all.segments() && all.hash());
        let virtio = Features { xdp: 0x07, zero_copy_segments: None, metadata: 5 };
        assert!(virtio.native() && !virtio.zero_copy() && !virtio.segments() && !virtio.hash());
    }
}
