//! Reading, and waiting for data to read.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, ready};

use flowlane_stack::tcp::{Interest, RecvError};
use flowlane_sys::frame::Frame;

use super::TcpStream;
use crate::context::budget;
use crate::error::SocketError;
use crate::tcp::Id;

impl TcpStream {
    /// Reads available bytes, at most as many as fit `into`. `Some(0)` is the end of the stream, `None` means that nothing is available.
    ///
    /// # Errors
    /// On another lane, or if the connection has failed.
    #[inline]
    pub fn try_read(&self, into: &mut [u8]) -> Result<Option<usize>, SocketError> {
        let read = self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(id) => received(slot.lane.with_tcp(now, frames, |tcp, cx| tcp.recv(cx, id, into))),
            Id::Kernel(id) => slot.sockets()?.recv(id, into),
        })?;
        if let Ok(Some(n)) = read {
            budget::spend(n);
        }
        read
    }

    /// Waits for something to read; 0 is the end of the stream. A task that has read much goes on in the worker's next turn, so that a
    /// peer which sends as fast as it can keeps no other task and no timer waiting.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    // Not `async fn`: that would keep its arguments twice, and very many tasks wait here.
    pub fn read(&self, into: &mut [u8]) -> impl Future<Output = Result<usize, SocketError>> + Send {
        poll_fn(|cx| self.poll_read(cx, into))
    }

    /// As [`TcpStream::read`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize, SocketError>> {
        // Guard: no `ready!(budget::poll(cx));` fails sockets/floods::timers_run
        ready!(budget::poll(cx));
        if let Some(n) = self.try_read(into)? {
            return Poll::Ready(Ok(n));
        }
        self.wake_on(Interest::Read, cx)?;
        Poll::Pending
    }

    /// Reads available data as the frames in which it was received, at most `most` of them, without copying; they are appended to `into`
    /// with their payload only. Returns the number of bytes: `Some(0)` is the end of the stream, `None` means that nothing is available.
    /// On a kernel socket the bytes are copied into free frames of the worker.
    ///
    /// A kept frame is missing in its worker's pool ([`Builder::frames`](crate::Builder::frames)); dropping it on any thread returns it.
    /// `None` is also returned if a free frame is needed and there is none.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn try_read_frames(&self, into: &mut Vec<Frame>, most: usize) -> Result<Option<usize>, SocketError> {
        let before = into.len();
        let mut bytes = 0;
        while into.len() - before < most {
            let next = self.lane.with(|slot, now, frames| match self.id {
                Id::Stack(id) => match slot.lane.with_tcp(now, frames, |tcp, cx| tcp.recv_frame(cx, id)) {
                    Ok(frame) => Ok(Some(frame)),
                    Err(e) => received(Err(e)).map(|_| None),
                },
                Id::Kernel(id) => {
                    let Some(mut frame) = frames.alloc() else { return Ok(None) };
                    let room = frame.tailroom();
                    let read = match frame.push_back(room) {
                        Some(free) => slot.sockets()?.recv(id, free)?,
                        None => None,
                    };
                    Ok(read.map(|n| {
                        frame.truncate(n);
                        (n > 0).then_some(frame)
                    }))
                }
            })?;
            match next {
                // What is there already is given first; an end or an error comes again.
                Ok(Some(Some(frame))) => {
                    bytes += frame.len();
                    into.push(frame);
                }
                Err(e) if bytes == 0 => return Err(e),
                Ok(Some(None)) if bytes == 0 => return Ok(Some(0)),
                _ => break,
            }
        }
        budget::spend(bytes);
        Ok((bytes > 0).then_some(bytes))
    }

    /// Waits for something to read, and gives it as [`TcpStream::try_read_frames`] does; 0 is the end of the stream.
    ///
    /// ```
    /// # use flowlane::{SocketError, TcpStream};
    /// async fn sum(stream: &TcpStream) -> Result<u64, SocketError> {
    ///     let (mut frames, mut sum) = (Vec::new(), 0);
    ///     while stream.read_frames(&mut frames, 64).await? > 0 {
    ///         for frame in frames.drain(..) {
    ///             sum += frame.data().iter().map(|b| u64::from(*b)).sum::<u64>();
    ///         }
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn read_frames(
        &self,
        into: &mut Vec<Frame>,
        most: usize,
    ) -> impl Future<Output = Result<usize, SocketError>> + Send {
        let most = most.max(1);
        poll_fn(move |cx| {
            ready!(budget::poll(cx));
            if let Some(n) = self.try_read_frames(into, most)? {
                return Poll::Ready(Ok(n));
            }
            self.wake_on(Interest::Read, cx)?;
            Poll::Pending
        })
    }

    /// Has the next read of a connection that was accepted a moment ago look at once: its peer is expected to have sent already, as HTTP's
    /// clients do. On kernel sockets that read is a system call, before any event has told that there is something; elsewhere nothing changes.
    ///
    /// # Errors
    /// On another lane, or [`SocketError::Closed`].
    pub fn expect_data(&self) -> Result<(), SocketError> {
        let Id::Kernel(id) = self.id else { return Ok(()) };
        self.lane.with(|slot, _, _| slot.sockets().map(|kernel| kernel.expect_data(id)))?
    }

    /// Waits until there is something to read, the end of the stream or an error, without a buffer to read it into. On
    /// a kernel socket this is a good guess: after a read that filled its buffer there may be no more.
    ///
    /// # Errors
    /// On another lane.
    pub fn readable(&self) -> impl Future<Output = Result<(), SocketError>> + Send {
        poll_fn(|cx| self.poll_readable(cx))
    }

    /// As [`TcpStream::readable`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::readable`].
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        ready!(budget::poll(cx));
        let polled = self.with(
            |lane, id, _, _| {
                if lane.tcp().readiness(id)?.readable {
                    return Ok(Poll::Ready(Ok(())));
                }
                lane.tcp_mut().register(id, Interest::Read, cx.waker())?;
                Ok(Poll::Pending)
            },
            |kernel, id| {
                if kernel.is_readable(id)? {
                    return Ok(Poll::Ready(Ok(())));
                }
                kernel.wake_on(id, Interest::Read, cx.waker())?;
                Ok(Poll::Pending)
            },
        );
        polled.unwrap_or_else(|e| Poll::Ready(Err(e)))
    }
}

/// What the stack says of a read, `None` for nothing there.
#[inline]
fn received(result: Result<usize, RecvError>) -> Result<Option<usize>, SocketError> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(RecvError::WouldBlock) => Ok(None),
        Err(RecvError::Failed(failure)) => Err(failure.into()),
        Err(_) => Err(SocketError::Closed),
    }
}
