//! One connection of HTTP/3: its streams, and its limits of time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, Dir, Event, StreamEvent, StreamId, VarInt};

use super::request::{Done, Request};
use crate::h3::{Fault, Fields, code, go_away, greeting};
use crate::quic::Peer;
use crate::server::Lane;
use crate::server::counters::Counter;
use crate::server::memory::Held;

/// How often limits of time are looked at, nanoseconds.
const CHECK: u64 = 1_000_000_000;

/// A connection.
pub(super) struct Conn {
    pub(super) connection: Connection,
    /// Where its client was when it was looked at last.
    pub(super) from: SocketAddr,
    pub(super) marked: bool,
    /// When its timer rings; `u64::MAX` for never.
    pub(super) armed: u64,
    lane: Lane,
    _held: Held,
    peer: Peer,
    fields: Fields,
    requests: HashMap<u64, Box<Request>>,
    /// Requests that may write on, and how often any has.
    writable: Vec<u64>,
    writes: u64,
    /// Our control stream.
    control: Option<StreamId>,
    /// The first request that is not taken any more, once there is one.
    end: u64,
    leaving: bool,
    opened: u64,
    connected: bool,
    /// Its handshake is not complete, as the port counts it.
    pub(super) shaking: bool,
    /// Its handshake was a full one, so far as it is known.
    pub(super) full: bool,
    /// Requests that wait for a time, by it.
    waiting: u64,
    check_at: u64,
}

impl Conn {
    pub(super) fn new(lane: &Lane, connection: Connection, held: Held, now: u64) -> Self {
        Self {
            from: connection.remote_address(),
            connection,
            marked: false,
            armed: u64::MAX,
            lane: lane.clone(),
            _held: held,
            peer: Peer::default(),
            fields: Fields::default(),
            requests: HashMap::new(),
            writable: Vec::new(),
            writes: 0,
            control: None,
            end: 0,
            leaving: false,
            opened: now,
            connected: false,
            shaking: true,
            full: false,
            waiting: u64::MAX,
            check_at: now + CHECK,
        }
    }

    /// When it is to be looked at again.
    pub(super) fn due(&self) -> u64 {
        if self.connection.is_closed() { u64::MAX } else { self.waiting.min(self.check_at) }
    }

