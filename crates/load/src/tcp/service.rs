//! Servers for the TCP load, for one connection each: echo, discard and source.
//!
//! All connections of a thread read into one buffer. A connection has a buffer of its own only for bytes that the peer has no room for, so
//! idle and short connections need no allocation.

use std::cell::RefCell;
use std::net::Shutdown;

use flowlane::{OwnedBytes, SocketError, TcpStream};

use super::pattern;
use super::talk::GIVEN;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

thread_local! {
    /// Where bytes are read to, between two waits.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Sends every byte back until the peer closes.
///
/// # Errors
/// The connection failed.
pub async fn echo(stream: &TcpStream) -> Result<(), SocketError> {
    each(stream, true).await
}

/// Reads until the peer closes, and discards the bytes.
///
/// # Errors
/// The connection failed.
pub async fn discard(stream: &TcpStream) -> Result<(), SocketError> {
    each(stream, false).await
}

async fn each(stream: &TcpStream, back: bool) -> Result<(), SocketError> {
    loop {
        // After each read, so that a peer which never stops leaves time for others (the lane counts).
        stream.readable().await?;
        // What finds no room at once waits in a buffer of its own.
        if let Some((n, rest)) = SCRATCH.with_borrow_mut(|scratch| pass(stream, scratch, back))? {
            if n == 0 {
                return stream.shutdown(Shutdown::Write);
            }
            if !rest.is_empty() {
                stream.write_all(&rest).await?;
            }
        }
    }
}

/// Reads once and writes back what there is room for: how much was read, and what is still to be written.
fn pass(stream: &TcpStream, scratch: &mut [u8], back: bool) -> Result<Option<(usize, Vec<u8>)>, SocketError> {
    let Some(n) = stream.try_read(scratch)? else { return Ok(None) };
    let written = if back && n > 0 { stream.try_write(&scratch[..n])?.unwrap_or(0) } else { n };
    Ok(Some((n, scratch[written..n].to_vec())))
}

/// Writes the [`pattern`] in pieces of `size` bytes, `total` bytes in all or without end, then closes its side and waits for the peer to
/// close. It reads nothing.
///
/// # Errors
/// The connection failed, for instance since the peer reset it.
pub async fn source(stream: &TcpStream, size: usize, total: Option<u64>) -> Result<(), SocketError> {
    let total = total.unwrap_or(u64::MAX);
    let mut at = 0;
    while at < total {
        let n = (size.clamp(1, pattern::LONGEST) as u64).min(total - at);
        let bytes = pattern::slice(at, n as usize);
        if bytes.len() >= GIVEN {
            stream.write_owned(OwnedBytes::new(bytes)).await?;
        } else {
            stream.write_all(bytes).await?;
        }
        at += n;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut nothing = [0; 1024];
    while stream.read(&mut nothing).await? > 0 {}
    Ok(())
}
