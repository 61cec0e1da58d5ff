//! The numbers of requests, or of flows, over all lanes, and the rows that they use.
//!
//! Number n belongs to the connection n modulo their number, and so to that connection's lane: no two lanes have the same number, all
//! together have all of them, and no lane asks another.

use flowlane_stack::rng::Rng;

use super::plan::Pool;
use crate::fill::{Data, Order};
use crate::run::shares::Dealt;

/// The numbers of one pool in one lane.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    /// Numbers given so far.
    given: u64,
    /// By the lane's connections.
    dealt: Dealt,
}

impl Numbers {
    /// Those of the `count` connections behind the first `before` of a pool.
    pub(super) fn new(pool: &Pool, before: u64, count: u64) -> Self {
        Self { given: 0, dealt: Dealt { before, count, all: pool.connections as u64 } }
    }

    /// How they are dealt.
    pub(super) fn dealt(&self) -> Dealt {
        self.dealt
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        let number = self.dealt.nth(self.given);
        self.given += 1;
        number
    }

    /// How many of this lane's numbers are below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.dealt.below(limit)
    }

    /// The row of a number.
    pub(super) fn row(&self, number: u64, data: &Data, rng: &mut Rng) -> u64 {
        let rows = data.rows();
        match data.order {
            Order::InOrder | Order::Once => number % rows,
            Order::Random => ((u128::from(rng.next_u64()) * u128::from(rows)) >> 64) as u64,
            // The given number's own place among the lane's rows, of which there is one for each connection at least.
            Order::Share => self.dealt.nth(self.given.saturating_sub(1) % self.below(rows).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::plan::Target;

    fn lanes(connections: usize, shares: &[u64]) -> Vec<Numbers> {
        let url = "http://127.0.0.1/".parse().unwrap();
        let target = Target { url, addresses: vec!["127.0.0.1:80".parse().unwrap()], weight: 1.0 };
        let pool = Pool { connections, ..Pool::new("p", target) };
        let mut before = 0;
        let lane = |count: &u64| {
            before += count;
            Numbers::new(&pool, before - count, *count)
        };
        shares.iter().map(lane).collect()
    }

    fn data(rows: u64, order: Order) -> Data {
        let text: String = (0..rows).map(|row| format!("{row}\n")).collect();
        Data::parse(format!("n\n{text}").as_bytes(), order).unwrap()
    }

    #[test]
    fn all_lanes_together_have_each_number_once() {
        for shares in [&[1][..], &[3, 4], &[2, 0, 5, 1]] {
            let connections: u64 = shares.iter().sum();
            let mut lanes = lanes(connections as usize, shares);
            let mut seen: Vec<u64> = Vec::new();
            for (lane, share) in lanes.iter_mut().zip(shares) {
                seen.extend((0..share * 10).map(|_| lane.next()));
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..connections * 10).collect::<Vec<_>>());
            for limit in [0, 1, connections, connections * 3 + 1, 17] {
                let below: u64 = lanes.iter().map(|lane| lane.below(limit)).sum();
                assert_eq!(below, limit, "{shares:?}");
            }
        }
    }

    #[test]
    fn rows_are_used_in_their_order() {
        let mut rng = Rng::new(1);
        let mut rows = |order, rows, connections, shares: &[u64], times: u64| -> Vec<Vec<u64>> {
            let data = data(rows, order);
            let of_lane = |lane: &mut Numbers| {
                let row = |_| {
                    let number = lane.next();
                    lane.row(number, &data, &mut rng)
                };
                (0..times).map(row).collect()
            };
            lanes(connections, shares).iter_mut().map(of_lane).collect()
        };
        assert_eq!(rows(Order::InOrder, 3, 1, &[1], 7), [[0, 1, 2, 0, 1, 2, 0]]);
        // Two lanes take turns by their connections.
        assert_eq!(rows(Order::InOrder, 5, 3, &[1, 2], 3), [[0, 3, 1], [1, 2, 4]]);
        // Each has its own, and again.
        assert_eq!(rows(Order::Share, 5, 3, &[1, 2], 5), [[0, 3, 0, 3, 0], [1, 2, 4, 1, 2]]);
        let random = rows(Order::Random, 3, 1, &[1], 1000).remove(0);
        for row in 0..3 {
            let times = random.iter().filter(|r| **r == row).count();
            assert!((250..420).contains(&times), "{times}");
        }
    }
}
