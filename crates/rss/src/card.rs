//! A card's own steering: its table names queues, of any number and in any order, and buckets are derived from it.
//!
//! All slots of a bucket name one queue, so that a bucket's packets arrive at one worker. A queue with more slots gets more buckets.
//!
//! ```text
//!   hash ▸ slot ▸ bucket ▸ worker            as ever
//!            └──▶ queue ─────┘               the card's choice; queue q is served by worker q % workers
//! ```
//!
//! With fewer queues than workers the buckets of a queue are divided among the workers that share it; the worker of the queue hands over
//! the packets of the others.

use core::fmt;

use crate::{
    Bucket, BucketMap, HashConfig, Hasher, Indirection, MAX_BUCKETS, MAX_SLOTS, Rss, Worker, default_buckets,
};

/// The worker that serves a queue of a link.
#[must_use]
pub fn worker_of_queue(queue: u16, workers: usize) -> Worker {
    Worker((usize::from(queue) % workers.max(1)) as u16)
}

/// Why a card's table cannot be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardTableError {
    /// Not 2 to 2048 slots.
    Size(usize),
    /// A slot names a queue that is not served.
    Queue {
        /// The slot.
        slot: usize,
        /// The queue that it names.
        queue: u16,
        /// Queues that are served, from 0 on.
        queues: usize,
    },
    /// More queues than buckets can be made for.
    Queues(usize),
    /// No worker, or more than can be numbered.
    Workers(usize),
}

impl fmt::Display for CardTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "the card's table has {n} slots: must be 2 to {MAX_SLOTS}"),
            Self::Queue { slot, queue, queues } => {
                write!(f, "slot {slot} of the card's table names queue {queue}, but {queues} are served")
            }
            Self::Queues(n) => write!(f, "the card's table names {n} queues: at most {MAX_BUCKETS}"),
            Self::Workers(n) => write!(f, "{n} workers: must be 1 to {}", u16::MAX),
        }
    }
}

impl core::error::Error for CardTableError {}

impl Rss {
    /// The steering of a card for `workers` workers. `slots` is the card's table, which names queues 0 to `queues` - 1.
    ///
    /// There are [`default_buckets`] buckets, or more if the table names more queues, and fewer if it has fewer slots. Buckets that no
    /// slot is left for get no packets.
    ///
    /// # Errors
    /// See [`CardTableError`].
    pub fn of_card(
        hasher: impl Into<Hasher>,
        config: HashConfig,
        slots: &[u16],
        queues: usize,
        workers: usize,
    ) -> Result<Self, CardTableError> {
        if !(2..=MAX_SLOTS).contains(&slots.len()) {
            return Err(CardTableError::Size(slots.len()));
        }
        if workers == 0 || workers > usize::from(u16::MAX) {
            return Err(CardTableError::Workers(workers));
        }
        // Guard: `usize::from(**q) >= queues` as `false` fails card::tests
        if let Some((slot, &queue)) = slots.iter().enumerate().find(|(_, q)| usize::from(**q) >= queues) {
            return Err(CardTableError::Queue { slot, queue, queues });
        }
        let shares = shares(slots, queues, workers)?;
        let buckets = shares.iter().sum::<usize>().next_power_of_two().max(2);
        // Bucket numbers are given in the order of slots, so that an equal table becomes what `Indirection::new` makes.
        let mut of_queue: Vec<Vec<Bucket>> = vec![Vec::new(); queues];
        let mut turn = vec![0_usize; queues];
        let mut queue_of = Vec::with_capacity(buckets);
        let mut table = Vec::with_capacity(slots.len());
        for &queue in slots {
            let q = usize::from(queue);
            if of_queue[q].len() < shares[q] {
                of_queue[q].push(Bucket(queue_of.len() as u16));
                queue_of.push(queue);
            }
            table.push(of_queue[q][turn[q] % shares[q]]);
            turn[q] += 1;
        }
        queue_of.resize(buckets, slots[0]);
        let (Ok(table), Ok(mut map)) = (Indirection::from_slots(table), BucketMap::new(buckets, workers))
        else {
            return Err(CardTableError::Queues(buckets));
        };
        let mut nth = vec![0_usize; queues];
        for (b, &queue) in queue_of.iter().enumerate() {
            let n = &mut nth[usize::from(queue)];
            map.assign(Bucket(b as u16), sharer(queue, *n, queues, workers));
            *n += 1;
        }
        let mut rss = Self::from_parts(hasher, config, table, map);
        rss.queues = Some(queue_of);
        Ok(rss)
    }

    /// The queue on which a card with this steering delivers the packets of a bucket. The number of its worker, where the table is not a
    /// card's own.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[must_use]
    #[inline]
    pub fn queue_of(&self, bucket: Bucket) -> u16 {
        match &self.queues {
            Some(queues) => queues[usize::from(bucket.0)],
            None => self.buckets.worker_of(bucket).0,
        }
    }

    /// Whether this is a card's own steering, in which packets arrive on the queue of [`queue_of`](Self::queue_of).
    #[must_use]
    pub fn is_of_card(&self) -> bool {
        self.queues.is_some()
    }

    /// The queue that each slot of the table names.
    #[must_use]
    pub fn queue_table(&self) -> Vec<u16> {
        self.table.slots().iter().map(|b| self.queue_of(*b)).collect()
    }
}

