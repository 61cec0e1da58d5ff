//! A lane leaves the ring of its worker, and comes to another.

use std::io;

use flowlane_sys::kernel::socket::errno;

use super::{KernelLane, Piece, State};
use crate::kernel::slab::{Flags, SocketId};

impl KernelLane {
    /// Has the ring end everything for this lane; requests that have not ended.
    pub(in crate::kernel) fn end_all(&mut self) -> usize {
        let all: Vec<_> = self.sockets.iter().map(|(id, s)| (id, s.flags.has(Flags::LISTENER))).collect();
        for (id, listener) in all {
            if self.state(id.slot) == State::Standing {
                self.end(id, listener);
            }
        }
        self.standing()
    }

    /// Requests that have not ended.
    pub(in crate::kernel) fn standing(&self) -> usize {
        self.ring.as_ref().map_or(0, |side| side.standing)
    }

    /// Copies what is in buffers of the ring, for use elsewhere.
    pub(in crate::kernel) fn take_along(&mut self) {
        let Some(side) = &mut self.ring else { return };
        for incoming in &mut side.incoming {
            if incoming.pieces.is_empty() && !matches!(incoming.state, State::Standing | State::Ending) {
                continue;
            }
            let mut all = Vec::new();
            incoming.take(|bytes| {
                all.extend_from_slice(bytes);
                bytes.len()
            });
            if !all.is_empty() {
                incoming.pieces.push_back(Piece::Own(all, 0));
            }
            if matches!(incoming.state, State::Standing | State::Ending) {
                // It never ended: what it receives from now on is lost.
                incoming.state = State::Over(errno::ECONNABORTED);
            }
        }
    }

    /// A socket has come to another worker: it is registered with epoll as it was, and read by system calls first. `None`: it was never the ring's.
    pub(in crate::kernel) fn register_anew(&mut self, id: SocketId) -> Option<io::Result<()>> {
        let token = self.token(id);
        let incoming =
            self.incoming(id.slot).filter(|i| !matches!(i.state, State::Epoll | State::Starved))?;
        let (watched, fresh) = (incoming.watched, incoming.state == State::Fresh);
        if !fresh {
            self.wake_reader(id, Flags::READABLE);
        }
        let socket = self.sockets.get(id)?;
        Some(if watched { self.epoll.add_writable(socket.fd(), token) } else { Ok(()) })
    }
}
