//! What generators of a run have when others are gone: these shares are dealt out anew, so that the run is the one that was asked for.
//!
//! Every generator computes the same from the same list, whose order is the order in which others went, and the list only grows. So all shares
//! together are the whole after each step, and what a lane has never becomes less.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::part::even;

/// A generator that is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Gone {
    /// Its first lane, among those of all.
    pub first: usize,
    /// How many it had.
    pub lanes: usize,
    /// Requests of each pool that it sent and that are in the report. Without its records there are none, and all of its share is to be made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<u64>,
}

impl Gone {
    fn has(&self, lane: usize) -> bool {
        (self.first..self.first.saturating_add(self.lanes)).contains(&lane)
    }

    /// Lanes of all, and of those that are left. None if that cannot be: lanes that there are not or that went twice, or none that is left.
    #[must_use]
    pub fn left(of: usize, gone: &[Self]) -> Option<(u32, u32)> {
        let mut went = vec![false; of];
        for gone in gone {
            let lanes = went.get_mut(gone.first..gone.first.checked_add(gone.lanes)?)?;
            if lanes.contains(&true) {
                return None;
            }
            lanes.fill(true);
        }
        let left = went.iter().filter(|went| !**went).count();
        // Guard: `left > 0` as `true` fails run::gone::tests::what_cannot_be
        (left > 0).then_some((u32::try_from(of).ok()?, u32::try_from(left).ok()?))
    }
}

/// Deals out anew what generators had that are gone, among the lanes that are left and that had a part from the start (`takes`). `done`: what of it need not be made
/// again.
pub(crate) fn deal_anew(shares: &mut [u64], takes: &[bool], gone: &[Gone], done: impl Fn(&Gone) -> u64) {
    let mut alive: Vec<usize> = (0..shares.len()).filter(|lane| takes[*lane]).collect();
    for one in gone {
        let lanes = shares.iter_mut().enumerate().filter(|(lane, _)| one.has(*lane));
        let free: u64 = lanes.map(|(_, share)| std::mem::take(share)).sum();
        // Guard: `free.saturating_sub(done(one))` as `free` fails run::gone::tests::nothing_is_lost
        let free = free.saturating_sub(done(one));
        alive.retain(|lane| !one.has(*lane));
        for (nth, lane) in alive.iter().enumerate() {
            shares[*lane] += even(free, nth, alive.len());
        }
    }
}

/// The numbers, of `amount`, that a lane has of what generators had that are gone: each lane had its even share, one after the other, and those that are left have in
/// their order what each left, if they had a part from the start.
pub(crate) fn dealt_anew(amount: u64, of: usize, lane: usize, gone: &[Gone]) -> Vec<Range<u64>> {
    let mut begin = 0;
    let mut had: Vec<Vec<Range<u64>>> = Vec::with_capacity(of);
    for lane in 0..of {
        let end = begin + even(amount, lane, of);
        had.push(std::iter::once(begin..end).collect());
        begin = end;
    }
    let own = had.get(lane).cloned().unwrap_or_default();
    let mut alive: Vec<usize> = (0..of).filter(|lane| !had[*lane][0].is_empty()).collect();
    for one in gone {
        let lanes = (0..of).filter(|lane| one.has(*lane));
        let free: Vec<Range<u64>> = lanes.flat_map(|lane| std::mem::take(&mut had[lane])).collect();
        alive.retain(|lane| !one.has(*lane));
        let count = free.iter().map(|range| range.end - range.start).sum();
        let mut free = free.into_iter();
        let mut rest = 0..0;
        for (nth, lane) in alive.iter().enumerate() {
            let mut wanted = even(count, nth, alive.len());
            while wanted > 0 {
                if rest.is_empty() {
                    let Some(next) = free.next() else { break };
                    rest = next;
                    continue;
                }
                let end = rest.end.min(rest.start + wanted);
                had[*lane].push(rest.start..end);
                (wanted, rest.start) = (wanted - (end - rest.start), end);
            }
        }
    }
    let mut taken = had.get_mut(lane).map(std::mem::take).unwrap_or_default();
    taken.drain(..own.len().min(taken.len()));
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_lanes_whoever_is_gone() {
        for amount in [0, 1, 5, 7, 40, 1000] {
            let all = [gone(2, 2, 0), gone(0, 1, 0), gone(5, 2, 0)];
            for n in 0..=all.len() {
                let list = &all[..n];
                let mut numbers = Vec::new();
                let mut shares: Vec<u64> = (0..7).map(|lane| even(amount, lane, 7)).collect();
                let takes: Vec<bool> = shares.iter().map(|share| *share > 0).collect();
                let before = shares.clone();
                deal_anew(&mut shares, &takes, list, |_| 0);
                let is_left = |lane: usize| !list.iter().any(|gone| gone.has(lane));
                for lane in (0..7).filter(|lane| is_left(*lane)) {
                    let taken = dealt_anew(amount, 7, lane, list);
                    let count: u64 = taken.iter().map(|range| range.end - range.start).sum();
                    assert_eq!(count, shares[lane] - before[lane], "{amount}, {n}, {lane}");
                    let begin: u64 = before[..lane].iter().sum();
                    numbers.extend(begin..begin + before[lane]);
                    numbers.extend(taken.into_iter().flatten());
                }
                numbers.sort_unstable();
                if (0..7).any(|lane| takes[lane] && is_left(lane)) {
                    assert_eq!(numbers, (0..amount).collect::<Vec<_>>(), "{n}");
                }
            }
        }
    }

    fn gone(first: usize, lanes: usize, sent: u64) -> Gone {
        Gone { first, lanes, sent: vec![sent] }
    }

    #[test]
    fn nothing_is_lost_and_nothing_is_made_twice() {
        for amount in [0, 1, 5, 7, 1000, 12_345] {
            let whole: Vec<u64> = (0..7).map(|lane| even(amount, lane, 7)).collect();
            let takes: Vec<bool> = whole.iter().map(|share| *share > 0).collect();
            let all = [gone(2, 2, amount / 50), gone(0, 1, 0), gone(5, 2, 0)];
            let mut before = whole.clone();
            for n in 1..=all.len() {
                let (mut now, list) = (whole.clone(), &all[..n]);
                deal_anew(&mut now, &takes, list, |gone| gone.sent[0]);
                let left = |lane: usize| takes[lane] && !list.iter().any(|gone| gone.has(lane));
                if (0..7).any(left) {
                    let done = (amount / 50).min(whole[2] + whole[3]);
                    assert_eq!(now.iter().sum::<u64>(), amount - done, "{amount}, {n}: {now:?}");
                }
                for lane in 0..7 {
                    assert!(if left(lane) { now[lane] >= before[lane] } else { now[lane] == 0 }, "{now:?}");
                }
                before = now;
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Gone::left(6, &[gone(2, 2, 0)]), Some((6, 4)));
        assert_eq!(Gone::left(6, &[gone(2, 2, 0), gone(0, 1, 0)]), Some((6, 3)));
        for wrong in [
            &[gone(5, 2, 0)][..],
            &[gone(0, 6, 0)],
            &[gone(0, 2, 0), gone(1, 1, 0)],
            &[gone(usize::MAX, 2, 0)],
            &[gone(7, 0, 0)],
        ] {
            assert_eq!(Gone::left(6, wrong), None, "{wrong:?}");
        }
    }
}
