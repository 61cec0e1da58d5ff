//! A socket with what waits to be sent on it, and memory for what comes.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use flowlane::{Datagram, Endpoint, SendError, SocketError, UdpSocket};
use quinn_proto::{Connection, Transmit};

/// Most datagrams received before they are looked at.
const BATCH: usize = 64;
/// Most datagrams of a train.
const TRAIN: usize = 10;
/// Bytes of memory that datagrams are copied into one behind the other. A piece is used again when nobody holds a part of it.
const PIECE: usize = 64 << 10;

/// What found no room yet.
#[derive(Debug, Clone, Copy)]
struct Unsent {
    from: usize,
    end: usize,
    size: usize,
    to: Option<Endpoint>,
    source: Option<Endpoint>,
}

/// A socket, and its buffers.
#[derive(Debug)]
pub struct Wire {
    socket: UdpSocket,
    /// Its port, from which answers go.
    port: u16,
    /// Whether it has a peer, to which all goes.
    connected: bool,
    batch: Vec<Datagram>,
    memory: BytesMut,
    out: Vec<u8>,
    unsent: Option<Unsent>,
}

impl Wire {
    /// `connected`: the socket has a peer.
    ///
    /// # Errors
    /// The socket is another lane's, or closed.
    pub fn new(socket: UdpSocket, connected: bool) -> Result<Self, SocketError> {
        let (_, port) = socket.local()?;
        Ok(Self {
            socket,
            port,
            connected,
            batch: Vec::new(),
            memory: BytesMut::new(),
            out: Vec::new(),
            unsent: None,
        })
    }

    /// Receives what there is: `each` gets the sender, our address and the payload. Afterwards the task is woken when there is more.
    ///
    /// # Errors
    /// The socket is closed, or the network reported something about its peer.
    pub fn receive(
        &mut self,
        cx: &mut Context<'_>,
        mut each: impl FnMut(SocketAddr, IpAddr, BytesMut),
    ) -> Result<(), SocketError> {
        loop {
            match pin!(self.socket.recv_batch(&mut self.batch, BATCH)).poll(cx) {
                Poll::Pending => return Ok(()),
                // Frames are free again when what they carry has been looked at.
                Poll::Ready(Err(SocketError::Send(SendError::NoFrame))) => {
                    cx.waker().wake_by_ref();
                    return Ok(());
                }
                Poll::Ready(result) => result?,
            };
            for datagram in self.batch.drain(..) {
                if self.memory.capacity() - self.memory.len() < datagram.len() {
                    self.memory.reserve(PIECE.max(datagram.len()));
                }
                for chunk in datagram.chunks() {
                    self.memory.extend_from_slice(chunk);
                }
                each(datagram.source.into(), datagram.destination.ip, self.memory.split());
            }
        }
    }

    /// Sends all that a connection has to send; whether it found room. If not, the task is woken when there is some.
    ///
    /// # Errors
    /// The socket is closed, or the network reported something about its peer.
    pub fn transmit(
        &mut self,
        cx: &Context<'_>,
        connection: &mut Connection,
        now: Instant,
    ) -> Result<bool, SocketError> {
        loop {
            if !self.flush(cx)? {
                return Ok(false);
            }
            self.out.clear();
            match connection.poll_transmit(now, TRAIN, &mut self.out) {
                None => return Ok(true),
                Some(transmit) => self.hold(&transmit),
            }
        }
    }

    /// Sends what an endpoint says without a connection: `bytes` has it. It is dropped if there is no room.
    ///
    /// # Errors
    /// As [`Wire::transmit`].
    pub fn answer(&mut self, cx: &Context<'_>, transmit: &Transmit, bytes: &[u8]) -> Result<(), SocketError> {
        if self.flush(cx)? {
            self.out.clear();
            self.out.extend_from_slice(bytes);
            self.hold(transmit);
            self.flush(cx)?;
        }
        Ok(())
    }

    fn hold(&mut self, transmit: &Transmit) {
        let end = transmit.size.min(self.out.len());
        self.unsent = Some(Unsent {
            from: 0,
            end,
            size: transmit.segment_size.unwrap_or(end).max(1),
            to: (!self.connected).then(|| transmit.destination.into()),
            source: transmit.src_ip.filter(|_| !self.connected).map(|ip| Endpoint::new(ip, self.port)),
        });
    }

    /// Sends what waits; whether nothing waits any longer.
    fn flush(&mut self, cx: &Context<'_>) -> Result<bool, SocketError> {
        let Some(mut unsent) = self.unsent.take() else { return Ok(true) };
        while unsent.from < unsent.end {
            let bytes = &self.out[unsent.from..unsent.end];
            match self.socket.try_send_segments(bytes, unsent.size, unsent.source, unsent.to) {
                Ok(n) => unsent.from += n.saturating_mul(unsent.size),
                Err(SocketError::Send(SendError::Full)) => {
                    self.unsent = Some(unsent);
                    self.socket.wake_on_room(cx, unsent.to)?;
                    return Ok(false);
                }
                // The network loses datagrams as well; QUIC sends again what they carried.
                Err(SocketError::Send(_)) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}
