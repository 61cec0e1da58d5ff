//! The table behind a known hash: how many slots it has, and which queue each names.
//!
//! The number of slots is the smallest one under which packets of one slot arrive on one queue. Slots that no packet has hit are probed one by
//! one, with packets that are made to hit them. Most tables repeat after a few slots or consist of long runs. These are guessed, and the guess is
//! checked. Each slot of a table without a pattern takes a probe: 2048 of them cannot be learned by fewer.

use super::asker::Asker;
use super::{Answer, Finding, LearnError};
use crate::packet::Tuple;
use crate::{Bucket, General, Indirection, MAX_SLOTS, PacketKind};

/// Packets that are needed to show the size of the table.
const SAMPLE: usize = 500;
/// Packets that confirm a guess.
const CONFIRM: usize = 64;
/// By how many packets the queue of a slot has to lead if the card misdirects some.
const LEAD: usize = 5;

type Seen = Vec<(Tuple, Answer)>;

pub(super) fn learn(
    asker: &mut Asker<'_>,
    rule: &General,
    kinds: &[PacketKind],
    seen: &mut Seen,
    findings: &mut Vec<Finding>,
) -> Result<Indirection, LearnError> {
    let hashed: Vec<PacketKind> = kinds.iter().copied().filter(|&kind| rule.map(kind).is_some()).collect();
    let any = |asker: &mut Asker<'_>, n: usize| -> Vec<Tuple> {
        (0..n).map(|i| asker.any(hashed[i % hashed.len()])).collect()
    };
    let tuples = any(asker, SAMPLE.saturating_sub(seen.len()));
    ask(asker, tuples, "the size of the table", seen)?;

    let points = |seen: &Seen| -> Vec<(u32, u16)> {
        seen.iter().filter_map(|(tuple, answer)| Some((rule.hash(&tuple.flow())?, answer.queue))).collect()
    };
    let sample = points(seen);
    if sample.iter().all(|(_, queue)| *queue == sample[0].1) {
        findings.push(Finding::OneQueue(sample[0].1));
        return Indirection::from_slots(vec![Bucket(sample[0].1); 2])
            .map_err(|_| LearnError::NoTable { probes: asker.asked });
    }
    let (slots, steady) = size(&sample).ok_or(LearnError::NoTable { probes: asker.asked })?;

    if steady {
        if let Some(table) = guess(&sample, slots) {
            let tuples = any(asker, CONFIRM);
            ask(asker, tuples, "confirming the table", seen)?;
            if points(seen).iter().all(|(hash, queue)| table.bucket_of(*hash) == Bucket(*queue)) {
                mark_unseen(&points(seen), slots, findings);
                return Ok(table);
            }
        } else if let Some(table) = runs(asker, rule, &hashed, slots, seen)? {
            mark_unseen(&points(seen), slots, findings);
            return Ok(table);
        }
    }
    // Slots that random packets do not hit are aimed at.
    let lead = if steady { 1 } else { LEAD };
    for _ in 0..8 {
        let missing = missing(&points(seen), slots, lead);
        if missing.is_empty() {
            break;
        }
        let tuples = aimed(asker, rule, &hashed, slots, &missing);
        ask(asker, tuples, "the slots of the table", seen)?;
    }
    let (table, wrong) = majority(&points(seen), slots);
    if wrong > 0 {
        findings.push(Finding::Misdirects { wrong, of: seen.len() });
    }
    Indirection::from_slots(table).map_err(|_| LearnError::NoTable { probes: asker.asked })
}

/// Notes that not every slot of a table with a pattern was seen.
fn mark_unseen(points: &[(u32, u16)], slots: usize, findings: &mut Vec<Finding>) {
    let unseen = slots - seen_slots(points, slots).iter().flatten().count();
    if unseen > 0 {
        findings.push(Finding::SlotsUnseen { unseen, of: slots, pattern: true });
    }
}

/// The queue of each slot that some packet hit.
fn seen_slots(points: &[(u32, u16)], slots: usize) -> Vec<Option<u16>> {
    let mut queues = vec![None; slots];
    points.iter().for_each(|(hash, queue)| queues[*hash as usize % slots] = Some(*queue));
    queues
}

