//! Learning from observed packets: from a capture, or received by an interface.
//!
//! Nobody chose these packets, so they may leave open what probes would settle. Flows of one network say nothing about another: an affine map is
//! known only where observed flows add up to others ([`Span`]), and the queue of a slot that no flow hit is unknown. The result
//! comes with these [`Gaps`].
//!
//! ```text
//!   hash and queue   Toeplitz key (320 unknowns, 32 equations a flow), else any affine map; then the table
//!   hash alone       the same without the table
//!   queue alone      a known key, tried; or queues that are the low bits of a hash (2, 4, 8 ... of them, dealt in turn)
//! ```
//!
//! A quarter of the flows is kept aside and has to be predicted from the rest. A few hashes may be wrong, one in some hundreds, and one queue
//! in sixteen, because cards misdirect.

mod affine;
mod key;
mod span;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Finding, LearnError, Learned};
use crate::packet::Tuple;
use crate::random::Random;
use crate::{Arrangement, Flow, General, Key, PacketKind, SlotSet};
use key::{Equations, Shape};
pub use span::Span;

/// An observed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its addresses and ports.
    pub flow: Flow,
    /// The hash that the card reported, if it is known.
    pub hash: Option<u32>,
    /// The queue on which it arrived, if it is known.
    pub queue: Option<u16>,
}

/// How to learn from observed packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenOptions {
    /// The kinds of packets to learn.
    pub kinds: Vec<PacketKind>,
    /// Use reported hashes, not only queues.
    pub hashes: bool,
    /// Slots of the card's table, where they are known.
    pub slots: Option<usize>,
    /// Keys that are tried if no hash is known, before the published and the symmetric one.
    pub keys: Vec<Key>,
}

impl SeenOptions {
    /// All kinds, with nothing known of the card.
    #[must_use]
    pub fn new() -> Self {
        Self { kinds: PacketKind::ALL.to_vec(), hashes: true, slots: None, keys: Vec::new() }
    }
}

impl Default for SeenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// What the flows of one kind determine.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The flows that are predicted.
    pub span: Span,
    /// Different flows that were seen.
    pub flows: usize,
}

/// What is known of a card, and thereby what is not.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// Of each kind that was learned.
    pub extents: Vec<Extent>,
    /// Slots whose queue is unknown; `None` if no queue is known, so that there is no table.
    pub unseen: Option<SlotSet>,
}

/// Most flows that are used, and most of each kind that equations are made of.
const MOST: usize = 1 << 16;
const EQUATIONS: usize = 600;
/// One flow in so many may contradict.
const CONTRADICT: usize = 16;
/// Orders of the flows that are tried. In one of them wrong hashes may come first.
const ORDERS: usize = 4;
/// Bits of a hash that are enough to refute most wrong forms.
const FEW_BITS: usize = 4;
/// Bits of the flows kept aside that must be predicted.
const SURE_BITS: usize = 64;

/// A flow, with the hash and queue of most of its packets.
#[derive(Clone, Copy, Debug)]
struct Known {
    tuple: Tuple,
    hash: Option<u32>,
    queue: Option<u16>,
}

/// Hash and queue of a packet.
type Told = (Option<u32>, Option<u16>);

/// A rule, and the flows that it predicts.
#[derive(Clone, Debug)]
struct Ruled {
    rule: General,
    extents: Vec<Extent>,
}

/// Learns from observed packets. `Learned::probes` is then the number of different flows.
///
/// # Errors
/// See [`LearnError`]; [`LearnError::TooFew`] if more or other flows could suffice.
pub fn learn_seen(seen: &[Seen], options: &SeenOptions) -> Result<(Learned, Gaps), LearnError> {
    let (flows, steady) = flows(seen, options)?;
    let hashed = options.hashes && flows.iter().any(|flow| flow.hash.is_some());
    let mut learned =
        if hashed { from_hashes(&flows, options) } else { tables::from_queues(&flows, options) }?;
    let (rule, gaps) = &mut learned;
    if let Some(finding) = steady {
        if !rule.findings.iter().any(|known| matches!(known, Finding::Misdirects { .. })) {
            rule.findings.push(finding);
        }
    }
    for extent in gaps.extents.iter().filter(|extent| !extent.span.is_whole()) {
        let (kind, rank, of) = (extent.span.kind(), extent.span.rank(), extent.span.whole());
        rule.findings.push(Finding::Undetermined { kind, rank, of });
    }
    rule.probes = flows.len();
    Ok(learned)
}

