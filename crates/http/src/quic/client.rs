//! A client's connection, on a socket of its own: a flow as any other.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flowlane::{Sleep, Time, UdpSocket};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    RandomConnectionIdGenerator, StreamEvent, StreamId, TransportConfig, VarInt,
};

use super::{Base, Lost, News, Peer, Wire};
use crate::h3::greeting;
use crate::tls::full_handshakes;

/// Streams that a server may open for the connection itself: three are known (RFC 9114 §6.2), and some that nobody knows.
const UNIDIRECTIONAL: u32 = 8;

/// What has become of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// There is something to read on a stream of ours, or it has ended.
    Readable(StreamId),
    /// There is room to write on it.
    Writable(StreamId),
    /// More streams may be opened.
    Available,
    /// The server takes no request of this stream or a later one.
    GoAway(u64),
}

/// How QUIC is spoken by clients that ask and read: what is not said here is as `quinn-proto` has it.
#[must_use]
pub fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL))
        .datagram_receive_buffer_size(None)
        // Streams are sent one behind the other, whole: fewer packets for small requests.
        .send_fairness(false)
        .max_idle_timeout(None);
    transport
}

/// A connection.
pub struct Client {
    wire: Wire,
    base: Base,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    /// The connection of QUIC, for its streams.
    pub connection: Connection,
    peer: Peer,
    /// The largest head that we take, bytes.
    most: u64,
    /// Answers of the endpoint to what is none of the connection's.
    answer: Vec<u8>,
    alarm: Option<(u64, Sleep)>,
    /// When a datagram came last; in the beginning, when it began.
    heard: u64,
    /// Our control stream is open.
    greeted: bool,
    /// The handshake was a full one, so far as it is known.
    full: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins a connection on a socket that has `remote` as its peer. `name`: whom the certificate is to name. `most`: the largest head of an
    /// answer, bytes.
    ///
    /// # Errors
    /// The name cannot be in a certificate, or the socket is another lane's.
    pub fn begin(
        config: &ClientConfig,
        socket: UdpSocket,
        (remote, name): (SocketAddr, &str),
        most: u64,
        now: u64,
    ) -> Result<Self, Lost> {
        let base = Base::new(now);
        let mut own = EndpointConfig::default();
        // The socket alone says which connection it is, so that packets need no ID of ours.
        own.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
        let mut endpoint = Endpoint::new(Arc::new(own), None, true, None);
        let (handle, connection) = endpoint.connect(base.instant(now), config.clone(), remote, name)?;
        Ok(Self {
            wire: Wire::new(socket, true)?,
            base,
            endpoint,
            handle,
            connection,
            peer: Peer::default(),
            most,
            answer: Vec::new(),
            alarm: None,
            heard: now,
            greeted: false,
            full: false,
        })
    }

    /// Takes what has come, and what time has brought. Afterwards there may be [events](Self::event).
    ///
    /// # Errors
    /// The socket is gone, or the network says that the peer is not there.
    pub fn receive(&mut self, cx: &mut Context<'_>, now: u64) -> Result<(), Lost> {
        let instant = self.base.instant(now);
        let Self { wire, endpoint, connection, answer, heard, .. } = self;
        let before = full_handshakes();
        let result = wire.receive(cx, |remote, local, data| {
            *heard = now;
            answer.clear();
            match endpoint.handle(instant, remote, Some(local), None, data, answer) {
                Some(DatagramEvent::ConnectionEvent(_, event)) => connection.handle_event(event),
                // Of packets that are none of ours nobody is told.
                Some(DatagramEvent::Response(_) | DatagramEvent::NewConnection(_)) | None => {}
            }
        });
        self.full |= full_handshakes() != before;
        if self.connection.poll_timeout().is_some_and(|at| at <= instant) {
            self.connection.handle_timeout(instant);
        }
        Ok(result?)
    }

