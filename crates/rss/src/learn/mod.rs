//! Learning how a card steers from the packets that it receives: hash, arrangement, fields and table.
//!
//! Every hash that cards are known to compute is affine over GF(2), most after source and destination are put in some order (`Arrangement`).
//! So a few hundred packets and their hashes are a system of linear equations whose solution is the card's rule, whether it has a key or not
//! (`from_hashes`). If the card reports no hash, the queue has to do: it is a function of at most eleven such bits. They are found by searching
//! for the directions in which a packet's bits can change without an effect on the queue (`from_queues`). Any renaming of slots
//! predicts the same queues, so what is learned then is the card's rule up to renaming.
//!
//! ```text
//!   probe ──▶ card ──▶ hash, queue       learn:  hash = A·arranged(probe) + c       table: slot ▶ queue
//! ```
//!
//! This module does no I/O. Its caller brings an oracle, a function that sends packets and returns the card's answers. Answers may be lost and a few
//! may be wrong. The result is checked with packets that were not used for learning ([`Learned::verified`]). A card that follows no such rule
//! is recognised, and [`LearnError`] says what contradicts.
//!
//! Not learned are rules on other fields than addresses and ports, and kinds of packets that the caller does not ask for.

mod asker;
mod counterexample;
mod dependence;
mod from_hashes;
mod from_queues;
mod relations;
mod seen;
mod space;
mod system;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;

use crate::{Bucket, Flow, General, Indirection, PacketKind};
use asker::Asker;
pub use seen::{Extent, Gaps, Seen, SeenOptions, Span, learn_seen};

/// A card's answer to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The hash, if the card reported one.
    pub hash: Option<u32>,
    /// The queue on which the packet arrived.
    pub queue: u16,
}

/// Sends packets and returns the answer to each, in order; `None` for one that did not arrive.
pub type Oracle<'a> = dyn FnMut(&[Flow]) -> Vec<Option<Answer>> + 'a;

/// How to learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of the random probes.
    pub seed: u64,
    /// The kinds of packets to learn.
    pub kinds: Vec<PacketKind>,
    /// Use the hashes that the card reports, not only queues.
    pub hashes: bool,
    /// Most probes that are sent, apart from a few that show why these were not enough.
    pub probes: usize,
}

impl Options {
    /// All kinds, hashes if the card reports them, at most 10,000 probes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, kinds: PacketKind::ALL.to_vec(), hashes: true, probes: 10_000 }
    }
}

/// What was learned.
#[derive(Clone, Debug)]
pub struct Learned {
    /// From a packet to its hash.
    pub rule: General,
    /// From hash to queue: the buckets of this table are queues.
    pub table: Indirection,
    /// Whether the rule computes the hashes that the card reports. Otherwise it computes other numbers, which lead to the same
    /// queues.
    pub hashes: bool,
    /// What else was noticed.
    pub findings: Vec<Finding>,
    /// Probes that were sent, including those whose answers were lost.
    pub probes: usize,
    /// Answers that never came.
    pub lost: usize,
    /// Packets, not used for learning, whose hash and queue were as predicted.
    pub verified: usize,
}

impl Learned {
    /// The hash of a packet, and the queue on which it arrives.
    #[must_use]
    pub fn predict(&self, flow: &Flow) -> (Option<u32>, u16) {
        let hash = self.rule.hash(flow);
        let Bucket(queue) = self.table.bucket_of(hash.unwrap_or(0));
        (hash, queue)
    }
}