/// The flows in random order, each once, and whether some arrived on several queues.
fn flows(seen: &[Seen], options: &SeenOptions) -> Result<(Vec<Known>, Option<Finding>), LearnError> {
    if options.kinds.is_empty() {
        return Err(LearnError::NoKinds);
    }
    let mut found: BTreeMap<(PacketKind, [u8; 36]), Vec<Told>> = BTreeMap::new();
    for packet in seen {
        let Some(tuple) = Tuple::of(&packet.flow).filter(|tuple| options.kinds.contains(&tuple.kind)) else {
            continue;
        };
        if packet.hash.is_none() && packet.queue.is_none() {
            continue;
        }
        let full = found.len() >= MOST;
        match found.entry((tuple.kind, tuple.bytes)) {
            std::collections::btree_map::Entry::Vacant(_) if full => {}
            entry => {
                let told = entry.or_default();
                if told.len() < 8 {
                    told.push((packet.hash, packet.queue));
                }
            }
        }
    }
    let mut differ = 0;
    let mut flows: Vec<Known> = Vec::with_capacity(found.len());
    for ((kind, bytes), told) in found {
        let queues: Vec<u16> = told.iter().filter_map(|(_, queue)| *queue).collect();
        differ += usize::from(queues.iter().any(|queue| *queue != queues[0]));
        let hashes = told.iter().filter_map(|(hash, _)| *hash).collect();
        flows.push(Known { tuple: Tuple { kind, bytes }, hash: most(hashes), queue: most(queues) });
    }
    let of = flows.len();
    if of == 0 {
        return Err(LearnError::TooFew { flows: 0, why: "no packet of these kinds has a queue or a hash" });
    }
    if 3 * differ > of {
        return Err(LearnError::Unsteady { differ, of });
    }
    // Neighbouring flows are alike, so those kept aside are drawn from everywhere.
    let mut random = Random::new(of as u64);
    for i in (1..flows.len()).rev() {
        flows.swap(i, random.below(i + 1));
    }
    Ok((flows, (differ > 0).then_some(Finding::Misdirects { wrong: differ, of })))
}

/// The most frequent value.
fn most<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.chunk_by(|a, b| a == b).max_by_key(|run| run.len()).map(|run| run[0])
}

fn from_hashes(flows: &[Known], options: &SeenOptions) -> Result<(Learned, Gaps), LearnError> {
    let hashed: Vec<(Tuple, u32)> = flows.iter().filter_map(|flow| Some((flow.tuple, flow.hash?))).collect();
    let (ruled, verified, wrong) = rule(&hashed, 32)?;
    let mut findings = Vec::new();
    if wrong > 0 {
        findings.push(Finding::WrongHashes { wrong, of: verified + wrong });
    }
    let points: Vec<(u32, u16)> = flows.iter().filter_map(|flow| Some((flow.hash?, flow.queue?))).collect();
    let (table, unseen) = tables::of_hashes(&points, options.slots, &mut findings)?;
    let learned = Learned {
        rule: ruled.rule,
        table,
        hashes: true,
        findings,
        probes: 0,
        lost: flows.len() - hashed.len(),
        verified,
    };
    Ok((learned, Gaps { extents: ruled.extents, unseen }))
}

/// A rule for hashes of so many bits, and how many of the flows kept aside it predicts and does not predict.
fn rule(flows: &[(Tuple, u32)], width: usize) -> Result<(Ruled, usize, usize), LearnError> {
    let (aside, rest): (Vec<_>, Vec<_>) = flows.iter().enumerate().partition(|(i, _)| i % 4 == 0);
    let plain =
        |part: Vec<(usize, &(Tuple, u32))>| part.into_iter().map(|(_, flow)| *flow).collect::<Vec<_>>();
    let (aside, rest) = (plain(aside), plain(rest));
    let mut refuted = 0;
    let mut open = false;
    let starts = [false, true];
    let shapes = starts.into_iter().flat_map(|start| {
        Arrangement::ALL.map(|arrangement| Hypothesis::Toeplitz(Shape { arrangement, start, width }))
    });
    let hypotheses: Vec<Hypothesis> = shapes.chain(Arrangement::ALL.map(Hypothesis::Affine)).collect();
    // A wrong hash spoils the rule if it is among those that determine it. Then other flows are taken first.
    for (order, hypothesis) in (0..ORDERS).flat_map(|order| hypotheses.iter().map(move |h| (order, h))) {
        let Some(trial) = hypothesis.solve(&rest, order) else {
            refuted += 1;
            continue;
        };
        let (right, wrong) = judge(&trial, &aside);
        if CONTRADICT * wrong > right + wrong {
            refuted += 1;
        // Guard: `right * width < SURE_BITS` as `false` fails a_rule_of_few_flows_is_verified
        } else if right * width < SURE_BITS {
            open = true;
        } else {
            // All flows determine more than these. In their order a wrong one may come first again.
            let all = (0..ORDERS).find_map(|order| hypothesis.solve(flows, order));
            return Ok((all.unwrap_or(trial), right, wrong));
        }
    }
    let why =
        "those that were kept aside do not follow from the others; take more, of more addresses and ports";
    match affine::contradicted(flows) {
        Some((kind, wrong, of)) if !open && refuted > 0 && width == 32 => {
            Err(LearnError::NotAffine { kind, probes: flows.len(), wrong, of })
        }
        _ => Err(LearnError::TooFew { flows: flows.len(), why }),
    }
}

