//! UDP: datagrams received into frames of the pool, and sent from them, in batches.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::task::Waker;

use flowlane_stack::address::Endpoint;
use flowlane_stack::udp::{Bind, BindError, Datagram};
use flowlane_stack::{Lane, SendError};
use flowlane_sys::frame::{Frame, Pool};
use flowlane_sys::kernel::datagrams::{BATCH, Batch, Outgoing};
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

use super::slab::{Flags, SocketId};
use super::{KernelLane, errors};
use crate::error::SocketError;

/// What a lane keeps for its UDP sockets.
#[derive(Debug, Default)]
pub(super) struct Udp {
    ends: HashMap<u32, Ends>,
    /// Made with the first socket.
    batch: Option<Box<Batch>>,
    /// Empty frames for the next batch.
    frames: Vec<Frame>,
}

/// The addresses of a socket.
#[derive(Debug, Clone, Copy)]
struct Ends {
    local: SocketAddr,
    remote: Option<SocketAddr>,
}

impl Udp {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn forget(&mut self, slot: u32) {
        if !self.ends.is_empty() {
            self.ends.remove(&slot);
        }
    }
}

impl KernelLane {
    /// A UDP socket. On a chosen port the kernel spreads datagrams over the lanes that have one.
    pub(crate) fn udp_bind(&mut self, bind: &Bind) -> Result<SocketId, SocketError> {
        if bind.any_port {
            return Err(SocketError::Unsupported("receive on every port at once: choose one, or use a link"));
        }
        let (id, ends) = match bind.remote {
            Some(remote) => self.udp_connect(bind, remote.into())?,
            None => self.udp_listen(bind)?,
        };
        self.udp.ends.insert(id.slot, ends);
        self.udp.batch.get_or_insert_default();
        Ok(id)
    }

    fn udp_listen(&mut self, bind: &Bind) -> Result<(SocketId, Ends), SocketError> {
        let on = |ip: IpAddr, lane: &mut Self| {
            let (v4, any) = (ip.is_ipv4(), ip.is_unspecified());
            let flags = family(v4) | if any { Flags::TELLS } else { Flags::empty() };
            lane.bind_shared(SocketAddr::new(ip, bind.local_port), flags | Flags::WRITABLE, |fd| {
                let option = if v4 { Number::PACKET_INFO } else { Number::PACKET_INFO_6 };
                if any { options::set(fd.as_fd(), option, 1) } else { Ok(()) }
            })
        };
        let (id, local) = match bind.local_ip {
            Some(ip) => on(ip, self)?,
            None => match on(Ipv6Addr::UNSPECIFIED.into(), self) {
                // No IPv6 here.
                Err(
                    SocketError::Kernel(errno::EAFNOSUPPORT) | SocketError::Bind(BindError::NotOurAddress),
                ) => on(Ipv4Addr::UNSPECIFIED.into(), self)?,
                done => done?,
            },
        };
        Ok((id, Ends { local, remote: None }))
    }

    fn udp_connect(&mut self, bind: &Bind, remote: SocketAddr) -> Result<(SocketId, Ends), SocketError> {
        let v4 = remote.is_ipv4();
        let fd = socket::udp(v4).map_err(|e| errors::other(&e))?;
        if bind.local_ip.is_some() || bind.local_port != 0 {
            let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let local = SocketAddr::new(bind.local_ip.unwrap_or(any), bind.local_port);
            if local.is_ipv4() != v4 {
                return Err(BindError::NoRoute.into());
            }
            // Sockets with different peers may share a port.
            options::set(fd.as_fd(), Number::REUSE_PORT, 1).map_err(|e| errors::other(&e))?;
            socket::bind(fd.as_fd(), local).map_err(|e| errors::bind(&e))?;
        }
        socket::connect(fd.as_fd(), remote).map_err(|e| errors::bind(&e))?;
        let local = socket::local_address(fd.as_fd()).map_err(|e| errors::other(&e))?;
        let id = self.insert(fd, Flags::WRITABLE | family(v4))?;
        Ok((id, Ends { local, remote: Some(remote) }))
    }

    /// Address and port of a socket; the address is `None` for a wildcard.
    pub(crate) fn udp_local(&self, id: SocketId) -> Result<(Option<IpAddr>, u16), SocketError> {
        self.sockets.get(id).ok_or(SocketError::Closed)?;
        let ends = self.udp.ends.get(&id.slot).ok_or(SocketError::Closed)?;
        Ok((Some(ends.local.ip()).filter(|ip| !ip.is_unspecified()), ends.local.port()))
    }

