//! Emulated cards, by name: the queue and hash that such a card gives a packet.
//!
//! Each has a hash function, an indirection table, and possibly a fault, as seen on real or virtual cards. The [learner](crate::learn) is
//! tested on them, and the pair link can use them in place of a card. Their hashes are computed by definition, not by the general rule that
//! the learner finds.
//!
//! A card takes packets one by one and returns the queue and the hash of each.

mod hashes;
#[cfg(test)]
mod tests;

use core::fmt;

use crate::packet::Tuple;
use crate::random::Random;
use crate::{
    Arrangement, Bucket, Flow, HashConfig, HashType, Indirection, IndirectionError, Key, Toeplitz, UdpFields,
};
use hashes::Function;

/// The names of all cards, with their properties.
pub const CARDS: [(&str, &str); 18] = [
    ("microsoft", "Toeplitz under the published key"),
    ("random", "Toeplitz under a random key"),
    ("symmetric", "Toeplitz under the key 6d5a repeated"),
    ("symmetric-xor", "Toeplitz of source xor destination, twice, under a random key"),
    (
        "symmetric-or-xor",
        "Toeplitz of source or destination, then source xor destination, under a random key",
    ),
    ("sorted-pair", "Toeplitz of the lower address and its port first, under a random key"),
    ("reversed", "Toeplitz under a random key with its bytes reversed, start value ffffffff"),
    ("fold16", "Toeplitz under a random key, its halves folded to 16 bits"),
    ("crc32c", "CRC32C of addresses and ports"),
    ("xor", "exclusive or of the 32-bit words of addresses and ports"),
    ("jhash", "a keyed hash that is not affine"),
    ("random-table", "Toeplitz under a random key; random queues in the table"),
    ("weighted-table", "Toeplitz under a random key; queue i has i + 1 shares of the table, in one run each"),
    ("odd-table", "Toeplitz under a random key; three quarters of the slots, the slot is hash % slots"),
    (
        "table-modulo",
        "Toeplitz under a random key; a table for twice the queues, the queue is table % queues",
    ),
    ("table-ignored", "Toeplitz under a random key; all on queue 0, whatever the table says"),
    ("forgets", "Toeplitz under a random key, until something disturbs the card: then no hash, and queue 0"),
    (
        "misdirects",
        "Toeplitz under a random key; one frame in 16 on the queue after the right one, hash right",
    ),
];

/// Frames of a card that misdirects for each one that it misdirects.
const MISDIRECTED_ONE_IN: usize = 16;

/// Options of an emulated card, besides its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardOptions {
    /// Seed of random keys and tables.
    pub seed: u64,
    /// Slots of the table, 2 to 2048.
    pub slots: usize,
    /// Queues, 1 to 1024.
    pub queues: u16,
    /// Fields of UDP.
    pub udp: UdpFields,
}

impl Default for CardOptions {
    /// 128 slots, 4 queues, UDP on addresses.
    fn default() -> Self {
        Self { seed: 1, slots: Indirection::DEFAULT_SLOTS, queues: 4, udp: UdpFields::Two }
    }
}

/// Why there is no such card.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardError {
    /// No card of that name.
    Name(String),
    /// No such table.
    Table(IndirectionError),
    /// Not 1 to 1024 queues.
    Queues(u16),
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "no emulated card '{name}': there are ")?;
                let names = CARDS.map(|(name, _)| name);
                write!(f, "{}", names.join(", "))
            }
            Self::Table(error) => error.fmt(f),
            Self::Queues(n) => write!(f, "{n} queues: must be 1 to 1024"),
        }
    }
}

impl core::error::Error for CardError {}

/// Queue and hash that a card gives a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The hash that the card reports; 0 without one.
    pub hash: u32,
    /// The fields it covers; [`HashType::None`] if the card did not hash the packet.
    pub hash_type: HashType,
    /// The queue.
    pub queue: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    TableIgnored,
    Forgets,
    Misdirects,
}

/// One emulated card.
#[derive(Clone, Debug)]
pub struct Card {
    name: &'static str,
    function: Function,
    config: HashConfig,
    table: Indirection,
    fault: Fault,
    /// Whether RSS is on.
    on: bool,
    random: Random,
}

