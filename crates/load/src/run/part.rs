//! A part of a run: some of its lanes, when several generators make one run together.
//!
//! Lanes divide whatever a run has: rate, connections, seeds, turns among targets. A generator among several has some of the lanes, and what
//! belongs to a lane depends on its number and on how many there are, not on who has it. So the parts together are exactly the run that one
//! generator with all of the lanes would make.

use std::ops::Range;

use super::clients::ClientRange;

/// Which lanes of a run this generator has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of its first lane.
    pub first: usize,
    /// Lanes of all generators together.
    pub of: usize,
}

/// Most lanes of a run.
pub const MOST_LANES: usize = 1 << 15;

impl Part {
    /// A run that one generator makes alone.
    #[must_use]
    pub fn whole(lanes: usize) -> Self {
        Self { first: 0, of: lanes }
    }

    /// The run's number of a lane of this generator.
    #[must_use]
    pub fn lane(&self, bucket: u16) -> usize {
        self.first + usize::from(bucket)
    }

    /// The same as reports have it.
    #[must_use]
    pub fn number(&self, bucket: u16) -> u16 {
        u16::try_from(self.lane(bucket)).unwrap_or(u16::MAX)
    }

    /// The share of `amount` of the first `lanes` of this part's lanes, by [`even`].
    #[must_use]
    pub fn share(&self, amount: u64, lanes: usize) -> u64 {
        (self.first..self.first + lanes).map(|lane| even(amount, lane, self.of)).sum()
    }

    /// Where the share of a lane of the run begins: what the lanes before it have of `amount`, by [`even`].
    #[must_use]
    pub(crate) fn before(&self, amount: u64, lane: usize) -> u64 {
        (lane as u128 * u128::from(amount) / self.of.max(1) as u128) as u64
    }

    /// The client addresses of this part, which has `lanes` lanes. Those of one part are none of another's, since answers find their way by address.
    ///
    /// `None` if there are fewer addresses than parts need, so that this one has none.
    #[must_use]
    pub fn clients(&self, all: &[ClientRange], lanes: usize) -> Option<Vec<ClientRange>> {
        let mut mine = Vec::new();
        for ipv4 in [true, false] {
            let of_family: Vec<&ClientRange> = all.iter().filter(|range| range.is_ipv4() == ipv4).collect();
            let count = of_family.iter().map(|range| range.count()).fold(0, u128::saturating_add);
            if count == 0 {
                continue;
            }
            let wanted = between(count, self.first, self.of)..between(count, self.first + lanes, self.of);
            if wanted.is_empty() {
                return None;
            }
            mine.extend(slice(&of_family, &wanted));
        }
        Some(mine)
    }
}

/// The share of `amount` of one lane; shares differ by at most one and add up to `amount`.
#[must_use]
pub fn even(amount: u64, lane: usize, lanes: usize) -> u64 {
    let (lane, lanes, amount) = (lane as u128, lanes.max(1) as u128, u128::from(amount));
    ((lane + 1) * amount / lanes - lane * amount / lanes) as u64
}

/// Where the share of a lane begins. The multiplication of a whole family's addresses would not fit.
fn between(count: u128, lane: usize, lanes: usize) -> u128 {
    let (lane, lanes) = (lane as u128, lanes.max(1) as u128);
    count / lanes * lane + count % lanes * lane / lanes
}

/// The addresses with these numbers, of ranges one after the other.
fn slice(ranges: &[&ClientRange], wanted: &Range<u128>) -> Vec<ClientRange> {
    let mut before = 0u128;
    let mut found = Vec::new();
    for range in ranges {
        let end = before.saturating_add(range.count());
        let (from, to) = (wanted.start.max(before), wanted.end.min(end));
        if from < to {
            found.push(range.slice(from - before, to - from));
        }
        before = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &[&str]) -> Vec<ClientRange> {
        text.iter().map(|range| range.parse().unwrap()).collect()
    }

    #[test]
    fn shares_are_even_and_whole() {
        for (amount, lanes) in [(10, 4), (3, 8), (0, 2), (1_000_000_007, 64), (5, 1)] {
            let shares: Vec<u64> = (0..lanes).map(|lane| even(amount, lane, lanes)).collect();
            assert_eq!(shares.iter().sum::<u64>(), amount);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{shares:?}");
        }
    }

    #[test]
    fn parts_have_all_and_nothing_twice() {
        let parts = [(0, 2), (2, 4), (6, 1)];
        let all = |amount| {
            parts.iter().map(move |(first, lanes)| Part { first: *first, of: 7 }.share(amount, *lanes))
        };
        for amount in [7, 1000, 12_345] {
            assert_eq!(all(amount).sum::<u64>(), amount);
        }
        assert_eq!(Part { first: 2, of: 7 }.lane(3), 5);
    }

    #[test]
    fn addresses_are_dealt_out_once_each() {
        for text in [&["10.0.0.1-10.0.0.9", "10.1.0.0/24", "fd00::/120"][..], &["10.0.0.0/8"], &["::/0"]] {
            let (all, parts) = (ranges(text), [(0usize, 2usize), (2, 4), (6, 1)]);
            let dealt: Vec<ClientRange> = parts
                .iter()
                .flat_map(|(first, lanes)| Part { first: *first, of: 7 }.clients(&all, *lanes).unwrap())
                .collect();
            let count =
                |ranges: &[ClientRange]| ranges.iter().map(ClientRange::count).fold(0, u128::saturating_add);
            assert_eq!(count(&dealt), count(&all), "{text:?}");
            for (i, one) in dealt.iter().enumerate() {
                assert!(dealt[i + 1..].iter().all(|other| !other.contains(one.nth(0))), "{text:?}");
            }
        }
        let part = Part { first: 0, of: 3 };
        assert_eq!(
            part.clients(&ranges(&["10.0.0.1-10.0.0.2"]), 1),
            None,
            "the first of three has none of two"
        );
        assert_eq!(part.clients(&[], 1), Some(Vec::new()));
    }
}
