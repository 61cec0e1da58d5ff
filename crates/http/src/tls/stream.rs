//! A stream that is plain or encrypted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use super::{HTTP1, HTTP2};

/// A byte stream over `S`, plain or encrypted by TLS.
///
/// Bytes written to TLS may wait for [`AsyncWrite::poll_flush`]; for a plain stream of a lane flushing costs nothing.
#[derive(Debug)]
pub enum Stream<S> {
    /// Plain.
    Plain(S),
    /// Encrypted by TLS. Boxed, so that plain streams do not have its kilobyte of state.
    Tls(Box<TlsStream<S>>),
}

/// Result of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// Whether HTTP/2 was chosen (ALPN).
    pub http2: bool,
    /// Whether HTTP/1.1 was chosen; both this and `http2` are `false` if the peer does not use ALPN.
    pub http1: bool,
    /// Whether a session was resumed.
    pub resumed: bool,
}

impl<S> Stream<S> {
    /// The stream below.
    pub fn get_ref(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// The result of the handshake; `None` for a plain stream.
    pub fn handshake(&self) -> Option<Handshake> {
        let Self::Tls(stream) = self else { return None };
        let (_, session) = stream.get_ref();
        let chosen = session.alpn_protocol();
        Some(Handshake {
            http2: chosen == Some(HTTP2),
            http1: chosen == Some(HTTP1),
            resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }
}

impl<S> AsRef<S> for Stream<S> {
    fn as_ref(&self) -> &S {
        self.get_ref()
    }
}

impl<S> AsMut<S> for Stream<S> {
    fn as_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, into),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
