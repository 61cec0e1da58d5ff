//! The table behind observed hashes, and rules from queues alone.
//!
//! The number of slots is the smallest one under which no two flows of a slot are on different queues. So enough flows have to share slots. The
//! queue of a slot that no flow hit is unknown.

use super::super::table::{guess, majority, size, steady_size};
use super::super::{Finding, LearnError, Learned};
use super::{Gaps, Known, Ruled, SeenOptions, rule};
use crate::packet::Tuple;
use crate::{Arrangement, Bucket, General, HashConfig, Indirection, Key, PacketKind, SlotSet, UdpFields};

/// Flows beyond the first of each slot, which show that the number of slots is right.
const SHARE: usize = 16;

/// The table that these hashes and queues show, and the slots that they do not show. Without queues there is no table.
pub(super) fn of_hashes(
    points: &[(u32, u16)],
    known: Option<usize>,
    findings: &mut Vec<Finding>,
) -> Result<(Indirection, Option<SlotSet>), LearnError> {
    let nothing = |queue| {
        Indirection::from_slots(vec![Bucket(queue); 2])
            .map_err(|_| LearnError::NoTable { probes: points.len() })
    };
    let Some((_, first)) = points.first().copied() else { return Ok((nothing(0)?, None)) };
    if points.iter().all(|(_, queue)| *queue == first) {
        if points.len() < SHARE {
            return Err(few(points));
        }
        findings.push(Finding::OneQueue(first));
        return Ok((nothing(first)?, Some(SlotSet::EMPTY)));
    }
    let (slots, steady) = match known {
        Some(slots) => (slots, majority(points, slots).1 == 0),
        None => size(points).ok_or(LearnError::NoTable { probes: points.len() })?,
    };
    let (table, wrong) = majority(points, slots);
    let mut hit = vec![false; slots];
    points.iter().for_each(|(hash, _)| hit[*hash as usize % slots] = true);
    let shared = points.len() - hit.iter().filter(|hit| **hit).count();
    // Guard: `shared < SHARE` as `false` fails what_tells_nothing_is_said
    if known.is_none() && shared < SHARE {
        return Err(few(points));
    }
    if 4 * wrong > points.len() {
        return Err(LearnError::NoTable { probes: points.len() });
    }
    if wrong > 0 {
        findings.push(Finding::Misdirects { wrong, of: points.len() });
    }
    let unseen: SlotSet = (0..slots).filter(|&slot| !hit[slot]).collect();
    let pattern = if steady { guess(points, slots) } else { None };
    if !unseen.is_empty() {
        let pattern = pattern.is_some();
        findings.push(Finding::SlotsUnseen { unseen: unseen.len(), of: slots, pattern });
    }
    let table = match pattern {
        Some(table) => table,
        None => Indirection::from_slots(table).map_err(|_| LearnError::NoTable { probes: points.len() })?,
    };
    Ok((table, Some(unseen)))
}

fn few(points: &[(u32, u16)]) -> LearnError {
    LearnError::TooFew { flows: points.len(), why: "too few share a slot to show how many slots there are" }
}

