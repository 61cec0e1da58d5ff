//! Limit of the handshakes of a pool in progress at once in a lane.
//!
//! Too many handshakes for a server or link are lost, and all are retransmitted together a second later. So a lane begins with few. The
//! limit grows by one for each established connection, and falls by a quarter when an attempt fails or takes so long that a SYN must
//! have been lost.

/// Limit at the start.
const FIRST: u32 = 32;
/// Least limit.
const LEAST: u32 = 16;
/// A handshake that took this long, nanoseconds, has lost a SYN: the first is retransmitted after a second (RFC 6298).
const LOST: u64 = 900_000_000;

/// The limit.
#[derive(Debug)]
pub(super) struct Pacing {
    limit: u32,
    most: u32,
    /// Time before which the limit is not cut again: handshakes lost together count once.
    calm: u64,
}

impl Pacing {
    /// A limit that is never above `most`.
    pub(super) fn new(most: u32) -> Self {
        let most = most.max(LEAST);
        Self { limit: FIRST.min(most), most, calm: 0 }
    }

    /// The limit of connections being opened.
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// A connection was established after `took` nanoseconds.
    pub(super) fn stood(&mut self, now: u64, took: u64) {
        // Guard: `took >= LOST` as `false` fails http::pacing
        if took >= LOST {
            self.cut(now, took);
        } else if self.limit < self.most {
            self.limit += 1;
        }
    }

    /// An attempt failed after `took` nanoseconds.
    pub(super) fn failed(&mut self, now: u64, took: u64) {
        self.cut(now, took);
    }

    fn cut(&mut self, now: u64, took: u64) {
        // Attempts that were started together with it are not counted again.
        // Guard: `now.saturating_sub(took) >= self.calm` as `true` fails http::pacing
        if now.saturating_sub(took) >= self.calm {
            // Guard: `.max(LEAST)` as `.max(0)` fails http::pacing
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