/// A property of a card that the user should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The card reports no hash for packets of this kind, but does for others.
    NotHashed(PacketKind),
    /// Hashes differ, but all packets arrive on one queue: all slots name it, or the table is ignored.
    OneQueue(u16),
    /// Some packets arrived on another queue than that of their hash.
    Misdirects {
        /// How many.
        wrong: usize,
        /// Of how many.
        of: usize,
    },
    /// The queues of some slots were not seen.
    SlotsUnseen {
        /// How many.
        unseen: usize,
        /// Of how many.
        of: usize,
        /// Whether they are taken from a pattern of the seen slots. Otherwise they are guesses.
        pattern: bool,
    },
    /// Observed packets do not determine the rule for all packets of a kind.
    Undetermined {
        /// The kind.
        kind: PacketKind,
        /// Independent flows.
        rank: usize,
        /// The value if all flows of the kind are determined.
        of: usize,
    },
    /// Some reported hashes were not those of the rule.
    WrongHashes {
        /// How many.
        wrong: usize,
        /// Of how many.
        of: usize,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHashed(kind) => write!(f, "{kind} packets are not hashed"),
            Self::OneQueue(queue) => {
                write!(
                    f,
                    "hashes differ but every packet comes on queue {queue}: the table is ignored, or all its slots name it"
                )
            }
            Self::Misdirects { wrong, of } => {
                write!(f, "misdirects: {wrong} of {of} packets came on another queue than their hash names")
            }
            Self::SlotsUnseen { unseen, of, pattern: true } => {
                write!(
                    f,
                    "{unseen} of {of} slots were not seen: their queues continue the pattern of the others"
                )
            }
            Self::SlotsUnseen { unseen, of, pattern: false } => {
                write!(f, "{unseen} of {of} slots were not seen: their queues are not known")
            }
            Self::Undetermined { kind, rank, of } => {
                write!(
                    f,
                    "{kind}: {rank} of {of} dimensions are determined; flows outside of these are not predicted"
                )
            }
            Self::WrongHashes { wrong, of } => {
                write!(f, "{wrong} of {of} hashes are not those of the rule that the others follow")
            }
        }
    }
}

/// Why nothing was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LearnError {
    /// No kind of packet was asked for.
    NoKinds,
    /// Packets are not answered.
    NoAnswer {
        /// Probes that were sent.
        asked: usize,
        /// How many of the packets were never answered.
        lost: usize,
    },
    /// The card reports no hash, and all packets arrive on one queue.
    Off {
        /// The queue.
        queue: u16,
    },
    /// The same packet arrives on different queues.
    Unsteady {
        /// Packets that arrived on two queues.
        differ: usize,
        /// Packets that were sent twice.
        of: usize,
    },
    /// The hash is affine under no arrangement.
    NotAffine {
        /// The kind of packets.
        kind: PacketKind,
        /// Probes that had been sent.
        probes: usize,
        /// Packets that the best affine map contradicts.
        wrong: usize,
        /// Of how many.
        of: usize,
    },
    /// The queue is no function of eleven affine bits.
    NotAffineQueues {
        /// The kind of packets.
        kind: PacketKind,
        /// Probes that had been sent.
        probes: usize,
    },
    /// The hash is affine, but the queue does not follow from hash modulo any number of slots.
    NoTable {
        /// Probes that had been sent.
        probes: usize,
    },
    /// The tables of several kinds do not fit into one of 2048 slots.
    Tables,
    /// The card answers otherwise than it did at first.
    Changed {
        /// Probes that had been sent.
        probes: usize,
    },
    /// What was learned failed on fresh packets.
    Unverified {
        /// Predictions that were wrong.
        wrong: usize,
        /// Of how many.
        of: usize,
    },
    /// The observed packets are too few.
    TooFew {
        /// Different flows among them.
        flows: usize,
        /// Why they are too few.
        why: &'static str,
    },
    /// More probes are needed.
    Probes {
        /// How many were allowed.
        limit: usize,
        /// What they were needed for.
        doing: &'static str,
    },
}

