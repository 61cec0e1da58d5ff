//! A web server in every lane: its own listener, its own connections, its own counters.
//!
//! ```no_run
//! use flowlane::TcpListener;
//! use flowlane_http::server::{Options, Server};
//!
//! let server = Server::new(Options::default(), 16).unwrap();
//! // The main of every lane:
//! let main = move || {
//!     let server = server.clone();
//!     async move {
//!         let Ok(listener) = TcpListener::bind(None, 80, Server::listen_options()) else { return };
//!         let _ = server.serve(listener).await;
//!     }
//! };
//! # let _ = main;
//! ```
//!
//! HTTP/1 is implemented in this module and in [`crate::h1`]: a connection reads into a buffer that all connections of a worker share,
//! answers every request in it, and sends all answers with one write. Bytes that do not fit wait in the connection, which reads nothing
//! meanwhile. So a connection that waits for a request holds no buffer, and one that waits for its peer holds a bounded one. HTTP/2 frames
//! are handled by the crate `h2`, on the same streams. HTTP/3 is in `http3`, on a UDP socket of each lane. The memory of answers is bounded for each connection and lane (`memory.rs`).
//!
//! ```text
//! accept ▸ TLS ▸ ALPN or preface ─ h2 ──▶ http2 ─────▶ route ▸ reply ▸ http2
//!                               └─ http/1 ▶ connection ▶ route ▸ reply ▸ respond ▸ write
//!                                                            └─ /ws ──▶ websocket
//! ```
//!
//! Read RFC 9110 and 9112. Invariants: every request is answered or ends its connection, with a counter in [`Counts`]; [`Timeouts`] limit
//! how long a slow peer may take. Not supported: upgrades other than to WebSocket, several ranges in one request, compression, directory listings.

mod connection;
mod counters;
mod date;
mod events;
mod exchange;
mod files;
mod http2;
mod http3;
mod memory;
mod options;
mod reply;
mod respond;
mod route;
mod scratch;
mod websocket;
mod wire;

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flowlane::service::{InLane, Phase, Service};
use flowlane::{ListenOptions, SocketError, SocketOptions, TcpListener, TcpStream, UdpSocket};

use crate::ending::{finish, within};
use crate::tls::{ServerTls, Stream, TlsError};
use connection::{Connection, Outcome};
use counters::Cells;
use files::Dir;
use http3::Http3;
use memory::Memory;

pub use counters::{Counter, Counts};
pub use options::{Options, Stall, Timeouts};

/// Why a server could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// The directory of files.
    #[error("{}: {error}", path.display())]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why it cannot be served.
        error: io::Error,
    },
    /// The TLS of QUIC.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// One server with all its lanes. Clones are the same server.
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
    service: Service,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    site: Site,
    lanes: Vec<Cells>,
    memory: Vec<Memory>,
    http3: Option<Http3>,
}

/// The content to serve.
#[derive(Debug)]
pub(crate) struct Site {
    dir: Option<Dir>,
    /// Whether messages of a WebSocket may be compressed.
    ws_deflate: bool,
}

/// The part of server and lane that a connection needs.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    server: Arc<Inner>,
    at: InLane,
    /// Its number among the server's.
    index: usize,
}

impl Lane {
    #[inline]
    fn options(&self) -> &Options {
        &self.server.options
    }

    #[inline]
    fn site(&self) -> &Site {
        &self.server.site
    }

    #[inline]
    fn cells(&self) -> &Cells {
        &self.server.lanes[self.index]
    }

    #[inline]
    fn memory(&self) -> &Memory {
        &self.server.memory[self.index]
    }

    #[inline]
    fn phase(&self) -> Phase {
        self.at.phase()
    }

    /// Whether the server is stopping: no further requests are taken.
    #[inline]
    fn is_stopping(&self) -> bool {
        self.phase() != Phase::Serving
    }
}

impl Server {
    /// A server with this many lanes: buckets of the host that it will run on.
    ///
    /// # Errors
    /// A directory that cannot be opened.
    pub fn new(options: Options, lanes: usize) -> Result<Self, SetUpError> {
        let dir = options
            .dir
            .as_ref()
            .map(|path| Dir::open(path).map_err(|error| SetUpError::Dir { path: path.clone(), error }));
        let site = Site { dir: dir.transpose()?, ws_deflate: options.ws_deflate };
        let count = lanes.max(1);
        let lanes = (0..count).map(|_| Cells::new()).collect();
        let share = options.memory / count as u64;
        let memory = (0..count).map(|_| Memory::new(share)).collect();
        let http3 = Http3::new(&options, count)?;
        let inner = Arc::new(Inner { options, site, lanes, memory, http3 });
        Ok(Self { inner, service: Service::new(count) })
    }

    /// Options for the server's listeners: without Nagle's algorithm, since answers are written whole.
    #[must_use]
    pub fn listen_options() -> ListenOptions {
        let socket = SocketOptions { nodelay: true, ..SocketOptions::default() };
        ListenOptions { socket, ..ListenOptions::default() }
    }