/// Learns without hashes: by a known key, or from queues that are the low bits of a hash.
pub(super) fn from_queues(flows: &[Known], options: &SeenOptions) -> Result<(Learned, Gaps), LearnError> {
    let queued: Vec<(Tuple, u16)> = flows.iter().filter_map(|flow| Some((flow.tuple, flow.queue?))).collect();
    let Some((_, first)) = queued.first().copied() else {
        return Err(LearnError::TooFew { flows: 0, why: "no packet of these kinds has a queue" });
    };
    if queued.iter().all(|(_, queue)| *queue == first) {
        return Err(LearnError::Off { queue: first });
    }
    if let Some(learned) = by_known_keys(flows, &queued, options) {
        return Ok(learned);
    }
    let queues = queued.iter().map(|(_, queue)| *queue).max().unwrap_or(0) + 1;
    let all = (0..queues).all(|queue| queued.iter().any(|(_, seen)| *seen == queue));
    if !queues.is_power_of_two() || !all {
        let why = "queues alone tell only of keys that are known (--key) or of 2, 4, 8 ... queues dealt in turn; send probes";
        return Err(LearnError::TooFew { flows: queued.len(), why });
    }
    let width = queues.trailing_zeros() as usize;
    let hashes: Vec<(Tuple, u32)> = queued.iter().map(|(tuple, queue)| (*tuple, u32::from(*queue))).collect();
    let (ruled, verified, wrong) = rule(&hashes, width).map_err(|error| match error {
        LearnError::TooFew { flows, .. } => {
            let why = "no rule under which queues are the low bits of a hash predicts those kept aside; take more flows, or send probes";
            LearnError::TooFew { flows, why }
        }
        other => other,
    })?;
    let table = Indirection::new(usize::from(queues), usize::from(queues));
    let table = table.map_err(|_| LearnError::NoTable { probes: queued.len() })?;
    let mut findings = Vec::new();
    if wrong > 0 {
        findings.push(Finding::Misdirects { wrong, of: verified + wrong });
    }
    let learned = Learned { rule: ruled.rule, table, hashes: false, findings, probes: 0, lost: 0, verified };
    Ok((learned, Gaps { extents: ruled.extents, unseen: Some(SlotSet::EMPTY) }))
}

/// The first of the known keys and forms under which queues follow from slots.
fn by_known_keys(flows: &[Known], queued: &[(Tuple, u16)], options: &SeenOptions) -> Option<(Learned, Gaps)> {
    let keys = options.keys.iter().copied().chain([Key::MICROSOFT, Key::symmetric()]);
    let rules = keys.flat_map(|key| {
        [UdpFields::Two, UdpFields::Four].into_iter().flat_map(move |udp| {
            let config = HashConfig::with_udp(udp);
            let arranged = Arrangement::ALL.map(|arrangement| General::toeplitz(&key, &config, arrangement));
            arranged.into_iter().chain([General::symmetric_xor(&key, &config)])
        })
    });
    for rule in rules {
        let points: Vec<(u32, u16)> =
            queued.iter().filter_map(|(tuple, queue)| Some((rule.hash(&tuple.flow())?, *queue))).collect();
        // The quarter that is kept aside has to lie on slots that the others show.
        let (aside, rest): (Vec<_>, Vec<_>) = points.iter().enumerate().partition(|(i, _)| i % 4 == 0);
        let rest: Vec<(u32, u16)> = rest.into_iter().map(|(_, point)| *point).collect();
        // The usual sizes of tables refute most keys.
        let Some(slots) = options.slots.or_else(|| steady_size(&rest)) else { continue };
        let mut findings = Vec::new();
        let Ok((table, Some(unseen))) = of_hashes(&rest, Some(slots), &mut findings) else { continue };
        let judged: Vec<bool> = aside
            .iter()
            .filter(|(_, (hash, _))| !unseen.contains(table.slot_of(*hash)))
            .map(|(_, (hash, queue))| table.bucket_of(*hash) == Bucket(*queue))
            .collect();
        let wrong = judged.iter().filter(|right| !**right).count();
        if judged.len() - wrong < 2 * SHARE || super::CONTRADICT * wrong > judged.len() {
            continue;
        }
        findings.clear();
        let Ok((table, unseen)) = of_hashes(&points, Some(slots), &mut findings) else { continue };
        let has = |kind: PacketKind| queued.iter().any(|(tuple, _)| tuple.kind == kind);
        let ruled = Ruled::known(Ruled::only(&rule, has), flows);
        let verified = judged.len() - wrong;
        let learned =
            Learned { rule: ruled.rule, table, hashes: false, findings, probes: 0, lost: 0, verified };
        return Some((learned, Gaps { extents: ruled.extents, unseen }));
    }
    None
}
