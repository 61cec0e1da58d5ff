//! Bytes from one connection to another through a pipe, so that they are not copied.
//!
//! A pipe is held only while bytes are in it. Empty ones wait in the lane for the next connection that needs one.

use std::os::fd::AsFd;

use flowlane_sys::kernel::pipe::Pipe;

use super::KernelLane;
use super::slab::SocketId;
use crate::error::SocketError;

/// Bytes that a pipe holds at most, of whole pages.
const SIZE: u32 = 1 << 18;
/// Empty pipes that a lane keeps; each is two descriptors.
const SPARE: usize = 32;

impl KernelLane {
    /// An empty pipe; `None` if none can be had.
    pub(crate) fn take_pipe(&mut self) -> Option<Pipe> {
        let reserve = &self.ports.reserve;
        self.pipes.pop().or_else(|| reserve.leaves(Pipe::new(SIZE).ok()?, self.epoll.as_fd()).ok())
    }

    /// Takes an empty pipe back.
    pub(crate) fn give_pipe(&mut self, pipe: Pipe) {
        if self.pipes.len() < SPARE {
            self.pipes.push(pipe);
        }
    }

    /// Moves what a connection has received into an empty pipe; `None` if nothing is there, 0 at the end of the stream.
    pub(crate) fn fill(&mut self, id: SocketId, pipe: &Pipe) -> Result<Option<usize>, SocketError> {
        if let Some(done) = self.fill_by_ring(id, pipe) {
            return done;
        }
        // That fewer bytes come than are asked for says nothing: the pipe may have no more places.
        self.read(id, 1, |socket| pipe.fill(socket.fd(), SIZE as usize))
    }

    /// Moves at most `most` bytes out of a pipe to the peer of a connection; `None` if there is no room.
    pub(crate) fn drain(
        &mut self,
        id: SocketId,
        pipe: &Pipe,
        most: usize,
    ) -> Result<Option<usize>, SocketError> {
        self.write(id, most.min(1), |socket| pipe.drain(socket.fd(), most))
    }
}
