//! Shares of generators that are gone, for the lanes of one that is left (`taking.rs`): more connections and requests, while the run goes on.
//!
//! A lane that has made its share waits, and does not end, while others may still be lost ([`HttpOptions::stays`](super::HttpOptions)): whoever conducts says when all is
//! made. The time of its end is then when it had nothing more to do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::plan::Plan;
use crate::run::gone::{Gone, deal_anew};
use crate::run::part::{Part, even};

/// What a lane has of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) connections: u64,
    pub(super) requests: u64,
    pub(super) in_all: u64,
}

/// What was dealt out anew.
#[derive(Debug, Default)]
pub(super) struct Anew {
    /// Whether lanes that have made their share wait.
    stays: bool,
    pub(super) over: AtomicBool,
    /// Generators that are gone.
    pub(super) count: AtomicUsize,
    /// By lane of this generator, and pool.
    pub(super) shares: Mutex<Vec<Vec<Share>>>,
    /// Of each lane: 0 while it has anything to do, else one more than generators that it knows to be gone.
    pub(super) idle: Vec<AtomicUsize>,
}

impl Anew {
    pub(super) fn new(lanes: usize, stays: bool) -> Self {
        Self { stays, idle: (0..lanes).map(|_| AtomicUsize::new(0)).collect(), ..Self::default() }
    }

    /// Whether a lane waits that has made its share.
    pub(super) fn waits(&self) -> bool {
        self.stays && !self.over.load(Ordering::Relaxed)
    }

    /// What a lane has now, and after how many were gone.
    pub(super) fn of(&self, bucket: u16) -> (usize, Vec<Share>) {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        (self.count.load(Ordering::Relaxed), shares.get(usize::from(bucket)).cloned().unwrap_or_default())
    }
}

/// The shares of all lanes of a part, with those of generators that are gone: by lane of this generator, and pool.
pub(super) fn shares(plan: &Plan, part: Part, lanes: usize, gone: &[Gone]) -> Vec<Vec<Share>> {
    let mut mine = vec![Vec::new(); lanes];
    for (p, pool) in plan.pools.iter().enumerate() {
        let all = pool.connections as u64;
        let mut connections: Vec<u64> = (0..part.of).map(|lane| even(all, lane, part.of)).collect();
        let takes: Vec<bool> = connections.iter().map(|n| *n > 0).collect();
        deal_anew(&mut connections, &takes, gone, |_| 0);
        let total = |amount: Option<u64>, done: &dyn Fn(&Gone) -> u64| {
            let amount = amount?;
            let mut of: Vec<u64> = (0..part.of).map(|lane| requests_of(amount, all, lane, part.of)).collect();
            deal_anew(&mut of, &takes, gone, done);
            Some(of)
        };
        let sent = |gone: &Gone| gone.sent.get(p).copied().unwrap_or(0);
        let (requests, in_all) = (total(pool.total_requests, &sent), total(pool.total_connections, &|_| 0));
        for (bucket, mine) in mine.iter_mut().enumerate() {
            let lane = part.first + bucket;
            let of = |total: &Option<Vec<u64>>| total.as_ref().map_or(u64::MAX, |total| total[lane]);
            mine.push(Share { connections: connections[lane], requests: of(&requests), in_all: of(&in_all) });
        }
    }
    mine
}

/// What a lane has of `amount` requests over so many connections: as many as its connections make up.
pub(super) fn requests_of(amount: u64, connections: u64, lane: usize, lanes: usize) -> u64 {
    let before = connections * lane as u64 / lanes.max(1) as u64;
    let upto = |c: u64| (u128::from(amount) * u128::from(c) / u128::from(connections.max(1))) as u64;
    upto(before + even(connections, lane, lanes)) - upto(before)
}
