//! The card under a link: its settings as its driver reports them, and as our own steering.
//!
//! ```no_run
//! use flowlane::card::{self, Card};
//!
//! let card: Card = card::read("eth0")?;                        // key, table, fields, rules, channels, offloads; no privileges
//! match card::steering(&card) {
//!     Ok(steering) => println!("{} slots", steering.table.len()), // key, HashConfig and slot -> queue: the card's RSS as ours
//!     Err(reason) => println!("eth0: {reason}"),               // "hashes with crc32, which is not ours: ..."
//! }
//! # Ok::<(), flowlane_sys::error::Error>(())
//! ```
//!
//! * [`Card`] has the settings as the driver reports them ([`flowlane_sys::netdev::card`]), each or the reason why it is not known.
//! * [`steering`] converts them to [`Key`], [`HashConfig`] and a queue for each slot, or says why that is impossible: other functions than
//!   Toeplitz, transforms of the fields, sets of fields that no [`HashConfig`] has.
//! * [`Control`] changes a card: key, function, table and fields in one [`Change`], single slots with [`Control::set_slots`].
//!
//! * [`Held`] changes a card for the length of a run: its former settings are in a state file until they are restored ([`put_back`]), by this
//!   run or, after a crash, by the next.
//!
//! * [`queue_counts`] are the packets and bytes of each queue; [`features`] tell what AF_XDP can do with the driver.
//!
//! * [`Surroundings`] has the kernel's settings for the packets of each queue: interrupts and their processors, RPS, RFS, XPS, NUMA node.
//!
//! * [`tune`] makes queues, RSS, interrupts, XPS, RPS and RFS fit together, and takes that back.
//!
//! A card may behave differently from what its driver reports. virtio's loses its RSS after an XDP program is attached or detached
//! ([`forgets_after_xdp`]); other cards ignore their table. A program that relies on this should compare it with received packets.

mod access;
mod adopt;
mod held;
mod place;
mod state;
mod surroundings;
pub mod tune;

pub use access::Access;
pub use adopt::{NotAdopted, Served, adopt, fields, plan, tells_udp, udp_by_addresses};
pub use held::{Held, HoldError, Outcome, Why, namespace, put_back};
pub use place::{Place, StateError};
pub use state::Owner;
pub use surroundings::{Cpus, Interrupt, ReceiveQueue, Surroundings, TransmitQueue, Unseen};

pub use flowlane_sys::netdev::card::control::{Change, Control, Refusal, SetError, Table};
pub use flowlane_sys::netdev::card::ethtool::{ChannelCounts, Counts, Driver, Offload, Offloads};
pub use flowlane_sys::netdev::card::fields::{Fields, FlowKind};
pub use flowlane_sys::netdev::card::rss::{Context, Function, HashKey, Rss as CardRss, Transform};
pub use flowlane_sys::netdev::card::rules::{Action, Matches, Rule, Rules};
pub use flowlane_sys::netdev::card::{Card, Told, Untold, Way, forgets_after_xdp};
pub use flowlane_sys::netdev::queues::{
    Count as QueueCount, Counts as QueueCounts, Features, Source as CountedBy,
};

use flowlane_rss::{HashConfig, Key, KeyError, MAX_SLOTS, Toeplitz};
use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;

/// Reads the card called `interface`, of the calling thread's network namespace. Needs no privileges on usual kernels.
///
/// # Errors
/// There is no such interface, or a socket cannot be opened. A value that the driver does not report is an [`Untold`] instead.
pub fn read(interface: &str) -> Result<Card, Error> {
    Card::read(&Interface::find(interface)?)
}

/// Packets and bytes of each queue of the card called `interface`. Needs no privileges.
///
/// # Errors
/// There is no such interface; neither the kernel nor the driver counts single queues.
pub fn queue_counts(interface: &str) -> Result<Told<QueueCounts>, Error> {
    Ok(QueueCounts::read(&Interface::find(interface)?))
}

/// What the driver can do for XDP and AF_XDP.
///
/// # Errors
/// There is no such interface.
pub fn features(interface: &str) -> Result<Told<Features>, Error> {
    Ok(Features::read(&Interface::find(interface)?))
}

/// A card's spreading in the words of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// The card's key; the first 52 bytes of a longer one, of which the hash uses 40.
    pub key: Key,
    /// Which fields the card hashes.
    pub config: HashConfig,
    /// The queue of each slot: 2 to 2048 of them. The slot of a hash is its remainder by their number.
    pub table: Vec<u32>,
    /// Kinds of flow whose fields the driver does not tell, so that the usual ones are taken: ports for TCP, addresses otherwise.
    pub assumed: Vec<FlowKind>,
}

