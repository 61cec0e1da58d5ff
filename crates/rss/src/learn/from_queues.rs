//! Learning from queues alone.
//!
//! The first kind of packet is learned without a model: a [`Space`] grows until random directions add nothing new, then the image of each bit is
//! determined. The numbers that the rule computes are these images: the card's slots under other names. The other kinds mostly follow from
//! the first one with another constant.
//!
//! Sorting is affine among packets whose ends are in order already. So the first space starts at a packet whose lower end is its source, and
//! uses only directions that keep this order. Which order the card sorts in, if it does, shows in packets that it would sort. *Or* is affine
//! in the arranged bits, so a second space is made of these if the first gives no rule.

use super::asker::Asker;
use super::counterexample::{self, Verdict};
use super::space::{Bytes, Direction, Image, MAX_DIRECTIONS, Manner, Space, bit, plus};
use super::{Finding, LearnError, Learned, dependence, relations};
use crate::packet::Tuple;
use crate::{Affine, Arrangement, Bucket, General, Indirection, MAX_SLOTS, PacketKind};

/// Packets that are sent twice to test whether answers are steady.
const TWICE: usize = 64;
/// Packets that are sent again if no affine rule fits.
const AFTER_ALL: usize = 96;
/// Fresh packets that confirm the result.
const FRESH: usize = 160;
/// Wrong predictions for one kind after which its rule is given up.
const COUNTEREXAMPLES: usize = 24;
/// If a table of so many sums still grows, the card may not be affine. That is tested before more probes are spent.
const LARGE: usize = 128;
/// Probability of missing a direction that would be new.
const DOUBT: f64 = 1e-6;

/// Rule and table of one kind of packet.
struct Part {
    kind: PacketKind,
    map: Affine,
    /// Index of its table.
    table: usize,
}

