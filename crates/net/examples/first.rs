//! The first program of docs/library.md: an echo server for UDP, on kernel sockets.

use std::sync::Arc;

use flowlane::{Host, Key, Rss, Runtime, SocketError, StartError, UdpSocket};

/// The first task of every lane.
async fn echo() -> Result<(), SocketError> {
    let socket = UdpSocket::on_port(7007)?;
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await?;
        socket.reply_batch(&mut batch).await?;
    }
}

/// A server with this many workers.
pub(crate) fn start(workers: usize) -> Result<Runtime, StartError> {
    let mut builder = Runtime::builder().workers(workers);
    // Both are told the number of workers.
    builder.host(Host::kernel("echo", Arc::new(Rss::new(Key::MICROSOFT, workers)), echo));
    builder.start()
}

/// Serves until it is killed, or a lane fails.
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    start(1)?.join()?;
    Ok(())
}