#[derive(Clone, Copy, Debug)]
enum Hypothesis {
    Toeplitz(Shape),
    Affine(Arrangement),
}

impl Hypothesis {
    /// The rule of this form that fits these flows; `None` if there is none.
    fn solve(self, flows: &[(Tuple, u32)], order: usize) -> Option<Ruled> {
        match self {
            Self::Toeplitz(shape) => toeplitz(flows, shape, order),
            Self::Affine(arrangement) => affine::solve(flows, arrangement, order),
        }
    }
}

/// How many of the flows for which the rule predicts a hash have this hash, and how many have another.
fn judge(ruled: &Ruled, flows: &[(Tuple, u32)]) -> (usize, usize) {
    let (mut right, mut wrong) = (0, 0);
    for (tuple, hash) in flows {
        if ruled.extents.iter().any(|extent| extent.span.contains_tuple(tuple)) {
            let same = ruled.rule.hash(&tuple.flow()) == Some(*hash);
            right += usize::from(same);
            wrong += usize::from(!same);
        }
    }
    (right, wrong)
}

/// The kinds among these flows, the one with most flows first.
fn kinds(flows: &[(Tuple, u32)]) -> Vec<(PacketKind, Vec<(Tuple, u32)>)> {
    let of = |kind| flows.iter().filter(|(tuple, _)| tuple.kind == kind).copied().collect::<Vec<_>>();
    let mut kinds: Vec<_> = PacketKind::ALL.into_iter().map(|kind| (kind, of(kind))).collect();
    kinds.retain(|(_, flows)| !flows.is_empty());
    kinds.sort_by_key(|(_, flows)| core::cmp::Reverse(flows.len()));
    kinds
}

/// Toeplitz under one key, each kind with or without ports.
fn toeplitz(flows: &[(Tuple, u32)], shape: Shape, order: usize) -> Option<Ruled> {
    let kinds = kinds(flows);
    // A few bits refute most wrong forms.
    if shape.width > FEW_BITS {
        equations(&kinds, Shape { width: FEW_BITS, ..shape }, order)?;
    }
    let (equations, fields) = equations(&kinds, shape, order)?;
    let solved = equations.solve();
    let mut maps = [const { None }; 6];
    let mut extents = Vec::new();
    for (kind, ports, flows) in fields {
        let used = if ports { kind.bits() } else { kind.bits() - 32 };
        maps[kind as usize] = Some(solved.map(kind.bits(), used));
        let mut span = Span::new(kind, shape.arrangement);
        let bits = if kind.has_ports() { kind.bits() } else { kind.bits() - 32 };
        equations.determined(bits, used).into_iter().for_each(|row| span.add_row(row));
        extents.push(Extent { span, flows });
    }
    Some(Ruled { rule: General::new(shape.arrangement, maps), extents })
}

/// Kinds, whether their ports are hashed, and how many flows of each there are.
type Kinds = Vec<(PacketKind, bool, usize)>;

/// The equations of all kinds, each with ports or without; `None` if too many flows contradict.
fn equations(
    kinds: &[(PacketKind, Vec<(Tuple, u32)>)],
    shape: Shape,
    order: usize,
) -> Option<(Equations, Kinds)> {
    let mut equations = Equations::new(shape);
    let mut fields = Vec::new();
    for (kind, of_kind) in kinds {
        let ways = if kind.has_ports() { &[true, false][..] } else { &[false][..] };
        let of = of_kind.len().min(EQUATIONS);
        let (trial, ports) = ways.iter().find_map(|&ports| {
            let mut trial = equations.clone();
            let mut wrong = 0;
            let from = order * of / ORDERS;
            for (tuple, hash) in of_kind[..of].iter().cycle().skip(from).take(of) {
                wrong += usize::from(!trial.add(tuple, ports, *hash));
                if CONTRADICT * wrong > of {
                    return None;
                }
            }
            Some((trial, ports))
        })?;
        equations = trial;
        fields.push((*kind, ports, of_kind.len()));
    }
    Some((equations, fields))
}

impl Ruled {
    /// The rule of a known key, which predicts all flows of these kinds.
    fn known(rule: General, flows: &[Known]) -> Self {
        let extents = PacketKind::ALL.into_iter().filter_map(|kind| {
            let of_kind = flows.iter().filter(|flow| flow.tuple.kind == kind).count();
            (of_kind > 0).then(|| {
                let mut span = Span::new(kind, rule.arrangement());
                let used = if kind.has_ports() { kind.bits() } else { kind.bits() - 32 };
                (0..used).chain([super::system::CONSTANT]).for_each(|bit| span.add_bit(bit));
                Extent { span, flows: of_kind }
            })
        });
        Self { extents: extents.collect(), rule }
    }

    fn only(rule: &General, kinds: impl Fn(PacketKind) -> bool) -> General {
        let map = |kind: PacketKind| rule.map(kind).filter(|_| kinds(kind)).cloned();
        General::new(rule.arrangement(), PacketKind::ALL.map(map))
    }
}