pub(super) fn learn(asker: &mut Asker<'_>, kinds: &[PacketKind]) -> Result<Learned, LearnError> {
    let (differ, of) = steadiness(asker, kinds)?;
    let mut lead = if differ > 0 { 2 } else { 1 };
    let start = asker.asked;
    loop {
        match attempt(asker, kinds, lead) {
            // There are wrong answers, which the first test did not show. They spoil what is derived from them.
            Err(LearnError::Unsteady { .. }) if lead == 1 => lead = 2,
            Err(LearnError::NotAffineQueues { .. } | LearnError::Unverified { .. })
                if lead == 1 && asker.asked - start < asker.left() && unsteady_after_all(asker)? =>
            {
                lead = 2;
            }
            Ok(mut learned) => {
                if differ > 0 {
                    learned.findings.push(Finding::Misdirects { wrong: differ.div_ceil(2), of });
                }
                (learned.probes, learned.lost) = (asker.asked, asker.lost);
                return Ok(learned);
            }
            // Testing again whether answers are steady took probes, too.
            Err(LearnError::NotAffineQueues { kind, .. }) => {
                return Err(LearnError::NotAffineQueues { kind, probes: asker.asked });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether one of the packets that were answered behind the first ones arrives on another queue now.
fn unsteady_after_all(asker: &mut Asker<'_>) -> Result<bool, LearnError> {
    Ok(asker.again(TWICE, AFTER_ALL)?.0 > 0)
}

/// How many of the packets that were sent twice arrived on two queues, and how many were sent.
fn steadiness(asker: &mut Asker<'_>, kinds: &[PacketKind]) -> Result<(usize, usize), LearnError> {
    // Some packets of each kind have been answered. A few kinds have few of them.
    let more: Vec<Tuple> = (asker.answered()..TWICE).map(|i| asker.any(kinds[i % kinds.len()])).collect();
    asker.ask(&more, "seeing whether the same packet comes on the same queue")?;
    let (differ, of) = asker.again(0, TWICE)?;
    if 3 * differ > of {
        return Err(LearnError::Unsteady { differ, of });
    }
    Ok((differ, of))
}

fn attempt(asker: &mut Asker<'_>, kinds: &[PacketKind], lead: usize) -> Result<Learned, LearnError> {
    let kind = kinds[0];
    let (arrangement, map, table) = match master(asker, kind, Arrangement::Plain, lead) {
        Err(LearnError::NotAffineQueues { .. }) if symmetric(asker, kind, lead)? => {
            master(asker, kind, Arrangement::OrXor, lead)?
        }
        other => other?,
    };
    let mut tables = vec![table];
    let mut parts = vec![Part { kind, map, table: 0 }];
    for &kind in &kinds[1..] {
        let part = match follows(asker, kind, arrangement, &parts, &tables, lead)? {
            Some(part) => part,
            None => {
                let space = if arrangement == Arrangement::OrXor { arrangement } else { Arrangement::Plain };
                let (map, table) = alone(asker, kind, space, lead)?;
                tables.push(table);
                Part { kind, map, table: tables.len() - 1 }
            }
        };
        parts.push(part);
    }
    let (rule, table) = join(arrangement, parts, &tables)?;
    let mut learned =
        Learned { rule, table, hashes: false, findings: Vec::new(), probes: 0, lost: 0, verified: 0 };
    let tuples: Vec<Tuple> = (0..FRESH).map(|i| asker.any(kinds[i % kinds.len()])).collect();
    let of = tuples.len();
    let predict = |tuple: &Tuple| learned.predict(&tuple.flow()).1;
    let wrong = asker.contradicting(&tuples, lead, "fresh packets to confirm it", predict)?.len();
    // If answers are doubtful, so are these.
    // Guard: `wrong > if lead > 1 { of / 50 } else { 0 }` as `false` fails fresh_packets_decide
    if wrong > if lead > 1 { of / 50 } else { 0 } {
        return Err(LearnError::Unverified { wrong, of });
    }
    learned.verified = of - wrong;
    Ok(learned)
}

/// Whether both directions of a flow arrive on one queue, as on any card that arranges.
fn symmetric(asker: &mut Asker<'_>, kind: PacketKind, lead: usize) -> Result<bool, LearnError> {
    let there: Vec<Tuple> = (0..24).map(|_| asker.any(kind)).collect();
    let back: Vec<Tuple> = there.iter().filter_map(|tuple| Tuple::of(&tuple.flow().reply())).collect();
    let doing = "comparing both directions of flows";
    Ok(asker.queues(&there, lead, doing)? == asker.queues(&back, lead, doing)?)
}

/// Rule and table of the first kind, and the arrangement that fits.
fn master(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    space: Arrangement,
    lead: usize,
) -> Result<(Arrangement, Affine, Vec<u16>), LearnError> {
    let (map, table) = alone(asker, kind, space, lead)?;
    let arrangements = match space {
        Arrangement::OrXor => &[Arrangement::OrXor][..],
        _ => &[Arrangement::Plain, Arrangement::Sorted, Arrangement::SortedApart][..],
    };
    let tuples: Vec<Tuple> = (0..96).map(|_| asker.any(kind)).collect();
    for &arrangement in arrangements {
        let predict = |tuple: &Tuple| {
            let mut arranged = *tuple;
            arrangement.apply(&mut arranged);
            table[map.hash(arranged.data()) as usize]
        };
        let wrong = asker.contradicting(&tuples, lead, "the order of source and destination", predict)?;
        // Guard: `wrong.len() <= if lead > 1 { 2 } else { 0 }` as `true` fails every_card_from_queues
        if wrong.len() <= if lead > 1 { 2 } else { 0 } {
            return Ok((arrangement, map, table));
        }
    }
    Err(LearnError::NotAffineQueues { kind, probes: asker.asked })
}

/// Map and table of one kind without a model, over the bits that `arrangement` gives.
fn alone(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    arrangement: Arrangement,
    lead: usize,
) -> Result<(Affine, Vec<u16>), LearnError> {
    let mut confirm = if lead > 1 { 2 } else { 1 };
    let (base, free) = start(asker, kind, arrangement);
    let mut space = Space::new(asker, kind, Manner { arrangement, lead }, base)?;
    saturate(asker, &mut space, &free)?;
    for _ in 0..COUNTEREXAMPLES {
        let mut columns = vec![0; kind.bits()];
        // The random directions missed a bit with a new effect. With it, all bits are determined again.
        if let Some(new) = units(asker, &space, &mut columns, confirm)? {
            space.grow(asker, bit(new))?;
            continue;
        }
        match counterexample::find(asker, &space, &mut columns, &free)? {
            Verdict::Holds => {
                let linear = Affine::new(&columns, 0);
                // The base is the start of the table.
                let constant = linear.hash(&space.base);
                return Ok((Affine::new(&columns, constant), space.table));
            }
            Verdict::New(direction) => space.grow(asker, direction)?,
            Verdict::Doubt => confirm += 4,
        }
    }
    Err(LearnError::NotAffineQueues { kind, probes: asker.asked })
}

/// Writes the image of every bit to `columns`, or returns a bit with a new effect.
fn units(
    asker: &mut Asker<'_>,
    space: &Space,
    columns: &mut [u32],
    confirm: usize,
) -> Result<Option<usize>, LearnError> {
    let kind = space.kind;
    let bits = if kind.has_ports() { kind.bits() } else { kind.bits() - 32 };
    let or = |i: usize| or_bit(kind, i).filter(|_| space.manner.arrangement == Arrangement::OrXor);
    let mut new = None;
    // Bits of an *or* can be cleared only where those of the exclusive or are cleared, so the latter come first.
    for later in [false, true] {
        let places: Vec<usize> = (0..bits).filter(|&i| or(i).is_some() == later).collect();
        let directions: Vec<Direction> = places
            .iter()
            .map(|&i| Direction { helper: or(i).map(|xor| helper(columns, xor)), ..bit(i).into() })
            .collect();
        let images = space.images(asker, &directions, confirm, "the effect of each bit")?;
        for (i, image) in places.into_iter().zip(images) {
            match image {
                Image::Sum(sum) => columns[i] = sum,
                Image::New => new = new.or(Some(i)),
            }
        }
    }
    Ok(new)
}

/// The position of the exclusive or of a pair of bits whose *or* is at `i`.
fn or_bit(kind: PacketKind, i: usize) -> Option<usize> {
    let n = 8 * kind.address();
    match i {
        _ if i < n => Some(i + n),
        _ if i >= 2 * n && i < 2 * n + 16 => Some(i + 16),
        _ => None,
    }
}

/// A direction that changes the bit at `xor`, and other bits so that the queue does not change; what is left of its image, if they
/// cannot do all of that. `columns` are the images of the bits of exclusive ors.
fn helper(columns: &[u32], xor: usize) -> (Bytes, u32) {
    let mut basis: [Option<(u32, Bytes)>; MAX_DIRECTIONS] = [None; MAX_DIRECTIONS];
    let reduce = |basis: &[Option<(u32, Bytes)>], mut image: u32, mut bytes: Bytes| {
        for (place, known) in basis.iter().enumerate().rev() {
            if let Some((other, add)) = known.as_ref().filter(|_| image >> place & 1 == 1) {
                (image, bytes) = (image ^ other, plus(bytes, add));
            }
        }
        (image, bytes)
    };
    for (i, &column) in columns.iter().enumerate().filter(|(i, column)| *i != xor && **column != 0) {
        let (image, bytes) = reduce(&basis, column, bit(i));
        if let Some(place) = image.checked_ilog2() {
            basis[place as usize] = Some((image, bytes));
        }
    }
    let (image, bytes) = reduce(&basis, columns[xor], bit(xor));
    (bytes, image)
}

/// A packet to start at, and the bits that random directions may change.
fn start(asker: &mut Asker<'_>, kind: PacketKind, arrangement: Arrangement) -> (Bytes, Bytes) {
    let n = kind.address();
    let pairs = [(0, n, n), (2 * n, 2 * n + 2, if kind.has_ports() { 2 } else { 0 })];
    let (mut base, mut free) = (asker.any(kind).bytes, [0; 36]);
    for (src, dst, len) in pairs.into_iter().filter(|(.., len)| *len > 0) {
        free[src..src + len].fill(0xff);
        free[dst..dst + len].fill(0xff);
        if arrangement == Arrangement::OrXor {
            // With all bits of the *or* set, any exclusive or belongs to some packet. With no bit of the exclusive or set, any *or* does.
            base[src..src + len].fill(0xff);
            base[dst..dst + len].fill(0);
            free[src..src + len].fill(0);
        } else {
            // Two bits keep the order, so that either may be changed.
            base[src] &= 0x3f;
            base[dst] |= 0xc0;
            free[src] &= 0x3f;
            free[dst] &= 0x3f;
        }
    }
    (base, free)
}

/// Grows the space until random directions add nothing new.
fn saturate(asker: &mut Asker<'_>, space: &mut Space, free: &Bytes) -> Result<(), LearnError> {
    let mut old = 0;
    // Before there is a table the chance of agreement is not known: that of a table with one slot in ten on another queue.
    let mut doubt = 1.0_f64;
    loop {
        let p =
            if space.table.len() < 16 { 0.82_f64.max(space.agreement().min(0.9)) } else { space.agreement() };
        let confirm = ((0.01_f64.ln() / p.ln()).ceil() as usize).clamp(2, 32);
        // A random direction is new with a chance of at least one half, if any is, and then it goes unnoticed only if all answers agree.
        let probes = confirm.min(space.table.len());
        let unnoticed = 0.5 + 0.5 * p.powi(probes as i32);
        let direction: Bytes = core::array::from_fn(|i| asker.random.next() as u8 & free[i]);
        match space.images(asker, &[Direction::from(direction)], confirm, "how many slots there are")?[0] {
            Image::New => {
                if space.table.len() == LARGE && !dependence::is_there(asker, space, free)? {
                    return Err(LearnError::NotAffineQueues { kind: space.kind, probes: asker.asked });
                }
                space.grow(asker, direction)?;
                (old, doubt) = (0, 1.0);
            }
            Image::Sum(_) => {
                old += 1;
                doubt *= unnoticed;
                if doubt < DOUBT || old > 300 {
                    return Ok(());
                }
            }
        }
    }
}

/// A possible rule of a kind: columns, constant, and the index of its table.
type Hypothesis = (Affine, usize);

/// The rule of a kind, if it follows from a known rule with some constant.
fn follows(
    asker: &mut Asker<'_>,
    kind: PacketKind,
    arrangement: Arrangement,
    parts: &[Part],
    tables: &[Vec<u16>],
    lead: usize,
) -> Result<Option<Part>, LearnError> {
    let agree: f64 = tables.iter().map(|table| agreement(table)).fold(0.0, f64::max);
    // Enough packets that no constant fits by chance.
    let n = (((MAX_DIRECTIONS as f64) * 2_f64.ln() + 16.0) / -agree.min(0.98).ln()).ceil() as usize;
    let tuples: Vec<Tuple> = (0..n.min(240)).map(|_| asker.any(kind)).collect();
    let doing = "comparing kinds of packets";
    // These few packets must be right, so if answers are doubtful they are sent often.
    let lead = if lead > 1 { lead + 2 } else { 1 };
    let queues = asker.queues(&tuples, lead, doing)?;
    let queue_of = |(map, table): &Hypothesis, tuple: &Tuple| {
        let mut arranged = *tuple;
        arrangement.apply(&mut arranged);
        tables[*table][map.hash(arranged.data()) as usize]
    };
    let mut left = hypotheses(kind, arrangement, parts, tables, &tuples, &queues);
    // Constants that predict mostly the same queues are distinguished by packets for which they do not.
    while left.len() > 1 {
        let differ = |asker: &mut Asker<'_>| {
            let mut any = (0..4000).map(|_| asker.any(kind));
            any.find(|tuple| queue_of(&left[0], tuple) != queue_of(&left[1], tuple))
        };
        match differ(asker) {
            Some(tuple) => {
                let queue = asker.queues(&[tuple], lead, doing)?[0];
                left.retain(|hypothesis| queue_of(hypothesis, &tuple) == queue);
            }
            None => drop(left.remove(1)),
        }
    }
    Ok(left.pop().map(|(map, table)| Part { kind, map, table }))
}

/// All rules that follow from known ones and agree with these packets.
fn hypotheses(
    kind: PacketKind,
    arrangement: Arrangement,
    parts: &[Part],
    tables: &[Vec<u16>],
    tuples: &[Tuple],
    queues: &[u16],
) -> Vec<Hypothesis> {
    let mut found = Vec::new();
    for (table, slots) in tables.iter().enumerate() {
        let of_table = parts.iter().filter(|part| part.table == table);
        let known: Vec<(PacketKind, Affine)> = of_table.map(|part| (part.kind, part.map.clone())).collect();
        for columns in relations::candidates(kind, &known) {
            let linear = Affine::new(&columns, 0);
            let sums: Vec<u32> = tuples
                .iter()
                .map(|tuple| {
                    let mut arranged = *tuple;
                    arrangement.apply(&mut arranged);
                    linear.hash(arranged.data())
                })
                .collect();
            let fits = |constant: &u32| {
                sums.iter().zip(queues).all(|(sum, queue)| slots[(sum ^ constant) as usize] == *queue)
            };
            let constants = (0..slots.len() as u32).filter(fits);
            found.extend(constants.map(|constant| (Affine::new(&columns, constant), table)));
        }
    }
    found
}

fn agreement(table: &[u16]) -> f64 {
    let mut sorted = table.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).map(|run| (run.len() as f64 / table.len() as f64).powi(2)).sum()
}

/// Joins rules and tables into one. If kinds have tables of their own, the upper bits of the number select one.
fn join(
    arrangement: Arrangement,
    parts: Vec<Part>,
    tables: &[Vec<u16>],
) -> Result<(General, Indirection), LearnError> {
    let longest = tables.iter().map(Vec::len).max().unwrap_or(0).max(2);
    let slots = longest * tables.len().next_power_of_two();
    if slots > MAX_SLOTS {
        return Err(LearnError::Tables);
    }
    let mut joined = vec![Bucket(0); slots];
    for (i, table) in tables.iter().enumerate() {
        for slot in 0..longest {
            joined[i * longest + slot] = Bucket(table[slot % table.len()]);
        }
    }
    let mut maps = [const { None }; 6];
    for part in parts {
        let constant = part.map.constant() | (part.table * longest) as u32;
        maps[part.kind as usize] = Some(Affine::new(part.map.columns(), constant));
    }
    let table = Indirection::from_slots(joined).map_err(|_| LearnError::Tables)?;
    Ok((General::new(arrangement, maps), table))
}
