//! HTTP/3: a UDP socket in every lane, on which all connections of the lane are.
//!
//! ```text
//!   datagram ▸ whose lane? ─ ours ──▶ Endpoint ▸ Conn ▸ requests ▸ route ▸ reply ▸ streams ▸ trains of datagrams
//!                        └─ another ▶ its mailbox
//! ```
//!
//! A task of the lane drives them all: what has come, what time has brought, and then each connection that either concerns ([`conn`]). Connection
//! IDs name the lane ([`crate::quic::LaneIds`]), so a client whose address changes is served where it was: what arrives in another lane goes
//! there by a mailbox. Kernel sockets are chosen by the ID in the first place, so there it is for what the kernel cannot tell apart. No connection holds more than its windows, which are counted as the lane's memory when it begins.
//!
//! Early data (0-RTT) is taken where that was asked for, of requests that may be repeated (RFC 8470). While more handshakes are not complete than was
//! said, clients are to prove that they are where they say (Retry, RFC 9000 §8.1.2).
//!
//! Not supported: a dynamic table of QPACK, priorities, WebSocket (RFC 9220).

mod conn;
mod request;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use flowlane::{Bucket, Mailbox, Mailboxes, Sleep, SocketError, Time, UdpSocket, sleep_until};
use quinn_proto::{
    ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Incoming, ServerConfig, Transmit,
    TransportConfig, VarInt,
};

use super::counters::Counter;
use super::memory::Held;
use super::{Lane, Options, Phase};
use crate::quic::{Base, ID_LENGTH, LaneIds, Wire, lane_of};
use crate::tls::{TlsError, full_handshakes};
use conn::Conn;

/// Most requests at once on a connection.
const STREAMS: u32 = 128;
/// Receive window of a stream and of a connection, bytes.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 256 << 10;
/// Streams that a client may open for the connection itself.
const UNIDIRECTIONAL: u32 = 8;
/// Datagrams of other lanes that may wait.
const MAIL: usize = 1 << 10;
/// Most of them taken in one turn.
const TURN: usize = 64;

/// A datagram that came to another lane than that of its connection.
#[derive(Debug)]
struct Stray {
    from: SocketAddr,
    to: IpAddr,
    data: BytesMut,
}

/// What the lanes of a server share.
#[derive(Debug)]
pub(super) struct Http3 {
    server: Arc<ServerConfig>,
    endpoint: EndpointConfig,
    mail: Mailboxes<Stray>,
    lanes: usize,
}

impl Http3 {
    /// QUIC with the server's TLS, for so many lanes.
    pub(super) fn new(options: &Options, lanes: usize) -> Result<Option<Self>, TlsError> {
        let Some(tls) = options.tls.as_ref().filter(|_| options.http3) else { return Ok(None) };
        let mut server = ServerConfig::with_crypto(Arc::new(tls.quic(options.early_data)?));
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
            .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(WINDOW))
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(options.timeouts.idle.try_into().ok());
        server.transport_config(Arc::new(transport));
        Ok(Some(Self {
            server: Arc::new(server),
            // Guard: `EndpointConfig::new(tls.reset_key())` as `EndpointConfig::default()` fails
            // cli/serve_http_h3::a_server_that_was_killed
            endpoint: EndpointConfig::new(tls.reset_key()),
            mail: Mailboxes::new(lanes, MAIL),
            lanes,
        }))
    }

    /// Serves the connections of a socket until the server has stopped.
    pub(super) async fn serve(&self, lane: &Lane, socket: UdpSocket) -> Result<(), SocketError> {
        let number = lane.index as u16;
        let mut config = self.endpoint.clone();
        config.cid_generator(move || Box::new(LaneIds::of(number)));
        let now = flowlane::precise_now().map_or(0, Time::as_nanos);
        let mail = self.mail.here().map_err(|_| SocketError::WrongLane)?;
        // Guard: no `socket.steer_by_connection_id(ID_LENGTH as u8)?;` fails
        // cli/serve_http_h3::a_client_whose_address
        socket.steer_by_connection_id(ID_LENGTH as u8)?;
        let mut port = Port {
            lane: lane.clone(),
            number,
            wire: Wire::new(socket, false)?,
            base: Base::new(now),
            endpoint: Endpoint::new(Arc::new(config), Some(self.server.clone()), true, None),
            others: (self.mail.clone(), self.lanes),
            mail,
            conns: Vec::new(),
            open: 0,
            shaking: 0,
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            came: Vec::new(),
            answers: Vec::new(),
            alarm: None,
            leaving: false,
        };
        poll_fn(|cx| port.poll(cx)).await
    }
}