    /// The server stops: requests that have come are answered, and no others.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        if let Some(control) = self.control {
            // A window that is full has the close alone tell it.
            let _ = self.connection.send_stream(control).write(&go_away(self.end));
        }
    }

    /// Does what there is to do.
    pub(super) fn turn(&mut self, now: u64, instant: Instant) {
        if self.connection.poll_timeout().is_some_and(|at| at <= instant) {
            self.connection.handle_timeout(instant);
        }
        if let Err(fault) = self.events(now) {
            self.lane.cells().add(Counter::Http3Failed, 1);
            self.close(instant, fault.code());
        }
        if now >= self.check_at {
            self.check(now, instant);
        }
        // Guard: `self.is_read()` as `true` fails cli/serve_http_h3::it_is_stopped_in_order
        if self.leaving && self.requests.is_empty() && self.is_read() && !self.connection.is_closed() {
            self.close(instant, code::NO_ERROR);
        }
    }

    /// Takes what has happened, and sends more of the answers that may go on.
    fn events(&mut self, now: u64) -> Result<(), Fault> {
        while let Some(event) = self.connection.poll() {
            self.event(event, now)?;
        }
        self.write_on(now)?;
        if now >= self.waiting {
            self.waiting = u64::MAX;
            let ids: Vec<u64> =
                self.requests.iter().filter(|(_, r)| r.due <= now).map(|(id, _)| *id).collect();
            for id in ids {
                self.go_on(id, now)?;
            }
            let next = self.requests.values().map(|request| request.due).min();
            self.waiting = self.waiting.min(next.unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// Whether the client has acknowledged all answers: what it has not when the connection is closed is lost.
    fn is_read(&mut self) -> bool {
        // Our control stream never ends.
        self.connection.streams().send_streams() <= usize::from(self.control.is_some())
    }

    fn close(&mut self, instant: Instant, code: u32) {
        self.requests.clear();
        self.connection.close(instant, VarInt::from_u32(code), Bytes::new());
    }

    fn event(&mut self, event: Event, now: u64) -> Result<(), Fault> {
        match event {
            Event::Connected => {
                self.connected = true;
                self.lane.cells().add(Counter::Handshakes, 1);
                self.lane.cells().add(Counter::Resumed, u64::from(!self.full));
                self.lane.cells().add(Counter::Http3, 1);
                self.control = self.connection.streams().open(Dir::Uni);
                if let Some(control) = self.control {
                    let most = u64::from(self.lane.options().limits.head);
                    // It is the first stream, and shorter than any window.
                    let _ = self.connection.send_stream(control).write(&greeting(most));
                }
            }
            Event::ConnectionLost { reason } => self.lost(&reason),
            Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => self.peer.opened(&mut self.connection)?,
            Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                while let Some(id) = self.connection.streams().accept(Dir::Bi) {
                    if self.leaving {
                        let rejected = VarInt::from_u32(code::REQUEST_REJECTED);
                        let _ = self.connection.recv_stream(id).stop(rejected);
                        let _ = self.connection.send_stream(id).reset(rejected);
                        continue;
                    }
                    self.end = u64::from(id) + 4;
                    self.requests.insert(id.index(), Box::new(Request::new(&self.lane, id, now)));
                    self.read(id, now)?;
                }
            }
            Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                self.peer.read(&mut self.connection, id)?;
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(id, now)?,
            Event::Stream(StreamEvent::Writable { id } | StreamEvent::Stopped { id, .. }) => {
                self.writable.push(id.index());
            }
            _ => {}
        }
        // What the settings say of heads concerns answers, which are short.
        while self.peer.news().is_some() {}
        Ok(())
    }

    fn lost(&mut self, reason: &ConnectionError) {
        self.requests.clear();
        let counter = match reason {
            ConnectionError::TimedOut if self.connected => Counter::IdleTimeout,
            ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => return,
            ConnectionError::ConnectionClosed(_) | ConnectionError::Reset if self.connected => Counter::Lost,
            _ if !self.connected => Counter::HandshakeFailed,
            _ => Counter::Http3Failed,
        };
        self.lane.cells().add(counter, 1);
    }

    fn read(&mut self, id: StreamId, now: u64) -> Result<(), Fault> {
        let Some(request) = self.requests.get_mut(&id.index()) else { return Ok(()) };
        request.read(&self.lane, &mut self.connection, &mut self.fields, now)?;
        self.go_on(id.index(), now)
    }

    /// Sends more of the answers for which there is room, that one first which has got none for longest: QUIC names the last first that it
    /// stopped, and so the window of a connection would be one answer's until its end.
    fn write_on(&mut self, now: u64) -> Result<(), Fault> {
        if self.writable.is_empty() {
            return Ok(());
        }
        let (requests, mut writable) = (&self.requests, std::mem::take(&mut self.writable));
        // Guard: no `writable.sort_unstable_by_key(|index| requests.get(index).map(|request| request.wrote));` fails
        // cli/serve_http_h3::answers_of_one_connection
        writable.sort_unstable_by_key(|index| requests.get(index).map(|request| request.wrote));
        for index in writable.drain(..) {
            self.go_on(index, now)?;
        }
        self.writable = writable;
        Ok(())
    }

    /// Sends what there is of an answer, and takes what is sent back as long as there is room for it.
    fn go_on(&mut self, index: u64, now: u64) -> Result<(), Fault> {
        let Some(request) = self.requests.get_mut(&index) else { return Ok(()) };
        self.writes += 1;
        loop {
            match request.write(&self.lane, &mut self.connection, now, self.writes) {
                Done::No => {
                    self.waiting = self.waiting.min(request.due);
                    return Ok(());
                }
                Done::Yes => {
                    self.requests.remove(&index);
                    return Ok(());
                }
                // There is room, and nobody says so again.
                Done::Read => {
                    let before = request.came();
                    request.read(&self.lane, &mut self.connection, &mut self.fields, now)?;
                    // Guard: `request.came() == before` as `true` fails cli/serve_http_h3::both_ends
                    if request.came() == before {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Ends what has taken too long.
    fn check(&mut self, now: u64, instant: Instant) {
        self.check_at = now + CHECK;
        let timeouts = self.lane.options().timeouts;
        if !self.connected && now.saturating_sub(self.opened) > timeouts.head.as_nanos() as u64 {
            self.lane.cells().add(Counter::HeadTimeout, 1);
            return self.close(instant, code::NO_ERROR);
        }
        let (lane, connection) = (&self.lane, &mut self.connection);
        self.requests.retain(|_, request| {
            let Some(counter) = request.too_slow(now, &timeouts) else { return true };
            lane.cells().add(counter, 1);
            request.give_up(connection, code::REQUEST_CANCELLED);
            false
        });
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.lane.cells().add(Counter::Ended, 1);
    }
}
