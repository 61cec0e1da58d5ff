//! Links without room: when to try them again, and when to give them up.
//!
//! There is no notification when a link has room again: a ring of AF_XDP looks half empty while the card's queue behind it is full, and
//! the other end of a pair link does not signal that it has taken frames. So the worker tries again, first soon and then after doubled
//! intervals, until a frame has been sent. It waits no longer than the link has already been stalled, and a dead link costs at most
//! [`MOST`] wake-ups.
//!
//! A link that has sent nothing for [`DEAD`] and has no room is dead: its output is dropped and counted (`tx_failed`), as with an unplugged
//! cable, so that no lane waits for it. The worker continues to try, and the link is alive again when a frame is sent.

use std::time::Duration;

use flowlane_stack::time::Time;

/// How long to wait before the link is asked again at first.
const FIRST: Duration = Duration::from_micros(50);
/// How long to wait at most.
const MOST: Duration = Duration::from_millis(50);
/// A link that stands still for so long is dead.
const DEAD: Duration = Duration::from_secs(1);

/// A wait that doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// When to try again.
    at: Time,
    delay: Duration,
}

impl Backoff {
    /// Begins with a short wait.
    pub(crate) fn new(now: Time) -> Self {
        Self { at: now + FIRST, delay: FIRST }
    }

    /// When to try again.
    pub(crate) fn at(&self) -> Time {
        self.at
    }

    /// It was tried in vain: waits twice as long, if it is time.
    pub(crate) fn longer(&mut self, now: Time) {
        // Guard: `now >= self.at` as `true` fails ports::stall
        if now >= self.at {
            // Guard: `.min(MOST)` as `.min(Duration::MAX)` fails ports::stall
            self.delay = (self.delay * 2).min(MOST);
            self.at = now + self.delay;
        }
    }
}

/// A link that stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stall {
    /// When something moved last.
    since: Time,
    retry: Backoff,
    /// Room when it was looked at last.
    room: usize,
    dead: bool,
}

impl Stall {
    /// Begins now, with so much room.
    pub(super) fn new(now: Time, room: usize) -> Self {
        Self { since: now, retry: Backoff::new(now), room, dead: false }
    }

    /// Looks again. The link took `taken` frames since the last look, which cost room, and has `room` now.
    pub(super) fn look(&mut self, now: Time, taken: usize, room: usize) {
        // Guard: `room > self.room.saturating_sub(taken)` as `room > self.room` fails ports::stall
        if room > self.room.saturating_sub(taken) {
            *self = Self::new(now, room);
            return;
        }
        self.room = room;
        self.retry.longer(now);
        // Guard: `room == 0` as `true` fails ports::stall
        self.dead |= room == 0 && now.saturating_duration_since(self.since) >= DEAD;
    }

    /// When to ask again.
    pub(super) fn retry_at(&self) -> Time {
        self.retry.at
    }

    /// What is for the link is to be dropped.
    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(1 + ms * 1_000_000)
    }

    #[test]
    fn the_wait_doubles_and_is_no_longer_than_the_link_stood_still() {
        let mut stall = Stall::new(at(0), 0);
        let mut tries = 0;
        while stall.retry.at < at(900) {
            let now = stall.retry.at;
            let stood = now.saturating_duration_since(at(0));
            stall.look(now, 0, 0);
            let wait = stall.retry.at.saturating_duration_since(now);
            assert!(wait <= MOST && wait <= stood + FIRST, "{wait:?} after {stood:?}");
            tries += 1;
        }
        assert!((18..=40).contains(&tries), "{tries}");
        assert!(!stall.is_dead());
        // What moves begins anew.
        stall.look(at(950), 0, 3);
        assert_eq!(stall, Stall::new(at(950), 3));
        // Taking is no moving: the ring only fills.
        stall.look(at(951), 3, 0);
        assert_eq!(stall.since, at(950));
        stall.look(at(1940), 0, 0);
        assert!(!stall.is_dead());
        stall.look(at(1950), 0, 0);
        assert!(stall.is_dead());
        stall.look(at(9000), 0, 1);
        assert!(!stall.is_dead());
    }

    /// Looking before it is time makes the wait no longer.
    #[test]
    fn a_look_too_early_changes_nothing() {
        let mut stall = Stall::new(at(0), 0);
        let first = stall.retry;
        for _ in 0..100 {
            stall.look(at(0), 0, 0);
        }
        assert_eq!(stall.retry, first);
    }

    /// What was taken cost room: a link that has more than is left of it has moved.
    #[test]
    fn a_link_that_makes_up_for_what_it_took_moves() {
        let mut stall = Stall::new(at(0), 10);
        stall.look(at(900), 4, 8);
        assert_eq!(stall, Stall::new(at(900), 8));
        stall.look(at(901), 4, 4);
        assert_eq!(stall.since, at(900));
    }

    #[test]
    fn a_link_with_room_is_not_dead_whatever_it_keeps() {
        let mut stall = Stall::new(at(0), 7);
        stall.look(at(5000), 0, 7);
        assert!(!stall.is_dead());
    }
}
