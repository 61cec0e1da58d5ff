//! What applications may do with connections.

use super::config::{ListenOptions, SocketOptions};
use super::connection::{Connection, Flags, State};
use super::error::{ConnectError, RecvError, SendError, StaleError};
use super::handshake;
use super::lane::Core;
use super::listen::{ListenError, ListenerId};
use super::segment::is_plain;
use super::table::{ConnId, Tuple};
use super::tuple_table::Found;
use super::{Failure, Tcp, TcpInfo};
use crate::packet::Cx;
use crate::time::Time;
use core::net::{IpAddr, SocketAddr};
use core::task::Waker;
use flowlane_sys::frame::Frame;

/// A connection out of the accept queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its name.
    pub id: ConnId,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Flow hash of what it receives.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
}

/// What a connection attempt needs to know beside the addresses.
#[derive(Debug, Clone, Copy)]
pub struct ConnectOptions {
    /// MTU towards the peer, bytes of IP packet.
    pub mtu: u16,
    /// Flow hash that the replies will have.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
    /// Options of the socket.
    pub socket: SocketOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { mtu: 1500, hash: 0, hash_type: 0, socket: SocketOptions::default() }
    }
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Something to read, the end of the stream, or an error.
    Read,
    /// Room to write, the end of the handshake, or an error.
    Write,
    /// The end of the connection.
    Closed,
}

/// What can be done with a connection now, in the manner of `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// `recv` has bytes, the end of the stream or an error.
    pub readable: bool,
    /// `send` takes bytes, or has an error.
    pub writable: bool,
    /// The peer will not send any more, or nobody reads.
    pub read_closed: bool,
    /// Nothing can be sent any more.
    pub write_closed: bool,
    /// The connection is over.
    pub closed: bool,
    /// How it ended, if badly.
    pub failure: Option<Failure>,
}

/// Ends of records that a connection remembers; beyond it they are as if nothing had been said.
const MAX_RECORDS: usize = 4096;

impl Tcp {
    /// Listens on a port of one address, or of all.
    ///
    /// # Errors
    /// If somebody does already.
    pub fn listen(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        self.core.listeners.add(local, port, options)
    }

