//! Sending memory that comes back when it may be used again: one interface for both stacks.
//!
//! ```text
//!   buffer ── queue_zc ──▶ send buffer, frames (or the kernel) refer to it ── acknowledged ──▶ Sending is ready: Ok(buffer)
//!                                                        └─ the connection ends before ──▶ Err, with the buffer
//! ```
//!
//! The buffer belongs to the stack until nothing refers to it any more: acknowledged, or given up when the connection ended. Dropping a future
//! changes nothing of that; the buffer is then dropped when it would have come back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use flowlane_stack::tcp::{ConnId, Interest};
use flowlane_sys::block::{Lender, OwnedBytes};

use super::TcpStream;
use super::write::sent;
use crate::context::LaneRef;
use crate::error::SocketError;
use crate::tcp::Id;

/// A send that failed, and its memory, which is free again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct SendZcError<B> {
    /// What was to be sent. How much of it the peer has got is not known.
    pub buffer: B,
    /// Why it failed. [`SocketError::Closed`] if the connection is gone.
    pub error: SocketError,
}

/// Where a buffer comes back to.
#[derive(Debug)]
struct Back<B> {
    place: Mutex<Place<B>>,
    cut_off: AtomicBool,
}

#[derive(Debug)]
struct Place<B> {
    buffer: Option<B>,
    waker: Option<Waker>,
}

impl<B> Back<B> {
    fn lock(&self) -> MutexGuard<'_, Place<B>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that is lent. When nobody refers to it any more it goes back.
struct Lent<B> {
    /// `None` only while it is dropped.
    buffer: Option<B>,
    back: Arc<Back<B>>,
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        let waker = {
            let mut place = self.back.lock();
            place.buffer = self.buffer.take();
            place.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// All of one buffer.
struct Whole<B>(Lent<B>);

impl<B: AsRef<[u8]> + Send + Sync> Lender for Whole<B> {
    fn bytes(&self) -> &[u8] {
        self.0.buffer.as_ref().map(AsRef::as_ref).unwrap_or_default()
    }

    fn cut_off(&self) {
        self.0.back.cut_off.store(true, Ordering::Relaxed);
    }
}

/// One of several buffers.
struct Part<B>(Arc<Lent<Vec<B>>>, usize);

impl<B: AsRef<[u8]> + Send + Sync> Lender for Part<B> {
    fn bytes(&self) -> &[u8] {
        self.0.buffer.as_ref().and_then(|all| all.get(self.1)).map(AsRef::as_ref).unwrap_or_default()
    }

    fn cut_off(&self) {
        self.0.back.cut_off.store(true, Ordering::Relaxed);
    }
}

/// Memory that is being sent: ready when it may be used again, with the memory. Dropping it leaves the send as it is.
#[must_use = "it has the buffer in the end"]
pub struct Sending<B> {
    back: Arc<Back<B>>,
    lane: LaneRef,
    id: Id<ConnId>,
    /// Why not all of it could be queued.
    error: Option<SocketError>,
}

impl<B> fmt::Debug for Sending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("id", &self.id).field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> Sending<B> {
    /// What came of queueing it; a failure waits for the buffer.
    async fn queued(mut self, queued: Result<(), SocketError>) -> Result<Self, SendZcError<B>> {
        let Err(error) = queued else { return Ok(self) };
        self.error = Some(error);
        Err(match self.await {
            Err(failed) => failed,
            Ok(buffer) => SendZcError { buffer, error },
        })
    }

    /// How the connection ended, if that is known.
    fn reason(&self) -> SocketError {
        let failure = self.lane.with(|slot, _, _| match self.id {
            Id::Stack(id) => slot.lane.tcp().readiness(id).ok().and_then(|ready| ready.failure),
            Id::Kernel(id) => match slot.sockets().ok()?.is_over(id) {
                Err(SocketError::Connection(failure)) => Some(failure),
                _ => None,
            },
        });
        failure.ok().flatten().map_or(SocketError::Closed, Into::into)
    }
}

impl<B> Future for Sending<B> {
    type Output = Result<B, SendZcError<B>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let taken = {
            let mut place = self.back.lock();
            let taken = place.buffer.take();
            if taken.is_none() {
                place.waker = Some(cx.waker().clone());
            }
            taken
        };
        let Some(buffer) = taken else { return Poll::Pending };
        let cut_off = self.back.cut_off.load(Ordering::Relaxed);
        let error = self.error.or_else(|| cut_off.then(|| self.reason()));
        Poll::Ready(match error {
            Some(error) => Err(SendZcError { buffer, error }),
            None => Ok(buffer),
        })
    }
}

impl TcpStream {
    /// Sends all of `buffer` from where it is, and resolves with the buffer when it may be used again: when the peer has acknowledged the
    /// bytes and nothing refers to them.
    ///
    /// On our stack segments refer to the buffer; fewer than 2 KiB are copied. On kernel sockets the kernel does (`MSG_ZEROCOPY`);
    /// fewer than 16 KiB are copied, and so are the bytes of a connection whose device cannot send them in place (the loopback). The
    /// counters `zerocopy-*` of [`KernelStats`](crate::KernelStats) tell. Dropping the future stops what is not queued yet; the
    /// buffer is dropped when nothing refers to it.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`], or if the connection ends before all is acknowledged; the error has the buffer.
    pub async fn send_zc<B>(&self, buffer: B) -> Result<B, SendZcError<B>>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.queue_zc(buffer).await?.await
    }

