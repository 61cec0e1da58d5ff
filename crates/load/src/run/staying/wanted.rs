//! Which places of a lane are to have a connection: the first so many. How many is changed while the run lasts.

use crate::run::changes::Changes;
use crate::run::gate::Gate;
use crate::run::gone::Gone;

/// How many connections a lane is to have, and up to which they were begun.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) count: usize,
    next: usize,
    /// When that was last changed, nanoseconds, and how often.
    since: u64,
    resized: usize,
    /// Generators that are gone, as far as it knows.
    gone: usize,
    /// Whether a task begins what is to be begun.
    pub(super) is_beginning: bool,
}

impl Wanted {
    pub(super) fn new(count: usize) -> Self {
        Self { count, next: 0, since: 0, resized: 0, gone: 0, is_beginning: false }
    }

    /// Whether the place is to have a connection.
    #[inline]
    pub(super) fn has(&self, at: usize) -> bool {
        at < self.count
    }

    /// The next place whose connection is to be begun. One that was to end and has not is among them.
    pub(super) fn next(&mut self) -> Option<usize> {
        let at = self.next;
        (at < self.count).then(|| {
            self.next += 1;
            at
        })
    }

    /// Whether connections are to be begun, and nobody does.
    pub(super) fn has_to_begin(&mut self) -> bool {
        self.next < self.count && !std::mem::replace(&mut self.is_beginning, true)
    }

    /// Follows what was agreed since it was last asked, of which the lane has its share; whether there was anything.
    pub(super) fn follow(&mut self, changes: &Changes, now: u64, share: impl Fn(u32) -> usize) -> bool {
        let Some((resized, all)) = changes.size(self.resized, now) else { return false };
        self.resized = resized;
        let count = share(all);
        if count != self.count {
            (self.since, self.count) = (now, count);
        }
        // Guard: `self.next.min(self.count)` as `self.next` fails staying::wanted::tests
        self.next = self.next.min(self.count);
        true
    }

    /// Follows who is gone since it was last asked: `more` connections are the lane's, besides `own`.
    pub(super) fn take_over(&mut self, gate: &Gate, own: usize, more: impl Fn(&[Gone]) -> usize) {
        if let Some(gone) = gate.gone(self.gone) {
            (self.gone, self.count) = (gone.len(), own + more(&gone));
        }
    }

    /// The first place whose connection was to end before that moment.
    pub(super) fn leaves(&self, before: u64) -> usize {
        if self.resized > 0 && self.since < before { self.count } else { usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::changes::{Change, Course};

    #[test]
    fn places_are_begun_once_and_again_after_they_were_to_end() {
        let (changes, mut wanted, mut now) = (Changes::default(), Wanted::new(2), 0);
        let mut of = |n: u32, wanted: &mut Wanted| -> Vec<usize> {
            let course = Course { start: 0, end: u64::MAX, rate: 0.0 };
            changes.agree(Change::Connections(n), now, course).unwrap();
            assert!(!wanted.follow(&changes, now, |n| n as usize), "before its moment");
            now += 1_000_000_000;
            assert!(wanted.follow(&changes, now, |n| n as usize) && !wanted.follow(&changes, now, |_| 7));
            assert_eq!((wanted.leaves(now), wanted.leaves(now + 1)), (usize::MAX, n as usize));
            std::iter::from_fn(|| wanted.next()).collect()
        };
        assert_eq!((wanted.next(), wanted.next(), wanted.next()), (Some(0), Some(1), None));
        assert_eq!(wanted.leaves(u64::MAX), usize::MAX, "nothing was changed");
        assert_eq!(of(4, &mut wanted), [2, 3]);
        assert!(of(1, &mut wanted).is_empty());
        assert_eq!(of(3, &mut wanted), [1, 2]);
        assert!(wanted.has(2) && !wanted.has(3) && !wanted.has_to_begin());
    }
}