impl Steering {
    /// What computes the card's hash.
    #[must_use]
    pub fn hasher(&self) -> Toeplitz {
        Toeplitz::new(&self.key)
    }

    /// The queue of a packet with this hash.
    #[must_use]
    pub fn queue_of(&self, hash: u32) -> u32 {
        self.table[hash as usize % self.table.len()]
    }
}

/// Why a card's spreading cannot be said in the words of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotOurs {
    /// The driver does not tell how it spreads.
    Untold(Untold),
    /// The driver shows no key.
    NoKey,
    /// A key that the hash cannot have.
    Key(KeyError),
    /// A table that ours cannot be: this number of slots; 0 where the driver shows none.
    Slots(usize),
    /// Another function than Toeplitz.
    Function(Function),
    /// The fields are changed before they are hashed.
    Transform(Transform),
    /// Fields of a kind of flow that no [`HashConfig`] has: neither none, nor the addresses, nor addresses and ports, or others than
    /// those of all packets of the family.
    Fields(FlowKind, Fields),
}

impl std::fmt::Display for NotOurs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Untold(Untold::Unsupported) => f.write_str("the driver tells nothing of RSS"),
            Self::Untold(why) => write!(f, "its RSS cannot be read: {why}"),
            Self::NoKey => f.write_str("the driver does not show its key"),
            Self::Key(why) => write!(f, "its {why}"),
            Self::Slots(0) => f.write_str("the driver does not show its table"),
            Self::Slots(n) => write!(f, "its table has {n} slots: ours have 2 to {MAX_SLOTS}"),
            Self::Function(Function::Untold) => {
                f.write_str("the driver does not say with which function it hashes")
            }
            Self::Function(function) => write!(
                f,
                "it hashes with {function}, not with toeplitz ('ethtool -X IFACE hfunc toeplitz' where it can)"
            ),
            Self::Transform(how) => write!(
                f,
                "it changes the fields before it hashes them ({how}; 'ethtool -X IFACE xfrm none' ends that)"
            ),
            Self::Fields(kind, fields) => {
                write!(
                    f,
                    "of {kind} it hashes {fields}, which ours cannot beside what it hashes of other packets"
                )
            }
        }
    }
}

impl std::error::Error for NotOurs {}

/// The card's spreading as key, fields and table of ours.
///
/// Rules and contexts are not looked at: they send some packets elsewhere, whatever key and table say.
///
/// # Errors
/// [`NotOurs`] says what of it we cannot say.
pub fn steering(card: &Card) -> Result<Steering, NotOurs> {
    steering_of(card.rss.as_ref().map_err(|why| NotOurs::Untold(*why))?)
}