/// The worker of the `n`th bucket of a queue: the one that serves the queue or, where there are more workers than queues, one of those
/// that share it.
fn sharer(queue: u16, n: usize, queues: usize, workers: usize) -> Worker {
    let first = usize::from(queue);
    let sharers = workers.saturating_sub(first).div_ceil(queues.max(1)).max(1);
    Worker(((first + n % sharers * queues) % workers) as u16)
}

/// How many buckets each queue gets: in proportion to its slots, at least one if it has any, and no more than it has slots.
fn shares(slots: &[u16], queues: usize, workers: usize) -> Result<Vec<usize>, CardTableError> {
    let mut have = vec![0_usize; queues];
    for &queue in slots {
        have[usize::from(queue)] += 1;
    }
    let used = have.iter().filter(|n| **n > 0).count();
    let least = if queues < workers { workers } else { used };
    let wanted =
        default_buckets(workers).max(least.next_power_of_two()).min(1 << slots.len().ilog2()).max(used);
    if wanted > MAX_BUCKETS {
        return Err(CardTableError::Queues(used));
    }
    let mut shares: Vec<usize> = have.iter().map(|n| usize::from(*n > 0)).collect();
    // One by one to the queue with most slots a bucket (D'Hondt's method).
    for _ in used..wanted {
        let open = (0..queues).filter(|q| shares[*q] < have[*q]);
        let Some(next) = open.max_by_key(|q| (have[*q] * MAX_SLOTS / (shares[*q] + 1), usize::MAX - *q))
        else {
            break;
        };
        shares[next] += 1;
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Toeplitz};

    fn of(slots: &[u16], queues: usize, workers: usize) -> Rss {
        let hasher = Toeplitz::new(&Key::MICROSOFT);
        let rss = Rss::of_card(hasher, HashConfig::default(), slots, queues, workers).unwrap();
        assert_eq!(rss.queue_table(), slots, "{queues} queues, {workers} workers");
        for b in 0..rss.buckets.len() {
            let (bucket, worker) = (Bucket(b as u16), rss.buckets.worker_of(Bucket(b as u16)));
            assert!(usize::from(worker.0) < workers);
            let queue = rss.queue_of(bucket);
            if queues >= workers {
                assert_eq!(worker, worker_of_queue(queue, workers), "aligned");
            } else {
                assert_eq!(usize::from(worker.0) % queues, usize::from(queue), "a sharer of it");
            }
        }
        rss
    }

    #[test]
    fn an_equal_table_is_as_if_we_had_made_it() {
        for workers in [1, 2, 4, 8] {
            let slots: Vec<u16> = (0..128).map(|i| i % workers as u16).collect();
            let rss = of(&slots, workers, workers);
            let ours = Rss::new(Key::MICROSOFT, workers);
            assert_eq!((&rss.table, &rss.buckets), (&ours.table, &ours.buckets), "{workers}");
        }
    }

    /// Any size, any content, any numbers of queues and workers: each slot names its queue, and each worker gets what it can.
    #[test]
    fn any_table() {
        let mut x = 1_u64;
        let mut random = move |below: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as usize % below
        };
        for case in 0..2000 {
            let (slots, queues, workers) =
                (2 + random(if case % 10 == 0 { 2047 } else { 300 }), 1 + random(24), 1 + random(12));
            let table: Vec<u16> = match case % 3 {
                0 => (0..slots).map(|_| random(queues) as u16).collect(),
                1 => (0..slots).map(|i| (i % queues) as u16).collect(),
                // Weights: nearly all for one.
                _ => (0..slots).map(|_| if random(9) == 0 { random(queues) as u16 } else { 0 }).collect(),
            };
            let rss = of(&table, queues, workers);
            let busy = |w| !rss.slots_of_worker(Worker(w as u16)).is_empty();
            let named: Vec<usize> = (0..queues).filter(|q| table.contains(&(*q as u16))).collect();
            for worker in 0..workers {
                let serves = named.iter().any(|q| q % workers == worker && queues >= workers);
                assert!(!serves || busy(worker), "worker {worker} has a queue and no bucket");
            }
        }
    }

    /// Three queues over 128 slots: 43, 43 and 42 of them.
    #[test]
    fn three_queues_fit() {
        let slots: Vec<u16> = (0..128).map(|i| i % 3).collect();
        for workers in 1..=4 {
            of(&slots, 3, workers);
        }
        assert!((0..4).all(|w| !of(&slots, 3, 4).slots_of_worker(Worker(w)).is_empty()), "all four work");
    }

    #[test]
    fn what_cannot_be_taken_over_is_refused() {
        let of = |slots: &[u16], queues, workers| {
            let hasher = Toeplitz::new(&Key::MICROSOFT);
            Rss::of_card(hasher, HashConfig::default(), slots, queues, workers).map(|_| ())
        };
        assert_eq!(of(&[0], 1, 1), Err(CardTableError::Size(1)));
        assert_eq!(of(&[0; 2049], 1, 1), Err(CardTableError::Size(2049)));
        assert_eq!(of(&[0, 4], 4, 1), Err(CardTableError::Queue { slot: 1, queue: 4, queues: 4 }));
        assert_eq!(of(&[0, 0], 1, 0), Err(CardTableError::Workers(0)));
        let many: Vec<u16> = (0..2048).collect();
        assert_eq!(of(&many, 2048, 1), Err(CardTableError::Queues(2048)));
    }
}
