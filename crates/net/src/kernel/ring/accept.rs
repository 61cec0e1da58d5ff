//! Connections that the ring has accepted, and the end of a listener.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use flowlane_sys::kernel::socket::{self, errno};

use super::{KernelLane, State, UNACCEPTED, name, with};
use crate::kernel::slab::{Flags, SocketId};

impl KernelLane {
    /// The next connection that the ring has accepted. `None`: it is for a system call.
    pub(in crate::kernel) fn accepted_by_ring(
        &mut self,
        id: SocketId,
    ) -> Option<io::Result<(OwnedFd, SocketAddr)>> {
        let side = self.ring.as_mut()?;
        if let Some(fd) = side.accepted.get_mut(&id.slot).and_then(VecDeque::pop_front) {
            // One that is over already has no address any more.
            let peer = socket::peer_address(fd.as_fd());
            return Some(match peer {
                Ok(peer) => Ok((fd, peer)),
                Err(_) => Err(io::Error::from_raw_os_error(errno::ECONNABORTED)),
            });
        }
        match self.state(id.slot) {
            State::Standing | State::Ending => Some(Err(io::Error::from_raw_os_error(errno::EAGAIN))),
            _ => None,
        }
    }

    /// A listener has no more connections for now.
    pub(in crate::kernel) fn accept_again(&mut self, id: SocketId) {
        match self.state(id.slot) {
            State::Ended => self.stand(id),
            State::Starved => self.come_back(id),
            _ => {}
        }
    }

    /// There is no descriptor for a connection, without which the ring ends an accept at once.
    pub(in crate::kernel) fn accept_without(&mut self, id: SocketId) {
        if self.state(id.slot) == State::Ended {
            self.go_to_epoll(id, State::Starved);
        }
    }

    /// Connections that wait here to be accepted.
    pub(in crate::kernel) fn unaccepted(&self, slot: u32) -> usize {
        self.ring.as_ref().and_then(|side| side.accepted.get(&slot)).map_or(0, VecDeque::len)
    }

    pub(in crate::kernel) fn on_accepted(&mut self, name: u64, result: Result<OwnedFd, i32>, more: bool) {
        let Some(id) = self.named(name, more) else { return };
        let Some(side) = &mut self.ring else { return };
        let waiting = side.accepted.entry(id.slot).or_default();
        // Of errors an accept by a system call hears, too, if they are to be told.
        let unable = matches!(result, Err(errno::EINVAL | errno::ENOMEM));
        let came = result.map(|fd| waiting.push_back(fd)).is_ok();
        let waiting = waiting.len();
        if unable {
            self.go_to_epoll(id, State::Epoll);
        } else if !more {
            self.stats.ring_overflown += u64::from(came && self.state(id.slot) == State::Standing);
            self.set_state(id.slot, State::Ended);
        } else if waiting >= UNACCEPTED && self.state(id.slot) == State::Standing {
            self.end(id, true);
        }
        self.wake_reader(id, Flags::READABLE);
    }

    /// A listener that is in no slot any more stops listening, now: its descriptor is closed next.
    pub(in crate::kernel) fn stop_listening(&mut self, id: SocketId, fd: &OwnedFd) {
        let state = self.state(id.slot);
        let Some(side) = &mut self.ring else { return };
        side.accepted.remove(&id.slot);
        side.incoming.get_mut(id.slot as usize).map(std::mem::take);
        if matches!(state, State::Standing | State::Ending) {
            // The kernel keeps the socket until the accept has ended.
            let name = name(self.lane, id);
            with(|ring| ring.cancel_accept(name));
            self.settle();
            let _ = socket::shutdown(fd.as_fd(), Shutdown::Both);
        }
    }
}
