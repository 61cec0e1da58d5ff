//! Connections: reading, writing, closing.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use flowlane_stack::tcp::{Failure, Interest};
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket;

use super::slab::{Flags, Socket, SocketId};
use super::{KernelLane, errors};
use crate::error::SocketError;

impl KernelLane {
    /// Reads what is there; `None` if nothing is, 0 at the end of the stream.
    #[inline]
    pub(crate) fn recv(&mut self, id: SocketId, into: &mut [u8]) -> Result<Option<usize>, SocketError> {
        if self.ring.is_some()
            && let Some(done) = self.recv_by_ring(id, into)
        {
            return done;
        }
        self.read(id, into.len(), |socket| socket::recv(socket.fd(), into))
    }

    /// Whether the last byte of the stream has been read: then the next read finds the end, without a system call.
    pub(crate) fn is_at_end(&self, id: SocketId) -> bool {
        self.sockets.get(id).is_some_and(|socket| socket.flags.has(Flags::AT_END))
    }

    /// A read is worth trying before the first event has said so: a connection that was accepted a moment ago may have brought something.
    pub(crate) fn expect_data(&mut self, id: SocketId) {
        self.read_at_once(id);
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.flags.set(Flags::READABLE);
        }
    }

    /// Reads by `call`. Fewer than `len` bytes are all that is there.
    #[inline]
    pub(super) fn read(
        &mut self,
        id: SocketId,
        len: usize,
        call: impl FnOnce(&Socket) -> io::Result<usize>,
    ) -> Result<Option<usize>, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if !socket.flags.has(Flags::READABLE) {
            return Ok(None);
        }
        if let Some(failure) = socket.failure {
            // A write may have failed: what arrived before is read first, as on our own stack.
            return match if len > 0 { call(socket) } else { Ok(0) } {
                Ok(n) if n > 0 => {
                    self.stats.reads += 1;
                    self.stats.read_bytes += n as u64;
                    Ok(Some(n))
                }
                _ => Err(failure.into()),
            };
        }
        if len == 0 || socket.flags.has(Flags::AT_END) {
            return Ok(Some(0));
        }
        match call(socket) {
            Ok(n) => {
                // Guard: `n < len && socket.flags.has(Flags::HAS_ALL)` as `false` fails
                // runtime/relay::short::the_end_comes
                if n < len && socket.flags.has(Flags::HAS_ALL) {
                    socket.flags.set(Flags::AT_END);
                }
                // More is announced by an event. After the end there are no more events.
                if n < len && !socket.flags.has(Flags::ENDED) && n > 0 {
                    socket.flags.clear(Flags::READABLE);
                }
                self.stats.reads += 1;
                self.stats.read_bytes += n as u64;
                Ok(Some(n))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.flags.clear(Flags::READABLE);
                self.stats.reads_in_vain += 1;
                Ok(None)
            }
            Err(e) => self.failed(id, &e),
        }
    }

    /// Writes what there is room for; `None` if there is none.
    #[inline]
    pub(crate) fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<Option<usize>, SocketError> {
        self.write(id, bytes.len(), |socket| socket::send(socket.fd(), bytes))
    }

    /// As [`KernelLane::send`], for what comes before the end of the stream: the end goes with it.
    #[inline]
    pub(crate) fn send_before_end(
        &mut self,
        id: SocketId,
        bytes: &[u8],
    ) -> Result<Option<usize>, SocketError> {
        self.write(id, bytes.len(), |socket| socket::send_before_more(socket.fd(), bytes))
    }

    /// As [`KernelLane::send`], for several slices by one system call.
    pub(crate) fn send_slices(
        &mut self,
        id: SocketId,
        slices: &[IoSlice<'_>],
    ) -> Result<Option<usize>, SocketError> {
        let len = slices.iter().take(1024).map(|s| s.len()).sum();
        self.write(id, len, |socket| socket::send_slices(socket.fd(), slices))
    }

    /// Writes what there is room for of a file; `None` if there is none, 0 at the end of the file.
    pub(crate) fn send_file(
        &mut self,
        id: SocketId,
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> Result<Option<usize>, SocketError> {
        // A call that takes less does not say why, so the next one finds out: one byte is all that this one needs to take.
        let sent = self.write(id, len.min(1), |socket| socket::send_file(socket.fd(), file, at, len));
        self.stats.file_writes += u64::from(matches!(sent, Ok(Some(1..))));
        sent
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        id: SocketId,
        len: usize,
        call: impl FnOnce(&Socket) -> io::Result<usize>,
    ) -> Result<Option<usize>, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if socket.flags.has(Flags::WRITE_SHUT | Flags::CONNECTING) {
            let shut = socket.flags.has(Flags::WRITE_SHUT);
            return if shut { Err(SocketError::ShutDown) } else { Ok(None) };
        }
        if let Some(failure) = socket.failure {
            return Err(failure.into());
        }
        if len == 0 {
            return Ok(Some(0));
        }
        if !socket.flags.has(Flags::WRITABLE) {
            return Ok(None);
        }
        match call(socket) {
            Ok(n) => {
                let full = n < len && !socket.flags.has(Flags::OVER);
                if full {
                    socket.flags.clear(Flags::WRITABLE);
                }
                self.stats.writes += 1;
                self.stats.written_bytes += n as u64;
                if full {
                    self.watch(id);
                }
                Ok(Some(n))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.flags.clear(Flags::WRITABLE);
                self.stats.writes_in_vain += 1;
                self.watch(id);
                Ok(None)
            }
            Err(e) => self.failed(id, &e),
        }
    }

    /// A connection has failed: the kernel says it once, so it is noted here.
    #[cold]
    pub(super) fn failed<T>(&mut self, id: SocketId, e: &io::Error) -> Result<T, SocketError> {
        let error = errors::connection(e);
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        match error {
            SocketError::Connection(failure) => {
                socket.failure = Some(failure);
                socket.flags.set(Flags::READABLE | Flags::WRITABLE | Flags::ENDED);
                self.stats.ended_badly += 1;
            }
            _ => self.stats.errors += 1,
        }
        Err(error)
    }

    /// Wakes `waker` once when what is waited for may have come; at once if it has.
    #[inline]
    pub(crate) fn wake_on(&mut self, id: SocketId, what: Interest, waker: &Waker) -> Result<(), SocketError> {
        let there = match what {
            Interest::Read => {
                self.expect(id);
                Flags::READABLE
            }
            Interest::Write => Flags::WRITABLE,
            _ => {
                self.watch(id);
                Flags::OVER
            }
        };
        // Guard: `!self.sockets.get(id).ok_or(SocketError::Closed)?.flags.has(there)` as `true` fails
        // kernel::stream::tests::a_connection_is_watched_once_somebody_waits
        if !self.sockets.get(id).ok_or(SocketError::Closed)?.flags.has(there) {
            self.watch_accepted(id)?;
        }
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        match what {
            Interest::Read => socket.wait_to_read(waker),
            Interest::Write => socket.wait_to_write(waker),
            _ if socket.flags.has(Flags::OVER) => waker.wake_by_ref(),
            _ => drop(self.closed.insert(id.slot, waker.clone())),
        }
        Ok(())
    }

    /// Whether reading is worth trying.
    pub(crate) fn is_readable(&self, id: SocketId) -> Result<bool, SocketError> {
        Ok(self.sockets.get(id).ok_or(SocketError::Closed)?.flags.has(Flags::READABLE))
    }

    /// Whether a write may find room.
    pub(crate) fn is_writable(&self, id: SocketId) -> Result<bool, SocketError> {
        Ok(self.sockets.get(id).ok_or(SocketError::Closed)?.flags.has(Flags::WRITABLE))
    }

    /// Whether the connection is over, both ways, and how, if badly.
    pub(crate) fn is_over(&mut self, id: SocketId) -> Result<bool, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if let Some(failure) = socket.failure {
            return Err(failure.into());
        }
        if socket.flags.has(Flags::FAILED) {
            waiting_error(socket)?;
        }
        Ok(socket.flags.has(Flags::OVER))
    }

    /// Ends one direction or both.
    pub(crate) fn shutdown(&mut self, id: SocketId, how: Shutdown) -> Result<(), SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            if socket.flags.has(Flags::WRITE_SHUT) && how == Shutdown::Write {
                return Ok(());
            }
            socket.flags.set(Flags::WRITE_SHUT | Flags::WRITABLE);
            socket.wake(Flags::WRITABLE);
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            socket.flags.set(Flags::READABLE | Flags::ENDED);
            socket.wake(Flags::READABLE);
        }
        match socket::shutdown(socket.fd(), how) {
            // It is over already.
            Err(e) if e.kind() == ErrorKind::NotConnected => Ok(()),
            done => done.map_err(|e| errors::other(&e)),
        }
    }

    /// Resets the connection.
    pub(crate) fn abort(&mut self, id: SocketId) -> Result<(), SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if socket.failure.is_none() {
            options::set_reset_on_close(socket.fd(), true).map_err(|e| errors::other(&e))?;
        }
        // Another task that waits finds that it is closed.
        socket.wake(Flags::READABLE | Flags::WRITABLE);
        self.close(id);
        Ok(())
    }
}

