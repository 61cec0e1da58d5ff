//! The directions in which a packet's bits can change, as far as queues show them: reduced to at most eleven bits.
//!
//! The queue of a packet is `f(L x)`: `L` maps all its bits to a few, `f` is the table. A *space* starts at one packet and grows by random
//! directions as long as they have a new effect. All packets that are the first one plus a sum of the space's directions are tabulated. The
//! *image* of any other direction is the sum of the space's directions with the same effect on the queue, wherever it is added. At first all
//! sums are candidates, and each probe leaves those that agree with the table. If none is left, the direction is new and the space grows by
//! it. Directions without an effect have the image 0. So the space has no more directions than the table makes necessary, whatever its content.

use super::LearnError;
use super::asker::Asker;
use crate::packet::Tuple;
use crate::{Arrangement, PacketKind};

/// Most directions of a space: the bits of a slot number in the largest table.
pub(super) const MAX_DIRECTIONS: usize = 11;
/// Random sums that are tried to find one that distinguishes candidates.
const LOOKS: usize = 24;

pub(super) type Bytes = [u8; 36];

/// How probes are made, and how many answers are needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Points of the space are packets after this arrangement.
    pub(super) arrangement: Arrangement,
    /// By how many answers a queue has to lead to count.
    pub(super) lead: usize,
}

/// A direction whose image is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    pub(super) bytes: Bytes,
    /// Another direction, with its image, that gives a possible packet where this direction alone does not.
    pub(super) helper: Option<(Bytes, u32)>,
    /// A known effect: added to this sum, the direction led to this queue.
    pub(super) evidence: Option<(u32, u16)>,
}

impl From<Bytes> for Direction {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, helper: None, evidence: None }
    }
}

pub(super) struct Space {
    pub(super) kind: PacketKind,
    pub(super) manner: Manner,
    /// The packet to which sums are added.
    pub(super) base: Bytes,
    directions: Vec<Bytes>,
    /// The queue of the base plus the directions whose bits are set in the index.
    pub(super) table: Vec<u16>,
}

/// The result for a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// The same as this sum of the space's directions.
    Sum(u32),
    /// It is the same as no sum: a new direction.
    New,
}

/// The search for the image of a direction.
struct Search {
    direction: Direction,
    candidates: Vec<u32>,
    confirmed: usize,
    image: Option<Image>,
    /// Probed packets and their queues.
    asked: Vec<(Tuple, u16)>,
}

impl Space {
    pub(super) fn new(
        asker: &mut Asker<'_>,
        kind: PacketKind,
        manner: Manner,
        base: Bytes,
    ) -> Result<Self, LearnError> {
        let mut space = Self { kind, manner, base, directions: Vec::new(), table: Vec::new() };
        let Some(tuple) = space.tuple(&base) else {
            return Err(LearnError::NotAffineQueues { kind, probes: asker.asked });
        };
        space.table = asker.queues(&[tuple], manner.lead + 1, "the first packet")?;
        Ok(space)
    }

    /// The packet at a point, if there is one.
    pub(super) fn tuple(&self, bytes: &Bytes) -> Option<Tuple> {
        self.manner.arrangement.undo(&Tuple { kind: self.kind, bytes: *bytes })
    }

    pub(super) fn point(&self, sum: u32) -> Bytes {
        let chosen = self.directions.iter().enumerate().filter(|(i, _)| sum >> i & 1 == 1);
        chosen.fold(self.base, |point, (_, direction)| plus(point, direction))
    }

    /// The packet at a sum plus a direction, and the sum to which the direction is added.
    fn with(&self, direction: &Direction, sum: u32) -> Option<(u32, Tuple)> {
        let point = plus(self.point(sum), &direction.bytes);
        if let Some(tuple) = self.tuple(&point) {
            return Some((sum, tuple));
        }
        let (bytes, image) = direction.helper.as_ref()?;
        Some((sum ^ image, self.tuple(&plus(point, bytes))?))
    }

    /// Adds a direction and tabulates the new half.
    pub(super) fn grow(&mut self, asker: &mut Asker<'_>, direction: Bytes) -> Result<(), LearnError> {
        // Guard: `self.directions.len() == MAX_DIRECTIONS` as `false` fails the_largest_space
        if self.directions.len() == MAX_DIRECTIONS {
            return Err(LearnError::NotAffineQueues { kind: self.kind, probes: asker.asked });
        }
        let points: Vec<Bytes> =
            (0..self.table.len() as u32).map(|sum| plus(self.point(sum), &direction)).collect();
        let tuples: Vec<Tuple> = points.iter().filter_map(|point| self.tuple(point)).collect();
        if tuples.len() < points.len() {
            return Err(LearnError::NotAffineQueues { kind: self.kind, probes: asker.asked });
        }
        let queues =
            asker.queues(&tuples, self.manner.lead + usize::from(self.manner.lead > 1), "the table")?;
        self.table.extend(queues);
        self.directions.push(direction);
        Ok(())
    }

    /// The probability that two packets arrive on one queue.
    pub(super) fn agreement(&self) -> f64 {
        let mut sorted = self.table.clone();
        sorted.sort_unstable();
        let n = sorted.len() as f64;
        sorted.chunk_by(|a, b| a == b).map(|run| (run.len() as f64 / n).powi(2)).sum()
    }

