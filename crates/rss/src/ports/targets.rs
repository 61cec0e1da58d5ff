//! A set of wanted slots, prepared for one system of coordinates.

use super::coordinates::Coordinates;
use crate::SlotSet;

/// The pivot parts of the wanted slots, grouped by syndrome.
///
/// From a constant `c` exactly the slots with the syndrome of `c` can be reached, so one group holds all answers for
/// a destination. At most 8 KiB.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// Syndrome of each group, ascending, and where its part of `pivots` ends.
    groups: Vec<(u16, u16)>,
    pivots: Vec<u16>,
}

impl Targets {
    pub(super) fn new(coordinates: &Coordinates, slots: &SlotSet) -> Self {
        let wanted = slots.iter().filter(|slot| slot >> coordinates.bits() == 0);
        let mut split: Vec<(u16, u16)> = wanted
            .map(|slot| {
                let (u, syndrome) = coordinates.split(slot);
                (syndrome, u)
            })
            .collect();
        split.sort_unstable();
        let mut groups: Vec<(u16, u16)> = Vec::new();
        for (i, &(syndrome, _)) in split.iter().enumerate() {
            let end = i as u16 + 1;
            match groups.last_mut() {
                Some(last) if last.0 == syndrome => last.1 = end,
                _ => groups.push((syndrome, end)),
            }
        }
        Self { groups, pivots: split.into_iter().map(|(_, u)| u).collect() }
    }

    /// The pivot parts of the wanted slots with this syndrome, ascending.
    pub(super) fn with_syndrome(&self, syndrome: u16) -> &[u16] {
        match self.groups.binary_search_by_key(&syndrome, |group| group.0) {
            Ok(found) => {
                let start = if found == 0 { 0 } else { self.groups[found - 1].1 };
                &self.pivots[usize::from(start)..usize::from(self.groups[found].1)]
            }
            Err(_) => &[],
        }
    }
}
