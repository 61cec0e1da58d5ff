//! A plan whose rate is changed while the load runs: when what it has comes.
//!
//! Planned time runs as fast as the clock until a change, from then on `factor` times as fast, and in a pause it stands. So a plan of many
//! connections is kept as it is, and all of them follow a change at once.

use super::changes::{Bend, Changes};

/// From a moment on planned time runs `factor` times as fast as the clock.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: u64,
    planned: u64,
    factor: f64,
}

/// Planned time and the clock's, nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Stretched {
    pieces: Vec<Piece>,
    seen: usize,
}

impl Stretched {
    /// Follows what was agreed since it was last asked; nothing is planned before `begin`. Returns whether there was anything.
    pub(crate) fn follow(&mut self, changes: &Changes, begin: u64) -> bool {
        if changes.count() == self.seen {
            return false;
        }
        for Bend { at, factor } in changes.after(self.seen) {
            self.seen += 1;
            let at = at.max(begin);
            self.pieces.push(Piece { at, planned: self.planned(at), factor });
        }
        true
    }

    /// When comes what is planned for that moment; `u64::MAX` if the plan stands before it.
    pub(crate) fn comes(&self, planned: u64) -> u64 {
        let before = self.pieces.partition_point(|piece| piece.planned < planned);
        let Some(piece) = before.checked_sub(1).map(|last| self.pieces[last]) else { return planned };
        // Guard: `piece.factor` as `1.0` fails stretched::tests
        piece.at.saturating_add(((planned - piece.planned) as f64 / piece.factor).ceil() as u64)
    }

    /// How far the plan is at a moment.
    pub(crate) fn planned(&self, moment: u64) -> u64 {
        let begun = self.pieces.partition_point(|piece| piece.at <= moment);
        let Some(piece) = begun.checked_sub(1).map(|last| self.pieces[last]) else { return moment };
        piece.planned + ((moment - piece.at) as f64 * piece.factor) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::changes::{Change, Course};

    const S: u64 = 1_000_000_000;
    const COURSE: Course = Course { start: 0, end: 100 * S, rate: 1000.0 };

    /// Moments are agreed 200 ms after they are asked for.
    fn stretched(asked: &[(u64, Change)]) -> Stretched {
        let changes = Changes::default();
        for (moment, change) in asked {
            changes.agree(*change, moment - S / 5, COURSE).unwrap();
        }
        let mut stretched = Stretched::default();
        assert_eq!(stretched.follow(&changes, 2 * S), !asked.is_empty());
        assert!(!stretched.follow(&changes, 2 * S), "twice");
        stretched
    }

    #[test]
    fn a_plan_comes_as_fast_as_was_agreed() {
        let plan = stretched(&[]);
        assert_eq!((plan.comes(7), plan.planned(7)), (7, 7));
        let plan = stretched(&[
            (10 * S, Change::Rate(2000.0)),
            (20 * S, Change::Pause),
            (30 * S, Change::Rate(500.0)),
            (40 * S, Change::Resume),
        ]);
        for (planned, comes) in [(5, 5), (10, 10), (12, 11), (30, 20), (31, 42), (40, 60)] {
            assert_eq!(plan.comes(planned * S), comes * S, "{planned}");
            assert_eq!(plan.planned(comes * S), planned * S, "{comes}");
        }
        assert_eq!((plan.planned(25 * S), plan.planned(40 * S)), (30 * S, 30 * S), "paused");
    }

    #[test]
    fn a_plan_that_stands_does_not_come() {
        let plan = stretched(&[(10 * S, Change::Pause)]);
        assert_eq!((plan.comes(10 * S), plan.comes(10 * S + 1)), (10 * S, u64::MAX));
    }

    /// Where nothing is planned yet, nothing is stretched.
    #[test]
    fn what_was_agreed_before_the_plan_holds_from_its_begin() {
        let plan = stretched(&[(S, Change::Rate(500.0))]);
        assert_eq!((plan.comes(2 * S), plan.comes(3 * S)), (2 * S, 4 * S));
    }
}