/// Most ends of runs in a table that counts as one of runs.
const MOST_ENDS: usize = 48;

/// A table whose queues lie in long runs, as weights make it. Bisection finds the ends of the runs; then unseen slots are probed. `None` if
/// there are many runs, or a probed slot has another queue than its run.
fn runs(
    asker: &mut Asker<'_>,
    rule: &General,
    kinds: &[PacketKind],
    slots: usize,
    seen: &mut Seen,
) -> Result<Option<Indirection>, LearnError> {
    let queues = |seen: &Seen| {
        let points = seen.iter().filter_map(|(t, answer)| Some((rule.hash(&t.flow())?, answer.queue)));
        seen_slots(&points.collect::<Vec<_>>(), slots)
    };
    let mut known = queues(seen);
    for _ in 0..2 + slots.ilog2() {
        let places: Vec<usize> = (0..slots).filter(|&slot| known[slot].is_some()).collect();
        let ends = || places.windows(2).filter(|pair| known[pair[0]] != known[pair[1]]);
        // In a table without runs, nearly every known slot is followed by such an end.
        if ends().count() > MOST_ENDS.min(places.len() / 8) {
            return Ok(None);
        }
        let mut wanted: Vec<usize> = ends()
            .filter(|pair| pair[1] - pair[0] > 1)
            .map(|pair| usize::midpoint(pair[0], pair[1]))
            .collect();
        wanted.extend([0, slots - 1].into_iter().filter(|&slot| known[slot].is_none()));
        if wanted.is_empty() {
            break;
        }
        let tuples = aimed(asker, rule, kinds, slots, &wanted);
        ask(asker, tuples, "the ends of the table's runs", seen)?;
        known = queues(seen);
    }
    let mut queue = known[0].unwrap_or(0);
    let table: Vec<Bucket> = known
        .iter()
        .map(|slot| {
            queue = slot.unwrap_or(queue);
            Bucket(queue)
        })
        .collect();
    // Unseen slots at equal distances, so that all parts of the table are probed.
    let unseen: Vec<usize> = (0..slots).filter(|&slot| known[slot].is_none()).collect();
    let step = unseen.len().div_ceil(CONFIRM).max(1);
    let wanted: Vec<usize> = unseen.into_iter().step_by(step).collect();
    let tuples = aimed(asker, rule, kinds, slots, &wanted);
    ask(asker, tuples, "confirming the table", seen)?;
    let right =
        queues(seen).iter().zip(&table).all(|(seen, slot)| seen.is_none_or(|seen| Bucket(seen) == *slot));
    if !right {
        return Ok(None);
    }
    Indirection::from_slots(table).map(Some).map_err(|_| LearnError::NoTable { probes: asker.asked })
}

fn ask(
    asker: &mut Asker<'_>,
    tuples: Vec<Tuple>,
    doing: &'static str,
    seen: &mut Seen,
) -> Result<(), LearnError> {
    let answers = asker.ask(&tuples, doing)?;
    seen.extend(tuples.into_iter().zip(answers).filter_map(|(t, a)| Some((t, a?))));
    Ok(())
}

/// The smallest number of slots under which the packets of each slot arrived on one queue.
pub(super) fn steady_size(points: &[(u32, u16)]) -> Option<usize> {
    let contradicted = |slots: usize| {
        let mut queues: Vec<Option<u16>> = vec![None; slots];
        let mut agree =
            |(hash, queue): &(u32, u16)| *queues[*hash as usize % slots].get_or_insert(*queue) == *queue;
        !points.iter().all(&mut agree)
    };
    (2..=MAX_SLOTS).find(|&slots| !contradicted(slots))
}

