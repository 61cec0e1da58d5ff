//! When the hash that a card delivers is used.
//!
//! A hash of the right type is used. For checking, the hash is also computed for the first [`FIRST`] frames, for one in [`EVERY`] later
//! ones, and for every frame whose hash names another queue than it arrived on. After one difference all hashes are computed. Flows keep
//! their lanes, since a lane is defined by the computed hash.

/// Hashes checked at first, one after the other.
const FIRST: u32 = 64;
/// One of so many is checked later.
const EVERY: u32 = 256;

/// What is known of a card's hashes.
#[derive(Debug, Default)]
pub(super) struct Trust {
    lost: bool,
    /// Hashes checked of the first.
    checked: u32,
    /// Hashes to be believed before the next is checked.
    unchecked: u32,
}

impl Trust {
    /// Hashes are computed, whatever comes.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether it is this hash's turn.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        if self.unchecked > 0 {
            self.unchecked -= 1;
            return false;
        }
        self.next();
        true
    }

    /// How many hashes are used as they are before it is the next one's turn ([`Trust::is_due`]).
    #[inline]
    pub(super) fn left(&self) -> usize {
        if self.lost { 0 } else { self.unchecked as usize }
    }

    /// So many of [them](Self::left) were used.
    #[inline]
    pub(super) fn used(&mut self, hashes: usize) {
        self.unchecked = self.unchecked.saturating_sub(hashes as u32);
    }

    #[cold]
    fn next(&mut self) {
        if self.checked < FIRST {
            self.checked += 1;
        } else {
            self.unchecked = EVERY - 1;
        }
    }

    /// A hash was another than ours. `true` for the first of them.
    pub(super) fn lose(&mut self) -> bool {
        // Guard: `true` as `false` fails hosts::trust
        !std::mem::replace(&mut self.lost, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_some_later_ones_are_checked() {
        let mut trust = Trust::default();
        assert!((0..FIRST).all(|_| trust.is_due()));
        let checks = (0..100 * EVERY).filter(|_| trust.is_due()).count();
        assert_eq!(checks, 100);
        // A burst's worth at once, and one by one: it is the same one's turn.
        assert!(trust.left() < EVERY as usize);
        trust.used(trust.left());
        assert_eq!(trust.left(), 0);
        assert!(trust.is_due() && trust.left() == EVERY as usize - 1);
        assert!(!trust.is_lost() && trust.lose() && trust.is_lost() && !trust.lose());
    }
}
