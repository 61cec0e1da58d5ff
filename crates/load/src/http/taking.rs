//! How the lanes of a generator that is left take the shares of those that are gone ([`anew`](super::anew)), and wait for them.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::anew::{Share, shares};
use super::engine::{Engine, Stage};
use super::plan::Pace;
use super::run::HttpLoad;
use super::stages::start_tasks;
use crate::run::gone::Gone;

impl HttpLoad {
    /// From now on this part of a run has its share of what generators had that are gone; the list only grows.
    pub fn share(&self, gone: &[Gone]) {
        let common = &self.common;
        let Some((of, left)) = Gone::left(common.part.of, gone) else { return };
        common.gate.raise(of, left);
        let anew = &common.anew;
        let mut shared = anew.shares.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = shares(&common.plan, common.part, common.lanes, gone);
        anew.count.store(gone.len(), Ordering::Relaxed);
    }

    /// Of how many generators its lanes know that they are gone, when they have made their shares and wait; `None` while one has anything to do.
    #[must_use]
    pub fn idle(&self) -> Option<usize> {
        let common = &self.common;
        let taking = common.anew.idle.iter().zip(common.lanes_taking_part()).filter(|(_, takes)| *takes);
        taking.map(|(idle, _)| idle.load(Ordering::Relaxed)).min()?.checked_sub(1)
    }

    /// All is made, by all: lanes that wait end.
    pub fn finish(&self) {
        self.common.anew.over.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// Every share is made: whether the lane waits for what else may come.
    pub(super) fn waits(&mut self) -> bool {
        let anew = &self.common.anew;
        if !anew.waits() {
            return false;
        }
        self.idle_since.get_or_insert(self.now);
        // Guard: `self.gone + 1` as `1` fails load/http::gone::a_generator_that_is_left
        anew.idle[usize::from(self.bucket)].store(self.gone + 1, Ordering::Relaxed);
        true
    }

    /// Takes what was dealt out anew since it was last asked.
    pub(super) fn take_shares(&mut self) {
        let common = self.common.clone();
        if common.anew.count.load(Ordering::Relaxed) == self.gone || !matches!(self.stage, Stage::Run(_)) {
            return;
        }
        let (gone, shares) = common.anew.of(self.bucket);
        self.gone = gone;
        self.idle_since = None;
        common.anew.idle[usize::from(self.bucket)].store(0, Ordering::Relaxed);
        for (p, share) in shares.into_iter().enumerate() {
            self.take_share(p, share);
        }
    }

    fn take_share(&mut self, p: usize, share: Share) {
        let pool = &mut self.pools[p];
        let had = std::mem::replace(&mut pool.share, share);
        let was_over = pool.exhausted();
        let more = |now: u64, had: u64| now.saturating_sub(had);
        let (requests, in_all) = (more(share.requests, had.requests), more(share.in_all, had.in_all));
        let connections = more(share.connections, had.connections) as u32;
        (pool.wanted, pool.allowed) = (pool.wanted + connections, pool.allowed + connections);
        if let Some(shared) = &pool.beside {
            // Guard: `shared.takes_over(requests, in_all, pool.wanted)` as `0` fails load/http::gone::connections_of_others
            let start = shared.takes_over(requests, in_all, pool.wanted);
            return start_tasks(shared, pool.plan.pool.version, start);
        }
        pool.requests_left = pool.requests_left.saturating_add(requests);
        pool.connections_left = pool.connections_left.saturating_add(in_all);
        pool.quiet = pool.first;
        self.add_connections(p, connections);
        let pool = &mut self.pools[p];
        if pool.plan.pool.pace == Pace::Closed {
            pool.unstarted = pool.idle.len() as u32;
        } else if let Some(moments) = pool.moments.as_mut().filter(|_| was_over) {
            // What was due while nothing was left to send was the others'.
            while moments.peek().is_some_and(|moment| moment < self.now) {
                moments.advance();
            }
        }
    }
}
