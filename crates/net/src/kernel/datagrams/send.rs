//! Sending datagrams: answers from their frames, and payloads of an application, merged where the kernel can.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use flowlane_stack::SendError;
use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::udp::Datagram;
use flowlane_sys::kernel::datagrams::{Batch, MESSAGE, Outgoing, SEGMENTS};
use flowlane_sys::kernel::socket::errno;

use super::super::slab::{Flags, Socket, SocketId};
use super::super::{KernelLane, errors};
use super::{Ends, link_local};
use crate::error::SocketError;

/// The path's MTU is too small for datagrams of that length (`EINVAL` until Linux 6.8), or the device computes no checksums (`EIO`).
const MERGING: [i32; 3] = [errno::EINVAL, errno::EMSGSIZE, errno::EIO];

/// What did not go of a batch, and why.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Bytes of those that cannot be sent.
    pub(crate) bytes: u64,
    /// What the network had said of a connected socket.
    pub(crate) reported: Option<IcmpErrorKind>,
}

impl Lost {
    /// Whether the error may be one that a connected socket met before, and which is gone once it has been told.
    #[cold]
    fn is_told(&mut self, e: &io::Error) -> bool {
        let SocketError::Network(kind) = errors::datagram(e) else { return false };
        self.reported = Some(kind);
        true
    }
}

impl Ends {
    /// The kernel has refused to send datagrams of `size` bytes merged.
    #[cold]
    fn refused(&mut self, size: usize, e: &io::Error) {
        let number = e.raw_os_error().unwrap_or(0);
        if number == errno::EIO {
            self.most = 0;
        } else if MERGING.contains(&number) {
            self.most = self.most.min(size.saturating_sub(1));
        }
    }

    /// From which address of ours a datagram goes, if the kernel has to be told; an error if that is not to be had.
    fn source(
        &self,
        socket: &Socket,
        source: Option<Endpoint>,
    ) -> Result<Option<std::net::IpAddr>, SocketError> {
        match source {
            Some(source) if source.port != self.local.port() => Err(SendError::NoSource.into()),
            Some(source) if socket.flags.has(Flags::TELLS) => Ok(Some(source.ip)),
            Some(source) if source.ip == self.local.ip() => Ok(None),
            Some(_) => Err(SendError::NoSource.into()),
            None => Ok(None),
        }
    }
}

