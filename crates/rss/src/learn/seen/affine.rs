//! Any affine map of observed flows, for rules that are not Toeplitz under one key.
//!
//! Each kind has a map of its own, which predicts only sums of an odd number of the flows of that kind.

use super::super::system::{Observed, fit};
use super::{CONTRADICT, Extent, Ruled, Span, kinds};
use crate::packet::Tuple;
use crate::{Arrangement, General, PacketKind};

/// Most flows of a kind that a map is made of.
const MOST: usize = 1200;

/// The map of each kind for which one fits.
pub(super) fn solve(flows: &[(Tuple, u32)], arrangement: Arrangement, order: usize) -> Option<Ruled> {
    let mut maps = [const { None }; 6];
    let mut extents = Vec::new();
    for (kind, of_kind) in kinds(flows) {
        let mut observed = arranged(&of_kind, arrangement);
        let from = order * observed.len() / super::ORDERS;
        observed.rotate_left(from);
        let found = fit(&observed);
        if CONTRADICT * found.wrong > observed.len() {
            return None;
        }
        let map = found.map;
        let mut span = Span::new(kind, arrangement);
        for (tuple, hash) in of_kind.iter().take(MOST) {
            let mut data = *tuple;
            arrangement.apply(&mut data);
            if map.hash(data.data()) == *hash {
                span.add(tuple);
            }
        }
        maps[kind as usize] = Some(map);
        extents.push(Extent { span, flows: of_kind.len() });
    }
    Some(Ruled { rule: General::new(arrangement, maps), extents })
}

fn arranged(flows: &[(Tuple, u32)], arrangement: Arrangement) -> Vec<Observed> {
    let arranged = flows.iter().take(MOST).map(|(tuple, hash)| {
        let mut tuple = *tuple;
        arrangement.apply(&mut tuple);
        Observed { tuple, hash: *hash }
    });
    arranged.collect()
}

/// A kind of packets that no affine map fits under any arrangement, with the flows that contradict the best map, and of how many.
pub(super) fn contradicted(flows: &[(Tuple, u32)]) -> Option<(PacketKind, usize, usize)> {
    kinds(flows).into_iter().find_map(|(kind, of_kind)| {
        let wrong = Arrangement::ALL.map(|arrangement| fit(&arranged(&of_kind, arrangement)).wrong);
        let (least, of) = (wrong.into_iter().min().unwrap_or(0), of_kind.len().min(MOST));
        (CONTRADICT * least > of).then_some((kind, least, of))
    })
}
