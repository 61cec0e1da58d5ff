//! Whether a driver in zero copy has been told of all packets in the transmit ring.
//!
//! `sendto` has such a driver schedule its interrupt's work and returns. Until that has run, on another processor perhaps, the ring is as full as
//! before and its flag asks to be told still. A worker that polls would make a system call each turn.

/// Looks at a ring in which nothing is new before the driver is told again: what it was told is lost if it resets the card.
const PATIENCE: u32 = 64;

/// What the driver was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Where the ring ended then.
    end: Option<u32>,
    /// Looks since.
    looks: u32,
}

impl Told {
    /// The driver was told of a ring that ends there.
    pub(super) fn of(&mut self, end: u32) {
        *self = Self { end: Some(end), looks: 0 };
    }

    /// The driver did not take it.
    pub(super) fn of_nothing(&mut self) {
        self.end = None;
    }

    /// Whether it knows of a ring that ends here. Says no now and then, ever more seldom.
    #[inline]
    pub(super) fn knows(&mut self, end: u32) -> bool {
        // Guard: `self.end != Some(end)` as `false` fails xdp::told::tests::a_driver_is_told
        if self.end != Some(end) {
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        // Guard: `!self.looks.is_power_of_two()` as `true` fails xdp::told::tests::a_driver_is_told
        self.looks < PATIENCE || !self.looks.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_told_of_what_is_new_and_of_the_same_ever_more_seldom() {
        let mut told = Told::default();
        assert!(!told.knows(0), "nothing was said");
        told.of(32);
        assert!(told.knows(32));
        assert!(!told.knows(33), "one more");
        told.of(33);
        let again: Vec<u32> = (1..=1000).filter(|_| !told.knows(33)).collect();
        assert_eq!(again, [64, 128, 256, 512]);
        told.of_nothing();
        assert!(!told.knows(33), "it did not take it");
    }
}
