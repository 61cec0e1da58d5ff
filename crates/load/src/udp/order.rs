//! Order and duplicates of the answers of a flow.
//!
//! Each flow keeps the highest sequence number received and a bitmap of the 128 numbers up to it. A number above the highest is in order; a
//! lower one is out of order if it is new, and a duplicate if not. A number below the bitmap counts as out of order, since duplicates that
//! late are rarer.

/// Kind of an answer within its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A new number above all before it.
    InOrder,
    /// A new number after a higher one.
    OutOfOrder,
    /// A number that was received before.
    Duplicate,
    /// A number that was never sent.
    NeverSent,
}

/// Sequence numbers of one flow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order {
    /// The next number to send.
    next: u64,
    /// One above the highest number received; 0 if none was.
    above: u64,
    /// Bit `i`: number `above - 1 - i` was received.
    seen: u128,
}

impl Order {
    /// The number for the next datagram.
    #[inline]
    #[must_use]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Notes that the next number was sent.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.next += 1;
    }

    /// Notes that number `sequence` was received.
    #[inline]
    pub(super) fn came(&mut self, sequence: u64) -> Arrival {
        if sequence >= self.next {
            return Arrival::NeverSent;
        }
        if sequence >= self.above {
            let ahead = sequence + 1 - self.above;
            self.seen = if ahead < 128 { self.seen << ahead | 1 } else { 1 };
            self.above = sequence + 1;
            return Arrival::InOrder;
        }
        let back = self.above - 1 - sequence;
        if back >= 128 {
            return Arrival::OutOfOrder;
        }
        let bit = 1u128 << back;
        if self.seen & bit != 0 {
            return Arrival::Duplicate;
        }
        self.seen |= bit;
        Arrival::OutOfOrder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(n: u64) -> Order {
        Order { next: n, ..Order::default() }
    }

    #[test]
    fn order_loss_and_duplicates() {
        let mut order = sent(10);
        assert_eq!(order.came(0), Arrival::InOrder);
        assert_eq!(order.came(3), Arrival::InOrder);
        assert_eq!(order.came(1), Arrival::OutOfOrder);
        assert_eq!(order.came(1), Arrival::Duplicate);
        assert_eq!(order.came(3), Arrival::Duplicate);
        assert_eq!(order.came(0), Arrival::Duplicate);
        assert_eq!(order.came(2), Arrival::OutOfOrder);
        assert_eq!(order.came(9), Arrival::InOrder);
        assert_eq!(order.came(10), Arrival::NeverSent);
    }

    #[test]
    fn long_jumps_forget() {
        let mut order = sent(10_000);
        assert_eq!(order.came(0), Arrival::InOrder);
        assert_eq!(order.came(127), Arrival::InOrder);
        assert_eq!(order.came(0), Arrival::Duplicate);
        assert_eq!(order.came(5000), Arrival::InOrder);
        assert_eq!(order.came(4999), Arrival::OutOfOrder);
        assert_eq!(order.came(0), Arrival::OutOfOrder);
    }

    #[test]
    fn any_shuffle_within_the_memory_is_accounted_for() {
        let mut rng = flowlane_stack::rng::Rng::new(3);
        for _ in 0..200 {
            let mut numbers: Vec<u64> =
                (0..100).flat_map(|n| if n % 7 == 0 { vec![n, n] } else { vec![n] }).collect();
            for i in (1..numbers.len()).rev() {
                numbers.swap(i, rng.below(i as u32 + 1) as usize);
            }
            let mut order = sent(100);
            let mut duplicates = 0;
            let mut first = 0;
            for n in numbers {
                match order.came(n) {
                    Arrival::Duplicate => duplicates += 1,
                    Arrival::InOrder | Arrival::OutOfOrder => first += 1,
                    Arrival::NeverSent => panic!("{n} was sent"),
                }
            }
            assert_eq!((first, duplicates), (100, 15));
        }
    }
}
