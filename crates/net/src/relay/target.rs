//! The targets of a relay: which of them a connection gets, and which are up.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Relay;
use crate::context;

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

impl Relay {
    /// The next target for a connection or a flow of the calling lane, whose counters of targets begin at `base`. See [`choose`] for the
    /// rest.
    pub(super) fn next_target(&self, base: usize, hash: u32, tried: u64, shunned: u64) -> Option<usize> {
        let (targets, balance) = (&self.0.targets, self.0.config.balance);
        let next = context::with_current(|slot, _| {
            let counts = slot.relay.as_deref();
            let turn = counts.map_or(0, |c| c.relay.accepted as usize);
            let open = |at: usize| counts.and_then(|c| c.targets.get(base + at)).map_or(0, |(_, t)| t.open);
            choose(targets, balance, hash, tried, shunned, turn, open)
        });
        next.ok().flatten()
    }
}

/// The target of a connection or a flow: one that is up and not among those `tried`, nor among those `shunned` while there are others (a bit
/// for each). `open`: connections or flows that each has here. `turn` chooses among those with equally few.
fn choose(
    targets: &[Target],
    balance: Balance,
    hash: u32,
    tried: u64,
    shunned: u64,
    turn: usize,
    open: impl Fn(usize) -> u64,
) -> Option<usize> {
    let of = |tried: u64| {
        // Guard: `t.is_up()` as `true` fails relay::target
        let all = targets.iter().enumerate().filter(|(at, t)| tried & 1 << at == 0 && t.is_up());
        let place = |at: usize| (at + targets.len() - turn % targets.len()) % targets.len();
        let found = match balance {
            Balance::Hash => all.max_by_key(|(_, target)| target.weight(hash)),
            Balance::Least => all.min_by_key(|(at, _)| (open(*at), place(*at))),
        };
        found.map(|(at, _)| at)
    };
    // Guard: `of(tried | shunned)` as `of(tried)` fails relay::target
    of(tried | shunned).or_else(|| of(tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(n: u16) -> Vec<Target> {
        (0..n).map(|i| Target::new(SocketAddr::from(([10, 0, 0, 1], 80 + i)))).collect()
    }

    fn by_hash(targets: &[Target], hash: u32) -> Option<usize> {
        choose(targets, Balance::Hash, hash, 0, 0, 0, |_| 0)
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
            |turn, open: [u64; 3], tried| choose(&targets, Balance::Least, 0, tried, 0, turn, |at| open[at]);
        assert_eq!(least(0, [3, 1, 2], 0), Some(1));
        assert_eq!(least(0, [3, 1, 2], 0b010), Some(2), "not one that was tried");
        let turns: Vec<_> = (0..6).map(|turn| least(turn, [0; 3], 0).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        targets[1].set_up(false);
        assert_eq!(least(0, [3, 1, 2], 0), Some(2));
        assert_eq!(least(0, [0; 3], 0b101), None, "those that are left are down");
    }

    #[test]
    fn one_that_is_shunned_is_chosen_when_there_is_no_other() {
        let targets = targets(3);
        for balance in [Balance::Hash, Balance::Least] {
            let of = |tried, shunned| choose(&targets, balance, 7, tried, shunned, 0, |_| 0);
            let first = of(0, 0).unwrap();
            let second = of(0, 1 << first).unwrap();
            assert_ne!(first, second, "{balance:?}");
            assert_eq!(of(1 << first, 0), Some(second), "{balance:?}: as if it had been tried");
            assert_eq!(of(!(1 << first), 1 << first), Some(first), "{balance:?}: the others were tried");
            assert_eq!(of(0, 0b111), Some(first), "{balance:?}: all are shunned");
            assert_eq!(of(0b111, 0b111), None, "{balance:?}: all were tried");
            targets[first].set_up(false);
            assert_eq!(of(!(1 << first), 1 << first), None, "{balance:?}: it is down");
            targets[first].set_up(true);
        }
    }
}
