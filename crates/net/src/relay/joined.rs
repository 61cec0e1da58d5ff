//! A client's connection and one to a target, joined: both directions in one future.
//!
//! It ends when both streams have ended, when one end fails, or when nothing has passed for too long. However it ends otherwise than in
//! order, both connections are reset, so that a stream that was cut short never looks complete.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane_stack::tcp::{Failure, Interest};
use flowlane_stack::time::Time;

use super::way::{Broken, Moved, Nagle, Wait, Way};
use crate::error::SocketError;
use crate::task::{Sleep, now, sleep_until};
use crate::tcp::TcpStream;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Both streams have ended.
    InOrder,
    /// The client reset its connection.
    ClientReset,
    /// The target did.
    TargetReset,
    /// One of them no longer answers, or something else is wrong with its connection.
    Lost,
    /// Nothing passed for too long.
    Idle,
}

/// The two connections.
#[derive(Debug)]
pub(super) struct Joined {
    client: TcpStream,
    target: TcpStream,
    to_target: Way,
    to_client: Way,
    /// Whether it ended in order; if not, both are reset.
    in_order: bool,
}

impl Joined {
    /// `first`: what the client has sent already. `nagle`: of the target's connection; a client's has its listener's options.
    pub(super) fn new(client: TcpStream, target: TcpStream, first: Vec<u8>, nagle: Nagle) -> Self {
        let (to_target, to_client) = (Way::new(first, nagle), Way::new(Vec::new(), Nagle::Off));
        Self { client, target, to_target, to_client, in_order: false }
    }

    /// Relays to the end. `idle`: how long nothing may pass. `count` is told what was moved to the target and to the client.
    pub(super) async fn relay(mut self, idle: Option<Duration>, mut count: impl FnMut(Moved, Moved)) -> End {
        let mut quiet = Quiet::new(idle);
        let end = poll_fn(|cx| {
            let (mut up, mut down) = (Moved::default(), Moved::default());
            let polled = self.poll(cx, &mut up, &mut down);
            let any = up.bytes() + down.bytes() > 0;
            if any || up.no_pipe + down.no_pipe > 0 {
                count(up, down);
            }
            match polled {
                Poll::Pending if quiet.is_over(any, cx) => Poll::Ready(End::Idle),
                polled => polled,
            }
        })
        .await;
        self.in_order = end == End::InOrder;
        end
    }

    fn poll(&mut self, cx: &mut Context<'_>, up: &mut Moved, down: &mut Moved) -> Poll<End> {
        let (client, target) = (&self.client, &self.target);
        let to_target = match self.to_target.pump(client, target, self.to_client.is_done(), up) {
            Ok(wait) => wait,
            Err(Broken::From(e)) => return Poll::Ready(of_client(&e)),
            Err(Broken::To(e)) => return Poll::Ready(of_target(&e)),
        };
        let to_client = match self.to_client.pump(target, client, self.to_target.is_done(), down) {
            Ok(wait) => wait,
            Err(Broken::From(e)) => return Poll::Ready(of_target(&e)),
            Err(Broken::To(e)) => return Poll::Ready(of_client(&e)),
        };
        if to_target == Wait::Done && to_client == Wait::Done {
            return Poll::Ready(End::InOrder);
        }
        if let Err(e) = wake(client, to_target, to_client, cx) {
            return Poll::Ready(of_client(&e));
        }
        if let Err(e) = wake(target, to_client, to_target, cx) {
            return Poll::Ready(of_target(&e));
        }
        if to_target == Wait::Turn || to_client == Wait::Turn {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Waits for what concerns one end: `out` is the direction that reads from it, `back` the one that writes to it.
fn wake(end: &TcpStream, out: Wait, back: Wait, cx: &Context<'_>) -> Result<(), SocketError> {
    if back == Wait::Write {
        end.wake_on(Interest::Write, cx)?;
    }
    match out {
        Wait::Read => end.wake_on(Interest::Read, cx),
        Wait::Turn => Ok(()),
        // Nobody reads from it, so nobody would see that it is reset.
        Wait::Write | Wait::Done => match end.is_over()? {
            true if back != Wait::Done => Err(Failure::Reset.into()),
            true => Ok(()),
            // Guard: `end.wake_on(Interest::Closed, cx)` as `Ok(())` fails
            // runtime/relay::streams::a_reset_comes_through_a_stall
            false => end.wake_on(Interest::Closed, cx),
        },
    }
}

fn of_client(e: &SocketError) -> End {
    match e {
        SocketError::Connection(Failure::Reset) | SocketError::ShutDown => End::ClientReset,
        _ => End::Lost,
    }
}

fn of_target(e: &SocketError) -> End {
    match of_client(e) {
        End::ClientReset => End::TargetReset,
        end => end,
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        // Guard: `!self.in_order` as `false` fails runtime/relay::streams::what_is_open_at_the_end
        // runtime/relay::streams::resets_are_carried
        if !self.in_order {
            // Elsewhere than in the lane, which is gone then, they are closed.
            let _ = self.client.abort();
            let _ = self.target.abort();
        }
    }
}

/// How long nothing has passed. One timer for the whole connection: it is not set again for each byte, but looks when it fires.
#[derive(Debug)]
struct Quiet {
    limit: Option<Duration>,
    last: Time,
    timer: Option<Sleep>,
}

impl Quiet {
    fn new(limit: Option<Duration>) -> Self {
        Self { limit, last: now().unwrap_or(Time::ZERO), timer: None }
    }

    /// Whether it has been too long; `any`: something has just passed.
    fn is_over(&mut self, any: bool, cx: &mut Context<'_>) -> bool {
        let Some(limit) = self.limit else { return false };
        if any {
            self.last = now().unwrap_or(self.last);
        }
        let last = self.last;
        let mut timer = self.timer.take().unwrap_or_else(|| sleep_until(last + limit));
        while Pin::new(&mut timer).poll(cx).is_ready() {
            if now().is_ok_and(|now| now >= self.last + limit) {
                return true;
            }
            timer = sleep_until(self.last + limit);
        }
        self.timer = Some(timer);
        false
    }
}
