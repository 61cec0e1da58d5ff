//! UDP: datagrams received into frames of the pool, and sent from them, in batches.
//!
//! Both ways the kernel handles datagrams of one sender and one length together where it can ([`flowlane_sys::kernel::datagrams`]). An
//! application sees none of it: what comes merged is [taken apart](split) into frames, one for each datagram, and what is sent one after
//! the other to one peer is merged. Where the kernel refuses to merge, as for datagrams longer than the path's MTU, they go one by one,
//! and the refusal is counted.
//!
//! [`send`] has sending.

mod send;
mod split;

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Waker;

use flowlane_rss::{HashType, Protocol};
use flowlane_stack::address::Endpoint;
use flowlane_stack::udp::{Bind, BindError, Datagram};
use flowlane_stack::{Lane, SendError};
use flowlane_sys::frame::{Frame, Pool};
use flowlane_sys::kernel::datagrams::{BATCH, Batch, SEGMENTS};
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

pub(crate) use send::Lost;

use super::arrival::judge;
use super::opening::Opening;
use super::slab::{Flags, SocketId};
use super::{KernelLane, KernelStats, errors};
use crate::error::SocketError;
use crate::zone;

/// What a lane keeps for its UDP sockets.
#[derive(Debug, Default)]
pub(super) struct Udp {
    ends: HashMap<u32, Ends>,
    /// Made with the first socket.
    batch: Option<Box<Batch>>,
    /// Empty frames for the next batch.
    frames: Vec<Frame>,
}

/// Bytes of receive buffer that sockets ask for. The kernel gives as much of it as `net.core.rmem_max` allows.
const RECEIVE_BUFFER: i32 = 1 << 20;

/// Of so many reads one is asked on which processor its last datagram arrived.
const LOOK_EVERY: u64 = 16;

/// The addresses of a socket, and what was learnt of it.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) remote: Option<SocketAddr>,
    /// Datagrams that came merged with others and were more than was asked for.
    waiting: VecDeque<Datagram>,
    /// Datagrams in a message, as many as the last read found in most.
    expected: usize,
    /// Longest datagrams that are merged to be sent; 0 if none are.
    most: usize,
    /// Datagrams that the kernel said were lost.
    pub(super) lost: u32,
    /// Datagrams received, and sent.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Their bytes.
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Flow hash of the last datagram received, and its type.
    pub(super) hash: (u32, HashType),
}

impl Ends {
    fn new(local: SocketAddr, remote: Option<SocketAddr>) -> Self {
        Self {
            local,
            remote,
            waiting: VecDeque::new(),
            expected: 1,
            most: usize::from(u16::MAX),
            lost: 0,
            received: 0,
            sent: 0,
            received_bytes: 0,
            sent_bytes: 0,
            hash: (0, HashType::None),
        }
    }
}

impl Udp {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The addresses of the socket in that slot, if it is one of UDP, and what it has received and sent.
    pub(super) fn ends(&self, slot: u32) -> Option<&Ends> {
        self.ends.get(&slot)
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
        if let Some(remote) = bind.remote {
            self.flow_begins(id, remote.into(), true);
        }
        self.udp.batch.get_or_insert_default();
        Ok(id)
    }

