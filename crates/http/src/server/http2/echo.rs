//! Echo: the request's body is sent back as it arrives.
//!
//! Received bytes wait in one buffer for the peer's window, however small their frames were. They are at most the window we gave, which
//! opens again only as we send. When the lane is out of memory, a stream with more waiting bytes than its allowance is reset and counted.

use std::future::poll_fn;
use std::task::{Context, Poll};

use h2::{Reason, RecvStream, SendStream};

use super::body::{PIECE, Piece};
use super::call;
use super::stream::{Open, Over, patience, poll_capacity, too_slow};
use crate::ending::within;
use crate::server::counters::Counter;
use crate::server::memory::LEAST;

struct Echo {
    stream: SendStream<Piece>,
    body: RecvStream,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that are counted in the lane.
    counted: usize,
    received: u64,
    ended: bool,
    /// Whether it is a call of gRPC, whose answer ends with trailers.
    call: bool,
    open: Open,
}

/// What happened.
enum Step {
    Moved,
    Done,
    Over,
    TooLong,
    NoMemory,
}

pub(super) async fn run(open: Open, stream: SendStream<Piece>, body: RecvStream, call: bool) {
    let (receive, write) = patience(&open.0);
    let ended = body.is_end_stream();
    let mut echo = Echo { stream, body, waiting: Vec::new(), counted: 0, received: 0, ended, call, open };
    loop {
        let (time, late) = if echo.waiting.is_empty() {
            (receive, Counter::BodyTimeout)
        } else {
            (write, Counter::WriteTimeout)
        };
        let step = within(time, poll_fn(|cx| echo.poll(cx))).await;
        let cells = echo.open.0.lane.cells();
        match step {
            Some(Step::Moved) => {}
            Some(Step::Done | Step::Over) => return,
            Some(Step::TooLong) => {
                cells.add(Counter::BodyTooLong, 1);
                return echo.stream.send_reset(Reason::CANCEL);
            }
            Some(Step::NoMemory) => {
                cells.add(Counter::NoMemory, 1);
                return echo.stream.send_reset(Reason::ENHANCE_YOUR_CALM);
            }
            None => return too_slow(&echo.open.0, &mut echo.stream, late),
        }
    }
}

impl Echo {
    /// Something goes one way or the other.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let before = self.waiting.len();
        while !self.ended {
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.received += data.len() as u64;
                    if self.received > self.open.0.lane.options().max_body {
                        return Poll::Ready(Step::TooLong);
                    }
                    self.waiting.extend_from_slice(&data);
                }
                Poll::Ready(None) => self.ended = true,
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Step::Over),
                Poll::Pending => break,
            }
        }
        self.count();
        if self.waiting.is_empty() {
            if !self.ended {
                return Poll::Pending;
            }
            let last = match self.call {
                true => self.stream.send_trailers(call::trailers()),
                false => self.stream.send_data(Piece::constant(&[]), true),
            };
            return Poll::Ready(if last.is_ok() { Step::Done } else { Step::Over });
        }
        match poll_capacity(&mut self.stream, cx, self.waiting.len().min(PIECE)) {
            Poll::Ready(Ok(capacity)) => Poll::Ready(self.send(capacity.min(PIECE)).unwrap_or(Step::Over)),
            Poll::Ready(Err(Over)) => Poll::Ready(Step::Over),
            Poll::Pending => {
                let most = self.open.0.lane.memory().allowance();
                if self.waiting.len() > LEAST && most == LEAST {
                    return Poll::Ready(Step::NoMemory);
                }
                if self.waiting.len() > before { Poll::Ready(Step::Moved) } else { Poll::Pending }
            }
        }
    }

    fn send(&mut self, capacity: usize) -> Result<Step, Over> {
        let n = self.waiting.len().min(capacity);
        let rest = self.waiting.split_off(n);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        self.count();
        let conn = &self.open.0;
        conn.credit(4 + n as u64 / 1024);
        let last = self.ended && self.waiting.is_empty();
        let piece = Piece::held(bytes, conn);
        self.stream.send_data(piece, last && !self.call).map_err(|_| Over)?;
        if last && self.call {
            self.stream.send_trailers(call::trailers()).map_err(|_| Over)?;
        }
        // The peer may send as much again.
        let _ = self.body.flow_control().release_capacity(n);
        Ok(if last { Step::Done } else { Step::Moved })
    }

    fn count(&mut self) {
        let (held, conn) = (self.waiting.capacity(), &self.open.0);
        if held > self.counted {
            conn.hold(held - self.counted);
        } else {
            conn.let_go(self.counted - held);
        }
        self.counted = held;
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.open.0.let_go(self.counted);
    }
}
