//! Bytes that the ring has received, on their way to tasks or into pipes; the end of a connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_sys::kernel::options;
use flowlane_sys::kernel::pipe::Pipe;
use flowlane_sys::kernel::socket::{self, errno};

use super::{BUFFERS, HELD, KernelLane, Piece, State, name, with};
use crate::error::SocketError;
use crate::kernel::slab::{Flags, SocketId};

impl KernelLane {
    /// Reads what the ring has received. `None`: it is for a system call.
    #[inline]
    pub(in crate::kernel) fn recv_by_ring(
        &mut self,
        id: SocketId,
        into: &mut [u8],
    ) -> Option<Result<Option<usize>, SocketError>> {
        let socket = self.sockets.get_mut(id).filter(|s| !s.flags.has(Flags::CONNECTING))?;
        let incoming = self.ring.as_mut()?.incoming.get_mut(id.slot as usize)?;
        let failed = socket.failure.is_some() && incoming.pieces.is_empty();
        if incoming.state == State::Epoll || failed || into.is_empty() {
            return None;
        }
        if !incoming.pieces.is_empty() {
            let mut n = 0;
            incoming.take(|bytes| {
                let most = bytes.len().min(into.len() - n);
                into[n..n + most].copy_from_slice(&bytes[..most]);
                n += most;
                most
            });
            let empty = incoming.pieces.is_empty() && socket.failure.is_none();
            if empty && matches!(incoming.state, State::Standing | State::Ending) {
                socket.flags.clear(Flags::READABLE);
            }
            self.stats.reads += 1;
            self.stats.read_bytes += n as u64;
            return Some(Ok(Some(n)));
        }
        match incoming.state {
            State::Fresh => self.stand(id),
            State::Over(0) => return None,
            State::Over(error) => {
                incoming.state = State::Over(0);
                return Some(self.failed(id, &io::Error::from_raw_os_error(error)));
            }
            State::Ended => {
                let len = into.len();
                let done = self.read(id, len, |socket| socket::recv(socket.fd(), into));
                match done {
                    Ok(Some(0)) | Err(_) => self.set_state(id.slot, State::Over(0)),
                    Ok(Some(n)) if n == len => {}
                    _ => self.stand(id),
                }
                return Some(done);
            }
            State::Starved => {
                let done = self.read(id, into.len(), |socket| socket::recv(socket.fd(), into));
                let nothing_left = self.sockets.get(id).is_some_and(|s| !s.flags.has(Flags::READABLE));
                if nothing_left && with(|ring| ring.free_buffers()) >= Some(usize::from(BUFFERS / 4)) {
                    self.come_back(id);
                }
                return Some(done);
            }
            _ => socket.flags.clear(Flags::READABLE),
        }
        Some(Ok(None))
    }

    /// Somebody waits for bytes.
    pub(in crate::kernel) fn expect(&mut self, id: SocketId) {
        let connecting = self.sockets.get(id).is_some_and(|s| s.flags.has(Flags::CONNECTING));
        if self.state(id.slot) == State::Fresh && !connecting {
            self.stand(id);
        }
    }

    /// The first read is a system call; if that finds nothing, the ring receives.
    pub(in crate::kernel) fn read_at_once(&mut self, id: SocketId) {
        if self.state(id.slot) == State::Fresh {
            self.set_state(id.slot, State::Ended);
        }
    }

    /// Bytes that the ring has received and nobody has read.
    pub(in crate::kernel) fn unread(&self, slot: u32) -> usize {
        let side = self.ring.as_ref().and_then(|side| side.incoming.get(slot as usize));
        let pieces = side.into_iter().flat_map(|incoming| &incoming.pieces);
        let left = |piece: &Piece| match piece {
            Piece::Lent(buffer, at) => {
                with(|ring| ring.bytes(*buffer).len().saturating_sub(*at)).unwrap_or(0)
            }
            Piece::Own(bytes, at) => bytes.len().saturating_sub(*at),
        };
        pieces.map(left).sum()
    }