    /// What has happened, one thing after the other.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn event(&mut self) -> Result<Option<Event>, Lost> {
        loop {
            if let Some(News::GoAway(id)) = self.peer.news() {
                return Ok(Some(Event::GoAway(id)));
            }
            let event = match self.connection.poll() {
                None => return Ok(None),
                Some(quinn_proto::Event::ConnectionLost { reason }) => return Err(reason.into()),
                Some(quinn_proto::Event::Connected) => {
                    // With early data that was refused all its streams are gone.
                    if !self.greeted || self.early_data() == Some(false) {
                        self.greet()?;
                    }
                    return Ok(Some(Event::Connected));
                }
                Some(quinn_proto::Event::Stream(event)) => event,
                Some(_) => continue,
            };
            match event {
                StreamEvent::Opened { dir: Dir::Uni } => self.peer.opened(&mut self.connection)?,
                StreamEvent::Readable { id } if id.dir() == Dir::Uni => {
                    self.peer.read(&mut self.connection, id)?;
                }
                StreamEvent::Readable { id } => return Ok(Some(Event::Readable(id))),
                StreamEvent::Writable { id } => return Ok(Some(Event::Writable(id))),
                StreamEvent::Available { dir: Dir::Bi } => return Ok(Some(Event::Available)),
                _ => {}
            }
        }
    }

    /// Whether requests may be sent before the handshake is complete (0-RTT, RFC 9001 §4.6): a session that is taken up again allows it. Only what may be
    /// repeated (RFC 8470 §2).
    ///
    /// # Errors
    /// There is no stream for the settings.
    pub fn is_early(&mut self) -> Result<bool, Lost> {
        let early = self.connection.has_0rtt() && self.connection.is_handshaking();
        if early && !self.greeted {
            self.greet()?;
        }
        Ok(early)
    }

    /// Of a connection that is complete: whether the server took early data; `None` if none could be sent.
    #[must_use]
    pub fn early_data(&self) -> Option<bool> {
        self.connection.has_0rtt().then(|| self.connection.accepted_0rtt())
    }

    /// Of a connection that is complete, with sessions that may be taken up again: whether one was.
    #[must_use]
    pub fn resumed(&self) -> bool {
        !self.full
    }

    /// Opens the control stream.
    fn greet(&mut self) -> Result<(), Lost> {
        let id = self.connection.streams().open(Dir::Uni).ok_or(Lost::NoControl)?;
        let greeting = greeting(self.most);
        // It is the first stream, and shorter than any window.
        match self.connection.send_stream(id).write(&greeting) {
            Ok(n) if n == greeting.len() => {
                self.greeted = true;
                Ok(())
            }
            _ => Err(Lost::NoControl),
        }
    }

    /// Sends what there is to send, and has the task woken when time brings something.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub fn send(&mut self, cx: &mut Context<'_>, now: u64) -> Result<(), Lost> {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        self.wire.transmit(cx, &mut self.connection, self.base.instant(now))?;
        let Some(due) = self.connection.poll_timeout().map(|at| self.base.nanos(at)) else { return Ok(()) };
        self.wake_at(cx, due);
        Ok(())
    }

    /// When the server was heard last, in the lane's time; in the beginning, when the connection began.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Has the task woken at this time, or earlier.
    pub fn wake_at(&mut self, cx: &mut Context<'_>, due: u64) {
        // Setting a new sleep costs more than waking once too early.
        let (_, sleep) = match &mut self.alarm {
            Some(alarm) if alarm.0 <= due => alarm,
            alarm => alarm.insert((due, flowlane::sleep_until(Time::from_nanos(due)))),
        };
        if let Poll::Ready(()) = Pin::new(sleep).poll(cx) {
            self.alarm = None;
            cx.waker().wake_by_ref();
        }
    }

    /// Ends the connection: the peer is told by what is sent next.
    pub fn close(&mut self, now: u64, code: u32) {
        self.connection.close(self.base.instant(now), VarInt::from_u32(code), Bytes::new());
    }
}
