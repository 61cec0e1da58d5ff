//! The targets of a relay: which of them a connection gets, and which are up.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How a connection's target is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// By the flow's hash, so that a flow keeps its target. If a target goes down only its flows get others (rendezvous hashing).
    #[default]
    Hash,
    /// The one with fewest connections in the lane that has the connection.
    Least,
}

/// Most targets of a relay.
pub const MOST_TARGETS: usize = 64;

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Of its address: no part of the choice depends on the order of targets.
    seed: u64,
    /// Written only when a health check changes its mind, so that lanes share the line without contention.
    down: AtomicBool,
}

impl Target {
    pub(super) fn new(address: SocketAddr) -> Self {
        let bytes = address.to_string();
        let seed = bytes
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self { address, seed, down: AtomicBool::new(false) }
    }

    pub(super) fn is_up(&self) -> bool {
        !self.down.load(Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.down.store(!up, Relaxed);
    }

    /// How much a flow belongs here.
    fn weight(&self, hash: u32) -> u64 {
        mix(self.seed ^ mix(u64::from(hash)))
    }
}

/// Every bit of the result depends on every bit of the number (the finalizer of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The target of a connection: one that is up and not among those `tried` (a bit for each). `open`: connections that each has here. `turn`
/// chooses among those with equally few.
pub(super) fn choose(
    targets: &[Target],
    balance: Balance,
    hash: u32,
    tried: u64,
    turn: usize,
    open: impl Fn(usize) -> u64,
) -> Option<usize> {
    let all = targets.iter().enumerate().filter(|(at, t)| tried & 1 << at == 0 && t.is_up());
    let found = match balance {
        Balance::Hash => all.max_by_key(|(_, target)| target.weight(hash)),
        Balance::Least => {
            all.min_by_key(|(at, _)| (open(*at), (at + targets.len() - turn % targets.len()) % targets.len()))
        }
    };
    found.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(n: u16) -> Vec<Target> {
        (0..n).map(|i| Target::new(SocketAddr::from(([10, 0, 0, 1], 80 + i)))).collect()
    }

    fn by_hash(targets: &[Target], hash: u32) -> Option<usize> {
        choose(targets, Balance::Hash, hash, 0, 0, |_| 0)
    }

    #[test]
    fn only_the_flows_of_a_lost_target_move() {
        let targets = targets(5);
        let before: Vec<_> = (0..10_000).map(|hash| by_hash(&targets, hash).unwrap()).collect();
        for at in 0..5 {
            let share = before.iter().filter(|t| **t == at).count();
            assert!((1800..2200).contains(&share), "target {at} has {share} of 10,000");
        }
        targets[2].set_up(false);
        let after: Vec<_> = (0..10_000).map(|hash| by_hash(&targets, hash).unwrap()).collect();
        assert!(before.iter().zip(&after).all(|(b, a)| *a != 2 && (b == a || *b == 2)));
        targets[2].set_up(true);
        assert!((0..10_000).zip(&before).all(|(hash, t)| by_hash(&targets, hash) == Some(*t)));
    }

    #[test]
    fn the_order_of_targets_is_no_part_of_the_choice() {
        let (there, back) = (targets(4), targets(4).into_iter().rev().collect::<Vec<_>>());
        for hash in 0..1000 {
            let of = |list: &[Target]| list[by_hash(list, hash).unwrap()].address;
            assert_eq!(of(&there), of(&back));
        }
    }

    #[test]
    fn the_least_loaded_gets_it_and_equals_take_turns() {
        let targets = targets(3);
        let least =
            |turn, open: [u64; 3], tried| choose(&targets, Balance::Least, 0, tried, turn, |at| open[at]);
        assert_eq!(least(0, [3, 1, 2], 0), Some(1));
        assert_eq!(least(0, [3, 1, 2], 0b010), Some(2), "not one that was tried");
        let turns: Vec<_> = (0..6).map(|turn| least(turn, [0; 3], 0).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        targets[1].set_up(false);
        assert_eq!(least(0, [3, 1, 2], 0), Some(2));
        assert_eq!(least(0, [0; 3], 0b101), None, "those that are left are down");
    }
}