    /// Stops listening. Connections not yet accepted are reset.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn close_listener(&mut self, cx: &mut Cx<'_>, id: ListenerId) -> Result<(), StaleError> {
        let listener = self.core.listeners.remove(id).ok_or(StaleError)?;
        if let Some(waker) = listener.waker {
            waker.wake();
        }
        for id in listener.queue {
            let _ = self.abort(cx, id);
        }
        Ok(())
    }

    /// Changes the options of the connections that a listener makes from now on.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn set_listen_options(&mut self, id: ListenerId, socket: SocketOptions) -> Result<(), StaleError> {
        self.core.listeners.get_mut(id).ok_or(StaleError)?.options.socket = socket;
        Ok(())
    }

    /// The next connection of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn accept(&mut self, id: ListenerId) -> Result<Option<Accepted>, StaleError> {
        let listener = self.core.listeners.get_mut(id).ok_or(StaleError)?;
        while let Some(id) = listener.queue.pop_front() {
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.clear(Flags::IN_ACCEPT_QUEUE);
            return Ok(Some(Accepted {
                id,
                local: SocketAddr::new(c.tuple.local, c.tuple.local_port),
                remote: SocketAddr::new(c.tuple.remote, c.tuple.remote_port),
                hash: c.hash,
                hash_type: c.hash_type,
            }));
        }
        Ok(None)
    }

    /// Wakes `waker` when a connection waits to be accepted; at once if one does.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn register_accept(&mut self, id: ListenerId, waker: &Waker) -> Result<(), StaleError> {
        let listener = self.core.listeners.get_mut(id).ok_or(StaleError)?;
        if listener.queue.is_empty() {
            listener.waker = Some(waker.clone());
        } else {
            waker.wake_by_ref();
        }
        Ok(())
    }

    /// The address, `None` for all of ours, and the port of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn listens_on(&self, id: ListenerId) -> Result<(Option<IpAddr>, u16), StaleError> {
        self.core.listeners.get(id).map(|l| (l.local, l.port)).ok_or(StaleError)
    }

    /// How many connections wait to be accepted, and how many handshakes are under way.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn backlog(&self, id: ListenerId) -> Result<(usize, usize), StaleError> {
        let listener = self.core.listeners.get(id).ok_or(StaleError)?;
        Ok((listener.queue.len(), listener.half_open as usize))
    }

    /// Begins a connection (RFC 9293 §3.10.1). The caller chose the local port, so that replies come to this lane.
    ///
    /// # Errors
    /// If the four-tuple is in use, cannot be, or there are too many connections.
    pub fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        local: SocketAddr,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<ConnId, ConnectError> {
        let plain = is_plain(local.ip()) && is_plain(remote.ip());
        let fits = local.is_ipv4() == remote.is_ipv4() && local.port() != 0 && remote.port() != 0;
        if !plain || !fits {
            return Err(ConnectError::BadAddress);
        }
        if self.connections.len() >= self.core.config.max_connections {
            return Err(ConnectError::TooMany);
        }
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let after = self.clear_way(cx, &tuple)?;
        let secrets = self.core.secrets(&tuple);
        let iss = after.map_or_else(|| secrets.isn(cx.now), |old| old + 64_000 + 1);
        let mut c = handshake::connection(
            &mut self.core,
            tuple,
            (iss, secrets.ts_offset),
            options.mtu,
            &options.socket,
        );
        c.state = State::SynSent;
        c.set(Flags::ACTIVE);
        (c.hash, c.hash_type) = (options.hash, options.hash_type);
        self.core.stats.connection_requests += 1;
        let id = self.insert(c);
        self.finish(id.slot);
        Ok(id)
    }

    /// Whether a connection of these ends could be begun without disturbing anybody. `reopen`: also in place of a
    /// TIME-WAIT record whose peer can tell old from new (RFC 6191).
    #[must_use]
    pub fn is_free(&self, now: Time, local: SocketAddr, remote: SocketAddr, reopen: bool) -> bool {
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let mut free = self.core.listeners.find(tuple.local, tuple.local_port).is_none();
        let (connections, time_wait) = (&self.connections, &self.core.time_wait);
        self.core.table.find(self.core.table.hash(&tuple), |found| match found {
            Found::Connection(slot) => {
                let taken = connections.get_slot(slot).is_some_and(|c| c.tuple == tuple);
                free &= !taken;
                taken
            }
            Found::TimeWait(slot) => {
                let Some(record) = time_wait.get(slot).filter(|r| r.tuple == tuple) else { return false };
                free &= reopen && record.may_reopen(&self.core.config, now);
                true
            }
        });
        free
    }

    /// Is the four-tuple free? A TIME-WAIT record gives way if the peer can tell old from new (RFC 6191).
    fn clear_way(&mut self, cx: &Cx<'_>, tuple: &Tuple) -> Result<Option<super::Seq>, ConnectError> {
        let (connections, time_wait) = (&self.connections, &self.core.time_wait);
        let found = self.core.table.find(self.core.table.hash(tuple), |found| match found {
            Found::Connection(slot) => connections.get_slot(slot).is_some_and(|c| c.tuple == *tuple),
            Found::TimeWait(slot) => time_wait.get(slot).is_some_and(|r| r.tuple == *tuple),
        });
        match found {
            None => Ok(None),
            Some(Found::Connection(_)) => Err(ConnectError::InUse),
            Some(Found::TimeWait(slot)) => {
                let record = self.core.time_wait.get(slot).ok_or(ConnectError::InUse)?;
                if !record.may_reopen(&self.core.config, cx.now) {
                    return Err(ConnectError::InUse);
                }
                let old = record.snd_nxt;
                self.core.reuse_time_wait(slot);
                Ok(Some(old))
            }
        }
    }

    /// Queues bytes to be sent (RFC 9293 §3.10.2); how many were taken.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if none could be taken now.
    pub fn send(&mut self, cx: &mut Cx<'_>, id: ConnId, bytes: &[u8]) -> Result<usize, SendError> {
        self.send_with(cx, id, bytes, false)
    }

    /// As [`send`](Self::send); with `more`, a last small segment waits for what follows (`MSG_MORE`).
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_with(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        self.connections.prefetch(id.slot);
        let c = self.connections.get_mut(id).ok_or(SendError::Stale)?;
        if let Some(failure) = c.failure {
            return Err(SendError::Failed(failure));
        }
        if !c.state.may_send() || c.has(Flags::FIN_QUEUED | Flags::DETACHED) {
            return Err(SendError::Closed);
        }
        if matches!(c.state, State::SynSent | State::SynReceived) {
            return Err(SendError::WouldBlock);
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let room = c.send_limit.saturating_sub(c.buffered()) as usize;
        let push = c.push_seq;
        let taken = c.take_for_sending(&mut self.core, &bytes[..bytes.len().min(room)]);
        if taken == 0 {
            return Err(SendError::WouldBlock);
        }
        c.put(Flags::MORE, more);
        if more {
            // No PSH here: the write is not over.
            c.push_seq = push;
        }
        let _ = cx;
        self.core.settle(c);
        Ok(taken)
    }

    /// Ends a record (`MSG_EOR`): what is written from now on shares no segment with what was written before.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn end_record(&mut self, id: ConnId) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).ok_or(StaleError)?;
        let end = c.data_seq() + c.buffered();
        if let Some(tx) = c.tx.as_mut().filter(|tx| tx.records.len() < MAX_RECORDS) {
            if end > c.snd_nxt && tx.records.back() != Some(&end) {
                tx.records.push_back(end);
            }
        }
        Ok(())
    }

    /// Reads bytes (RFC 9293 §3.10.3); 0 at the end of the stream.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if there are none now.
    pub fn recv(&mut self, cx: &mut Cx<'_>, id: ConnId, into: &mut [u8]) -> Result<usize, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        if into.is_empty() {
            return Ok(0);
        }
        if c.readable() == 0 {
            return c.nothing_to_read().map(|()| 0);
        }
        let Some(rx) = &mut c.rx else { return Err(RecvError::WouldBlock) };
        let before = rx.holds();
        let n = rx.read(into);
        self.core.account(before, rx.holds());
        c.was_read(&mut self.core, cx, n);
        self.feed_starved();
        Ok(n)
    }

    /// As [`recv`](Self::recv), but the bytes stay.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn peek(&mut self, id: ConnId, into: &mut [u8]) -> Result<usize, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        match &c.rx {
            Some(rx) if rx.queued > 0 => Ok(rx.peek(into)),
            _ => c.nothing_to_read().map(|()| 0),
        }
    }

    /// Takes the next frame as it came, payload only; `None` at the end of the stream.
    ///
    /// # Errors
    /// As for `recv`.
    pub fn recv_frame(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<Option<Frame>, RecvError> {
        let c = self.connections.get_mut(id).ok_or(RecvError::Stale)?;
        let Some(rx) = c.rx.as_mut().filter(|rx| rx.queued > 0) else {
            return c.nothing_to_read().map(|()| None);
        };
        let before = rx.holds();
        // Without a free frame for what was copied there is nothing to give now.
        let frame = rx.take(cx.frames).ok_or(RecvError::WouldBlock)?;
        self.core.account(before, rx.holds());
        c.was_read(&mut self.core, cx, frame.len());
        self.feed_starved();
        Ok(Some(frame))
    }

    /// Ends one direction or both, keeping the handle.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn shutdown(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        how: std::net::Shutdown,
    ) -> Result<(), StaleError> {
        use std::net::Shutdown::{Both, Read, Write};
        let c = self.connections.get_mut(id).ok_or(StaleError)?;
        if matches!(how, Read | Both) {
            c.set(Flags::READ_SHUT);
            if let Some(rx) = &mut c.rx {
                let before = rx.holds();
                rx.forget();
                self.core.account(before, rx.holds());
            }
            c.wake_read();
        }
        if matches!(how, Write | Both) {
            c.close_send();
            if c.state == State::SynSent {
                self.core.kill(c, None);
            }
            c.wake_write();
        }
        let _ = cx;
        let slot = id.slot;
        self.finish(slot);
        Ok(())
    }

    /// Gives the handle up: what was written is still sent, then FIN (RFC 9293 §3.10.4), as `linger` says.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn close(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<(), StaleError> {
        let c = self.handle_mut(id)?;
        let slot = c.id.slot;
        if let Some(c) = self.connections.get_slot_mut(slot) {
            c.close(&mut self.core, cx);
        }
        self.finish(slot);
        Ok(())
    }

    /// Gives the handle up and resets the connection (RFC 9293 §3.10.5).
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn abort(&mut self, cx: &mut Cx<'_>, id: ConnId) -> Result<(), StaleError> {
        let slot = self.handle_mut(id)?.id.slot;
        if let Some(c) = self.connections.get_slot_mut(slot) {
            c.set(Flags::DETACHED);
            if c.state != State::Closed {
                c.abort(&mut self.core, cx);
            }
        }
        self.finish(slot);
        Ok(())
    }

    /// What can be done with a connection now.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn readiness(&self, id: ConnId) -> Result<Readiness, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        Ok(c.readiness())
    }

    /// Wakes `waker` once when what is waited for may have come; at once if it has. One waker for each interest: a later
    /// one replaces it.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn register(&mut self, id: ConnId, interest: Interest, waker: &Waker) -> Result<(), StaleError> {
        let c = self.handle_mut(id)?;
        let ready = c.readiness();
        let now = match interest {
            Interest::Read => ready.readable,
            Interest::Write => ready.writable,
            Interest::Closed => ready.closed,
        };
        let place = match interest {
            Interest::Read => &mut c.read_waker,
            Interest::Write => &mut c.write_waker,
            // Made only for who really waits.
            Interest::Closed if now => &mut None,
            Interest::Closed => &mut c.rare_mut().closed_waker,
        };
        if now {
            waker.wake_by_ref();
        } else if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *place = Some(waker.clone());
        }
        Ok(())
    }

    /// The socket's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn options(&self, id: ConnId) -> Result<SocketOptions, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        let plain = SocketOptions {
            nodelay: c.has(Flags::NODELAY),
            cork: c.has(Flags::CORK),
            tos: c.tos,
            ..SocketOptions::default()
        };
        Ok(c.options().map_or(plain, |o| SocketOptions { nodelay: plain.nodelay, ..*o }))
    }

    /// Changes the socket's options.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn set_options(
        &mut self,
        cx: &mut Cx<'_>,
        id: ConnId,
        options: &SocketOptions,
    ) -> Result<(), StaleError> {
        let c = self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        let uncorked = c.has(Flags::CORK) && !options.cork || !c.has(Flags::NODELAY) && options.nodelay;
        c.apply(options);
        if uncorked {
            c.clear(Flags::MORE);
            c.put(Flags::FORCE, c.unsent() > 0);
        }
        if c.state.is_synchronized() {
            if options.keepalive.is_some() {
                c.arm_keepalive(cx.now);
            } else if !c.has(Flags::DETACHED) {
                c.life_at = super::connection::NEVER;
            }
        }
        self.core.settle(c);
        Ok(())
    }

    /// A look at a connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn info(&self, id: ConnId) -> Result<TcpInfo, StaleError> {
        self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).map(Connection::info).ok_or(StaleError)
    }

    /// How the connection ended, if badly; asked once (`SO_ERROR`).
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn take_failure(&mut self, id: ConnId) -> Result<Option<Failure>, StaleError> {
        Ok(self.handle_mut(id)?.failure.take())
    }

    /// A connection whose handle has not been given up.
    fn handle_mut(&mut self, id: ConnId) -> Result<&mut Connection, StaleError> {
        self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)
    }
}

