//! One connection of a run, from its SYN to its end: it connects, does its work, and records how it ended.
//!
//! The future is written by hand to keep it small: it has only the current state of the connection, not what is needed to open it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use flowlane::{Failure, Sleep, SocketError, TcpStream};

use super::lane::Lane;
use super::outcome::Trouble;
use super::talk::{Talk, Task};
use crate::run::clock;

/// A connection that has been begun.
pub(super) struct Connection {
    lane: Arc<Lane>,
    /// What the lane wakes it by, once its task has run.
    seat: Option<u32>,
    /// When it was to be begun, nanoseconds.
    due: u64,
    stage: Stage,
    /// The end of its patience, while it has one.
    over: Option<Sleep>,
}

enum Stage {
    /// Waits for the handshake; how many bytes went with the SYN, and what it will do then.
    Opening(TcpStream, usize, Task),
    Talking(Talk),
    Ended,
}

impl Connection {
    /// One that was to be begun at `due`; `taken` bytes went with the SYN. It loses patience when the handshake, or all of it if it comes
    /// and goes, takes longer than the timeout.
    pub(super) fn new(lane: Arc<Lane>, stream: TcpStream, taken: usize, due: u64, task: Task) -> Self {
        let over = Some(flowlane::sleep(lane.common.config.timeout));
        Self { lane, seat: None, due, stage: Stage::Opening(stream, taken, task), over }
    }

    /// Goes on as far as it can.
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        if let Stage::Opening(stream, ..) = &self.stage {
            match stream.poll_connected(cx) {
                Poll::Ready(connected) => {
                    connected.map_err(Trouble::Connect)?;
                    self.is_connected()?;
                }
                Poll::Pending => {
                    return self.lost_patience(cx).map(|()| Err(timed_out()));
                }
            }
        }
        let Stage::Talking(talk) = &mut self.stage else { return Poll::Ready(Ok(())) };
        match talk.poll(&self.lane, cx) {
            Poll::Pending => self.lost_patience(cx).map(|()| Err(Trouble::NoAnswer)),
            done => done,
        }
    }

    /// The handshake is over.
    fn is_connected(&mut self) -> Result<(), Trouble> {
        if let Stage::Opening(stream, taken, task) = std::mem::replace(&mut self.stage, Stage::Ended) {
            let now = clock();
            self.lane.common.gate.door.opens();
            self.lane.inner().connected(now, now.saturating_sub(self.due));
            if self.lane.common.config.mode.stays() {
                self.over = None;
            }
            let mut talk = Talk::new(&self.lane, stream, task, now);
            let first = if taken > 0 { talk.has_written(&self.lane, taken, now) } else { Ok(()) };
            self.stage = Stage::Talking(talk);
            first?;
        }
        Ok(())
    }

    fn lost_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.over {
            Some(over) => Pin::new(over).poll(cx),
            None => Poll::Pending,
        }
    }

    /// Leaves the connection to the stack, which closes it, unless it is to be reset.
    fn finish(&mut self) {
        let Stage::Talking(mut talk) = std::mem::replace(&mut self.stage, Stage::Ended) else { return };
        talk.leave_unsent(&self.lane, clock());
        if let Ok(info) = talk.stream().info() {
            self.lane.inner().counts.retransmits += u64::from(info.retransmits);
        }
        if self.lane.common.config.reset {
            let _ = talk.stream().abort();
        }
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let me = &mut *self;
        let seat = match me.seat {
            Some(seat) => seat,
            None => *me.seat.insert(me.lane.sit(cx.waker())),
        };
        let ended = if me.lane.is_over() {
            Err(match &me.stage {
                // Who stops a run gives nothing the time that it may take.
                _ if me.lane.common.gate.stopped() => Trouble::Unfinished,
                Stage::Talking(talk) if talk.is_stuck() => Trouble::Stuck,
                Stage::Talking(talk) if talk.is_unread() => Trouble::Unread,
                _ => Trouble::Unfinished,
            })
        } else {
            match me.go_on(cx) {
                Poll::Ready(ended) => ended,
                Poll::Pending => return Poll::Pending,
            }
        };
        me.finish();
        me.over = None;
        me.lane.leave(seat, ended);
        Poll::Ready(())
    }
}

fn timed_out() -> Trouble {
    Trouble::Connect(SocketError::from(Failure::TimedOut))
}
