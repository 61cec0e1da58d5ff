//! Learning from reported hashes: a system of linear equations for each kind of packet whose rule does not follow from that of another kind.
//!
//! Map and constant are determined by as many random packets as there are unknowns. A few more packets contradict the map if the hash is not
//! affine. Each arrangement is tried on the same packets. One wrong answer among the packets that determine the map spoils it. So if there are
//! contradictions, the packets are sent again, and only those count whose hash is the same both times.

use super::asker::Asker;
use super::system::{Observed, fit};
use super::{Answer, Finding, LearnError, Learned, relations, table};
use crate::packet::Tuple;
use crate::{Affine, Arrangement, General, PacketKind};

/// Packets in excess of the unknowns. A wrong map agrees with each of them with a probability of 2 to the power of -32.
const SPARE: usize = 24;
/// Packets of each kind that show whether its rule follows from that of another.
const CHECKS: usize = 16;
/// Fresh packets that confirm the result.
const FRESH: usize = 96;

type Seen = Vec<(Tuple, Answer)>;

pub(super) fn learn(
    asker: &mut Asker<'_>,
    kinds: &[PacketKind],
    first: &[(Tuple, Answer)],
) -> Result<Learned, LearnError> {
    let mut all: Seen = first.to_vec();
    let mut findings = Vec::new();
    let mut known: Vec<(PacketKind, Affine)> = Vec::new();
    let mut arrangement = None;
    for &kind in kinds {
        let hashed = all.iter().filter(|(t, a)| t.kind == kind && a.hash.is_some()).count();
        if hashed == 0 {
            findings.push(Finding::NotHashed(kind));
            continue;
        }
        let map = match arrangement {
            Some(arrangement) => another(asker, kind, arrangement, &known, &mut all)?,
            None => {
                let (found, map) = solve(asker, kind, &Arrangement::ALL, &mut all)?;
                arrangement = Some(found);
                map
            }
        };
        known.push((kind, map));
    }
    let mut maps = [const { None }; 6];
    for (kind, map) in known {
        maps[kind as usize] = Some(map);
    }
    let rule = General::new(arrangement.unwrap_or_default(), maps);
    let table = table::learn(asker, &rule, kinds, &mut all, &mut findings)?;
    let mut learned = Learned { rule, table, hashes: true, findings, probes: 0, lost: 0, verified: 0 };
    verify(asker, kinds, &mut learned)?;
    (learned.probes, learned.lost) = (asker.asked, asker.lost);
    Ok(learned)
}

/// Sends packets of a kind until so many have been answered with a hash.
fn more(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    wanted: usize,
    all: &mut Seen,
) -> Result<Vec<Observed>, LearnError> {
    let of_kind = |all: &Seen| -> Vec<Observed> {
        let with_hash = all.iter().filter(|(t, _)| t.kind == kind);
        with_hash.filter_map(|(tuple, a)| Some(Observed { tuple: *tuple, hash: a.hash? })).collect()
    };
    let mut have = of_kind(all);
    let mut rounds = 0;
    while have.len() < wanted {
        if rounds == 8 {
            // The card reported hashes at first and does so no longer.
            return Err(LearnError::Changed { probes: asker.asked });
        }
        rounds += 1;
        let tuples: Vec<Tuple> = (have.len()..wanted).map(|_| asker.any(kind)).collect();
        let answers = asker.ask(&tuples, "solving for the hash")?;
        all.extend(tuples.into_iter().zip(answers).filter_map(|(t, a)| Some((t, a?))));
        have = of_kind(all);
    }
    Ok(have)
}

/// Solves for the map of a kind under one of these arrangements.
fn solve(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    arrangements: &[Arrangement],
    all: &mut Seen,
) -> Result<(Arrangement, Affine), LearnError> {
    let unknowns = if kind.has_ports() { kind.bits() + 1 } else { kind.bits() - 31 };
    let observed = more(asker, kind, unknowns + SPARE, all)?;
    let tries: Vec<(Arrangement, Vec<Observed>)> = arrangements
        .iter()
        .map(|&arrangement| {
            let mut arranged = observed.clone();
            arranged.iter_mut().for_each(|packet| arrangement.apply(&mut packet.tuple));
            (arrangement, arranged)
        })
        .collect();
    let mut least = observed.len();
    for (arrangement, arranged) in &tries {
        let found = fit(arranged);
        // Guard: `found.wrong == 0` as `true` fails what_is_not_affine_is_named
        if found.wrong == 0 {
            return Ok((*arrangement, found.map));
        }
        least = least.min(found.wrong);
    }
    // Contradictions: either answers are wrong, or there is no such map. A hash that is reported twice is right.
    let of = observed.len();
    let sure = sure(asker, kind, observed, all)?;
    if let Some(sure) = sure {
        for &arrangement in arrangements {
            let mut arranged = sure.clone();
            arranged.iter_mut().for_each(|packet| arrangement.apply(&mut packet.tuple));
            let found = fit(&arranged);
            if found.wrong == 0 {
                return Ok((arrangement, found.map));
            }
        }
    }
    Err(LearnError::NotAffine { kind, probes: asker.asked, wrong: least, of })
}