    /// Puts what the ring has received into a pipe, and has it receive no more. `None`: it is for a system call.
    pub(in crate::kernel) fn fill_by_ring(
        &mut self,
        id: SocketId,
        pipe: &Pipe,
    ) -> Option<Result<Option<usize>, SocketError>> {
        let socket = self.sockets.get_mut(id).filter(|s| s.failure.is_none())?;
        let incoming = self.ring.as_mut()?.incoming.get_mut(id.slot as usize)?;
        let mut n = 0;
        incoming.take(|bytes| {
            let put = pipe.put(bytes).unwrap_or(0);
            n += put;
            put
        });
        if n > 0 || !incoming.pieces.is_empty() {
            self.stats.reads += 1;
            self.stats.read_bytes += n as u64;
            return Some(Ok(Some(n)));
        }
        match incoming.state {
            State::Epoll | State::Over(0) => return None,
            State::Over(_) => return self.recv_by_ring(id, &mut [0]),
            State::Standing => {
                socket.flags.clear(Flags::READABLE);
                self.end(id, false);
            }
            State::Ending => socket.flags.clear(Flags::READABLE),
            State::Fresh | State::Ended => self.go_to_epoll(id, State::Epoll),
            State::Starved => {
                incoming.state = State::Epoll;
                return None;
            }
        }
        Some(Ok(None))
    }

    pub(in crate::kernel) fn on_received(&mut self, name: u64, result: Result<Option<u16>, i32>, more: bool) {
        let Some(id) = self.named(name, more) else {
            if let Ok(Some(buffer)) = result {
                with(|ring| ring.give_back(buffer));
            }
            return;
        };
        let Some(incoming) = self.incoming(id.slot) else { return };
        let mut now = Flags::READABLE;
        match result {
            Ok(Some(buffer)) => {
                incoming.pieces.push_back(Piece::Lent(buffer, 0));
                let (held, stands) = (incoming.pieces.len(), incoming.state == State::Standing);
                if !more {
                    incoming.state = State::Ended;
                    self.stats.ring_overflown += u64::from(stands);
                // Guard: `held >= HELD && stands` as `false` fails sockets/ring::who_is_not_read
                } else if held >= HELD && stands {
                    self.stats.ring_held_back += 1;
                    self.end(id, false);
                }
            }
            Ok(None) => {
                incoming.state = State::Over(0);
                now.set(Flags::ENDED);
            }
            Err(errno::ENOBUFS) => {
                incoming.state = State::Ended;
                self.stats.ring_starved += 1;
            }
            Err(errno::ECANCELED | errno::EINTR | errno::EAGAIN) => incoming.state = State::Ended,
            Err(errno::EINVAL | errno::ENOMEM) => return self.go_to_epoll(id, State::Epoll),
            Err(error) => {
                incoming.state = State::Over(error);
                now.set(Flags::ENDED | Flags::WRITABLE);
            }
        }
        self.wake_reader(id, now);
    }

    /// Closes a connection that is in no slot any more, behind what was asked about it.
    pub(in crate::kernel) fn close_stream(&mut self, id: SocketId, fd: OwnedFd) {
        if self.ring.is_none() {
            return drop(fd);
        }
        self.let_go(id, &fd);
        let mut fd = Some(fd);
        with(|ring| fd.take().map(|fd| ring.close(fd)));
    }

    /// Ends what was asked about a connection that is in no slot any more. Its descriptor must stay for now.
    pub(in crate::kernel) fn let_go(&mut self, id: SocketId, fd: &OwnedFd) {
        let Some(incoming) = self.incoming(id.slot) else { return };
        if !incoming.pieces.is_empty() {
            // As the kernel does with bytes that nobody has read.
            // Guard: no `let _ = options::set_reset_on_close(fd.as_fd(), true);` fails
            // sockets/ring::unread_bytes
            let _ = options::set_reset_on_close(fd.as_fd(), true);
            incoming.give_back_all();
        }
        if std::mem::take(&mut incoming.state) == State::Standing {
            let name = name(self.lane, id);
            with(|ring| ring.cancel_receive(name));
        }
    }
}
