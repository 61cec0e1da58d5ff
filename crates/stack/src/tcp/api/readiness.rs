//! State of a connection (STATUS, RFC 9293 §3.10.6), and waiting for readiness.

use crate::tcp::Tcp;
use crate::tcp::connection::{Connection, Flags, Lists, State};
use crate::tcp::error::{Failure, StaleError};
use crate::tcp::info::TcpInfo;
use crate::tcp::lane::Core;
use crate::tcp::table::ConnId;
use core::net::SocketAddr;
use core::task::Waker;

/// Kinds of readiness to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Something to read, the end of the stream, or an error.
    Read,
    /// Room to write, the end of the handshake, or an error.
    Write,
    /// The end of the connection.
    Closed,
    /// Urgent data that was not announced before (RFC 9293 §3.8.5), or the end of the connection.
    Urgent,
}

/// Readiness of a connection, as in `poll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// `recv` has bytes, the end of the stream or an error.
    pub readable: bool,
    /// `send` takes bytes, or has an error.
    pub writable: bool,
    /// The peer has closed its direction, or reading was shut down.
    pub read_closed: bool,
    /// Nothing can be sent any more.
    pub write_closed: bool,
    /// The connection is over.
    pub closed: bool,
    /// How it ended, if badly.
    pub failure: Option<Failure>,
}

impl Tcp {
    /// Readiness of a connection now.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn readiness(&self, id: ConnId) -> Result<Readiness, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        Ok(c.readiness(&self.core))
    }

    /// Wakes `waker` once when the connection may be ready; immediately if it is. There is one waker for each interest: a later one
    /// replaces it.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn register(&mut self, id: ConnId, interest: Interest, waker: &Waker) -> Result<(), StaleError> {
        let ready = self.readiness(id)?;
        let c = self.handle_mut(id)?;
        let now = match interest {
            Interest::Read => ready.readable,
            Interest::Write => ready.writable,
            Interest::Closed => ready.closed,
            Interest::Urgent => ready.closed || ready.read_closed,
        };
        let place = match interest {
            Interest::Read => c.read_waker_mut(),
            Interest::Write if now => &mut None,
            Interest::Write => c.write_waker_mut(),
            // Made only for who really waits.
            Interest::Closed | Interest::Urgent if now => &mut None,
            Interest::Urgent => c.urgent_waker_mut(),
            Interest::Closed => c.closed_waker_mut(),
        };
        if now {
            waker.wake_by_ref();
        } else if !place.as_ref().is_some_and(|old| old.will_wake(waker)) {
            *place = Some(waker.clone());
        }
        Ok(())
    }

    /// Our end of a connection, and the peer's.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn ends(&self, id: ConnId) -> Result<(SocketAddr, SocketAddr), StaleError> {
        let tuple = &self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?.tuple();
        let local = SocketAddr::new(tuple.local, tuple.local_port);
        Ok((local, SocketAddr::new(tuple.remote, tuple.remote_port)))
    }

    /// A look at a connection.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn info(&self, id: ConnId) -> Result<TcpInfo, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        Ok(c.info(self.core.timeouts))
    }

    /// How the connection ended, if badly; asked once (`SO_ERROR`).
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn take_failure(&mut self, id: ConnId) -> Result<Option<Failure>, StaleError> {
        Ok(self.handle_mut(id)?.take_failure())
    }
}

impl Connection {
    fn readiness(&self, core: &Core) -> Readiness {
        let closed = matches!(self.state(), State::Closed | State::TimeWait);
        let read_closed = self.has(Flags::FIN_RECEIVED | Flags::READ_SHUT) || closed;
        let write_closed = closed || self.has(Flags::FIN_QUEUED);
        let handshake = matches!(self.state(), State::SynSent | State::SynReceived) && !self.is_early();
        let room = self.has_room_to_write(core);
        Readiness {
            readable: self.readable() > 0 || read_closed,
            writable: write_closed || !handshake && room && !self.is_in(Lists::STARVED),
            read_closed,
            write_closed,
            closed,
            failure: self.failure(),
        }
    }
}