impl fmt::Display for LearnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKinds => write!(f, "no kind of packet to learn"),
            Self::NoAnswer { asked, lost } => {
                write!(f, "{lost} packets were never answered ({asked} probes sent)")
            }
            Self::Off { queue } => write!(
                f,
                "no packet has a hash and all come on queue {queue}: RSS is off (cards forget it when an XDP program comes or channels change; set key or table again), or there is one queue"
            ),
            Self::Unsteady { differ, of } => {
                write!(f, "unsteady: of {of} packets that were sent twice, {differ} came on two queues")
            }
            Self::NotAffine { kind, probes, wrong, of } => write!(
                f,
                "not affine: after {probes} probes {wrong} of {of} {kind} packets contradict the best affine rule, under every known order of fields: a keyed hash such as jhash"
            ),
            Self::NotAffineQueues { kind, probes } => write!(
                f,
                "not affine: after {probes} probes the queue of {kind} packets is no function of 11 affine bits: a keyed hash such as jhash, or a table whose size is no power of two (which takes reported hashes to learn)"
            ),
            Self::NoTable { probes } => write!(
                f,
                "the hash is affine, but after {probes} probes the queue follows from it by no table of 2 to 2048 slots: something else chooses queues (n-tuple rules, RPS, a flow director)"
            ),
            Self::Tables => write!(
                f,
                "the tables of IPv4 and IPv6 do not fit into one of 2048 slots: learn one family at a time"
            ),
            Self::Changed { probes } => write!(
                f,
                "the card changed its mind: after {probes} probes it answers otherwise than at first (cards forget their settings when an XDP program comes or channels change)"
            ),
            Self::Unverified { wrong, of } => {
                write!(f, "what was learned is wrong for {wrong} of {of} fresh packets: not used")
            }
            Self::TooFew { flows, why } => write!(f, "{flows} flows are too few: {why}"),
            Self::Probes { limit, doing } => write!(f, "{limit} probes are not enough: needed for {doing}"),
        }
    }
}

impl core::error::Error for LearnError {}

/// Learns how a card steers.
///
/// It learns from hashes if the options allow it and the card reports them, otherwise from queues. It takes a few milliseconds from hashes and
/// up to some tenths of a second from queues, besides the oracle's time.
///
/// # Errors
/// See [`LearnError`]. A result that fresh packets do not confirm is an error, too.
pub fn learn<'a>(options: &Options, oracle: &'a mut Oracle<'a>) -> Result<Learned, LearnError> {
    let mut kinds = options.kinds.clone();
    // The longest data comes first: the rules for shorter data often follow from it.
    kinds.sort_by_key(|kind| (core::cmp::Reverse(kind.bits()), !kind.has_ports(), *kind));
    kinds.dedup();
    if kinds.is_empty() {
        return Err(LearnError::NoKinds);
    }
    let mut asker = Asker::new(oracle, options.seed, options.probes);
    let seen = first_look(&mut asker, &kinds)?;
    let hashed = seen.iter().any(|(_, answer)| answer.hash.is_some());
    let learned = if options.hashes && hashed {
        from_hashes::learn(&mut asker, &kinds, &seen)
    } else {
        let queue = seen[0].1.queue;
        if seen.iter().all(|(_, answer)| answer.queue == queue) {
            return Err(if hashed {
                LearnError::NoTable { probes: asker.asked }
            } else {
                LearnError::Off { queue }
            });
        }
        from_queues::learn(&mut asker, &kinds)
    };
    match learned {
        Err(error) if error.may_be_a_change() && !asker.still_the_same()? => {
            Err(LearnError::Changed { probes: asker.asked })
        }
        other => other,
    }
}

impl LearnError {
    /// Whether this error may come from a card that changed during learning.
    fn may_be_a_change(&self) -> bool {
        !matches!(self, Self::NoKinds | Self::Off { .. } | Self::NoAnswer { .. } | Self::Changed { .. })
    }
}

/// Some packets of each kind and their answers.
fn first_look(
    asker: &mut Asker<'_>,
    kinds: &[PacketKind],
) -> Result<Vec<(crate::packet::Tuple, Answer)>, LearnError> {
    let tuples: Vec<_> = kinds.iter().flat_map(|kind| [*kind; FIRST]).map(|kind| asker.any(kind)).collect();
    let answers = asker.ask(&tuples, "a first look")?;
    let seen: Vec<_> = tuples.into_iter().zip(answers).filter_map(|(t, a)| Some((t, a?))).collect();
    // A path that loses most packets shows nothing.
    if 2 * seen.len() < FIRST * kinds.len() {
        return Err(LearnError::NoAnswer { asked: asker.asked, lost: asker.lost });
    }
    Ok(seen)
}

/// Packets of each kind that are sent first.
const FIRST: usize = 12;
