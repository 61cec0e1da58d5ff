//! Buckets and their workers.
//!
//! Lanes are moved between cores by bucket, so there should be more buckets than workers. The number is a power of two; the default follows
//! FreeBSD, at least two for each worker, at most 128. One worker has two buckets as well, where FreeBSD has one, so that tests with one
//! worker run the same code. Bucket `i` starts on worker `i % workers`.

use core::fmt;

/// Most buckets there can be.
pub const MAX_BUCKETS: usize = 1024;

/// The largest default.
const MAX_DEFAULT: usize = 128;

/// Number of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket(pub u16);

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker(pub u16);

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Buckets for that many workers: the power of two that is at least twice their number, at most 128.
#[must_use]
pub fn default_buckets(workers: usize) -> usize {
    workers.clamp(1, MAX_DEFAULT).next_power_of_two().saturating_mul(2).min(MAX_DEFAULT)
}

/// Why there is no such map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketError {
    /// Not a power of two from 1 to 1024.
    Buckets(usize),
    /// No worker, or more than can be numbered.
    Workers(usize),
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buckets(n) => write!(f, "{n} buckets: must be a power of two up to {MAX_BUCKETS}"),
            Self::Workers(n) => write!(f, "{n} workers: must be 1 to {}", u16::MAX),
        }
    }
}

impl core::error::Error for BucketError {}

/// Which worker each bucket belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketMap {
    workers: Vec<Worker>,
}

impl BucketMap {
    /// `buckets` buckets over `workers` workers in turn.
    ///
    /// With fewer buckets than workers some workers get none.
    ///
    /// # Errors
    /// If either number is out of range.
    pub fn new(buckets: usize, workers: usize) -> Result<Self, BucketError> {
        // Guard: `!buckets.is_power_of_two()` as `false` fails buckets::tests
        // Guard: `buckets > MAX_BUCKETS` as `false` fails buckets::tests
        if !buckets.is_power_of_two() || buckets > MAX_BUCKETS {
            return Err(BucketError::Buckets(buckets));
        }
        // Guard: `workers == 0` as `false` fails buckets::tests
        if workers == 0 || workers > usize::from(u16::MAX) {
            return Err(BucketError::Workers(workers));
        }
        Ok(Self { workers: (0..buckets).map(|b| Worker((b % workers) as u16)).collect() })
    }

    /// Number of buckets, a power of two.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// The worker of a bucket.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[must_use]
    #[inline]
    pub fn worker_of(&self, bucket: Bucket) -> Worker {
        self.workers[usize::from(bucket.0)]
    }

    /// Gives a bucket to another worker and returns the one it had.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn assign(&mut self, bucket: Bucket, worker: Worker) -> Worker {
        core::mem::replace(&mut self.workers[usize::from(bucket.0)], worker)
    }

    /// The buckets of a worker, ascending.
    pub fn buckets_of(&self, worker: Worker) -> impl Iterator<Item = Bucket> + '_ {
        (0..).map(Bucket).zip(&self.workers).filter(move |&(_, &w)| w == worker).map(|(b, _)| b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_two_for_each_worker() {
        let rows = [
            (0, 2),
            (1, 2),
            (2, 4),
            (3, 8),
            (4, 8),
            (5, 16),
            (16, 32),
            (17, 64),
            (33, 128),
            (64, 128),
            (900, 128),
        ];
        for (workers, buckets) in rows {
            assert_eq!(default_buckets(workers), buckets, "{workers} workers");
        }
    }

    #[test]
    fn in_turn_and_movable() {
        let mut map = BucketMap::new(8, 3).unwrap();
        assert_eq!(map.buckets_of(Worker(0)).collect::<Vec<_>>(), [Bucket(0), Bucket(3), Bucket(6)]);
        assert_eq!(map.assign(Bucket(3), Worker(2)), Worker(0));
        assert_eq!(map.worker_of(Bucket(3)), Worker(2));
        assert_eq!(BucketMap::new(6, 2), Err(BucketError::Buckets(6)));
        assert_eq!(BucketMap::new(2048, 2), Err(BucketError::Buckets(2048)));
        assert_eq!(BucketMap::new(4, 0), Err(BucketError::Workers(0)));
    }
}