/// The smallest number of slots that explains the queues, and whether it explains all of them.
pub(super) fn size(points: &[(u32, u16)]) -> Option<(usize, bool)> {
    let steady = steady_size(points);
    // If some packets are misdirected, only a table with hardly more than one packet a slot is not contradicted. In a smaller one the
    // share of contradictions falls where the size is right. It is compared with the share without any table.
    let share = |slots: usize| {
        let mut hit = vec![false; slots];
        points.iter().for_each(|(hash, _)| hit[*hash as usize % slots] = true);
        let free = points.len() - hit.iter().filter(|hit| **hit).count();
        (majority(points, slots).1 as f64 / free.max(1) as f64, free)
    };
    let (without, _) = share(1);
    let fits = |&slots: &usize| {
        let (with, free) = share(slots);
        free >= 60 && with < 0.3 * without
    };
    match (2..steady.unwrap_or(MAX_SLOTS + 1)).find(fits) {
        Some(slots) => Some((slots, false)),
        None => steady.map(|slots| (slots, true)),
    }
}

/// The queue on which most packets of each slot arrived, and how many packets arrived on others. Slots without packets name queue 0.
pub(super) fn majority(points: &[(u32, u16)], slots: usize) -> (Vec<Bucket>, usize) {
    let mut of_slot: Vec<(usize, u16)> =
        points.iter().map(|(hash, queue)| (*hash as usize % slots, *queue)).collect();
    of_slot.sort_unstable();
    let mut table = vec![(Bucket(0), 0); slots];
    for run in of_slot.chunk_by(|a, b| a == b) {
        let (slot, queue) = run[0];
        if run.len() > table[slot].1 {
            table[slot] = (Bucket(queue), run.len());
        }
    }
    let agree: usize = table.iter().map(|(_, n)| n).sum();
    (table.into_iter().map(|(queue, _)| queue).collect(), points.len() - agree)
}

/// A table that repeats, or that has few runs, and agrees with all packets.
pub(super) fn guess(points: &[(u32, u16)], slots: usize) -> Option<Indirection> {
    let mut queues: Vec<Option<u16>> = vec![None; slots];
    points.iter().for_each(|(hash, queue)| queues[*hash as usize % slots] = Some(*queue));
    // Periods are much shorter than the known part of the table.
    let periods = 2..=points.len().min(slots) / 8;
    for period in periods.filter(|period| slots % period == 0 || *period <= 64) {
        let mut turn: Vec<Option<u16>> = vec![None; period];
        let mut agrees = |(slot, queue): (usize, &Option<u16>)| {
            queue.is_none_or(|queue| *turn[slot % period].get_or_insert(queue) == queue)
        };
        if queues.iter().enumerate().all(&mut agrees) && turn.iter().all(Option::is_some) {
            let table = (0..slots).map(|slot| Bucket(turn[slot % period].unwrap_or(0)));
            return Indirection::from_slots(table.collect()).ok();
        }
    }
    None
}

/// The slots whose queue does not lead by so many packets, each as often as packets are missing.
fn missing(points: &[(u32, u16)], slots: usize, lead: usize) -> Vec<usize> {
    let (table, _) = majority(points, slots);
    let mut lacks = vec![lead as isize; slots];
    for (hash, queue) in points {
        let slot = *hash as usize % slots;
        lacks[slot] += if table[slot] == Bucket(*queue) { -1 } else { 1 };
    }
    (0..slots).flat_map(|slot| std::iter::repeat_n(slot, lacks[slot].clamp(0, 8) as usize)).collect()
}

/// Random packets, one for each of these slots. A slot that no packet hits is left out.
fn aimed(
    asker: &mut Asker<'_>,
    rule: &General,
    kinds: &[PacketKind],
    slots: usize,
    missing: &[usize],
) -> Vec<Tuple> {
    let mut lacks = vec![0_usize; slots];
    missing.iter().for_each(|&slot| lacks[slot] += 1);
    let mut open = missing.len();
    let mut tuples = Vec::with_capacity(open);
    for i in 0..200 * slots {
        if open == 0 {
            break;
        }
        let tuple = asker.any(kinds[i % kinds.len()]);
        let Some(hash) = rule.hash(&tuple.flow()) else { continue };
        let slot = hash as usize % slots;
        if lacks[slot] > 0 {
            lacks[slot] -= 1;
            open -= 1;
            tuples.push(tuple);
        }
    }
    tuples
}
