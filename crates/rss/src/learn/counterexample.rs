//! Packets that what was learned is wrong about, and what they teach.
//!
//! Random directions miss what matters at few packets, such as the lowest bit of a table whose queues lie in long runs. A packet with
//! another queue than predicted shows it. On the way from the base to that packet, one bit at a time, there is a step before which the
//! prediction is right and after which it is wrong; it is found by halving. Either that bit has another image, or the step's start
//! differs from the packet of the table that it is taken for.

use super::LearnError;
use super::asker::Asker;
use super::space::{Bytes, Direction, Image, Space, bit, plus};
use crate::Affine;
use crate::packet::Tuple;

/// Answers that a direction's image agrees with before it is believed here.
const CONFIRM: usize = 6;

pub(super) enum Verdict {
    /// No packet was predicted wrong.
    Holds,
    /// This direction is none that the space has.
    New(Bytes),
    /// Some image is wrong; look at all again, closer.
    Doubt,
}

/// Looks for a packet that is predicted wrong. Images that one proves wrong are corrected.
pub(super) fn find(
    asker: &mut Asker<'_>,
    space: &Space,
    columns: &mut [u32],
    free: &Bytes,
) -> Result<Verdict, LearnError> {
    let doing = "packets that contradict what was learned";
    let mut left = (8 * space.table.len()).clamp(192, 1200);
    while left > 0 {
        let n = left.min(64);
        let points: Vec<Bytes> = (0..n)
            .map(|_| {
                let change = core::array::from_fn(|i| asker.random.next() as u8 & free[i]);
                plus(space.base, &change)
            })
            .collect();
        let wrong = wrong(asker, space, columns, &points, space.manner.lead, doing)?;
        match wrong {
            None => left -= n,
            Some(point) => match learn_from(asker, space, columns, point)? {
                // Corrected: go on looking.
                Verdict::Holds => left = left.saturating_sub(1),
                other => return Ok(other),
            },
        }
    }
    Ok(Verdict::Holds)
}

/// Where a point is in the table, as far as is known.
fn place(space: &Space, columns: &[u32], point: &Bytes) -> u32 {
    Affine::new(columns, 0).hash(&plus(*point, &space.base))
}

/// The first of these points that is predicted wrong.
fn wrong(
    asker: &mut Asker<'_>,
    space: &Space,
    columns: &[u32],
    points: &[Bytes],
    lead: usize,
    doing: &'static str,
) -> Result<Option<Bytes>, LearnError> {
    let linear = Affine::new(columns, 0);
    let possible: Vec<(Bytes, Tuple)> =
        points.iter().filter_map(|point| Some((*point, space.tuple(point)?))).collect();
    let tuples: Vec<Tuple> = possible.iter().map(|(_, tuple)| *tuple).collect();
    let base = space.base;
    let predict = |point: &Bytes| space.table[linear.hash(&plus(*point, &base)) as usize];
    let predicted: Vec<u16> = possible.iter().map(|(point, _)| predict(point)).collect();
    let of = |tuple: &Tuple| tuples.iter().position(|t| t == tuple).map_or(0, |i| predicted[i]);
    let wrong = asker.contradicting(&tuples, lead, doing, of)?;
    Ok(wrong.first().map(|&i| possible[i].0))
}

fn learn_from(
    asker: &mut Asker<'_>,
    space: &Space,
    columns: &mut [u32],
    point: Bytes,
) -> Result<Verdict, LearnError> {
    let (doing, lead) = ("a packet that contradicts what was learned", space.manner.lead + 1);
    let changes = plus(point, &space.base);
    let bits: Vec<usize> = (0..columns.len()).filter(|i| changes[i / 8] & 0x80 >> (i % 8) != 0).collect();
    let after = |steps: usize| bits[..steps].iter().fold(space.base, |point, &i| plus(point, &bit(i)));
    // Right after `right` steps, wrong after `past`.
    let (mut right, mut past) = (0, bits.len());
    while past - right > 1 {
        let middle = usize::midpoint(right, past);
        match wrong(asker, space, columns, &[after(middle)], lead, doing)? {
            Some(_) => past = middle,
            None => right = middle,
        }
    }
    let Some(&step) = bits.get(right) else { return Ok(Verdict::Doubt) };
    let (before, behind) = (after(right), after(past));
    let at = place(space, columns, &before);
    let (Some(tabulated), Some(behind)) =
        (space.tuple(&plus(space.point(at), &bit(step))), space.tuple(&behind))
    else {
        return Ok(Verdict::Doubt);
    };
    let queues = asker.queues(&[tabulated, behind], lead, doing)?;
    let image = columns[step];
    if queues[0] != space.table[(at ^ image) as usize] {
        // The bit does something else to the packet of the table, too.
        let direction = Direction { evidence: Some((at, queues[0])), ..bit(step).into() };
        return Ok(match space.images(asker, &[direction], CONFIRM, doing)?[0] {
            Image::New => Verdict::New(bit(step)),
            Image::Sum(sum) => {
                columns[step] = sum;
                Verdict::Holds
            }
        });
    }
    // From the packet of the table to the one that was taken for it.
    let apart = plus(before, &space.point(at));
    let direction = Direction { evidence: Some((at ^ image, queues[1])), ..apart.into() };
    Ok(match space.images(asker, &[direction], CONFIRM, doing)?[0] {
        Image::New => Verdict::New(apart),
        Image::Sum(_) => Verdict::Doubt,
    })
}