/// The connections of a lane.
struct Port {
    lane: Lane,
    number: u16,
    wire: Wire,
    base: Base,
    endpoint: Endpoint,
    others: (Mailboxes<Stray>, usize),
    mail: Mailbox<Stray>,
    /// By the number of their handle.
    conns: Vec<Option<Box<Conn>>>,
    open: usize,
    /// Of them, those whose handshake is not complete.
    shaking: u64,
    /// Those that something has happened to.
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    /// Beginnings of connections.
    came: Vec<Incoming>,
    /// What is said without a connection.
    answers: Vec<(Transmit, Vec<u8>)>,
    alarm: Option<(u64, Sleep)>,
    /// Clients have been told that the server stops.
    leaving: bool,
}

impl Port {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        let now = flowlane::precise_now().map_or(0, Time::as_nanos);
        let instant = self.base.instant(now);
        self.receive(cx, instant)?;
        for incoming in std::mem::take(&mut self.came) {
            self.begin(incoming, now);
        }
        for (transmit, bytes) in std::mem::take(&mut self.answers) {
            self.wire.answer(cx, &transmit, &bytes)?;
        }
        while let Some(Reverse((at, number))) = self.timers.peek().copied().filter(|timer| timer.0.0 <= now) {
            self.timers.pop();
            if let Some(conn) = self.conns.get_mut(number).and_then(Option::as_mut).filter(|c| c.armed == at)
            {
                conn.armed = u64::MAX;
                mark(conn, number, &mut self.ready);
            }
        }
        if self.lane.phase() != Phase::Serving && !self.leaving {
            self.leaving = true;
            for (number, conn) in self.conns.iter_mut().enumerate() {
                if let Some(conn) = conn {
                    conn.leave();
                    mark(conn, number, &mut self.ready);
                }
            }
        }
        while let Some(number) = self.ready.pop_front() {
            if !self.drive(cx, number, now)? {
                self.ready.push_front(number);
                break;
            }
        }
        if self.leaving && self.open == 0 {
            return Poll::Ready(Ok(()));
        }
        self.sleep(cx);
        Poll::Pending
    }

    /// Takes what has come, and passes on what is another lane's.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<(), SocketError> {
        let Self { wire, endpoint, conns, ready, came, answers, lane, number, others, mail, .. } = self;
        let mut take = |from: SocketAddr, to: IpAddr, data: BytesMut, endpoint: &mut Endpoint| {
            lane.cells().add(Counter::BytesIn, data.len() as u64);
            let mut said = Vec::new();
            match endpoint.handle(now, from, Some(to), None, data, &mut said) {
                Some(DatagramEvent::ConnectionEvent(ConnectionHandle(at), event)) => {
                    if let Some(conn) = conns.get_mut(at).and_then(Option::as_mut) {
                        let before = full_handshakes();
                        conn.connection.handle_event(event);
                        conn.full |= full_handshakes() != before;
                        mark(conn, at, ready);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => came.push(incoming),
                Some(DatagramEvent::Response(transmit)) => answers.push((transmit, said)),
                None => {}
            }
        };
        for _ in 0..TURN {
            let Poll::Ready(Stray { from, to, data }) = pin!(mail.recv()).poll(cx) else { break };
            take(from, to, data, endpoint);
        }
        let received = wire.receive(cx, |from, to, data| {
            let theirs = match lane_of(&data) {
                // Guard: `theirs != *number` as `false` fails
                // cli/serve_http_h3::what_the_kernel_does_not_steer
                Some(theirs) if usize::from(theirs) < others.1 && theirs != *number => theirs,
                named => {
                    let ours =
                        named.map(|lane| if lane == *number { Counter::Aligned } else { Counter::NoLane });
                    ours.into_iter().for_each(|counter| lane.cells().add(counter, 1));
                    return take(from, to, data, endpoint);
                }
            };
            let passed = others.0.try_send(Bucket(theirs), Stray { from, to, data }).is_ok();
            lane.cells().add(if passed { Counter::Passed } else { Counter::NotPassed }, 1);
        });
        match received {
            // That a client is not there says nothing of the others.
            Err(SocketError::Network(_)) => {
                cx.waker().wake_by_ref();
                Ok(())
            }
            received => received,
        }
    }

    /// A client begins a connection.
    fn begin(&mut self, incoming: Incoming, now: u64) {
        let cells = self.lane.cells();
        let mut said = Vec::new();
        if self.leaving || cells.open() >= self.lane.options().connections_per_lane {
            cells.add(Counter::TooMany, u64::from(!self.leaving));
            let transmit = self.endpoint.refuse(incoming, &mut said);
            return self.answers.push((transmit, said));
        }
        // Guard: `self.shaking >= self.lane.options().retry_above` as `false` fails
        // cli/serve_http_h3::whoever_does_not_prove
        if self.shaking >= self.lane.options().retry_above && !incoming.remote_address_validated() {
            cells.add(Counter::Retries, 1);
            // An address that is not validated may always be asked.
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut said) {
                self.answers.push((transmit, said));
            }
            return;
        }
        let before = full_handshakes();
        match self.endpoint.accept(incoming, self.base.instant(now), &mut said, None) {
            Err(e) => {
                cells.add(Counter::HandshakeFailed, 1);
                self.answers.extend(e.response.map(|transmit| (transmit, said)));
            }
            Ok((ConnectionHandle(number), mut connection)) => {
                cells.add(Counter::Connections, 1);
                let window = self.lane.memory().allowance();
                connection.set_send_window(window as u64);
                let mut held = Held::new(self.lane.clone());
                held.set(window);
                if self.conns.len() <= number {
                    self.conns.resize_with(number + 1, || None);
                }
                self.open += 1;
                self.shaking += 1;
                let conn = self.conns[number].insert(Box::new(Conn::new(&self.lane, connection, held, now)));
                conn.full = full_handshakes() != before;
                mark(conn, number, &mut self.ready);
            }
        }
    }

    /// Does what a connection has to do; `false` if there is no room to send.
    fn drive(&mut self, cx: &mut Context<'_>, number: usize, now: u64) -> Result<bool, SocketError> {
        let Some(conn) = self.conns.get_mut(number).and_then(Option::as_mut) else { return Ok(true) };
        conn.marked = false;
        conn.turn(now, self.base.instant(now));
        if !conn.connection.is_handshaking() && std::mem::take(&mut conn.shaking) {
            self.shaking -= 1;
        }
        while let Some(event) = conn.connection.poll_endpoint_events() {
            let drained = event.is_drained();
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(number), event) {
                conn.connection.handle_event(event);
            }
            if drained {
                self.shaking -= u64::from(conn.shaking);
                self.conns[number] = None;
                self.open -= 1;
                return Ok(true);
            }
        }
        let from = conn.connection.remote_address();
        if std::mem::replace(&mut conn.from, from) != from {
            self.lane.cells().add(Counter::Migrated, 1);
        }
        let before = conn.connection.stats().udp_tx.bytes;
        let sent = self.wire.transmit(cx, &mut conn.connection, self.base.instant(now));
        self.lane.cells().add(Counter::BytesOut, conn.connection.stats().udp_tx.bytes - before);
        match sent {
            Ok(false) => {
                conn.marked = true;
                return Ok(false);
            }
            Ok(true) | Err(SocketError::Network(_)) => {}
            Err(e) => return Err(e),
        }
        let timeout = conn.connection.poll_timeout().map_or(u64::MAX, |at| self.base.nanos(at));
        let due = timeout.min(conn.due());
        if due < conn.armed {
            conn.armed = due;
            self.timers.push(Reverse((due, number)));
        }
        Ok(true)
    }

    /// Has the task woken when the next timer is due.
    fn sleep(&mut self, cx: &mut Context<'_>) {
        let Some(Reverse((due, _))) = self.timers.peek().copied() else { return };
        let (_, sleep) = match &mut self.alarm {
            Some(alarm) if alarm.0 <= due => alarm,
            alarm => alarm.insert((due, sleep_until(Time::from_nanos(due)))),
        };
        if Pin::new(sleep).poll(cx).is_ready() {
            self.alarm = None;
            cx.waker().wake_by_ref();
        }
    }
}

/// Something has happened to a connection.
fn mark(conn: &mut Conn, number: usize, ready: &mut VecDeque<usize>) {
    if !std::mem::replace(&mut conn.marked, true) {
        ready.push_back(number);
    }
}