    /// The images of these directions, all searched for at once.
    pub(super) fn images(
        &self,
        asker: &mut Asker<'_>,
        directions: &[Direction],
        confirm: usize,
        doing: &'static str,
    ) -> Result<Vec<Image>, LearnError> {
        let lead = self.manner.lead;
        let searches = self.search(asker, directions, confirm, lead, doing)?;
        let mut found: Vec<Image> = searches.iter().map(|s| s.image.unwrap_or(Image::New)).collect();
        // A wrong answer may have removed the right candidate. If none is left, the packets are sent again and need a greater lead.
        let closer = if lead > 1 { lead + 2 } else { 2 };
        for (image, search) in found.iter_mut().zip(&searches).filter(|(image, _)| **image == Image::New) {
            let tuples: Vec<Tuple> = search.asked.iter().map(|(tuple, _)| *tuple).collect();
            let again = asker.queues(&tuples, closer, doing)?;
            if search.asked.iter().zip(&again).all(|((_, before), now)| before == now) {
                continue;
            }
            if lead == 1 {
                return Err(LearnError::Unsteady { differ: 1, of: again.len() });
            }
            let anew = self.search(asker, &[search.direction], confirm, closer, doing)?;
            *image = anew[0].image.unwrap_or(Image::New);
        }
        Ok(found)
    }

    fn search(
        &self,
        asker: &mut Asker<'_>,
        directions: &[Direction],
        confirm: usize,
        lead: usize,
        doing: &'static str,
    ) -> Result<Vec<Search>, LearnError> {
        let all: Vec<u32> = (0..self.table.len() as u32).collect();
        let mut searches: Vec<Search> = directions
            .iter()
            .map(|&direction| {
                let mut candidates = all.clone();
                if let Some((sum, queue)) = direction.evidence {
                    candidates.retain(|image| self.table[(sum ^ image) as usize] == queue);
                }
                let image = candidates.is_empty().then_some(Image::New);
                Search { direction, candidates, confirmed: 0, image, asked: Vec::new() }
            })
            .collect();
        loop {
            let mut probes: Vec<(usize, u32)> = Vec::new();
            let mut tuples: Vec<Tuple> = Vec::new();
            for (i, search) in searches.iter_mut().enumerate().filter(|(_, s)| s.image.is_none()) {
                match self.next_sum(asker, search, confirm) {
                    Some((sum, tuple)) => {
                        probes.push((i, sum));
                        tuples.push(tuple);
                    }
                    None => search.image = Some(Image::Sum(search.candidates[0])),
                }
            }
            if probes.is_empty() {
                return Ok(searches);
            }
            let queues = asker.queues(&tuples, lead, doing)?;
            for (((i, sum), tuple), queue) in probes.into_iter().zip(tuples).zip(queues) {
                let search = &mut searches[i];
                search.asked.push((tuple, queue));
                search.confirmed += usize::from(search.candidates.len() == 1);
                search.candidates.retain(|image| self.table[(sum ^ image) as usize] == queue);
                if search.candidates.is_empty() {
                    search.image = Some(Image::New);
                }
            }
        }
    }

    /// The sum to which the direction is added next, so that the answer distinguishes candidates; `None` if nothing does.
    fn next_sum(&self, asker: &mut Asker<'_>, search: &mut Search, confirm: usize) -> Option<(u32, Tuple)> {
        let step = search.candidates.len().div_ceil(64);
        loop {
            let mut best: Option<(usize, u32, Tuple)> = None;
            for _ in 0..LOOKS {
                let sum = asker.random.below(self.table.len()) as u32;
                let Some((sum, tuple)) = self.with(&search.direction, sum) else { continue };
                let mut queues: Vec<u16> = search
                    .candidates
                    .iter()
                    .step_by(step)
                    .map(|image| self.table[(sum ^ image) as usize])
                    .collect();
                queues.sort_unstable();
                let largest = queues.chunk_by(|a, b| a == b).map(<[u16]>::len).max().unwrap_or(0);
                if best.as_ref().is_none_or(|(least, ..)| largest < *least) {
                    best = Some((largest, sum, tuple));
                }
            }
            let looked = search.candidates.iter().step_by(step).len();
            match (best, search.candidates.as_slice()) {
                (Some((largest, sum, tuple)), [_, _, ..]) if largest < looked => return Some((sum, tuple)),
                (Some((_, sum, tuple)), [_]) if search.confirmed < confirm => return Some((sum, tuple)),
                (_, [one, another, ..]) => {
                    // No random sum distinguishes them; all sums are tried.
                    let differ =
                        |sum: &u32| self.table[(sum ^ one) as usize] != self.table[(sum ^ another) as usize];
                    let all = 0..self.table.len() as u32;
                    let possible =
                        all.filter_map(|sum| self.with(&search.direction, sum)).find(|(sum, _)| differ(sum));
                    match possible {
                        Some(found) => return Some(found),
                        // They have the same effect on every packet.
                        None => drop(search.candidates.remove(1)),
                    }
                }
                _ => return None,
            }
        }
    }
}

pub(super) fn plus(mut point: Bytes, direction: &Bytes) -> Bytes {
    point.iter_mut().zip(direction).for_each(|(a, b)| *a ^= b);
    point
}

/// The direction that changes one bit.
pub(super) fn bit(i: usize) -> Bytes {
    let mut bytes = [0; 36];
    bytes[i / 8] = 0x80 >> (i % 8);
    bytes
}