    /// As [`TcpStream::send_zc`], of several buffers in order.
    ///
    /// # Errors
    /// As `send_zc`.
    pub async fn send_zc_vectored<B>(&self, buffers: Vec<B>) -> Result<Vec<B>, SendZcError<Vec<B>>>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.queue_zc_vectored(buffers).await?.await
    }

    /// The first half of [`TcpStream::send_zc`]: resolves when all of `buffer` is queued behind what was written before. So
    /// several buffers may be on their way at once.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`]; the error has the buffer, as soon as nothing refers to it.
    pub async fn queue_zc<B>(&self, buffer: B) -> Result<Sending<B>, SendZcError<B>>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        let sending = self.sending();
        let lent = Lent { buffer: Some(buffer), back: sending.back.clone() };
        let mut bytes = [OwnedBytes::lent(Whole(lent))];
        let queued = self.queue_all(&mut bytes).await;
        drop(bytes);
        sending.queued(queued).await
    }

    /// As [`TcpStream::queue_zc`], of several buffers in order.
    ///
    /// # Errors
    /// As `queue_zc`.
    pub async fn queue_zc_vectored<B>(&self, buffers: Vec<B>) -> Result<Sending<Vec<B>>, SendZcError<Vec<B>>>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        let sending = self.sending();
        let count = buffers.len();
        let lent = Arc::new(Lent { buffer: Some(buffers), back: sending.back.clone() });
        let mut bytes: Vec<_> = (0..count).map(|n| OwnedBytes::lent(Part(lent.clone(), n))).collect();
        drop(lent);
        let queued = self.queue_all(&mut bytes).await;
        drop(bytes);
        sending.queued(queued).await
    }

    fn sending<B>(&self) -> Sending<B> {
        let place = Mutex::new(Place { buffer: None, waker: None });
        let back = Arc::new(Back { place, cut_off: AtomicBool::new(false) });
        Sending { back, lane: self.lane.clone(), id: self.id, error: None }
    }

    /// Queues all of the pieces.
    async fn queue_all(&self, pieces: &mut [OwnedBytes]) -> Result<(), SocketError> {
        let mut at = 0;
        loop {
            while pieces.get(at).is_some_and(OwnedBytes::is_empty) {
                at += 1;
            }
            if at == pieces.len() {
                return Ok(());
            }
            poll_fn(|cx| self.poll_queue(cx, &mut pieces[at..])).await?;
        }
    }

    /// Queues what there is room for. The first piece has bytes.
    fn poll_queue(&self, cx: &Context<'_>, pieces: &mut [OwnedBytes]) -> Poll<Result<(), SocketError>> {
        let taken = self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(id) => {
                sent(slot.lane.with_tcp(now, frames, |tcp, cx| tcp.send_owned(cx, id, &mut pieces[0])))
            }
            Id::Kernel(id) => slot.sockets()?.send_in_place(id, pieces),
        })??;
        if taken.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.wake_on(Interest::Write, cx)?;
        Poll::Pending
    }
}
