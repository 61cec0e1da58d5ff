//! How connections come to a lane: from a listener, plain or by way of a handshake, as long as there are not too many.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use flowlane::service::Hold;
use flowlane::{Bucket, Datagram, Departed, SocketError, TcpListener, TcpStream, UdpSocket, spawn_on};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Done};
use super::{Lane, ServerLane, datagrams};
use crate::counts::Counts;

/// What a client is told that finds too many others.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

/// A connection, or what is over one, as TLS. By the connection below it can be moved to another lane.
pub trait Session:
    AsyncRead + AsyncWrite + AsRef<TcpStream> + AsMut<TcpStream> + Unpin + Send + 'static
{
}

impl<S> Session for S where
    S: AsyncRead + AsyncWrite + AsRef<TcpStream> + AsMut<TcpStream> + Unpin + Send + 'static
{
}

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
            let connection = Connection::new(open.lane.clone(), stream);
            flowlane::spawn(live(open, connection, None)).is_ok()
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
        S: Session,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        self.accept(listener, each, move |open, stream| {
            let (lane, at) = (open.lane.clone(), open.lane.at.clone());
            let handshake = through(stream);
            flowlane::spawn(async move {
                let shaking = async { (handshake.await, at.hold()) };
                match at.until_reset(Box::pin(shaking)).await {
                    Some((Some(stream), hold)) => {
                        let connection = Connection::new(lane, stream).ends_in_words();
                        live(open, connection, Some(hold)).await;
                    }
                    Some((None, _)) => {
                        let _ = lane.own.with(|shard| shard.store.counts_mut().ssl_handshake_errors += 1);
                    }
                    None => {}
                }
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
            // Guard: `open.number > lane.server.options.connections` as `false` fails
            // cache/bad::there_may_be_so_many
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

/// Serves a connection until it ends or leaves for another lane. `hold`: of the lane in which it was before, until this one waits for its end.
async fn live<S: Session>(open: Open, mut connection: Connection<S>, mut hold: Option<Hold>) {
    let at = open.lane.at.clone();
    let leaving = at
        .until_reset(poll_fn(|cx| {
            let done = connection.poll(cx);
            hold = None;
            match done {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Done::Ended) => Poll::Ready(None),
                Poll::Ready(Done::Move(to)) => {
                    let lane = open.lane.beside(to);
                    let leaving = lane.and_then(|lane| Some((lane, connection.leave()?, at.hold())));
                    if leaving.is_none() {
                        connection.stay();
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Poll::Ready(leaving)
                }
            }
        }))
        .await;
    match leaving {
        Some(Some((lane, departed, hold))) => {
            let to = Bucket(lane.at.index() as u16);
            let _ = spawn_on(to, go_on(open.moving(), connection, (lane, departed, hold)));
        }
        Some(None) => poll_fn(|cx| connection.close(cx)).await,
        None => {}
    }
}

/// Goes on with a connection that has left another lane. Its size is known, unlike that of [`live`], which calls this.
fn go_on<S: Session>(
    mut open: Open,
    mut connection: Connection<S>,
    (lane, departed, hold): (Lane, Departed, Hold),
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if connection.arrive(lane.clone(), departed).is_ok() && open.arrive(lane).is_ok() {
            live(open, connection, Some(hold)).await;
        }
    })
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

    /// Its connection leaves the lane, which counts it no more.
    fn moving(mut self) -> Self {
        self.uncount();
        self
    }

    /// Its connection has come to the lane of the calling task, which is this one.
    fn arrive(&mut self, lane: Lane) -> Result<(), SocketError> {
        lane.own.with(|shard| shard.store.counts_mut().curr_connections += 1)?;
        (self.lane, self.counted) = (lane, true);
        Ok(())
    }

    fn uncount(&mut self) {
        if std::mem::take(&mut self.counted) {
            // A lane that has ended has nothing to be told.
            let _ = self.lane.own.with(|shard| shard.store.counts_mut().curr_connections -= 1);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.lane.server.open.fetch_sub(1, Relaxed);
        self.uncount();
    }
}