impl KernelLane {
    /// Sends one datagram if there is room.
    pub(crate) fn udp_send(
        &mut self,
        id: SocketId,
        payload: &[u8],
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SocketError> {
        self.udp_send_some(id, payload, 0, source, destination).map(|_| ())
    }

    /// Sends `payload` as datagrams of `size` bytes, the last of which may be shorter, if there is room: as many as go by one system call,
    /// and how many that were. With a `size` of 0 it is one datagram.
    pub(crate) fn udp_send_some(
        &mut self,
        id: SocketId,
        payload: &[u8],
        size: usize,
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<usize, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        let ends = self.udp.ends.get_mut(&id.slot).ok_or(SocketError::Closed)?;
        if destination.is_none() && ends.remote.is_none() {
            return Err(SendError::NoDestination.into());
        }
        let source = ends.source(socket, source)?;
        if !socket.flags.has(Flags::WRITABLE) {
            return Err(SendError::Full.into());
        }
        let destination = destination.map(SocketAddr::from);
        let v4 = socket.flags.has(Flags::V4);
        loop {
            let merged = match size {
                0 => 1,
                size if size > ends.most => 1,
                size => (MESSAGE / size).min(SEGMENTS).min(payload.len().div_ceil(size)),
            };
            let (end, segment) = match merged {
                0 | 1 if size == 0 => (payload.len(), 0),
                0 | 1 => (payload.len().min(size), 0),
                n => (payload.len().min(n * size), size as u16),
            };
            let Err(e) = Batch::send_one(socket.fd(), v4, &payload[..end], segment, destination, source)
            else {
                self.stats.datagram_writes += 1;
                self.stats.datagrams_sent += merged.max(1) as u64;
                ends.sent += merged.max(1) as u64;
                ends.sent_bytes += end as u64;
                self.stats.merged_sent += u64::from(merged > 1);
                return Ok(merged.max(1));
            };
            if e.kind() == ErrorKind::WouldBlock {
                socket.flags.clear(Flags::WRITABLE);
                self.stats.writes_in_vain += 1;
                return Err(SendError::Full.into());
            }
            if merged > 1 && MERGING.contains(&e.raw_os_error().unwrap_or(0)) {
                ends.refused(size, &e);
                self.stats.merging_refused += 1;
                continue;
            }
            // Nothing of it has gone; the first may be tried again with what is left.
            self.stats.datagrams_dropped += 1;
            return Err(errors::datagram(&e));
        }
    }

    /// Sends datagrams of `batch` back to whoever sent them, from `*done` on, which moves; how many went. Those that cannot
    /// be sent are counted and passed over. When `*done` stays behind the end there is no more room: wait for it.
    pub(crate) fn udp_reply(
        &mut self,
        id: SocketId,
        batch: &[Datagram],
        done: &mut usize,
        lost: &mut Lost,
    ) -> Result<usize, SocketError> {
        let mut sent = 0;
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        let ends = self.udp.ends.get_mut(&id.slot).ok_or(SocketError::Closed)?;
        let Some(headers) = self.udp.batch.as_deref_mut() else { return Err(SocketError::Closed) };
        let (told, v4) = (socket.flags.has(Flags::TELLS), socket.flags.has(Flags::V4));
        // Datagrams in front of `single` go one by one; `unsourced` goes from whichever address the kernel takes.
        let (mut single, mut unsourced, mut again) = (0, usize::MAX, usize::MAX);
        while *done < batch.len() && socket.flags.has(Flags::WRITABLE) {
            let (rest, from) = (&batch[*done..], *done);
            let outgoing = |i: usize| outgoing(&rest[i], told && from + i != unsourced);
            let (count, most) = if single > from { (single - from, 0) } else { (rest.len(), ends.most) };
            match headers.send(socket.fd(), v4, count, most, outgoing) {
                Ok(went) => {
                    self.stats.datagram_writes += 1;
                    self.stats.datagrams_sent += went.datagrams as u64;
                    ends.sent += went.datagrams as u64;
                    // Only sockets with a peer have records.
                    if ends.remote.is_some() {
                        ends.sent_bytes += rest[..went.datagrams].iter().map(|d| d.len() as u64).sum::<u64>();
                    }
                    self.stats.merged_sent += went.merged as u64;
                    sent += went.datagrams;
                    *done += went.datagrams;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    socket.flags.clear(Flags::WRITABLE);
                    self.stats.writes_in_vain += 1;
                }
                // The network said it of one that went before; nothing of these has gone.
                Err(e) if again != from && lost.is_told(&e) => again = from,
                // What is wrong with one of them is no harm to the others.
                Err(e) if headers.first() > 1 => {
                    ends.refused(rest[0].len(), &e);
                    self.stats.merging_refused += 1;
                    single = from + headers.first();
                }
                Err(e) if told && unsourced != from && cannot_be_source(rest[0].destination, &e) => {
                    unsourced = from;
                }
                Err(_) => {
                    self.stats.datagrams_dropped += 1;
                    lost.bytes += rest[0].len() as u64;
                    *done += 1;
                }
            }
        }
        Ok(sent)
    }
}

/// Whether our address is one from which nobody can send, as the broadcast address of a network. Which addresses are such the kernel
/// knows, and says so by these errors.
#[cold]
fn cannot_be_source(ours: Endpoint, e: &io::Error) -> bool {
    ours.ip.is_ipv4() && matches!(e.raw_os_error(), Some(errno::EINVAL | errno::ENETUNREACH))
}

/// The answer to a datagram, in its frame.
fn outgoing(datagram: &Datagram, told: bool) -> Outgoing<'_> {
    let ours = datagram.destination.ip;
    Outgoing {
        destination: Some(datagram.source.into()),
        // Nobody can send from a group or a broadcast address.
        source: told.then_some(ours).filter(|ip| !ip.is_multicast()),
        // The others go where routes say, which is not always back the way they came.
        interface: if link_local(ours) { datagram.frame().meta().queue.into() } else { 0 },
        payload: datagram.frame(),
    }
}
