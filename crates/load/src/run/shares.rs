//! Dividing what there is among the lanes.

/// Divides any amount among lanes in whole numbers; the first takes the remainder.
#[must_use]
pub(crate) fn divide(amount: u64, lanes: usize) -> Vec<u64> {
    let n = lanes.max(1) as u64;
    let mut shares = vec![amount / n; lanes];
    if let Some(first) = shares.first_mut() {
        *first += amount % n;
    }
    shares
}

/// Numbers dealt to the connections of a run in turn: number n belongs to the connection n modulo their number, and so to that connection's
/// lane. No two lanes have the same number, all together have all of them, and no lane asks another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealt {
    /// The lane's connections: from which on, how many, of how many.
    pub(crate) before: u64,
    pub(crate) count: u64,
    pub(crate) all: u64,
}

impl Dealt {
    /// The lane's `n`-th number.
    pub(crate) fn nth(&self, n: u64) -> u64 {
        let count = self.count.max(1);
        (n / count).saturating_mul(self.all) + self.before + n % count
    }

    /// How many of the lane's numbers are below `limit`.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        let all = self.all.max(1);
        limit / all * self.count + (limit % all).saturating_sub(self.before).min(self.count)
    }

    /// Whether the lane has any.
    pub(crate) fn has_any(&self) -> bool {
        self.count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_takes_the_remainder() {
        assert_eq!(divide(10, 4), [4, 2, 2, 2]);
        assert_eq!(divide(3, 4), [3, 0, 0, 0]);
        assert_eq!(divide(8, 1), [8]);
        assert!(divide(8, 0).is_empty());
    }
}
