//! Reading and writing.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use flowlane_c::packetdrill::{
    Address, Answer, ControlMessage, Errno, Received, close_place, open_pipe_places,
};
use flowlane_stack::SendError as IpSendError;
use flowlane_stack::address::Endpoint;
use flowlane_stack::tcp::{ConnId, RecvError, SendError, State};
use flowlane_stack::udp::{Bind, UdpHandle};

use crate::calls::errno_of;
use crate::descriptor::{Descriptor, Pipe, Role, Socket, plain};
use crate::queue::Bounds;
use crate::world::World;

/// Bytes a pipe holds.
const PIPE: usize = 64 << 10;
/// Most bytes read or written in one step.
const PIECE: usize = 256 << 10;
/// Control message and option of `TCP_INQ` (`linux/tcp.h`).
pub(crate) const TCP_INQ: i32 = 36;

impl World {
    /// Reads what there is; `None`: nothing yet.
    pub(crate) fn receive(
        &mut self,
        fd: i32,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Option<Answer<Received>> {
        if let Some(Descriptor::PipeRead(pipe)) = self.descriptors.get(&fd) {
            return read_pipe(&pipe.clone(), into).map(|n| Ok(Received { len: n, ..Received::default() }));
        }
        let socket = match self.socket_mut(fd) {
            Ok(socket) => socket,
            Err(errno) => return Some(Err(errno)),
        };
        if flags & libc::MSG_ERRQUEUE != 0 {
            let v6 = socket.v6;
            return Some(socket.queue.errors.take(v6).ok_or(Errno(libc::EAGAIN)));
        }
        let (role, read_shut, inq) = (socket.role, socket.read_shut, socket.options.inq);
        match role {
            Role::Connection(id) => match self.receive_stream(id, into, flags)? {
                Err(Errno(libc::EAGAIN)) if read_shut => Some(Ok(Received::default())),
                Err(Errno(libc::EAGAIN)) => None,
                Err(errno) => Some(Err(errno)),
                Ok(len) => {
                    if flags & libc::MSG_PEEK == 0
                        && let Ok(socket) = self.socket_mut(fd)
                    {
                        socket.consumed += len as u64;
                    }
                    let (lane, ..) = self.lane();
                    let left = lane.tcp().info(id).map_or(0, |info| info.readable);
                    // As in Linux, the end of the stream counts as a byte that is left.
                    let ended = lane.tcp().readiness(id).is_ok_and(|ready| ready.read_closed);
                    let left = left.max(u32::from(ended));
                    let told = ControlMessage {
                        level: libc::SOL_TCP,
                        kind: TCP_INQ,
                        data: (left as i32).to_ne_bytes().to_vec(),
                    };
                    let control = if inq { vec![told] } else { Vec::new() };
                    Some(Ok(Received { len, control, ..Received::default() }))
                }
            },
            Role::Datagrams(handle) => self.receive_datagram(fd, handle, into, flags),
            Role::Idle if self.socket_mut(fd).is_ok_and(|socket| socket.deferred.is_some()) => None,
            _ => Some(Err(Errno(libc::ENOTCONN))),
        }
    }

    fn receive_stream(
        &mut self,
        id: ConnId,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Option<Answer<usize>> {
        let want: usize = into.iter().map(|piece| piece.len()).sum();
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        let mut bytes = vec![0; want.min(PIECE)];
        let mut total = 0;
        loop {
            let room = &mut bytes[total..];
            let result = if flags & libc::MSG_PEEK != 0 {
                lane.tcp_mut().peek(id, room)
            } else {
                lane.with_tcp(now, pool, |tcp, cx| tcp.recv(cx, id, room))
            };
            match result {
                Ok(n) => {
                    total += n;
                    let again = n > 0 && total < bytes.len() && flags & libc::MSG_PEEK == 0;
                    if !again {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(RecvError::WouldBlock) => return Some(Err(Errno(libc::EAGAIN))),
                Err(RecvError::Failed(failure)) => {
                    let _ = lane.tcp_mut().take_failure(id);
                    return Some(Err(errno_of(failure)));
                }
                Err(_) => return Some(Err(Errno(libc::ENOTCONN))),
            }
        }
        if flags & libc::MSG_TRUNC == 0 {
            scatter(&bytes[..total], into);
        }
        Some(Ok(total))
    }

    fn receive_datagram(
        &mut self,
        fd: i32,
        handle: UdpHandle,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Option<Answer<Received>> {
        let (lane, ..) = self.lane();
        if lane.udp_take_error(handle).is_some() {
            return Some(Err(Errno(libc::ECONNREFUSED)));
        }
        let datagram = lane.udp_receive(handle)?;
        let bytes: Vec<u8> = datagram.payload().to_vec();
        let copied = scatter(&bytes, into);
        let cut = copied < bytes.len();
        let source = SocketAddr::from(datagram.source);
        let socket = self.socket_mut(fd).ok()?;
        Some(Ok(Received {
            len: if flags & libc::MSG_TRUNC != 0 { bytes.len() } else { copied },
            source: Some(socket.shown(source)),
            flags: if cut { libc::MSG_TRUNC } else { 0 },
            control: Vec::new(),
        }))
    }

    /// Writes as much of `bytes` as goes; `None`: nothing goes now.
    pub(crate) fn send(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        destination: Option<Address>,
    ) -> Option<Answer<usize>> {
        if let Some(Descriptor::PipeWrite(pipe)) = self.descriptors.get(&fd) {
            return write_pipe(&pipe.clone(), bytes).map(Ok);
        }
        let role = match self.socket_mut(fd) {
            Ok(socket) => socket.role,
            Err(errno) => return Some(Err(errno)),
        };
        match role {
            Role::Connection(id) => {
                let sent = self.send_piece(fd, id, bytes, flags);
                if sent.is_none()
                    && let Ok(socket) = self.socket_mut(fd)
                {
                    socket.starved += 1;
                    socket.queue.want();
                }
                sent
            }
            Role::Datagrams(handle) => Some(self.send_datagram(handle, bytes, destination)),
            Role::Idle if self.socket_mut(fd).is_ok_and(|socket| socket.deferred.is_some()) => None,
            Role::Idle => Some(self.send_unbound(fd, bytes, destination)),
            Role::Listener(_) => Some(Err(Errno(libc::EPIPE))),
        }
    }

    /// Writes what fits into one of the kernel's buffers.
    fn send_piece(&mut self, fd: i32, id: ConnId, bytes: &[u8], flags: i32) -> Option<Answer<usize>> {
        let Ok(info) = self.lane().0.tcp().info(id) else { return self.send_stream(fd, id, bytes, flags) };
        let open = matches!(info.state, State::Established | State::CloseWait | State::SynReceived);
        if !open || self.socket_mut(fd).is_ok_and(|socket| socket.in_handshake(info.state)) {
            return self.send_stream(fd, id, bytes, flags);
        }
        self.follow(fd);
        let bounds = self.bounds(fd);
        let socket = self.socket_mut(fd).ok()?;
        let room = socket.queue.room(&info, &bounds).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return None;
        }
        let last = room == bytes.len();
        // That a write is not over yet is the kernel's business, not the application's.
        let sent =
            self.send_stream(fd, id, &bytes[..room], if last { flags } else { flags & !libc::MSG_EOR });
        if let Some(Ok(n)) = &sent
            && let Ok(socket) = self.socket_mut(fd)
        {
            socket.queue.put(*n, &info);
            if last && *n == room && flags & libc::MSG_EOR != 0 {
                socket.queue.close_piece();
            }
        }
        sent
    }

    /// What bounds the send side of a socket now.
    pub(crate) fn bounds(&mut self, fd: i32) -> Bounds {
        let wmem = (self.settings.sndbuf, self.settings.sndbuf_max);
        let default = self.settings.notsent_lowat;
        let options = self.socket_mut(fd).ok().map(|socket| &socket.options);
        Bounds {
            fixed: options.and_then(|o| o.sndbuf),
            wmem,
            lowat: options.and_then(|o| o.notsent_lowat).filter(|n| *n > 0).unwrap_or(default),
        }
    }

    /// Brings what the kernel would know of a socket's send side up to date.
    pub(crate) fn follow(&mut self, fd: i32) {
        let Ok(Socket { role: Role::Connection(id), .. }) = self.socket_mut(fd) else { return };
        let id = *id;
        let bounds = self.bounds(fd);
        let (lane, now, _) = self.lane();
        let Ok(info) = lane.tcp().info(id) else { return };
        if let Ok(socket) = self.socket_mut(fd) {
            if socket.in_handshake(info.state) {
                return;
            }
            if info.state != State::Closed {
                socket.half_closed = info.state == State::CloseWait;
            }
            let consumed = socket.consumed;
            socket.queue.follow(&info, &bounds, consumed, now);
        }
    }

    /// A write is over: what is to be told of it later.
    pub(crate) fn written(&mut self, fd: i32, flags: i32) {
        if let Ok(socket) = self.socket_mut(fd) {
            let zerocopy = flags & libc::MSG_ZEROCOPY != 0 && socket.options.zerocopy;
            let stamp = socket.options.stamp;
            socket.queue.written(zerocopy, stamp);
        }
    }

    fn send_stream(&mut self, fd: i32, id: ConnId, bytes: &[u8], flags: i32) -> Option<Answer<usize>> {
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        let piece = &bytes[..bytes.len().min(PIECE)];
        let more = flags & libc::MSG_MORE != 0 || piece.len() < bytes.len();
        let result = if more {
            lane.with_tcp(now, pool, |tcp, cx| tcp.send_with(cx, id, piece, true))
        } else {
            lane.with_tcp(now, pool, |tcp, cx| tcp.send(cx, id, piece))
        };
        match result {
            Ok(n) => {
                if n == bytes.len() && flags & libc::MSG_EOR != 0 {
                    let _ = lane.tcp_mut().end_record(id);
                }
                Some(Ok(n))
            }
            Err(SendError::WouldBlock) => None,
            Err(SendError::Failed(failure)) => {
                let _ = lane.tcp_mut().take_failure(id);
                Some(Err(self.errno_of(fd, failure)))
            }
            Err(_) => Some(Err(Errno(libc::EPIPE))),
        }
    }

    /// The first thing sent from a datagram socket binds it.
    fn send_unbound(&mut self, fd: i32, bytes: &[u8], destination: Option<Address>) -> Answer<usize> {
        if self.socket_mut(fd)?.stream {
            return Err(Errno(libc::EPIPE));
        }
        if destination.is_none() {
            return Err(Errno(libc::EDESTADDRREQ));
        }
        let handle = self.lane().0.udp_bind(Bind::default()).map_err(|_| Errno(libc::EAGAIN))?;
        self.socket_mut(fd)?.role = Role::Datagrams(handle);
        self.send_datagram(handle, bytes, destination)
    }

    fn send_datagram(
        &mut self,
        handle: UdpHandle,
        bytes: &[u8],
        destination: Option<Address>,
    ) -> Answer<usize> {
        let to = match destination {
            None => None,
            Some(Address::Inet(a)) => {
                let ip = plain(a.ip()).ok_or(Errno(libc::EINVAL))?;
                Some(Endpoint::new(ip, a.port()))
            }
            Some(Address::Unspecified) => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        if lane.udp_take_error(handle).is_some() {
            return Err(Errno(libc::ECONNREFUSED));
        }
        lane.udp_send(now, pool, handle, bytes, None, to).map_err(|e| {
            Errno(match e {
                IpSendError::NoDestination => libc::EDESTADDRREQ,
                IpSendError::TooLong | IpSendError::TooBig(_) => libc::EMSGSIZE,
                IpSendError::NoRoute => libc::ENETUNREACH,
                IpSendError::NoSource => libc::EADDRNOTAVAIL,
                _ => libc::ENOBUFS,
            })
        })?;
        Ok(bytes.len())
    }

    /// Whether calls on this descriptor do not wait, and how long those that do wait at most.
    pub(crate) fn patience(&mut self, fd: i32, writing: bool) -> (bool, Option<std::time::Duration>) {
        match self.descriptors.get(&fd) {
            Some(Descriptor::Socket(socket)) => {
                let options = &socket.options;
                let limit = if writing { options.send_timeout } else { options.receive_timeout };
                (socket.nonblocking, limit)
            }
            _ => (false, None),
        }
    }

    /// `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD`, `SIOCATMARK`.
    pub(crate) fn queued(&mut self, fd: i32, request: u64) -> Answer<i32> {
        if let Some(Descriptor::PipeRead(pipe) | Descriptor::PipeWrite(pipe)) = self.descriptors.get(&fd) {
            return Ok(pipe.lock().unwrap_or_else(PoisonError::into_inner).len() as i32);
        }
        let role = self.socket_mut(fd)?.role;
        const SIOCOUTQNSD: u64 = 0x894b;
        const SIOCATMARK: u64 = 0x8905;
        match role {
            // Linux's mark is before the last urgent byte, not behind it.
            Role::Connection(id) if request == SIOCATMARK => {
                let mark = self.lane().0.tcp().urgent_mark(id).map_err(|_| Errno(libc::EINVAL))?;
                Ok(i32::from(mark == Some(1)))
            }
            Role::Connection(id) => {
                let info = self.lane().0.tcp().info(id).map_err(|_| Errno(libc::EINVAL))?;
                let handshake = self.socket_mut(fd)?.in_handshake(info.state);
                let fin_unacked = matches!(info.state, State::FinWait1 | State::Closing | State::LastAck);
                match request {
                    // Linux counts our unacknowledged SYN and FIN, and a byte for the peer's FIN as none.
                    r if r == libc::FIONREAD as u64 => Ok(if handshake { 0 } else { info.readable as i32 }),
                    r if r == libc::TIOCOUTQ as u64 => {
                        Ok(if handshake { 0 } else { info.unacknowledged as i32 + i32::from(fin_unacked) })
                    }
                    SIOCOUTQNSD => Ok(info.unsent as i32),
                    _ => Err(Errno(libc::ENOTTY)),
                }
            }
            Role::Listener(_) => Err(Errno(libc::EINVAL)),
            _ if request == libc::FIONREAD as u64 || request == libc::TIOCOUTQ as u64 => Ok(0),
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    pub(crate) fn pipe(&mut self) -> Answer<[i32; 2]> {
        let [read, write] = open_pipe_places()?;
        let pipe: Pipe = Arc::new(Mutex::new(VecDeque::new()));
        for (fd, end) in [(read, Descriptor::PipeRead(pipe.clone())), (write, Descriptor::PipeWrite(pipe))] {
            if self.descriptors.insert(fd, end).is_some() {
                close_place(fd);
                return Err(Errno(libc::EMFILE));
            }
        }
        Ok([read, write])
    }

    /// Moves bytes between a pipe and a socket.
    pub(crate) fn splice(&mut self, from: i32, to: i32, len: usize, flags: u32) -> Option<Answer<usize>> {
        let pipes = [from, to].map(|fd| {
            matches!(self.descriptors.get(&fd), Some(Descriptor::PipeRead(_) | Descriptor::PipeWrite(_)))
        });
        if pipes == [false, false] {
            return Some(Err(Errno(libc::EINVAL)));
        }
        let room = match self.descriptors.get(&to) {
            Some(Descriptor::PipeWrite(pipe)) => {
                PIPE - pipe.lock().unwrap_or_else(PoisonError::into_inner).len()
            }
            _ => PIECE,
        };
        let mut bytes = vec![0; len.min(room)];
        let got = match self.receive(from, &mut [IoSliceMut::new(&mut bytes)], 0)? {
            Ok(got) => got.len,
            Err(errno) => return Some(Err(errno)),
        };
        let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
        if got == 0 {
            return Some(Ok(0));
        }
        self.send(to, &bytes[..got], more, None)
    }
}

/// Copies bytes to the buffers, as far as they go.
fn scatter(mut bytes: &[u8], into: &mut [IoSliceMut<'_>]) -> usize {
    let before = bytes.len();
    for piece in into {
        let n = piece.len().min(bytes.len());
        piece[..n].copy_from_slice(&bytes[..n]);
        bytes = &bytes[n..];
    }
    before - bytes.len()
}

fn read_pipe(pipe: &Pipe, into: &mut [IoSliceMut<'_>]) -> Option<usize> {
    let mut queue = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    let want: usize = into.iter().map(|piece| piece.len()).sum();
    let n = want.min(queue.len());
    let bytes: Vec<u8> = queue.drain(..n).collect();
    (n > 0).then(|| scatter(&bytes, into))
}

fn write_pipe(pipe: &Pipe, bytes: &[u8]) -> Option<usize> {
    let mut queue = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    let n = bytes.len().min(PIPE.saturating_sub(queue.len()));
    queue.extend(&bytes[..n]);
    (n > 0).then_some(n)
}
