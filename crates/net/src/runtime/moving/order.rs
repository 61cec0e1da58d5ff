//! One move of a lane, as those see it who asked for it and those who carry it out.
//!
//! ```text
//!   Asked ──▶ Expected ──▶ Given ──▶ Sent ──▶ Done        the worker that gets the lane, the one that has it, the same again,
//!     │           │          │         │                  the one that gets it
//!     └───────────┴──────────┴▶ GivenUp└────▶ Lost        who asked; the end of the runtime
//! ```
//!
//! Each step is one compare-and-swap, so a move is either given up or goes on, whoever is faster: until `Sent` the lane stays where it
//! is, and from then on it arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::events;
use crate::runtime::handle::MoveError;
use crate::runtime::message::Message;
use crate::runtime::shared::Shared;

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nobody has heard of it.
    Asked,
    /// The worker that gets the lane expects it.
    Expected,
    /// The worker that has the lane has parked it.
    Given,
    /// The lane is on its way.
    Sent,
    /// It is there, and nothing of its is held any more.
    Done,
    /// Who asked for it does not want it any more; the lane stays.
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
    stage: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Order {
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

    pub(crate) fn is_over(&self) -> bool {
        self.stage().is_last()
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.stage() == Stage::GivenUp
    }
}

/// The order in the hands of the worker that gets the lane, or on its way there. When it goes before the move is over, the runtime has
/// ended.
#[derive(Debug)]
pub(crate) struct Expectation(pub(crate) Arc<Order>);

impl Expectation {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Order { stage: AtomicU8::new(Stage::Asked as u8), waker: Mutex::new(None) }))
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

/// A lane on its way from one worker to another: see [`Handle::begin_move`](crate::Handle::begin_move). Awaited, in a lane, on another
/// executor or by [`block_on`](crate::block_on), it is ready when the lane has arrived. Dropped, the move goes on.
#[derive(Debug)]
pub struct Move {
    shared: Arc<Shared>,
    lane: u32,
    /// Who gets the lane and who has it; nothing if it is there already.
    under_way: Option<(Arc<Order>, usize, usize)>,
}

impl Move {
    /// Begins one: the lane is to go to the worker `to`, which there is.
    pub(crate) fn ask(shared: &Arc<Shared>, lane: u32, to: usize) -> Result<Self, MoveError> {
        let mut moves = shared.moves();
        if moves.get(&lane).is_some_and(|order| !order.is_over()) {
            return Err(MoveError::Moving);
        }
        let from = shared.owner_of(lane);
        if from == to {
            return Ok(Self { shared: shared.clone(), lane, under_way: None });
        }
        let expectation = Expectation::new();
        let order = expectation.0.clone();
        events::move_begun(lane, from, to);
        shared.send(to, Message::Expect { lane, from, expectation });
        moves.insert(lane, order.clone());
        Ok(Self { shared: shared.clone(), lane, under_way: Some((order, from, to)) })
    }

    /// Does without the move, as far as that is still possible: `true` if the lane stays where it was. `false` if it is on its way
    /// already, or there; then it arrives as soon as the other worker takes it.
    #[must_use = "the lane may be on its way already"]
    pub fn give_up(self) -> bool {
        let Some((order, from, to)) = &self.under_way else { return false };
        // A new move of this lane must not begin between this and its messages.
        let _moves = self.shared.moves();
        let given_up = [Stage::Asked, Stage::Expected, Stage::Given]
            .into_iter()
            .any(|stage| order.advance(stage, Stage::GivenUp));
        if given_up {
            events::move_given_up(self.lane, *from, *to);
            for worker in [*from, *to] {
                self.shared.send(worker, Message::GivenUp { lane: self.lane });
            }
        }
        given_up
    }
}

impl Future for Move {
    type Output = Result<(), MoveError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((order, ..)) = &self.under_way else { return Poll::Ready(Ok(())) };
        if !order.is_over() {
            *order.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        }
        // It may have ended since the first look.
        match order.stage() {
            Stage::Done => Poll::Ready(Ok(())),
            Stage::Lost => Poll::Ready(Err(MoveError::Stopped)),
            Stage::GivenUp => Poll::Ready(Err(MoveError::NoAnswer)),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_or_the_move_is_given_up_but_not_both() {
        let order = Expectation::new();
        assert!(order.0.advance(Stage::Asked, Stage::Expected));
        assert!(!order.0.advance(Stage::Asked, Stage::GivenUp));
        assert!(order.0.advance(Stage::Expected, Stage::GivenUp));
        assert!(!order.0.advance(Stage::Expected, Stage::Given));
        assert!(order.0.is_given_up());
    }

    #[test]
    fn who_goes_away_with_an_order_loses_it_once() {
        let expectation = Expectation::new();
        let order = expectation.0.clone();
        drop(expectation);
        assert_eq!(order.stage(), Stage::Lost);
        let expectation = Expectation::new();
        let order = expectation.0.clone();
        assert!(order.advance(Stage::Asked, Stage::Expected));
        assert!(order.advance(Stage::Expected, Stage::GivenUp));
        drop(expectation);
        assert_eq!(order.stage(), Stage::GivenUp);
    }
}
