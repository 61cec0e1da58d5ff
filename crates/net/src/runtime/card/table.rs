//! The runtime's copy of a card's table: the queue and the bucket of each slot.

use flowlane_rss::{Bucket, Rss, worker_of_queue};

/// The table of one card.
#[derive(Debug)]
pub(super) struct Table {
    /// The queue of each slot, by the card's number.
    slots: Vec<u32>,
    /// The bucket of each slot.
    buckets: Vec<Bucket>,
    /// The queue of each bucket, by ours.
    queues: Vec<u16>,
    /// The card's number of the first queue that is served, and how many are.
    first: u32,
    served: usize,
    workers: usize,
}

impl Table {
    pub(super) fn new(rss: &Rss, (first, served): (u32, usize), workers: usize) -> Self {
        Self {
            slots: rss.queue_table().into_iter().map(|queue| first + u32::from(queue)).collect(),
            buckets: rss.table.slots().to_vec(),
            queues: (0..rss.buckets.len()).map(|b| rss.queue_of(Bucket(b as u16))).collect(),
            first,
            served,
            workers,
        }
    }

    /// Whether a driver that shows these slots means this table. Queues beyond those served are their remainder, on cards that have those.
    pub(super) fn is_shown_as(&self, slots: &[u32]) -> bool {
        let same = |(shown, queue): (&u32, &u32)| {
            shown == queue || (self.first == 0 && shown % self.served as u32 == *queue)
        };
        slots.len() == self.slots.len() && slots.iter().zip(&self.slots).all(same)
    }

    /// The worker that serves the queue of a bucket.
    pub(super) fn worker_of(&self, bucket: Bucket) -> usize {
        usize::from(worker_of_queue(self.queues[usize::from(bucket.0)], self.workers).0)
    }

    /// A queue for a bucket whose lane is at `worker`: the one that it has, if that is one of the worker's, else the worker's queue with
    /// the fewest slots. `None` if the worker has no queue.
    pub(super) fn queue_for(&self, bucket: Bucket, worker: usize) -> Option<u16> {
        let has = self.queues[usize::from(bucket.0)];
        let of_worker = |queue: &u16| usize::from(worker_of_queue(*queue, self.workers).0) == worker;
        if of_worker(&has) {
            return Some(has);
        }
        let slots =
            |queue: &u16| self.slots.iter().filter(|slot| **slot == self.first + u32::from(*queue)).count();
        (0..self.served as u16).filter(of_worker).min_by_key(slots)
    }

    /// Slots by number, and the queue that each is to name, for packets of `bucket` to come on `queue`.
    pub(super) fn change(&self, bucket: Bucket, queue: u16) -> Vec<(usize, u32)> {
        let of_bucket = |slot: &usize| self.buckets[*slot] == bucket;
        (0..self.slots.len()).filter(of_bucket).map(|slot| (slot, self.first + u32::from(queue))).collect()
    }

    /// How many queues are served.
    pub(super) fn served(&self) -> usize {
        self.served
    }

    /// As [`change`](Self::change), for several buckets.
    pub(super) fn changes(&self, wanted: &[(Bucket, u16)]) -> Vec<(usize, u32)> {
        wanted.iter().flat_map(|(bucket, queue)| self.change(*bucket, *queue)).collect()
    }

    /// The slots of [`changes`](Self::changes) with the queues that they name now.
    pub(super) fn unchanged(&self, wanted: &[(Bucket, u16)]) -> Vec<(usize, u32)> {
        self.changes(wanted).into_iter().map(|(slot, _)| (slot, self.slots[slot])).collect()
    }

    /// The card has taken a change.
    pub(super) fn assign(&mut self, bucket: Bucket, queue: u16) {
        for (slot, _) in self.change(bucket, queue) {
            self.slots[slot] = self.first + u32::from(queue);
        }
        self.queues[usize::from(bucket.0)] = queue;
    }

