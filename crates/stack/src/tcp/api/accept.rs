//! Listening, and accepting connections (passive OPEN, RFC 9293 §3.10.1).

use crate::packet::Cx;
use crate::tcp::Tcp;
use crate::tcp::config::{FastOpenListen, ListenOptions, SocketOptions};
use crate::tcp::error::StaleError;
use crate::tcp::lane::listeners::{ListenError, Listener, ListenerId};
use crate::tcp::table::ConnId;
use core::net::{IpAddr, SocketAddr};
use core::task::Waker;

/// A connection out of the accept queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its name.
    pub id: ConnId,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Flow hash of received packets.
    pub hash: u32,
    /// Its type.
    pub hash_type: u8,
}

impl Tcp {
    /// Listens on a port of one address, or of all.
    ///
    /// # Errors
    /// There is such a listener already.
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
        for id in listener.end() {
            let _ = self.abort(cx, id);
        }
        Ok(())
    }

    /// Changes the options of the connections that a listener makes from now on.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn set_listen_options(&mut self, id: ListenerId, socket: SocketOptions) -> Result<(), StaleError> {
        self.core.listeners.get_mut(id).ok_or(StaleError)?.set_socket_options(socket);
        Ok(())
    }

    /// Changes whether and how a listener takes data in SYNs.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn set_listen_fast_open(
        &mut self,
        id: ListenerId,
        fast_open: Option<FastOpenListen>,
    ) -> Result<(), StaleError> {
        self.core.listeners.get_mut(id).ok_or(StaleError)?.set_fast_open(fast_open);
        Ok(())
    }

    /// Connections of a listener that count against its limit of Fast Open now.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn fast_open_pending(&self, id: ListenerId) -> Result<usize, StaleError> {
        self.core.listeners.get(id).map(|listener| listener.early().count()).ok_or(StaleError)
    }

    /// The next connection of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn accept(&mut self, id: ListenerId) -> Result<Option<Accepted>, StaleError> {
        let listener = self.core.listeners.get_mut(id).ok_or(StaleError)?;
        while let Some(id) = listener.dequeue() {
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.set_in_accept_queue(false);
            return Ok(Some(Accepted {
                id,
                local: c.local_end(),
                remote: c.remote_end(),
                hash: c.flow_hash(),
                hash_type: c.hash_type(),
            }));
        }
        Ok(None)
    }

    /// Wakes `waker` when a connection waits to be accepted; immediately if one does.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn register_accept(&mut self, id: ListenerId, waker: &Waker) -> Result<(), StaleError> {
        self.core.listeners.get_mut(id).ok_or(StaleError)?.wake_on_arrival(waker);
        Ok(())
    }

    /// The address, `None` for all of ours, and the port of a listener.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn listens_on(&self, id: ListenerId) -> Result<(Option<IpAddr>, u16), StaleError> {
        self.core.listeners.get(id).map(Listener::listens_on).ok_or(StaleError)
    }

    /// How many connections wait to be accepted, and how many handshakes are under way.
    ///
    /// # Errors
    /// If there is no such listener.
    pub fn backlog(&self, id: ListenerId) -> Result<(usize, usize), StaleError> {
        let listener = self.core.listeners.get(id).ok_or(StaleError)?;
        Ok((listener.waiting(), listener.handshakes() as usize))
    }
}