    /// Serves the connections of a listener until the server is stopped. Call it in every lane, each with its own listener.
    ///
    /// # Errors
    /// The listener cannot accept.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), SocketError> {
        self.serve_each(listener, |_| {}).await
    }

    /// As [`Server::serve`], with a call for each connection before it is served.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub async fn serve_each(
        &self,
        listener: TcpListener,
        mut each: impl FnMut(&TcpStream) + Send,
    ) -> Result<(), SocketError> {
        let at = self.service.here()?;
        let index = at.index() % self.inner.lanes.len();
        let lane = Lane { server: self.inner.clone(), at: at.clone(), index };
        let limit = self.inner.options.connections_per_lane;
        let mut accepting = at.accepting(listener);
        while let Some(stream) = accepting.next().await? {
            each(&stream);
            let cells = lane.cells();
            cells.add(Counter::Connections, 1);
            if cells.open() > limit {
                cells.add(Counter::TooMany, 1);
                cells.add(Counter::Ended, 1);
                continue;
            }
            let (ended, at) = (Ended(lane.clone()), at.clone());
            // Clients speak first: their request, or TLS's ClientHello.
            let _ = stream.expect_data();
            let served = if let Some(tls) = &self.inner.options.tls {
                let tls = tls.clone();
                flowlane::spawn(async move {
                    let serving = async move { encrypted(&ended.0, tls, stream).await };
                    let _ = at.until_reset(Box::pin(serving)).await;
                })
            } else {
                flowlane::spawn(async move {
                    let serving = async move { plain(&ended.0, Stream::Plain(stream)).await };
                    let _ = at.until_reset(serving).await;
                })
            };
            if served.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Serves HTTP/3 on a UDP socket until the server is stopped, if its options have that. Call it in every lane, each with its own socket on one
    /// port.
    ///
    /// # Errors
    /// The socket is another lane's, or is closed.
    pub async fn serve_datagrams(&self, socket: UdpSocket) -> Result<(), SocketError> {
        let Some(http3) = &self.inner.http3 else { return Ok(()) };
        let at = self.service.here()?;
        let index = at.index() % self.inner.lanes.len();
        let lane = Lane { server: self.inner.clone(), at: at.clone(), index };
        at.until_reset(Box::pin(http3.serve(&lane, socket))).await.unwrap_or(Ok(()))
    }

    /// Stops in order: listeners close, received requests are answered, and peers are told that the server stops, by `Connection: close`,
    /// GOAWAY, TLS's close_notify and FIN. Waits until all connections have ended; those that have not after `grace` are reset. Returns the
    /// number of those, listeners included.
    ///
    /// Call it from outside the lanes, which must keep running meanwhile. Then stop the runtime with
    /// [`Runtime::stop_within`](flowlane::Runtime::stop_within) and the rest of the time, so that the FINs arrive.
    pub fn stop_within(&self, grace: Duration) -> usize {
        self.service.stop_within(grace)
    }

    /// Bytes of requests and answers that all lanes keep now for peers that do not read.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.inner.memory.iter().map(Memory::used).sum()
    }

    /// The counters of each lane.
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        self.inner.lanes.iter().map(Cells::read).collect()
    }

    /// The sum of the counters of all lanes.
    #[must_use]
    pub fn total(&self) -> Counts {
        self.counts().iter().fold(Counts::default(), Counts::plus)
    }
}

/// Counts the end of a connection, however it ends.
struct Ended(Lane);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.cells().add(Counter::Ended, 1);
    }
}

async fn encrypted(lane: &Lane, tls: ServerTls, stream: TcpStream) {
    let cells = lane.cells();
    let timeouts = &lane.options().timeouts;
    let stream = match within(timeouts.head, tls.accept_or_return(stream)).await {
        None => return cells.add(Counter::HeadTimeout, 1),
        Some(Err((_, stream))) => {
            cells.add(Counter::HandshakeFailed, 1);
            return finish(stream, timeouts.body).await;
        }
        Some(Ok(stream)) => stream,
    };
    cells.add(Counter::Handshakes, 1);
    let agreed = stream.handshake();
    cells.add(Counter::Resumed, u64::from(agreed.is_some_and(|h| h.resumed)));
    if agreed.is_some_and(|h| h.http2) {
        http2::serve(lane, stream, Vec::new()).await;
    } else {
        plain(lane, stream).await;
    }
}

/// HTTP/1, unless it turns out to be HTTP/2 with prior knowledge (RFC 9113 §3.3), or becomes a WebSocket (RFC 6455).
async fn plain(lane: &Lane, stream: Stream<TcpStream>) {
    let mut connection = Connection::new(lane.clone(), stream);
    let outcome = poll_fn(|cx| connection.poll(cx)).await;
    match outcome {
        Outcome::Closed => {}
        Outcome::Http2 => {
            let (stream, begun) = connection.into_parts();
            Box::pin(http2::serve(lane, stream, begun)).await;
        }
        Outcome::WebSocket(deflate) => {
            let (stream, begun) = connection.into_parts();
            Box::pin(websocket::serve(lane, stream, deflate, begun)).await;
        }
    }
}

/// The client's connection preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
