//! A stream that is plain or encrypted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use super::{HTTP1, HTTP2};

/// A stream of bytes over `S`: as it is, or inside TLS.
///
/// What is written inside TLS may wait for [`AsyncWrite::poll_flush`]; over a lane's own stream flushing costs nothing.
#[derive(Debug)]
pub enum Stream<S> {
    /// As it is.
    Plain(S),
    /// Inside TLS. Its state is a kilobyte, which plain streams need not carry.
    Tls(Box<TlsStream<S>>),
}

/// What a handshake agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// HTTP/2 was chosen (ALPN).
    pub http2: bool,
    /// HTTP/1.1 was chosen; `false` together with `http2` when the peer knows nothing of ALPN.
    pub http1: bool,
    /// The session was taken up again.
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

    /// What the handshake agreed on; `None` for a plain stream.
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
