//! Packets whose queue is predicted wrongly, and what follows from them.
//!
//! Random directions miss effects that few packets show, such as the lowest bit of a table whose queues lie in long runs. A packet that
//! arrives on another queue than predicted shows such an effect. On the way from the base to that packet, one bit at a time, there is a step
//! before which the prediction is right and after which it is wrong. Bisection finds it. Then either the image of that bit is wrong, or the
//! packet before the step differs from the tabulated packet with which it is identified.

use super::LearnError;
use super::asker::Asker;
use super::space::{Bytes, Direction, Image, Space, bit, plus};
use crate::Affine;
use crate::packet::Tuple;

/// Answers that must agree with the image of a direction.
const CONFIRM: usize = 6;

pub(super) enum Verdict {
    /// No packet was predicted wrong.
    Holds,
    /// This direction is not a sum of the space's directions.
    New(Bytes),
    /// Some image is wrong. All have to be determined again, with more answers.
    Doubt,
}

/// Searches for a packet that is predicted wrongly. An image that it proves wrong is corrected.
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
                // The image is corrected; the search goes on.
                Verdict::Holds => left = left.saturating_sub(1),
                other => return Ok(other),
            },
        }
    }
    Ok(Verdict::Holds)
}

/// The index of a point in the table, by the images known so far.
fn place(space: &Space, columns: &[u32], point: &Bytes) -> u32 {
    Affine::new(columns, 0).hash(&plus(*point, &space.base))
}

/// The first of these points that is predicted wrongly.
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
    // The prediction is right after `right` steps and wrong after `past`.
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
        // The bit has another effect on the tabulated packet, too.
        let direction = Direction { evidence: Some((at, queues[0])), ..bit(step).into() };
        return Ok(match space.images(asker, &[direction], CONFIRM, doing)?[0] {
            Image::New => Verdict::New(bit(step)),
            Image::Sum(sum) => {
                columns[step] = sum;
                Verdict::Holds
            }
        });
    }
    // The difference between the tabulated packet and the one that was identified with it.
    let apart = plus(before, &space.point(at));
    let direction = Direction { evidence: Some((at ^ image, queues[1])), ..apart.into() };
    Ok(match space.images(asker, &[direction], CONFIRM, doing)?[0] {
        Image::New => Verdict::New(apart),
        Image::Sum(_) => Verdict::Doubt,
    })
}
