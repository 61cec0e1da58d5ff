//! The state of one move of a lane, shared by its caller and the workers that carry it out.
//!
//! ```text
//!   Asked ──▶ Expected ──▶ Given ──▶ Sent ──▶ Done        the worker that gets the lane, the one that has it, the same again,
//!     │           │          │         │                  the one that gets it
//!     └───────────┴──────────┴▶ GivenUp└────▶ Lost        who asked; the end of the runtime
//! ```
//!
//! Each step is one compare-and-swap, so a move is either cancelled or continues, whichever is first. A move cancelled before `Sent` leaves
//! the lane where it is; after `Sent` the lane arrives.
//!
//! Every move of a lane has a number. What comes late of an earlier move, a marker or a card's answer, has that move's number, and counts
//! for no other.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// No worker has started it.
    Asked,
    /// The worker that gets the lane expects it.
    Expected,
    /// The worker that has the lane has parked it.
    Given,
    /// The lane is on its way.
    Sent,
    /// It is there, and nothing of its is held any more.
    Done,
    /// Cancelled by the caller; the lane stays.
    GivenUp,
    /// The runtime ended first.
    Lost,
}

impl Stage {
    fn of(byte: u8) -> Self {
        use Stage::{Asked, Done, Expected, Given, GivenUp, Lost, Sent};
        [Asked, Expected, Given, Sent, Done, GivenUp, Lost][usize::from(byte)]
    }

    fn is_last(self) -> bool {
        matches!(self, Stage::Done | Stage::GivenUp | Stage::Lost)
    }
}

/// What a move is to those who have part in it.
#[derive(Debug)]
pub(crate) struct Order {
    /// Number of the move among those of its lane.
    number: u32,
    stage: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Order {
    /// Number of the move among those of its lane. After the last of 32 bits comes 0: what is late is of the last few.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage::of(self.stage.load(Ordering::Acquire))
    }

    /// The move goes on from `from` to `to`; `false` if it has been given up.
    pub(crate) fn advance(&self, from: Stage, to: Stage) -> bool {
        let moved =
            self.stage.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if moved && to.is_last() {
            self.wake();
        }
        moved
    }

    fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Has `waker` woken when the move is over; how far it is now.
    pub(crate) fn watch(&self, waker: &Waker) -> Stage {
        if !self.is_over() {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        }
        // It may have ended since the first look.
        self.stage()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage().is_last()
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.stage() == Stage::GivenUp
    }
}

/// The move for which a card is asked to send a lane's packets elsewhere: its answer is for that one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MoveId {
    /// The worker that the lane has come to.
    pub(crate) worker: usize,
    /// The number of its move.
    pub(crate) number: u32,
}

/// The order in the hands of the worker that gets the lane, or on its way there. When it goes before the move is over, the runtime has
/// ended.
#[derive(Debug)]
pub(crate) struct Expectation(pub(crate) Arc<Order>);

impl Expectation {
    /// Of the move with this number.
    pub(crate) fn new(number: u32) -> Self {
        Self(Arc::new(Order { number, stage: AtomicU8::new(Stage::Asked as u8), waker: Mutex::new(None) }))
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let lost = |stage: u8| (!Stage::of(stage).is_last()).then_some(Stage::Lost as u8);
        if self.0.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, lost).is_ok() {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_or_the_move_is_given_up_but_not_both() {
        let order = Expectation::new(0);
        assert!(order.0.advance(Stage::Asked, Stage::Expected));
        assert!(!order.0.advance(Stage::Asked, Stage::GivenUp));
        assert!(order.0.advance(Stage::Expected, Stage::GivenUp));
        assert!(!order.0.advance(Stage::Expected, Stage::Given));
        assert!(order.0.is_given_up());
    }

    #[test]
    fn who_goes_away_with_an_order_loses_it_once() {
        let expectation = Expectation::new(0);
        let order = expectation.0.clone();
        drop(expectation);
        assert_eq!(order.stage(), Stage::Lost);
        let expectation = Expectation::new(0);
        let order = expectation.0.clone();
        assert!(order.advance(Stage::Asked, Stage::Expected));
        assert!(order.advance(Stage::Expected, Stage::GivenUp));
        drop(expectation);
        assert_eq!(order.stage(), Stage::GivenUp);
    }
}
