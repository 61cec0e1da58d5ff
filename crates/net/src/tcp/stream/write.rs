//! Writing: copying, giving buffers away, and vectored writes.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use flowlane_stack::tcp::{Interest, SendError};
use flowlane_sys::block::OwnedBytes;

use super::TcpStream;
use crate::context::budget;
use crate::error::SocketError;
use crate::tcp::Id;

impl TcpStream {
    /// Takes as much of `bytes` as there is room for; `None` if there is none.
    ///
    /// # Errors
    /// On another lane, after [`TcpStream::shutdown`], or when the connection ended badly.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, SocketError> {
        spent(self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(id) => sent(slot.lane.with_tcp(now, frames, |tcp, cx| tcp.send(cx, id, bytes))),
            Id::Kernel(id) => slot.sockets()?.send(id, bytes),
        })?)
    }

    /// Waits for room and takes as much of `bytes` as fits.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn write(&self, bytes: &[u8]) -> impl Future<Output = Result<usize, SocketError>> + Send {
        poll_fn(|cx| self.poll_write(cx, bytes))
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), SocketError> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(&bytes[done..]).await?;
        }
        Ok(())
    }

    /// Takes as much of `bytes` as there is room for, off their front, and sends it from where it is; `None` if there is no
    /// room. Over a kernel socket the kernel copies it.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    #[inline]
    pub fn try_write_owned(&self, bytes: &mut OwnedBytes) -> Result<Option<usize>, SocketError> {
        spent(self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(id) => sent(slot.lane.with_tcp(now, frames, |tcp, cx| tcp.send_owned(cx, id, bytes))),
            Id::Kernel(id) => {
                let taken = slot.sockets()?.send(id, bytes.data())?;
                drop(bytes.split_to(taken.unwrap_or(0)));
                Ok(taken)
            }
        })?)
    }

    /// Writes all of `bytes` without copying them: segments are made of them where they are, and their owner is dropped when
    /// all is acknowledged. For files, caches and whatever else is sent as it is; fewer than 2 KiB are copied all the same.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub async fn write_owned(&self, mut bytes: OwnedBytes) -> Result<(), SocketError> {
        while !bytes.is_empty() {
            poll_fn(|cx| self.poll_write_owned(cx, &mut bytes)).await?;
        }
        Ok(())
    }

    /// As [`TcpStream::try_write_owned`], for futures written by hand: waits for room.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn poll_write_owned(
        &self,
        cx: &mut Context<'_>,
        bytes: &mut OwnedBytes,
    ) -> Poll<Result<usize, SocketError>> {
        ready!(budget::poll(cx));
        if let Some(n) = self.try_write_owned(bytes)? {
            return Poll::Ready(Ok(n));
        }
        self.wake_on(Interest::Write, cx)?;
        Poll::Pending
    }

    /// As [`TcpStream::write`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SocketError>> {
        ready!(budget::poll(cx));
        if let Some(n) = self.try_write(bytes)? {
            return Poll::Ready(Ok(n));
        }
        self.wake_on(Interest::Write, cx)?;
        Poll::Pending
    }

    /// Ready when there is room for something, or when writing would fail: for futures written by hand that have nothing to write yet.
    ///
    /// # Errors
    /// On another lane.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        ready!(budget::poll(cx));
        let is_writable = self.with(
            |lane, id, _, _| {
                lane.tcp()
                    .readiness(id)
                    .map(|ready| ready.writable || ready.failure.is_some())
                    .map_err(Into::into)
            },
            |kernel, id| kernel.is_writable(id),
        );
        match is_writable {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(e) => return Poll::Ready(Err(e)),
        }
        self.wake_on(Interest::Write, cx).map_or_else(|e| Poll::Ready(Err(e)), |()| Poll::Pending)
    }

    /// Takes as much of the slices, in order, as fits.
    pub(in crate::tcp) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, SocketError>> {
        ready!(budget::poll(cx));
        if let Id::Kernel(id) = self.id {
            let taken = spent(self.lane.with(|slot, _, _| slot.sockets()?.send_slices(id, slices))?)?;
            return match taken {
                Some(n) => Poll::Ready(Ok(n)),
                None => {
                    self.wake_on(Interest::Write, cx).map_or_else(|e| Poll::Ready(Err(e)), |()| Poll::Pending)
                }
            };
        }
        let mut taken = 0;
        for slice in slices.iter().filter(|s| !s.is_empty()) {
            match self.try_write(slice) {
                Ok(Some(n)) => {
                    taken += n;
                    if n < slice.len() {
                        break;
                    }
                }
                Ok(None) if taken == 0 => return self.poll_write(cx, slice),
                Err(e) if taken == 0 => return Poll::Ready(Err(e)),
                Ok(None) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(taken))
    }
}

/// Counts what was written.
#[inline]
fn spent(written: Result<Option<usize>, SocketError>) -> Result<Option<usize>, SocketError> {
    if let Ok(Some(n)) = written {
        budget::spend(n);
    }
    written
}

/// What the stack says of a write, `None` for no room.
#[inline]
pub(super) fn sent(result: Result<usize, SendError>) -> Result<Option<usize>, SocketError> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(SendError::WouldBlock) => Ok(None),
        Err(SendError::Failed(failure)) => Err(failure.into()),
        Err(SendError::Closed) => Err(SocketError::ShutDown),
        Err(_) => Err(SocketError::Closed),
    }
}