    fn udp_listen(&mut self, bind: &Bind) -> Result<(SocketId, Ends), SocketError> {
        let on = |ip: IpAddr, lane: &mut Self| {
            let (v4, any) = (ip.is_ipv4(), ip.is_unspecified());
            let flags = family(v4) | if any { Flags::TELLS } else { Flags::empty() };
            lane.bind_shared(
                zone::ours(ip, bind.local_port, lane.ports.zone),
                flags | Flags::WRITABLE,
                |fd, stats| {
                    equip(fd.as_fd(), v4, stats);
                    let option = if v4 { Number::PACKET_INFO } else { Number::PACKET_INFO_6 };
                    if any { options::set(fd.as_fd(), option, 1) } else { Ok(()) }
                },
            )
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
        Ok((id, Ends::new(local, None)))
    }

    fn udp_connect(&mut self, bind: &Bind, remote: SocketAddr) -> Result<(SocketId, Ends), SocketError> {
        let v4 = remote.is_ipv4();
        if bind.local_ip.is_some_and(|ip| ip.is_ipv4() != v4) {
            return Err(BindError::NoRoute.into());
        }
        let mut fd = socket::udp(v4).map_err(|e| errors::other(&e))?;
        let chosen = bind.local_port != 0;
        let opening = Opening { protocol: Protocol::UDP, remote, data: &[] };
        // Guard: `chosen` as `false` fails sockets/kernel::datagrams_begin
        let at_home = if chosen {
            None
        } else {
            self.begin_at_home(&mut fd, bind.local_ip, opening, |_, _| socket::udp(v4))
                .map_err(|e| errors::bind(&e))?
        };
        if at_home.is_none() {
            if bind.local_ip.is_some() || chosen {
                let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                // Sockets with different peers may share a port that the program chose. The kernel would choose one without regard to peers.
                // Guard: `chosen` as `true` fails sockets/kernel::connected_sockets_of_datagrams
                if chosen {
                    options::set(fd.as_fd(), Number::REUSE_PORT, 1).map_err(|e| errors::other(&e))?;
                }
                let ours = zone::ours(bind.local_ip.unwrap_or(any), bind.local_port, zone::of(remote));
                socket::bind(fd.as_fd(), ours).map_err(|e| errors::bind(&e))?;
            }
            opening.begin(&fd).map_err(|e| errors::bind(&e))?;
        }
        let local = socket::local_address(fd.as_fd()).map_err(|e| errors::other(&e))?;
        equip(fd.as_fd(), v4, &mut self.stats);
        let id = self.insert(fd, Flags::WRITABLE | family(v4))?;
        Ok((id, Ends::new(local, Some(remote))))
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
        let Udp { ends, batch: Some(batch), frames: empty } = &mut self.udp else { return Ok(0) };
        let ends = ends.get_mut(&id.slot).ok_or(SocketError::Closed)?;
        if !ends.waiting.is_empty() {
            let n = ends.waiting.len().min(max);
            into.extend(ends.waiting.drain(..n));
            return Ok(n);
        }
        if !socket.flags.has(Flags::READABLE) {
            return Ok(0);
        }
        let messages = max.div_ceil(ends.expected).clamp(1, BATCH);
        while empty.len() < messages {
            let Some(frame) = frames.alloc() else { break };
            empty.push(frame);
        }
        let room = empty.len().min(messages);
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
        let mut came = split::Came { into, waiting: &mut ends.waiting, room: max, kept: 0, cut: 0 };
        let (mut most, mut last, mut bytes) = (1, ends.hash, 0);
        for (i, frame) in empty.drain(..n).enumerate() {
            let Some(received) = batch.received(i, frame.len()) else { break };
            if let Some(lost) = received.lost {
                self.stats.datagrams_overflown += u64::from(lost.wrapping_sub(ends.lost));
                ends.lost = lost;
            }
            let ours = SocketAddr::new(received.destination.unwrap_or(ends.local.ip()), ends.local.port());
            let ends = (Endpoint::from(received.source), Endpoint::from(ours));
            let hash = stack.udp_hash(ends.1, ends.0);
            let rest = batch.spilled(i, received.spilled);
            last = hash;
            bytes += (frame.len() + rest.len()) as u64;
            let pieces = came.take(frames, frame, rest, &received, ends, hash);
            if pieces > 1 {
                self.stats.merged_received += 1;
                most = most.max(pieces);
            }
        }
        let (kept, cut) = (came.kept, came.cut);
        ends.expected = most.min(SEGMENTS);
        ends.hash = last;
        ends.received += kept as u64;
        ends.received_bytes += bytes;
        self.stats.datagrams_received += kept as u64;
        self.stats.datagrams_cut += cut as u64;
        if self.cpu.is_some() && self.stats.datagram_reads.is_multiple_of(LOOK_EVERY) {
            judge(self.cpu, &self.ports.steering, &mut self.stats, socket.fd(), kept as u64);
        }
        Ok(kept.min(max))
    }

    /// Has the kernel say when datagrams were received, or no more.
    pub(crate) fn udp_timestamps(&mut self, id: SocketId, on: bool) -> Result<(), SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        options::set(socket.fd(), Number::TIMESTAMPS, i32::from(on)).map_err(|e| errors::other(&e))
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

fn link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Sets what a UDP socket is better off with. None of it is necessary, and kernels that lack some do without.
fn equip(fd: BorrowedFd<'_>, v4: bool, stats: &mut KernelStats) {
    let refused = options::set(fd, Number::MERGE, 1).is_err();
    stats.merging_refused += u64::from(refused);
    let _ = options::set(fd, Number::RECEIVE_BUFFER, RECEIVE_BUFFER);
    let _ = options::set(fd, Number::TELL_LOST, 1);
    let _ = options::set(fd, Number::TELL_TOS, 1);
    if !v4 {
        let _ = options::set(fd, Number::TELL_TRAFFIC_CLASS, 1);
    }
}
