//! Whether anybody listens at a run's target, as its first connections find out.

use std::sync::atomic::{AtomicU8, Ordering};

/// What the first connections of a run came to, over all its lanes. Where nobody listens, the run ends at once, with one failure; a target
/// that goes away later fails as often as it is asked.
#[derive(Debug, Default)]
pub(crate) struct Door(AtomicU8);

/// What a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody listens there, and this is the first to say so: the run ends.
    First,
    /// The run has ended for it already.
    Again,
    /// A failure like others, since the target has answered before.
    Later,
}

impl Door {
    const OPEN: u8 = 1;
    const SHUT: u8 = 2;
    const LOST: u8 = 3;

    /// Somebody answers.
    pub(crate) fn opens(&self) {
        if self.0.load(Ordering::Relaxed) == 0 {
            // An error means that another lane was first.
            let _ = self.0.compare_exchange(0, Self::OPEN, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The target refuses.
    pub(crate) fn refuses(&self) -> Refusal {
        self.shuts(Self::SHUT)
    }

    /// No route leads to the target, as this machine says.
    pub(crate) fn leads_nowhere(&self) -> Refusal {
        self.shuts(Self::LOST)
    }

    fn shuts(&self, why: u8) -> Refusal {
        match self.0.compare_exchange(0, why, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Refusal::First,
            Err(Self::SHUT | Self::LOST) => Refusal::Again,
            Err(_) => Refusal::Later,
        }
    }

    /// Whether the run has ended because nobody listens, or no route leads there.
    pub(crate) fn is_shut(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), Self::SHUT | Self::LOST)
    }

    /// Whether it has ended because no route leads there.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::LOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_shut_only_while_nobody_was_let_in() {
        let door = Door::default();
        assert_eq!([door.refuses(), door.refuses()], [Refusal::First, Refusal::Again]);
        door.opens();
        assert!(door.is_shut(), "the run has ended");
        let door = Door::default();
        door.opens();
        assert_eq!([door.refuses(), door.refuses()], [Refusal::Later; 2]);
        assert!(!door.is_shut());
        let door = Door::default();
        assert_eq!([door.leads_nowhere(), door.refuses()], [Refusal::First, Refusal::Again]);
        assert!(door.is_shut() && door.is_lost());
    }
}
