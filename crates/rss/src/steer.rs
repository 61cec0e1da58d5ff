//! Everything that decides where a packet goes, in one place.

use std::sync::Arc;

use crate::{
    Bucket, BucketMap, Flow, HashConfig, HashType, Hasher, Indirection, Key, KeyError, SlotSet, Toeplitz,
    Worker, default_buckets,
};

/// A complete RSS configuration: key (or another rule to hash by), hash types, indirection table, buckets and workers.
///
/// Cloning shares the hash tables and copies the rest, so that each worker can have its own and read it without
/// touching another's cache lines.
#[derive(Clone, Debug)]
pub struct Rss {
    hasher: Arc<Hasher>,
    /// Which fields are hashed.
    pub config: HashConfig,
    /// From hash to bucket.
    pub table: Indirection,
    /// From bucket to worker.
    pub buckets: BucketMap,
    /// From bucket to queue, where the table is a card's own.
    pub(crate) queues: Option<Vec<u16>>,
    /// Hashes that a card delivers may be those of this configuration.
    delivered: bool,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// The hash; 0 if the packet is not hashed.
    pub hash: u32,
    /// What the hash covers.
    pub hash_type: HashType,
    /// Slot of the table.
    pub slot: usize,
    /// Bucket in that slot.
    pub bucket: Bucket,
    /// Worker of that bucket.
    pub worker: Worker,
}

impl Rss {
    /// The defaults for `workers` workers: 128 slots (more if there are more buckets) and [`default_buckets`].
    ///
    /// Zero workers count as one.
    ///
    /// # Panics
    /// If there are more workers than can be numbered (65535).
    #[must_use]
    pub fn new(key: Key, workers: usize) -> Self {
        let count = default_buckets(workers);
        let map = BucketMap::new(count, workers.max(1));
        let table = Indirection::new(Indirection::DEFAULT_SLOTS.max(count), count);
        let (Ok(buckets), Ok(table)) = (map, table) else {
            panic!("{workers} workers are more than can be numbered");
        };
        Self::from_parts(Toeplitz::new(&key), HashConfig::default(), table, buckets)
    }

    /// Of these parts. Slots that name a bucket beyond the map wrap around.
    #[must_use]
    pub fn from_parts(
        hasher: impl Into<Hasher>,
        config: HashConfig,
        table: Indirection,
        buckets: BucketMap,
    ) -> Self {
        let mut table = table;
        for slot in 0..table.len() {
            let Bucket(bucket) = table.slots()[slot];
            table.set(slot, Bucket(bucket & (buckets.len() - 1) as u16));
        }
        Self { hasher: Arc::new(hasher.into()), config, table, buckets, queues: None, delivered: true }
    }

    /// The same for a card whose delivered hashes are not those that are computed here: a rule that was learned from queues alone names
    /// the same queues by other hashes. No delivered hash is believed then.
    #[must_use]
    pub fn without_delivered_hashes(mut self) -> Self {
        self.delivered = false;
        self
    }

    /// Whether hashes that a card delivers may be those of this configuration.
    #[must_use]
    #[inline]
    pub fn takes_delivered_hashes(&self) -> bool {
        self.delivered
    }

    /// Whether a delivered hash may be used: [`HashConfig::accepts`], if delivered hashes can be ours.
    #[must_use]
    #[inline]
    pub fn accepts(&self, delivered: HashType, flow: &Flow) -> bool {
        self.delivered && self.config.accepts(delivered, flow)
    }

    /// The hasher.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Refuses a useless key: see [`Quality::require_useful`](crate::Quality::require_useful). A card's own rule without a
    /// key is taken as it is.
    ///
    /// # Errors
    /// Names the field that lacks effect.
    pub fn require_useful_key(&self) -> Result<(), KeyError> {
        self.hasher.key().map_or(Ok(()), |key| key.judge(&self.table).require_useful(&self.config))
    }

    /// The hash this configuration computes for a received packet, and its type.
    ///
    /// (0, [`HashType::None`]) if no type that is on applies.
    #[must_use]
    #[inline]
    pub fn software_hash(&self, flow: &Flow) -> (u32, HashType) {
        let hash_type = self.config.type_of(flow);
        (self.hasher.hash_as(hash_type, flow), hash_type)
    }

    /// The hash to attach to a packet that is sent: that of the reply to it, so both directions name one bucket.
    #[must_use]
    #[inline]
    pub fn transmit_hash(&self, flow: &Flow) -> (u32, HashType) {
        self.software_hash(&flow.reply())
    }

