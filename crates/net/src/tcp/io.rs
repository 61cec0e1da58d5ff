//! The I/O traits of tokio and of futures, and streams in two halves.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::stream::TcpStream;

/// Bytes that take less to zero than to copy what comes.
const SMALL: usize = 1024;
/// Bytes that are read at once into a buffer that was never written.
const READ: usize = 64 << 10;

thread_local! {
    /// Where these come first.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The half of a connection that reads.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The half of a connection that writes. Dropping it ends the stream towards the peer.
#[derive(Debug)]
pub struct OwnedWriteHalf(Arc<TcpStream>);

impl TcpStream {
    /// Two halves that can be dropped one by one; dropping the writing half ends the stream towards the peer.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (OwnedReadHalf(stream.clone()), OwnedWriteHalf(stream))
    }
}

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsMut<TcpStream> for TcpStream {
    fn as_mut(&mut self) -> &mut TcpStream {
        self
    }
}

impl AsRef<TcpStream> for TcpStream {
    fn as_ref(&self) -> &TcpStream {
        self
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // On another lane the whole connection is closed once both halves are gone.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Reads what there is. A buffer that was never written is not zeroed for it: what comes is often a small part of it, which is copied there.
fn read(stream: &TcpStream, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let written = into.initialized().len() - into.filled().len();
    if into.remaining() - written <= SMALL {
        let n = ready!(stream.poll_read(cx, into.initialize_unfilled()))?;
        into.advance(n);
        return Poll::Ready(Ok(()));
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(READ, 0);
        let most = into.remaining().min(READ);
        let n = ready!(stream.poll_read(cx, &mut scratch[..most]))?;
        into.put_slice(&scratch[..n]);
        Poll::Ready(Ok(()))
    })
}

macro_rules! reads {
    ($($name:ident)+) => {
        $(
            impl tokio::io::AsyncRead for $name {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    into: &mut ReadBuf<'_>,
                ) -> Poll<io::Result<()>> {
                    read(self.as_ref().get_ref().as_ref(), cx, into)
                }
            }

            impl futures_io::AsyncRead for $name {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    into: &mut [u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_read(cx, into))?))
                }
            }
        )+
    };
}

macro_rules! writes {
    ($($name:ident)+) => {
        $(
            impl tokio::io::AsyncWrite for $name {
                fn poll_write(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write(cx, bytes))?))
                }

                fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(()))
                }

                fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(self.as_ref().get_ref().as_ref().shutdown(Shutdown::Write)?))
                }

                fn poll_write_vectored(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[io::IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write_vectored(cx, bytes))?))
                }

                fn is_write_vectored(&self) -> bool {
                    true
                }
            }

            impl futures_io::AsyncWrite for $name {
                fn poll_write(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write(cx, bytes))?))
                }

                fn poll_write_vectored(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[io::IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write_vectored(cx, bytes))?))
                }

                fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(()))
                }

                fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(self.as_ref().get_ref().as_ref().shutdown(Shutdown::Write)?))
                }
            }
        )+
    };
}

reads! { TcpStream OwnedReadHalf }
writes! { TcpStream OwnedWriteHalf }