    /// Receives what is there, at most `max` datagrams, by one system call. `stack` tells their flow hash.
    pub(crate) fn udp_receive(
        &mut self,
        id: SocketId,
        frames: &Pool,
        stack: &Lane,
        into: &mut Vec<Datagram>,
        max: usize,
    ) -> Result<usize, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if !socket.flags.has(Flags::READABLE) {
            return Ok(0);
        }
        let Udp { ends, batch: Some(batch), frames: empty } = &mut self.udp else { return Ok(0) };
        let local = ends.get(&id.slot).ok_or(SocketError::Closed)?.local;
        let max = max.min(BATCH);
        while empty.len() < max {
            let Some(frame) = frames.alloc() else { break };
            empty.push(frame);
        }
        let room = empty.len().min(max);
        if room == 0 {
            return Err(SendError::NoFrame.into());
        }
        let n = match batch.receive(socket.fd(), &mut empty[..room]) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.flags.clear(Flags::READABLE);
                self.stats.reads_in_vain += 1;
                return Ok(0);
            }
            Err(e) => return Err(errors::datagram(&e)),
        };
        if n < room {
            socket.flags.clear(Flags::READABLE);
        }
        self.stats.datagram_reads += 1;
        let before = into.len();
        for (i, mut frame) in empty.drain(..n).enumerate() {
            let Some(received) = batch.received(i, frame.len()) else { break };
            if !spill(frames, &mut frame, batch.spilled(i, received.spilled)) {
                self.stats.datagrams_cut += 1;
                continue;
            }
            let ours = SocketAddr::new(received.destination.unwrap_or(local.ip()), local.port());
            let (ours, peer) = (Endpoint::from(ours), Endpoint::from(received.source));
            let (hash, kind) = stack.udp_hash(ours, peer);
            let meta = frame.meta_mut();
            (meta.hash, meta.hash_type) = (hash, kind.as_u8());
            into.push(Datagram::new(frame, peer, ours));
        }
        let n = into.len() - before;
        self.stats.datagrams_received += n as u64;
        Ok(n)
    }

    /// Sends one datagram if there is room.
    pub(crate) fn udp_send(
        &mut self,
        id: SocketId,
        payload: &[u8],
        source: Option<Endpoint>,
        destination: Option<Endpoint>,
    ) -> Result<(), SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        let ends = self.udp.ends.get(&id.slot).ok_or(SocketError::Closed)?;
        if destination.is_none() && ends.remote.is_none() {
            return Err(SendError::NoDestination.into());
        }
        let told = socket.flags.has(Flags::TELLS);
        let source = match source {
            Some(source) if source.port != ends.local.port() => return Err(SendError::NoSource.into()),
            Some(source) if told => Some(source.ip),
            Some(source) if source.ip == ends.local.ip() => None,
            Some(_) => return Err(SendError::NoSource.into()),
            None => None,
        };
        if !socket.flags.has(Flags::WRITABLE) {
            return Err(SendError::Full.into());
        }
        let destination = destination.map(SocketAddr::from);
        match Batch::send_one(socket.fd(), socket.flags.has(Flags::V4), payload, destination, source) {
            Ok(()) => {
                self.stats.datagram_writes += 1;
                self.stats.datagrams_sent += 1;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.flags.clear(Flags::WRITABLE);
                self.stats.writes_in_vain += 1;
                Err(SendError::Full.into())
            }
            Err(e) => {
                self.stats.datagrams_dropped += 1;
                Err(errors::datagram(&e))
            }
        }
    }

    /// Sends datagrams of `batch` back to whoever sent them, from `*done` on, which moves; how many went. Those that cannot
    /// be sent are counted and passed over. When `*done` stays behind the end there is no more room: wait for it.
    pub(crate) fn udp_reply(
        &mut self,
        id: SocketId,
        batch: &[Datagram],
        done: &mut usize,
    ) -> Result<usize, SocketError> {
        let mut sent = 0;
        while *done < batch.len() {
            let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
            let Some(headers) = self.udp.batch.as_deref_mut() else { return Err(SocketError::Closed) };
            if !socket.flags.has(Flags::WRITABLE) {
                break;
            }
            let told = socket.flags.has(Flags::TELLS);
            let rest = &batch[*done..];
            let outgoing = |i: usize| {
                let datagram = &rest[i];
                Outgoing {
                    destination: Some(datagram.source.into()),
                    // Nobody can send from a group or a broadcast address.
                    source: told.then_some(datagram.destination.ip).filter(|ip| !ip.is_multicast()),
                    payload: datagram.frame(),
                }
            };
            match headers.send(socket.fd(), socket.flags.has(Flags::V4), rest.len(), outgoing) {
                Ok(n) => {
                    self.stats.datagram_writes += 1;
                    self.stats.datagrams_sent += n as u64;
                    sent += n;
                    *done += n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    socket.flags.clear(Flags::WRITABLE);
                    self.stats.writes_in_vain += 1;
                }
                Err(_) => {
                    self.stats.datagrams_dropped += 1;
                    *done += 1;
                }
            }
        }
        Ok(sent)
    }

    /// Wakes `waker` when there is room to send.
    pub(crate) fn wake_on_room(&mut self, id: SocketId, waker: &Waker) -> Result<(), SocketError> {
        self.sockets.get_mut(id).ok_or(SocketError::Closed)?.wait_to_write(waker);
        Ok(())
    }

    /// Wakes `waker` when there is something to receive.
    pub(crate) fn wake_on_datagram(&mut self, id: SocketId, waker: &Waker) -> Result<(), SocketError> {
        self.sockets.get_mut(id).ok_or(SocketError::Closed)?.wait_to_read(waker);
        Ok(())
    }
}

fn family(v4: bool) -> Flags {
    if v4 { Flags::V4 } else { Flags::empty() }
}

/// Puts what did not fit a frame into others chained to it. `false` if there are not enough.
fn spill(frames: &Pool, head: &mut Frame, mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(mut frame) = frames.alloc() else { return false };
        let n = rest.len().min(frame.tailroom());
        if n == 0 || !frame.extend_from_slice(&rest[..n]) {
            return false;
        }
        head.append(frame);
        rest = &rest[n..];
    }
    true
}