impl Connection {
    fn readiness(&self) -> Readiness {
        let closed = matches!(self.state, State::Closed | State::TimeWait);
        let read_closed = self.has(Flags::FIN_RECEIVED | Flags::READ_SHUT) || closed;
        let write_closed = closed || self.has(Flags::FIN_QUEUED);
        let handshake = matches!(self.state, State::SynSent | State::SynReceived);
        let room = self.buffered() < self.send_limit / 3 * 2;
        Readiness {
            readable: self.readable() > 0 || read_closed,
            writable: write_closed || !handshake && room && !self.starved,
            read_closed,
            write_closed,
            closed,
            failure: self.failure,
        }
    }

    /// Nothing is queued: is it the end?
    fn nothing_to_read(&self) -> Result<(), RecvError> {
        if let Some(failure) = self.failure {
            return Err(RecvError::Failed(failure));
        }
        let over = matches!(self.state, State::Closed | State::TimeWait);
        if over || self.has(Flags::FIN_RECEIVED | Flags::READ_SHUT) {
            Ok(())
        } else {
            Err(RecvError::WouldBlock)
        }
    }

    /// After the application took bytes: window, buffer size, memory.
    fn was_read(&mut self, core: &mut Core, cx: &Cx<'_>, n: usize) {
        self.tune_recv_buffer(core, cx, n as u32);
        self.window_opened(core, cx);
        if self.rx.as_ref().is_some_and(|rx| rx.is_idle()) {
            if let Some(rx) = self.rx.take() {
                core.give_inflow(rx);
            }
        }
        if self.linked {
            core.settle(self);
        }
    }

    /// The receive buffer follows what the application reads in a round trip: twice that, so that the sender's window can
    /// double each round as in slow start.
    fn tune_recv_buffer(&mut self, core: &Core, cx: &Cx<'_>, n: u32) {
        self.recv_copied = self.recv_copied.saturating_add(n);
        let round = self.rtt.srtt.max(1000);
        let now = cx.now.as_micros() as u32;
        let since = now.wrapping_sub(self.recv_round_us);
        if since < round {
            return;
        }
        let fixed = self.options().is_some_and(|o| o.recv_buffer.is_some());
        let want = self.recv_copied.saturating_mul(2).min(core.config.recv_buffer.max);
        let fresh = since < round.saturating_mul(4);
        if !fixed && fresh && want > self.recv_limit && !core.is_scarce(cx) {
            self.recv_limit = want;
        }
        self.recv_copied = 0;
        self.recv_round_us = now;
    }
}
