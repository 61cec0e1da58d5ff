//! Times counted by size, for distributions that are shown and compared over time.

/// Classes of a [`Histogram`], the last of which has no upper bound.
pub const CLASSES: usize = 53;

/// How many times fell into each class, with their sum. Times are microseconds. There are two classes to each doubling, so a class's bounds
/// are less than a half apart, from 1 us to 67 s; longer times are in the last class. It takes a few instructions to count a time, and no
/// memory is allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; CLASSES],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; CLASSES], sum: 0 }
    }
}

impl Histogram {
    /// Counts one time, microseconds. 0 counts as 1.
    #[inline]
    pub fn count(&mut self, micros: u32) {
        self.count_all(micros, 1);
    }

    /// Counts a time that was measured so many times, microseconds.
    #[inline]
    pub fn count_all(&mut self, micros: u32, times: u64) {
        self.counts[class(micros)] += times;
        self.sum += u64::from(micros) * times;
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// How many times are in each class, in order of size.
    #[must_use]
    pub fn counts(&self) -> &[u64; CLASSES] {
        &self.counts
    }

    /// The sum of all times, microseconds.
    #[must_use]
    pub fn sum_micros(&self) -> u64 {
        self.sum
    }

    /// The longest time of a class, microseconds; `None` for the last class, which has no bound.
    #[must_use]
    pub fn bound(class: usize) -> Option<u32> {
        match class {
            0 | 1 => Some(class as u32 + 1),
            2..52 => {
                let doublings = class as u32 / 2;
                Some((1 << doublings) + (class as u32 % 2 + 1) * (1 << (doublings - 1)))
            }
            _ => None,
        }
    }
}

/// The class of a time: the highest bit that is set and the one below it, of the time less one, so that bounds belong to the class below.
#[inline]
fn class(micros: u32) -> usize {
    let below = micros.saturating_sub(1);
    if below < 2 {
        return below as usize;
    }
    let doublings = 31 - below.leading_zeros();
    let half = (below >> (doublings - 1)) & 1;
    ((2 * doublings + half) as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_longest_time_of_its_class() {
        assert_eq!(class(0), 0);
        for c in 0..CLASSES - 1 {
            let bound = Histogram::bound(c).expect("bounded");
            assert_eq!(class(bound), c, "{bound}");
            assert_eq!(class(bound + 1), c + 1, "{bound}");
        }
        assert_eq!(Histogram::bound(CLASSES - 2), Some(1 << 26));
        assert_eq!(Histogram::bound(CLASSES - 1), None);
        assert_eq!(class(u32::MAX), CLASSES - 1);
    }

    #[test]
    fn counts_and_sums_are_added() {
        let mut all = Histogram::default();
        let mut more = Histogram::default();
        all.count(1);
        more.count(1);
        more.count(3);
        all.add(&more);
        assert_eq!((all.counts()[0], all.counts()[2], all.sum_micros()), (2, 1, 5));
        assert_eq!(all.counts().iter().sum::<u64>(), 3);
    }
}