/// As [`steering`], of a spreading at hand.
///
/// # Errors
/// As [`steering`].
pub fn steering_of(rss: &CardRss) -> Result<Steering, NotOurs> {
    if rss.function != Function::Toeplitz {
        return Err(NotOurs::Function(rss.function));
    }
    if rss.transform != Transform::None {
        return Err(NotOurs::Transform(rss.transform));
    }
    if rss.key.0.is_empty() {
        return Err(NotOurs::NoKey);
    }
    if !(2..=MAX_SLOTS).contains(&rss.table.len()) {
        return Err(NotOurs::Slots(rss.table.len()));
    }
    let key = Key::new(&rss.key.0[..rss.key.0.len().min(52)]).map_err(NotOurs::Key)?;
    let mut assumed = Vec::new();
    let mut fields = |kind: FlowKind, usual: Fields| match rss.fields_of(kind) {
        Ok(fields) if [Fields::NONE, Fields::ADDRESSES, Fields::FOUR].contains(&fields) => Ok(fields),
        Ok(fields) => Err(NotOurs::Fields(kind, fields)),
        Err(_) => {
            assumed.push(kind);
            Ok(usual)
        }
    };
    let mut family = |tcp: FlowKind, udp: FlowKind, ip: FlowKind| {
        let usual = [(tcp, Fields::FOUR), (udp, Fields::ADDRESSES), (ip, Fields::ADDRESSES)];
        let [tcp_fields, udp_fields, ip_fields] = usual.map(|(kind, usual)| fields(kind, usual));
        let (tcp_fields, udp_fields, ip_fields) = (tcp_fields?, udp_fields?, ip_fields?);
        // What is hashed on addresses is hashed as any packet of the family, so all of these kinds are or none.
        for (kind, fields) in [(tcp, tcp_fields), (udp, udp_fields)] {
            if fields != Fields::FOUR && fields != ip_fields {
                return Err(NotOurs::Fields(kind, fields));
            }
        }
        if ip_fields == Fields::FOUR {
            return Err(NotOurs::Fields(ip, ip_fields));
        }
        Ok((ip_fields == Fields::ADDRESSES, tcp_fields == Fields::FOUR, udp_fields == Fields::FOUR))
    };
    let (ipv4, tcp_ipv4, udp_ipv4) = family(FlowKind::Tcp4, FlowKind::Udp4, FlowKind::Ip4)?;
    let (ipv6, tcp_ipv6, udp_ipv6) = family(FlowKind::Tcp6, FlowKind::Udp6, FlowKind::Ip6)?;
    let config = HashConfig { ipv4, tcp_ipv4, udp_ipv4, ipv6, tcp_ipv6, udp_ipv6 };
    Ok(Steering { key, config, table: rss.table.clone(), assumed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::UdpFields;

    fn rss(udp: Fields) -> CardRss {
        let fields = |kind: FlowKind| match kind {
            FlowKind::Tcp4 | FlowKind::Tcp6 => Ok(Fields::FOUR),
            FlowKind::Udp4 | FlowKind::Udp6 => Ok(udp),
            FlowKind::Ip4 | FlowKind::Ip6 => Ok(Fields::ADDRESSES),
            _ => Err(Untold::Unsupported),
        };
        CardRss {
            function: Function::Toeplitz,
            transform: Transform::None,
            key: HashKey(Key::MICROSOFT.as_bytes().to_vec()),
            table: (0..128).map(|slot| slot % 3).collect(),
            fields: FlowKind::ALL.iter().map(|&kind| (kind, fields(kind))).collect(),
        }
    }

    #[test]
    fn a_usual_card_is_said_in_our_words() {
        for (fields, udp) in [(Fields::ADDRESSES, UdpFields::Two), (Fields::FOUR, UdpFields::Four)] {
            let steering = steering_of(&rss(fields)).unwrap();
            assert_eq!((steering.key, steering.config), (Key::MICROSOFT, HashConfig::with_udp(udp)));
            assert_eq!((steering.table.len(), steering.assumed), (128, vec![]));
        }
    }

    #[test]
    fn what_is_not_told_is_assumed_and_said() {
        let mut of = rss(Fields::FOUR);
        of.fields.clear();
        let steering = steering_of(&of).unwrap();
        assert_eq!((steering.config, steering.assumed.len()), (HashConfig::default(), 6));
    }

    #[test]
    fn any_size_of_table_and_longer_keys() {
        let mut of = rss(Fields::FOUR);
        of.table = vec![1; 100];
        of.table[57] = 2;
        of.key.0 = vec![3; 60];
        let steering = steering_of(&of).unwrap();
        assert_eq!((steering.queue_of(5057), steering.queue_of(5058)), (2, 1));
        assert_eq!(steering.key.as_bytes().len(), 52);
    }

    #[test]
    fn what_cannot_be_said_has_a_reason() {
        let why = |change: fn(&mut CardRss)| {
            let mut of = rss(Fields::FOUR);
            change(&mut of);
            steering_of(&of).unwrap_err()
        };
        assert_eq!(why(|r| r.function = Function::Crc32), NotOurs::Function(Function::Crc32));
        assert_eq!(
            why(|r| r.transform = Transform::SymmetricXor),
            NotOurs::Transform(Transform::SymmetricXor)
        );
        assert_eq!(why(|r| r.key.0.clear()), NotOurs::NoKey);
        assert!(matches!(why(|r| r.key.0.truncate(8)), NotOurs::Key(KeyError::Length(8))));
        assert_eq!(why(|r| r.table.clear()), NotOurs::Slots(0));
        assert_eq!(why(|r| r.table = vec![0; 4096]), NotOurs::Slots(4096));
        let odd = Fields(1 << 4);
        for (kind, fields) in [
            (FlowKind::Tcp4, odd),
            (FlowKind::Ip6, Fields::FOUR),
            (FlowKind::Ip4, Fields::NONE),
            (FlowKind::Udp6, Fields::NONE),
        ] {
            let mut of = rss(Fields::ADDRESSES);
            of.fields.iter_mut().find(|f| f.0 == kind).unwrap().1 = Ok(fields);
            assert!(matches!(steering_of(&of), Err(NotOurs::Fields(..))), "{kind} {fields}");
        }
        let mut unhashed = rss(Fields::FOUR);
        unhashed.fields.iter_mut().for_each(|f| f.1 = Ok(Fields::NONE));
        assert!(!steering_of(&unhashed).unwrap().config.ipv4, "a card may hash nothing");
    }

    #[test]
    fn loopback_has_no_steering() {
        let why = steering(&read("lo").unwrap()).unwrap_err();
        assert_eq!(why.to_string(), "the driver tells nothing of RSS");
        assert!(read("no-such-if0").is_err());
    }
}