/// Takes the error that the kernel has for a socket, if any.
pub(super) fn waiting_error(socket: &mut Socket) -> Result<(), SocketError> {
    let number = options::get(socket.fd(), Number::ERROR).map_err(|e| errors::other(&e))?;
    if number == 0 {
        return Ok(());
    }
    let failure: Option<Failure> = errors::failure(number);
    socket.failure = failure;
    Err(failure.map_or(SocketError::Kernel(number), Into::into))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use flowlane_rss::{Key, Rss};
    use flowlane_sys::kernel::epoll::{Epoll, Events};

    use super::*;
    use crate::kernel::{Ports, Steer, Steering};
    use flowlane_stack::tcp::ListenOptions;

    const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

    /// A connection that is accepted is registered when a task first has to wait for it, and what has come before is told then: bytes, and the
    /// end of the stream. One that finds what it looks for is not registered.
    #[test]
    fn a_connection_is_watched_once_somebody_waits() {
        let epoll = Arc::new(Epoll::new().unwrap());
        let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
        let mut lane = KernelLane::new(epoll.clone(), 0, 0, Arc::new(Ports::new(steering, 0)));
        let mut events = Events::new(8);
        let listener = lane.listen(Some(Ipv4Addr::LOCALHOST.into()), 0, &ListenOptions::default()).unwrap();
        let mut peer = TcpStream::connect(lane.local_address(listener).unwrap()).unwrap();
        epoll.wait(&mut events, PATIENCE).unwrap();
        let waits = events.get(0).unwrap();
        lane.on_event(waits);
        let (id, _) = lane.accept(listener).unwrap().unwrap();
        let watched = |lane: &KernelLane| !lane.sockets.get(id).unwrap().is_unwatched();

        let mut room = [0; 8];
        assert_eq!(lane.recv(id, &mut room), Ok(None), "nobody expects anything");
        lane.expect_data(id);
        lane.wake_on(id, Interest::Read, Waker::noop()).unwrap();
        lane.wake_on(id, Interest::Write, Waker::noop()).unwrap();
        assert_eq!(lane.recv(id, &mut room), Ok(None));
        assert_eq!((lane.stats.reads_in_vain, lane.send(id, b"hello")), (1, Ok(Some(5))));
        assert!(!watched(&lane), "nobody had to wait");

        peer.write_all(b"early").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        lane.wake_on(id, Interest::Read, Waker::noop()).unwrap();
        assert!(watched(&lane));
        lane.wake_on(id, Interest::Read, Waker::noop()).unwrap();
        epoll.wait(&mut events, PATIENCE).unwrap();
        let told = events.get(0).unwrap();
        assert!(told.readable() && told.token as u32 == id.slot);
        lane.on_event(told);
        assert_eq!(lane.recv(id, &mut room), Ok(Some(5)));
        while !lane.is_at_end(id) && lane.recv(id, &mut room) != Ok(Some(0)) {
            epoll.wait(&mut events, PATIENCE).unwrap();
            lane.on_event(events.get(0).unwrap());
        }
        assert_eq!(lane.stats.errors, 0);
    }

    /// Whoever waits for room, or for the end, is told as well.
    #[test]
    fn room_and_the_end_are_told_of_a_connection_that_was_not_watched() {
        for what in [Interest::Write, Interest::Closed] {
            let epoll = Arc::new(Epoll::new().unwrap());
            let steering = Steering::new(Steer::None, Arc::new(Rss::new(Key::MICROSOFT, 1)), 0, &[], 1);
            let mut lane = KernelLane::new(epoll.clone(), 0, 0, Arc::new(Ports::new(steering, 0)));
            let mut events = Events::new(8);
            let listener =
                lane.listen(Some(Ipv4Addr::LOCALHOST.into()), 0, &ListenOptions::default()).unwrap();
            let peer = TcpStream::connect(lane.local_address(listener).unwrap()).unwrap();
            epoll.wait(&mut events, PATIENCE).unwrap();
            let waits = events.get(0).unwrap();
            lane.on_event(waits);
            let (id, _) = lane.accept(listener).unwrap().unwrap();
            let block = vec![0; 1 << 20];
            while what == Interest::Write && lane.send(id, &block).unwrap().is_some() {}
            lane.wake_on(id, what, Waker::noop()).unwrap();
            // Without a reset the end would wait for this side.
            options::set_reset_on_close(std::os::fd::AsFd::as_fd(&peer), true).unwrap();
            drop(peer);
            let awaited = if what == Interest::Write { Flags::WRITABLE } else { Flags::OVER };
            while !lane.sockets.get(id).unwrap().flags.has(awaited) {
                assert!(epoll.wait(&mut events, PATIENCE).is_ok() && !events.is_empty());
                (0..events.len()).for_each(|i| lane.on_event(events.get(i).unwrap()));
            }
        }
    }
}