impl Card {
    /// The card of that name.
    ///
    /// # Errors
    /// If there is none, or it cannot have such a table.
    pub fn new(name: &str, options: &CardOptions) -> Result<Self, CardError> {
        let found = CARDS.iter().find(|(card, _)| *card == name);
        let &(name, _) = found.ok_or_else(|| CardError::Name(name.to_owned()))?;
        if options.queues == 0 || options.queues > 1024 {
            return Err(CardError::Queues(options.queues));
        }
        let mut random = Random::new(options.seed);
        let key = match name {
            "microsoft" => Key::MICROSOFT,
            "symmetric" => Key::symmetric(),
            _ => Key::random(|bytes| random.fill(bytes)),
        };
        let function = match name {
            "symmetric-xor" => Function::SymmetricXor(Toeplitz::new(&key)),
            "symmetric-or-xor" => Function::Arranged(Arrangement::OrXor, Toeplitz::new(&key)),
            "sorted-pair" => Function::Arranged(Arrangement::Sorted, Toeplitz::new(&key)),
            "reversed" => Function::reversed(&key),
            "fold16" => Function::Fold16(Toeplitz::new(&key)),
            "crc32c" => Function::Crc32c,
            "xor" => Function::Xor,
            "jhash" => Function::Jhash(random.next() as u32),
            _ => Function::Toeplitz(Toeplitz::new(&key)),
        };
        let fault = match name {
            "table-ignored" => Fault::TableIgnored,
            "forgets" => Fault::Forgets,
            "misdirects" => Fault::Misdirects,
            _ => Fault::None,
        };
        let table = table(name, options, &mut random).map_err(CardError::Table)?;
        let config = HashConfig::with_udp(options.udp);
        Ok(Self { name, function, config, table, fault, on: true, random })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The table, naming queues; what the card shows, even if it does otherwise.
    #[must_use]
    pub fn table(&self) -> &Indirection {
        &self.table
    }

    /// Gives the card another table.
    pub fn set_table(&mut self, table: Indirection) {
        self.table = table;
    }

    /// Lets what happens on one queue differ from what happens on another, where the card throws dice.
    #[must_use]
    pub fn reseeded(mut self, seed: u64) -> Self {
        self.random = Random::new(seed);
        self
    }

    /// Simulates that an XDP program is attached or detached or the channels change: a card that loses its RSS then switches it off.
    pub fn disturb(&mut self) {
        self.on = self.fault != Fault::Forgets;
    }

    /// Key, fields and table are set again: RSS is on.
    pub fn restore(&mut self) {
        self.on = true;
    }

    /// The hash of a packet and what it covers, while RSS is on; (0, none) if such packets are not hashed.
    #[must_use]
    pub fn hash(&self, flow: &Flow) -> (u32, HashType) {
        let hash_type = self.config.type_of(flow);
        match Tuple::of(flow) {
            Some(tuple) if hash_type != HashType::None => {
                (self.function.hash(&tuple, hash_type.has_ports()), hash_type)
            }
            _ => (0, HashType::None),
        }
    }

    /// Takes a packet from the wire.
    pub fn receive(&mut self, flow: &Flow) -> Received {
        if !self.on {
            return Received { hash: 0, hash_type: HashType::None, queue: 0 };
        }
        let (hash, hash_type) = self.hash(flow);
        let Bucket(mut queue) = self.table.bucket_of(hash);
        match self.fault {
            Fault::TableIgnored => queue = 0,
            Fault::Misdirects if self.random.below(MISDIRECTED_ONE_IN) == 0 => {
                let queues = self.table.slots().iter().map(|b| b.0).max().unwrap_or(0) + 1;
                queue = (queue + 1) % queues;
            }
            _ => {}
        }
        Received { hash, hash_type, queue }
    }
}

fn table(name: &str, options: &CardOptions, random: &mut Random) -> Result<Indirection, IndirectionError> {
    let (slots, queues) = (options.slots, options.queues);
    let queue = |i: usize| Bucket((i % usize::from(queues)) as u16);
    match name {
        "odd-table" => {
            let odd = if slots.is_power_of_two() { slots - slots / 4 } else { slots };
            Indirection::new(odd.max(3), queues.into())
        }
        "random-table" => {
            // Out of range is refused below, before anything that large is made.
            let n = slots.min(crate::MAX_SLOTS + 1);
            Indirection::from_slots((0..n).map(|_| queue(random.below(usize::from(queues)))).collect())
        }
        "weighted-table" => {
            let n = usize::from(queues);
            let shares = n * (n + 1) / 2;
            let of_share = |share: usize| (1..=n).find(|q| q * (q + 1) / 2 > share).unwrap_or(n) - 1;
            let wide = slots.min(crate::MAX_SLOTS + 1);
            Indirection::from_slots((0..wide).map(|i| queue(of_share(i * shares / wide.max(1)))).collect())
        }
        "table-modulo" => {
            let n = slots.min(crate::MAX_SLOTS + 1);
            let twice = 2 * usize::from(queues);
            Indirection::from_slots((0..n).map(|_| queue(random.below(twice))).collect())
        }
        _ => Indirection::new(slots, queues.into()),
    }
}