/// As many packets, each with a hash that was reported twice; `None` if all hashes were repeated. Wrong answers are removed from `all`.
fn sure(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    mut observed: Vec<Observed>,
    all: &mut Seen,
) -> Result<Option<Vec<Observed>>, LearnError> {
    let (wanted, doing) = (observed.len(), "asking again what contradicts");
    let mut sure = Vec::with_capacity(wanted);
    let mut doubted = 0;
    for _ in 0..8 {
        let tuples: Vec<Tuple> = observed.iter().map(|packet| packet.tuple).collect();
        let again = asker.ask(&tuples, doing)?;
        for (packet, answer) in observed.iter().zip(again) {
            if answer.and_then(|answer| answer.hash) == Some(packet.hash) {
                sure.push(*packet);
            } else {
                doubted += 1;
                all.retain(|(tuple, answer)| *tuple != packet.tuple || answer.hash != Some(packet.hash));
            }
        }
        if doubted == 0 {
            return Ok(None);
        }
        if 3 * doubted > wanted {
            return Err(LearnError::Unsteady { differ: doubted, of: wanted });
        }
        if sure.len() >= wanted {
            break;
        }
        let tuples: Vec<Tuple> = (sure.len()..wanted).map(|_| asker.any(kind)).collect();
        let answers = asker.ask(&tuples, doing)?;
        let fresh = tuples.iter().zip(answers);
        observed = fresh.filter_map(|(t, a)| Some(Observed { tuple: *t, hash: a?.hash? })).collect();
    }
    Ok(Some(sure))
}

/// The map of a kind, derived from that of another kind if possible.
fn another(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    arrangement: Arrangement,
    known: &[(PacketKind, Affine)],
    all: &mut Seen,
) -> Result<Affine, LearnError> {
    let mut observed = more(asker, kind, CHECKS, all)?;
    observed.iter_mut().for_each(|packet| arrangement.apply(&mut packet.tuple));
    for columns in relations::candidates(kind, known) {
        let linear = Affine::new(&columns, 0);
        let mut constants: Vec<u32> = observed.iter().map(|p| p.hash ^ linear.hash(p.tuple.data())).collect();
        constants.sort_unstable();
        // The constant of most packets. With wrong columns hardly any two packets have the same.
        let most = constants.chunk_by(|a, b| a == b).max_by_key(|run| run.len()).unwrap_or(&[]);
        if few_of_checks(observed.len() - most.len()) {
            return Ok(Affine::new(&columns, most.first().copied().unwrap_or(0)));
        }
    }
    Ok(solve(asker, kind, &[arrangement], all)?.1)
}

fn few_of_checks(wrong: usize) -> bool {
    4 * wrong <= CHECKS
}

/// Sends fresh packets of every kind and compares.
fn verify(asker: &mut Asker<'_>, kinds: &[PacketKind], learned: &mut Learned) -> Result<(), LearnError> {
    let tuples: Vec<Tuple> = (0..FRESH).map(|i| asker.any(kinds[i % kinds.len()])).collect();
    let answers = asker.ask(&tuples, "fresh packets to confirm it")?;
    let (mut hash, mut queue, mut of) = (0, 0, 0);
    for (tuple, answer) in tuples.iter().zip(answers) {
        let Some(answer) = answer else { continue };
        let predicted = learned.predict(&tuple.flow());
        let same = (answer.hash == predicted.0, answer.queue == predicted.1);
        hash += usize::from(!same.0);
        queue += usize::from(!same.1);
        of += 1;
        learned.verified += usize::from(same == (true, true));
    }
    // Guard: `16 * hash > of || 4 * queue > of` as `false` fails fresh_packets_decide
    if 16 * hash > of || 4 * queue > of || of == 0 {
        return Err(LearnError::Unverified { wrong: hash.max(queue), of });
    }
    if hash > 0 {
        learned.findings.push(Finding::WrongHashes { wrong: hash, of });
    }
    let misdirects = learned.findings.iter_mut().find_map(|finding| match finding {
        Finding::Misdirects { wrong, of } => Some((wrong, of)),
        _ => None,
    });
    match misdirects {
        Some((wrong, all)) => (*wrong, *all) = (*wrong + queue, *all + of),
        None if queue > 0 => learned.findings.push(Finding::Misdirects { wrong: queue, of }),
        None => {}
    }
    Ok(())
}
