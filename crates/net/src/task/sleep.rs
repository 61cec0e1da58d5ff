//! Sleeping, in a lane or in [`block_on`](crate::block_on).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use flowlane_stack::time::Time;

use crate::block::{self, TimerId};
use crate::context::{self, NotHere};
use crate::lane::{LaneId, SleepId};

/// Waits for `duration`, exact to the nanosecond except for the worker's other work. In [`block_on`](crate::block_on) the kernel determines
/// the precision.
///
/// # Panics
/// If it is awaited outside a lane and outside `block_on`, where it would never be woken.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { state: State::For(duration) }
}

/// Waits until `deadline` on the runtime's clock, which only lanes have.
///
/// # Panics
/// When it is awaited elsewhere.
pub fn sleep_until(deadline: Time) -> Sleep {
    Sleep { state: State::Until(deadline) }
}

/// Future of [`sleep`] and [`sleep_until`].
#[derive(Debug)]
#[must_use = "does nothing until awaited"]
pub struct Sleep {
    state: State,
}

#[derive(Debug)]
enum State {
    For(Duration),
    Until(Time),
    Armed(LaneId, SleepId, Time),
    /// In `block_on`.
    Outside(TimerId),
    Done,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let next = context::with_current(|lane, now| {
            let deadline = match self.state {
                State::For(duration) => now + duration,
                State::Until(deadline) => deadline,
                State::Armed(at, id, deadline) if deadline > now && at == lane.id => {
                    lane.sleepers.set_waker(id, cx.waker());
                    return None;
                }
                // Begun in another lane: that of its new task wakes it.
                State::Armed(_, _, deadline) => deadline,
                State::Outside((at, _)) => now + at.saturating_duration_since(Instant::now()),
                State::Done => return Some(State::Done),
            };
            if deadline <= now {
                return Some(State::Done);
            }
            Some(State::Armed(lane.id, lane.sleepers.add(deadline, cx.waker()), deadline))
        });
        match next {
            Ok(Some(State::Done)) => {
                self.cancel();
                self.state = State::Done;
                Poll::Ready(())
            }
            Ok(Some(state)) => {
                self.cancel();
                self.state = state;
                Poll::Pending
            }
            Ok(None) => Poll::Pending,
            Err(NotHere) => self.poll_outside(cx),
        }
    }
}

impl Sleep {
    /// There is no lane.
    #[cold]
    fn poll_outside(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let at = match self.state {
            State::For(duration) => Instant::now().checked_add(duration),
            State::Outside((at, _)) => Some(at),
            State::Done => return Poll::Ready(()),
            State::Until(_) | State::Armed(..) => {
                panic!("a lane's sleep was awaited elsewhere than in a lane")
            }
        };
        // Beyond what the kernel can tell: for ever.
        let Some(at) = at else { return Poll::Pending };
        self.cancel();
        if at <= Instant::now() {
            self.state = State::Done;
            return Poll::Ready(());
        }
        let id = block::sleep_until(at, cx.waker());
        self.state = State::Outside(
            id.expect("flowlane::sleep was awaited neither in a lane nor in flowlane::block_on"),
        );
        Poll::Pending
    }
}

impl Sleep {
    fn cancel(&mut self) {
        match self.state {
            State::Armed(lane, id, _) => {
                // On another lane than its own the entry stays until it is due, and wakes nobody who minds.
                let _ = context::with_lane(lane, |slot, _, _| slot.sleepers.remove(id));
            }
            State::Outside(id) => block::cancel(id),
            State::For(_) | State::Until(_) | State::Done => {}
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}
