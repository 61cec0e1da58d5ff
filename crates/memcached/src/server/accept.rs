//! How connections come to a lane: from a listener, plain or by way of a handshake, as long as there are not too many.

use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;

use flowlane::{Datagram, SocketError, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::{Lane, ServerLane, datagrams};
use crate::counts::Counts;

/// What a client is told that finds too many others.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

impl ServerLane {
    /// Serves the connections of a listener until the server is stopped; `each` is called with each of them first.
    ///
    /// # Errors
    /// The listener cannot accept.
    pub async fn serve(
        &self,
        listener: TcpListener,
        each: impl FnMut(&TcpStream) + Send,
    ) -> Result<(), SocketError> {
        self.accept(listener, each, move |open, stream| {
            let (lane, at) = (open.lane.clone(), open.lane.at.clone());
            flowlane::spawn(async move {
                let _open = open;
                let mut connection = Connection::new(lane, stream);
                let _ = at.until_reset(poll_fn(|cx| connection.poll(cx))).await;
            })
            .is_ok()
        })
        .await
    }

    /// As [`ServerLane::serve`], over what `through` makes of each connection, as TLS: `None` if it cannot, which is counted as a failed handshake.
    ///
    /// # Errors
    /// As [`ServerLane::serve`].
    pub async fn serve_through<S, F>(
        &self,
        listener: TcpListener,
        each: impl FnMut(&TcpStream) + Send,
        through: impl Fn(TcpStream) -> F + Send,
    ) -> Result<(), SocketError>
    where
        S: AsyncRead + AsyncWrite + AsRef<TcpStream> + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        self.accept(listener, each, move |open, stream| {
            let (lane, at) = (open.lane.clone(), open.lane.at.clone());
            let handshake = through(stream);
            flowlane::spawn(async move {
                let _open = open;
                let serving = async move {
                    let Some(stream) = handshake.await else {
                        let _ = lane.own.with(|shard| shard.store.counts_mut().ssl_handshake_errors += 1);
                        return;
                    };
                    let mut connection = Connection::new(lane, stream);
                    poll_fn(|cx| connection.poll(cx)).await;
                    poll_fn(|cx| connection.close(cx)).await;
                };
                let _ = at.until_reset(Box::pin(serving)).await;
            })
            .is_ok()
        })
        .await
    }

    /// Answers the requests of datagrams until the server is stopped; `each` is called with each batch of them first.
    ///
    /// # Errors
    /// The socket cannot receive.
    pub async fn serve_datagrams(
        &self,
        socket: UdpSocket,
        each: impl FnMut(&[Datagram]) + Send,
    ) -> Result<(), SocketError> {
        datagrams::serve(&self.lane, &socket, each).await
    }

    /// What the lane counts now.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`] in another lane.
    pub fn counts(&self) -> Result<Counts, SocketError> {
        self.lane.own.with(|shard| *shard.store.counts())
    }

    /// Accepts, and has `begin` make a task of each connection; `false`: the lane takes no more of them.
    async fn accept(
        &self,
        listener: TcpListener,
        mut each: impl FnMut(&TcpStream) + Send,
        begin: impl Fn(Open, TcpStream) -> bool + Send,
    ) -> Result<(), SocketError> {
        let lane = &self.lane;
        let mut accepting = lane.at.accepting(listener);
        while let Some(stream) = accepting.next().await? {
            each(&stream);
            let mut open = Open::new(lane.clone());
            let many = open.number > lane.server.options.connections;
            lane.own.with(|shard| {
                let counts = shard.store.counts_mut();
                counts.total_connections += 1;
                counts.rejected_connections += u64::from(many);
                counts.curr_connections += u64::from(!many);
            })?;
            open.counted = !many;
            if many {
                // It is told if that can be done at once.
                let _ = stream.try_write(TOO_MANY);
                continue;
            }
            let _ = stream.expect_data();
            if !begin(open, stream) {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Counts a connection as open while it lives.
#[derive(Debug)]
struct Open {
    lane: Lane,
    /// How many there are with it.
    number: u64,
    /// Whether its lane counts it as well.
    counted: bool,
}

impl Open {
    fn new(lane: Lane) -> Self {
        let number = lane.server.open.fetch_add(1, Relaxed) + 1;
        Self { lane, number, counted: false }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.lane.server.open.fetch_sub(1, Relaxed);
        if self.counted {
            // A lane that has ended has nothing to be told.
            let _ = self.lane.own.with(|shard| shard.store.counts_mut().curr_connections -= 1);
        }
    }
}
