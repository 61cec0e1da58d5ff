//! A set of wanted slots, prepared for one system of coordinates.

use super::coordinates::Coordinates;
use crate::SlotSet;

/// The pivot part of a wanted slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) pivot: u16,
    /// The aligned block of `2^block` pivot parts around it that are all wanted, as large as can be. Adding a constant
    /// takes such blocks to such blocks, so this holds for every destination.
    pub(super) block: u8,
}

/// The pivot parts of the wanted slots, grouped by syndrome.
///
/// From a constant `c` exactly the slots with the syndrome of `c` can be reached, so one group holds all answers for
/// a destination. At most 8 KiB.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    /// Syndrome of each group, ascending, and where its part of `targets` ends.
    groups: Vec<(u16, u16)>,
    targets: Vec<Target>,
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
        let pivots: Vec<u16> = split.into_iter().map(|(_, u)| u).collect();
        let mut targets = Vec::with_capacity(pivots.len());
        let mut start = 0;
        for &(_, end) in &groups {
            add_blocks(&pivots[start..usize::from(end)], &mut targets);
            start = usize::from(end);
        }
        Self { groups, targets }
    }

    /// The pivot parts of the wanted slots with this syndrome, ascending.
    pub(super) fn with_syndrome(&self, syndrome: u16) -> &[Target] {
        match self.groups.binary_search_by_key(&syndrome, |group| group.0) {
            Ok(found) => {
                let start = if found == 0 { 0 } else { self.groups[found - 1].1 };
                &self.targets[usize::from(start)..usize::from(self.groups[found].1)]
            }
            Err(_) => &[],
        }
    }
}

/// Divides ascending pivot parts into aligned blocks, from the first on.
fn add_blocks(pivots: &[u16], targets: &mut Vec<Target>) {
    let mut rest = pivots;
    while let Some(&first) = rest.first() {
        let filled = |log2: &u32| {
            let size = 1_usize << log2;
            usize::from(first) % size == 0
                && rest.get(size - 1).is_some_and(|&p| usize::from(p - first) == size - 1)
        };
        // Block 0 is always filled, and a block is not filled if its half is not.
        let block = (0..16).take_while(filled).last().unwrap_or(0);
        let (now, later) = rest.split_at(1 << block);
        targets.extend(now.iter().map(|&pivot| Target { pivot, block: block as u8 }));
        rest = later;
    }
}
