//! A move of a lane, for its caller. `worker/moving` has the workers' part.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::events;
use crate::shared::{Expectation, Message, Order, Shared, Stage};

/// Why a lane was not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// There is no such host or bucket.
    #[error("there is no such host or bucket")]
    NoSuchLane,
    /// There is no such worker.
    #[error("there is no such worker")]
    NoSuchWorker,
    /// Called on a worker, which would wait for itself.
    #[error("lanes are moved from outside the workers")]
    OnWorker,
    /// The lane is being moved already.
    #[error("the lane is being moved already")]
    Moving,
    /// A worker did not answer, since one of its tasks does not return; or the move was given up. The lane stays where it is.
    #[error("a worker does not answer")]
    NoAnswer,
    /// The lane is on its way to a worker that does not take it, since one of its tasks does not return.
    #[error("the lane is on its way to a worker that does not answer")]
    Late,
    /// The runtime has stopped.
    #[error("the runtime has stopped")]
    Stopped,
}

/// A move of a lane in progress: see [`Handle::begin_move`](crate::Handle::begin_move). As a future, in a lane, on another executor or by
/// [`block_on`](crate::block_on), it is ready when the lane has arrived. Dropping it does not stop the move.
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
        let number = moves.get(&lane).map_or(0, |last| last.number().wrapping_add(1));
        let expectation = Expectation::new(number);
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
        match order.watch(cx.waker()) {
            Stage::Done => Poll::Ready(Ok(())),
            Stage::Lost => Poll::Ready(Err(MoveError::Stopped)),
            Stage::GivenUp => Poll::Ready(Err(MoveError::NoAnswer)),
            _ => Poll::Pending,
        }
    }
}