    /// Somebody else has given the card this table, of as many slots. Returns the buckets whose packets come on another queue now; where
    /// the slots of a bucket name several queues, the one that most of them name counts, if it is served.
    pub(super) fn take_over(&mut self, slots: Vec<u32>) -> Vec<(Bucket, u16)> {
        self.slots = slots;
        let mut changed = Vec::new();
        for b in 0..self.queues.len() {
            let mut votes = vec![0_usize; self.served];
            for (slot, queue) in self.slots.iter().enumerate() {
                if usize::from(self.buckets[slot].0) == b
                    && let Some(votes) = queue.checked_sub(self.first).and_then(|q| votes.get_mut(q as usize))
                {
                    *votes += 1;
                }
            }
            // Of equals, and where none of them is served, the queue that it has.
            let has = usize::from(self.queues[b]);
            // Guard: `*q == has` as `false` fails card::table::tests::a_table_of_somebody_else
            let most = (0..self.served).max_by_key(|q| (votes[*q], *q == has));
            if let Some(queue) = most.filter(|q| *q != has) {
                self.queues[b] = queue as u16;
                changed.push((Bucket(b as u16), queue as u16));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::{HashConfig, Key, Toeplitz};

    fn table(slots: &[u16], served: usize, workers: usize) -> Table {
        table_from(0, slots, served, workers)
    }

    fn table_from(first: u32, slots: &[u16], served: usize, workers: usize) -> Table {
        let hasher = Toeplitz::new(&Key::MICROSOFT);
        let rss = Rss::of_card(hasher, HashConfig::default(), slots, served, workers).unwrap();
        Table::new(&rss, (first, served), workers)
    }

    #[test]
    fn a_bucket_follows_its_lane_to_the_emptiest_queue_of_the_worker() {
        // Queues 0 and 2 are worker 0's, 1 and 3 are worker 1's; queue 1 has most slots.
        let mut table = table(&[0, 1, 2, 1, 0, 1, 3, 1], 4, 2);
        let of_queue = |table: &Table, q: u32| table.slots.iter().filter(|slot| **slot == q).count();
        let bucket = (0..8).map(Bucket).find(|b| table.worker_of(*b) == 0).unwrap();
        assert_eq!(table.queue_for(bucket, 0), Some(table.queues[usize::from(bucket.0)]), "it is there");
        let queue = table.queue_for(bucket, 1).unwrap();
        assert_eq!(queue, 3, "queue 1 has four slots, queue 3 one");
        let change = table.change(bucket, queue);
        assert!(
            !change.is_empty() && change.iter().all(|(slot, to)| *to == 3 && table.buckets[*slot] == bucket)
        );
        let before = of_queue(&table, 3);
        table.assign(bucket, queue);
        assert_eq!((of_queue(&table, 3), table.worker_of(bucket)), (before + change.len(), 1));
    }

    #[test]
    fn some_of_the_cards_queues() {
        // Queues 4 and 5 of the card are our 0 and 1.
        let mut table = table_from(4, &[0, 1, 0, 1], 2, 2);
        assert!(table.is_shown_as(&[4, 5, 4, 5]) && !table.is_shown_as(&[0, 1, 0, 1]));
        let bucket = (0..4).map(Bucket).find(|b| table.worker_of(*b) == 0).unwrap();
        let queue = table.queue_for(bucket, 1).unwrap();
        assert_eq!((queue, table.change(bucket, queue)[0].1), (1, 5));
        table.assign(bucket, queue);
        assert_eq!(table.slots.iter().filter(|queue| **queue == 5).count(), 3);
        assert!(table.take_over(vec![0, 1, 2, 3]).is_empty(), "queues of others");
        assert_eq!(table.take_over(vec![4; 4]).len(), 3);
    }

    #[test]
    fn a_worker_without_a_queue_gets_no_slots() {
        let table = table(&[0, 0, 0, 0], 1, 2);
        assert_eq!(table.queue_for(Bucket(0), 1), None);
        assert_eq!(table.queue_for(Bucket(0), 0), Some(0));
    }

    #[test]
    fn a_table_of_somebody_else_is_taken_over() {
        let mut table = table(&[0, 1, 0, 1, 0, 1, 0, 1], 2, 2);
        let first = table.queues.clone();
        assert_eq!(table.take_over(vec![1; 8]).len(), first.iter().filter(|q| **q == 0).count());
        assert!(table.queues.iter().all(|q| *q == 1));
        // Most of its slots count, and queues that nobody serves do not.
        let (of_0, all) = (table.change(Bucket(0), 0), table.slots.clone());
        let mut slots = all.clone();
        of_0.iter().take(of_0.len() / 2).for_each(|(slot, _)| slots[*slot] = 0);
        assert_eq!(table.take_over(slots.clone()), [], "of equals the one that it has");
        assert_eq!(table.take_over(vec![0; 8]).len(), table.queues.len());
        assert!(!table.take_over(slots).contains(&(Bucket(0), 1)), "of equals the one that it has");
        assert_eq!(table.take_over(vec![7; 8]), []);
        assert_eq!(table.take_over(all).len(), 1, "only the first had moved");
    }
}
