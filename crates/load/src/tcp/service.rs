//! The far sides that load needs, for one connection each: an echo, a sink and a source.
//!
//! A connection holds a buffer only while there is something to read or write: idle connections are many.

use std::net::Shutdown;

use flowlane::{SocketError, TcpStream};

use super::pattern;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// Sends every byte back, and ends when the peer does.
///
/// # Errors
/// When the connection ends badly.
pub async fn echo(stream: &TcpStream) -> Result<(), SocketError> {
    each(stream, true).await
}

/// Reads to the end.
///
/// # Errors
/// When the connection ends badly.
pub async fn discard(stream: &TcpStream) -> Result<(), SocketError> {
    each(stream, false).await
}

async fn each(stream: &TcpStream, back: bool) -> Result<(), SocketError> {
    loop {
        stream.readable().await?;
        let mut buffer = vec![0; BUFFER];
        while let Some(n) = stream.try_read(&mut buffer)? {
            if n == 0 {
                return stream.shutdown(Shutdown::Write);
            }
            if back {
                stream.write_all(&buffer[..n]).await?;
            }
        }
    }
}

/// Writes the [`pattern`] in pieces of `size` bytes, `total` bytes in all or for ever, ends the stream, and waits for
/// the peer to end its own. What the peer sends is not read.
///
/// # Errors
/// When the connection ends badly, as it does when the peer has had enough.
pub async fn source(stream: &TcpStream, size: usize, total: Option<u64>) -> Result<(), SocketError> {
    let total = total.unwrap_or(u64::MAX);
    let mut at = 0;
    while at < total {
        let n = (size.clamp(1, pattern::LONGEST) as u64).min(total - at);
        stream.write_all(pattern::slice(at, n as usize)).await?;
        at += n;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut nothing = [0; 1024];
    while stream.read(&mut nothing).await? > 0 {}
    Ok(())
}
