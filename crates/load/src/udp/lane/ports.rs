//! The sockets of one lane's flows: one socket that takes every port, or a connected socket for each flow.
//!
//! With few flows on connected sockets, several datagrams of one flow are due at once when the rate is high. They are held and sent by one
//! system call ([`Ports::flush`]), at the latest when the generator has sent all that is due.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use flowlane::{Bind, Datagram, Endpoint, SendError, SocketError, UdpSocket, zone};

use crate::run::flows::{Sources, address};
use crate::udp::Common;

/// Most datagrams received at once.
pub(super) const BURST: usize = 256;
/// Datagrams sent together at most: what the kernel takes in one system call.
const TOGETHER: usize = 64;
/// `ENOBUFS`: the interface's queue in the kernel is full.
const NO_BUFFERS: i32 = 105;

/// The sockets of a lane.
#[derive(Debug)]
pub(super) struct Ports {
    sockets: Vec<UdpSocket>,
    /// Each flow has a socket of its own.
    each: bool,
    /// The socket to read first; it rotates.
    ear: usize,
    /// Datagrams that a flow sends one after the other, if so many are due.
    run: usize,
    /// Payloads of one size of flow `of`, to be sent together.
    held: Vec<u8>,
    of: usize,
    size: usize,
}

impl Ports {
    /// Opens the sockets. Also returns the client endpoint of each flow.
    pub(super) fn open(common: &Common, bucket: u16) -> Result<(Self, Vec<Endpoint>), String> {
        let (sockets, flows) = open(common, bucket)?;
        let each = matches!(common.config.sources, Sources::Addresses { .. });
        // The datagrams of a burst go one by one: whoever is measured is to see so many.
        let run =
            if each && common.config.bursts.is_none() { (TOGETHER / sockets.len().max(1)).max(1) } else { 1 };
        Ok((Self { sockets, each, ear: 0, run, held: Vec::new(), of: 0, size: 1 }, flows))
    }

    /// Datagrams that a flow sends one after the other, if so many are due.
    #[inline]
    pub(super) fn run(&self) -> usize {
        self.run
    }

    /// Sends a datagram of flow `flow` from `client`; `false` if there is no room now.
    #[inline]
    pub(super) fn send(
        &mut self,
        flow: usize,
        client: Endpoint,
        target: Endpoint,
        payload: &[u8],
    ) -> Result<bool, SocketError> {
        if self.run > 1 {
            let full = self.held.len() + payload.len() > TOGETHER * self.size;
            if (flow != self.of || full || payload.len() != self.size) && !self.flush()? {
                return Ok(false);
            }
            (self.of, self.size) = (flow, payload.len());
            self.held.extend_from_slice(payload);
            return Ok(true);
        }
        let sent = if self.each {
            self.sockets[flow].try_send(payload, None, None)
        } else {
            self.sockets[0].try_send(payload, Some(client), Some(target))
        };
        went(sent).map(|sent| sent.is_some())
    }

    /// Sends what is held; `false` if there is no room for all of it now.
    #[inline]
    pub(super) fn flush(&mut self) -> Result<bool, SocketError> {
        let mut done = 0;
        let end = loop {
            let rest = &self.held[done..];
            if rest.is_empty() {
                break Ok(true);
            }
            match went(self.sockets[self.of].try_send_segments(rest, self.size, None, None)) {
                Ok(Some(n)) => done = (done + n * self.size).min(self.held.len()),
                Ok(None) => break Ok(false),
                Err(e) => break Err(e),
            }
        };
        self.held.drain(..done);
        end
    }

    /// Appends received datagrams, from as many sockets as a burst allows. An error of a socket is returned at once.
    #[inline]
    pub(super) fn receive(&mut self, came: &mut Vec<Datagram>) -> Result<(), SocketError> {
        let n = self.sockets.len();
        self.ear = if self.ear + 1 < n { self.ear + 1 } else { 0 };
        for i in 0..n {
            let socket = &self.sockets[if self.ear + i < n { self.ear + i } else { self.ear + i - n }];
            socket.try_recv_batch(came, BURST)?;
            if came.len() >= BURST {
                break;
            }
        }
        Ok(())
    }

    /// The same for the first socket with datagrams; waits if none has any.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        came: &mut Vec<Datagram>,
    ) -> Poll<Result<(), SocketError>> {
        for socket in &self.sockets {
            if let Poll::Ready(received) = pin!(socket.recv_batch(came, BURST)).poll(cx) {
                return Poll::Ready(received.map(|_| ()));
            }
        }
        Poll::Pending
    }
}

/// What was sent; `None` if there was no room.
#[inline]
fn went<T>(sent: Result<T, SocketError>) -> Result<Option<T>, SocketError> {
    match sent {
        Ok(sent) => Ok(Some(sent)),
        Err(SocketError::Send(SendError::Full | SendError::NoFrame) | SocketError::Kernel(NO_BUFFERS)) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The sockets of a lane, and the client endpoint of each flow.
fn open(common: &Common, bucket: u16) -> Result<(Vec<UdpSocket>, Vec<Endpoint>), String> {
    let bind = |bind| UdpSocket::bind(bind).map_err(|e| e.to_string());
    let clients = match &common.config.sources {
        Sources::Flows(flows) => {
            let socket = bind(Bind { any_port: true, queue: Some(4096), ..Bind::default() })?;
            return Ok((vec![socket], flows[usize::from(bucket)].clone()));
        }
        Sources::Addresses { clients, .. } => clients,
    };
    let before = common.turns.before_here(bucket);
    let (mut sockets, mut flows) = (Vec::new(), Vec::new());
    for nth in before..before + common.turns.of(bucket) {
        let (local_ip, remote) = (address(clients, u128::from(nth)), Some(common.config.target));
        let from = || local_ip.map_or(String::new(), |ip| format!(" from {ip}"));
        let socket = bind(Bind { local_ip, remote, ..Bind::default() })
            .map_err(|e| format!("a socket{} to {}: {e}", from(), zone::show(common.config.target.into())))?;
        let (ip, port) = socket.local().map_err(|e| e.to_string())?;
        let unspecified = std::net::Ipv6Addr::UNSPECIFIED.into();
        flows.push(Endpoint::new(ip.or(local_ip).unwrap_or(unspecified), port));
        sockets.push(socket);
    }
    Ok((sockets, flows))
}
