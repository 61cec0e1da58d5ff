//! What workers ask of the cards' thread, and what it counts.

use std::io::Write;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use flowlane_rss::Bucket;

use crate::events;
use crate::shared::MoveId;
use crate::stats::{CardCounts, CardReport, Strayed};

/// What a worker asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// The lane of a bucket has come to a worker: have its packets sent there.
    Follow {
        /// The host.
        host: usize,
        /// The lane's bucket.
        bucket: Bucket,
        /// The move by which it came, and where it is.
        asked: MoveId,
    },
    /// Many frames of this host came on other queues than its card's settings name.
    Strayed {
        /// The host.
        host: usize,
    },
    /// Links are about to close.
    Closing,
    /// The runtime ends.
    End,
}

/// How the thread is reached, and what it counts.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    to: OnceLock<mpsc::Sender<Request>>,
    counts: OnceLock<Vec<Arc<Counts>>>,
    /// What other programs changed, a line for each change; the last ones.
    changed: Mutex<Vec<String>>,
}

/// Changes that are kept.
const CHANGES: usize = 16;

impl Cards {
    /// There is a thread now, which looks after these cards; what it is asked for.
    pub(super) fn begin(&self, counts: Vec<Arc<Counts>>) -> mpsc::Receiver<Request> {
        let (to, from) = mpsc::channel();
        // Nobody else sets them.
        let _ = (self.to.set(to), self.counts.set(counts));
        from
    }

    /// Asks for something. Rare.
    pub(crate) fn ask(&self, request: Request) {
        if let Some(to) = self.to.get() {
            // When it is gone the runtime ends.
            let _ = to.send(request);
        }
    }

    /// Whether the card that steers this host is looked after.
    pub(crate) fn look_after(&self, host: usize) -> bool {
        self.counts.get().is_some_and(|all| all.iter().any(|counts| counts.host == host))
    }

    /// Says what another program has changed of the card under a link, and keeps it for reports.
    pub(super) fn say_changed(&self, link: &str, what: &str) {
        events::card(link, what);
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "flowlane: {link}: {what}");
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.len() >= CHANGES {
            changed.remove(0);
        }
        changed.push(format!("{link}: {what}"));
    }

    /// What other programs changed: the last changes.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counters of each card.
    pub(crate) fn report(&self) -> Vec<CardReport> {
        self.counts.get().map(|all| all.iter().map(|counts| counts.report()).collect()).unwrap_or_default()
    }
}

/// What was done to a card.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) host: usize,
    pub(super) slots_moved: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) followed: AtomicU64,
    pub(super) set_again: AtomicU64,
    /// Place among [`Strayed::ALL`], from 1; 0 for none.
    strayed: AtomicU8,
}

impl Counts {
    /// Of the card of this host.
    pub(super) fn new(host: usize) -> Self {
        Self { host, ..Self::default() }
    }

    /// Frames came on other queues for this reason.
    pub(super) fn found(&self, why: Strayed) {
        let place = Strayed::ALL.iter().position(|one| *one == why).map_or(0, |place| place + 1);
        // Guard: `place as u8` as `0` fails runtime/cards::a_key_of_somebody_else
        self.strayed.store(place as u8, Relaxed);
    }

    fn report(&self) -> CardReport {
        CardReport {
            host: self.host,
            counts: CardCounts {
                slots_moved: self.slots_moved.load(Relaxed),
                refused: self.refused.load(Relaxed),
                followed: self.followed.load(Relaxed),
                set_again: self.set_again.load(Relaxed),
            },
            strayed: usize::from(self.strayed.load(Relaxed)).checked_sub(1).map(|place| Strayed::ALL[place]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_kept() {
        let cards = Cards::default();
        (0..40).for_each(|n| cards.say_changed("af-xdp:none", &format!("change {n} of a test")));
        let kept = cards.changed();
        assert_eq!(kept.len(), CHANGES);
        assert_eq!(kept.last().unwrap(), "af-xdp:none: change 39 of a test");
    }
}