    /// The delivered hash where it may be believed ([`HashConfig::accepts`]), the software hash otherwise.
    #[must_use]
    #[inline]
    pub fn reuse_or_recompute(&self, delivered: (u32, HashType), flow: &Flow) -> (u32, HashType) {
        let hash_type = self.config.type_of(flow);
        if self.delivered && hash_type.has_affinity() && delivered.1 == hash_type {
            delivered
        } else {
            (self.hasher.hash_as(hash_type, flow), hash_type)
        }
    }

    /// The bucket of a hash.
    #[must_use]
    #[inline]
    pub fn bucket_of(&self, hash: u32) -> Bucket {
        self.table.bucket_of(hash)
    }

    /// Where a packet goes. One that is not hashed goes where hash 0 goes, as cards do.
    #[must_use]
    pub fn steer(&self, flow: &Flow) -> Steered {
        let (hash, hash_type) = self.software_hash(flow);
        let slot = self.table.slot_of(hash);
        let bucket = self.table.slots()[slot];
        Steered { hash, hash_type, slot, bucket, worker: self.buckets.worker_of(bucket) }
    }

    /// The slots that lead to a bucket.
    #[must_use]
    pub fn slots_of_bucket(&self, bucket: Bucket) -> SlotSet {
        self.table.slots_where(|b| b == bucket)
    }

    /// The slots that lead to any bucket of a worker.
    #[must_use]
    pub fn slots_of_worker(&self, worker: Worker) -> SlotSet {
        self.table.slots_where(|b| self.buckets.worker_of(b) == worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protocol, UdpFields};

    fn flow(protocol: Protocol) -> Flow {
        Flow::new("66.9.149.187:2794".parse().unwrap(), "161.142.100.80:1766".parse().unwrap(), protocol)
    }

    #[test]
    fn protocols_choose_fields() {
        let mut rss = Rss::new(Key::MICROSOFT, 4);
        let udp = flow(Protocol::UDP);
        assert_eq!(rss.software_hash(&flow(Protocol::TCP)), (0x51cc_c178, HashType::TcpIpv4));
        assert_eq!(rss.software_hash(&udp), (0x323e_8fc2, HashType::Ipv4));
        rss.config = HashConfig::with_udp(UdpFields::Four);
        assert_eq!(rss.software_hash(&udp), (0x51cc_c178, HashType::UdpIpv4));
        assert_eq!(rss.software_hash(&Flow { fragment: true, ..udp }), (0x323e_8fc2, HashType::Ipv4));
        let steered = rss.steer(&udp);
        assert_eq!((steered.slot, steered.bucket, steered.worker), (120, Bucket(0), Worker(0)));
    }

    #[test]
    fn what_is_sent_hashes_like_its_reply() {
        let rss = Rss::new(Key::MICROSOFT, 4);
        let sent = flow(Protocol::TCP).reply();
        assert_eq!(rss.transmit_hash(&sent), (0x51cc_c178, HashType::TcpIpv4));
    }

    #[test]
    fn a_card_is_believed_or_corrected() {
        let rss = Rss::new(Key::MICROSOFT, 4);
        let udp = flow(Protocol::UDP);
        let good = (0xdead_beef, HashType::Ipv4);
        assert_eq!(rss.reuse_or_recompute(good, &udp), good);
        assert!(rss.accepts(HashType::Ipv4, &udp) && rss.takes_delivered_hashes());
        let learned = rss.clone().without_delivered_hashes();
        assert_eq!(learned.reuse_or_recompute(good, &udp), (0x323e_8fc2, HashType::Ipv4));
        assert!(!learned.accepts(HashType::Ipv4, &udp) && !learned.takes_delivered_hashes());
        for wrong in HashType::ALL.into_iter().filter(|&t| t != HashType::Ipv4) {
            assert_eq!(rss.reuse_or_recompute((1, wrong), &udp), (0x323e_8fc2, HashType::Ipv4));
        }
    }

    #[test]
    fn slots_follow_moved_buckets() {
        let mut rss = Rss::new(Key::MICROSOFT, 4);
        assert_eq!(rss.slots_of_worker(Worker(1)).len(), 32);
        rss.buckets.assign(Bucket(0), Worker(1));
        assert_eq!(rss.slots_of_worker(Worker(1)).len(), 48);
        assert!(rss.slots_of_bucket(Bucket(3)).iter().all(|slot| slot % 8 == 3));
    }
}
