//! How many connections of a pool may be being made at once in a lane.
//!
//! Handshakes that are too many for a server or a link are lost, and come again a second later, all together. So a lane
//! begins with few, one more may be under way for each that stands, and when one comes to nothing, or takes so long that a
//! SYN must have been lost, there are a quarter fewer.

/// Handshakes under way in the beginning.
const FIRST: u32 = 32;
/// However bad it looks, so many are tried at once.
const LEAST: u32 = 16;
/// A handshake that took so long has lost a SYN on the way (RFC 6298: the first comes again after a second), nanoseconds.
const LOST: u64 = 900_000_000;

/// The limit.
#[derive(Debug)]
pub(super) struct Pacing {
    limit: u32,
    most: u32,
    /// No further cut before this: handshakes that were lost together count once.
    calm: u64,
}

impl Pacing {
    /// Never more than `most` at once.
    pub(super) fn new(most: u32) -> Self {
        let most = most.max(LEAST);
        Self { limit: FIRST.min(most), most, calm: 0 }
    }

    /// Connections that may be being made.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// One stands, after so many nanoseconds.
    pub(super) fn stood(&mut self, now: u64, took: u64) {
        if took >= LOST {
            self.cut(now, took);
        } else if self.limit < self.most {
            self.limit += 1;
        }
    }

    /// One came to nothing after so many nanoseconds.
    pub(super) fn failed(&mut self, now: u64, took: u64) {
        self.cut(now, took);
    }

    fn cut(&mut self, now: u64, took: u64) {
        // Those that were begun with it tell nothing new.
        if now.saturating_sub(took) >= self.calm {
            self.limit = (self.limit - self.limit / 4).max(LEAST);
            self.calm = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_opens_as_others_finish_and_narrows_when_they_are_lost() {
        let mut pacing = Pacing::new(1000);
        assert_eq!(pacing.limit(), FIRST);
        for n in 0..2000 {
            pacing.stood(n * MS, MS);
        }
        assert_eq!(pacing.limit(), 1000);
        // A hundred that were lost together count once; one that was begun later counts again.
        for _ in 0..100 {
            pacing.stood(3000 * MS, 1000 * MS);
        }
        assert_eq!(pacing.limit(), 750);
        pacing.failed(5000 * MS, 1500 * MS);
        assert_eq!(pacing.limit(), 563);
        for n in 0..100 {
            pacing.failed((10_000 + 5000 * n) * MS, 10 * MS);
        }
        assert_eq!(pacing.limit(), LEAST);
        assert_eq!(Pacing::new(1).limit(), LEAST);
    }
}
