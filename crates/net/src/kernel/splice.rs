//! Bytes from one connection to another through a pipe, so that they are not copied.
//!
//! A pipe is held only while bytes are in it. Empty ones wait in the lane for the next connection that needs one.

use std::io::ErrorKind;

use flowlane_sys::kernel::pipe::Pipe;

use super::KernelLane;
use super::slab::{Flags, SocketId};
use crate::error::SocketError;

/// Bytes that a pipe holds at most, of whole pages.
const SIZE: u32 = 1 << 18;
/// Empty pipes that a lane keeps; each is two descriptors.
const SPARE: usize = 32;

impl KernelLane {
    /// An empty pipe; `None` if none can be had.
    pub(crate) fn take_pipe(&mut self) -> Option<Pipe> {
        self.pipes.pop().or_else(|| Pipe::new(SIZE).ok())
    }

    /// Takes an empty pipe back.
    pub(crate) fn give_pipe(&mut self, pipe: Pipe) {
        if self.pipes.len() < SPARE {
            self.pipes.push(pipe);
        }
    }

    /// Moves what a connection has received into an empty pipe; `None` if nothing is there, 0 at the end of the stream.
    pub(crate) fn fill(&mut self, id: SocketId, pipe: &Pipe) -> Result<Option<usize>, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if !socket.flags.has(Flags::READABLE) {
            return Ok(None);
        }
        if let Some(failure) = socket.failure {
            return Err(failure.into());
        }
        match pipe.fill(socket.fd(), SIZE as usize) {
            // That fewer bytes came than were asked for says nothing: the pipe may have had no more places.
            Ok(n) => {
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

    /// Moves at most `most` bytes out of a pipe to the peer of a connection; `None` if there is no room.
    pub(crate) fn drain(
        &mut self,
        id: SocketId,
        pipe: &Pipe,
        most: usize,
    ) -> Result<Option<usize>, SocketError> {
        let socket = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        if socket.flags.has(Flags::WRITE_SHUT) {
            return Err(SocketError::ShutDown);
        }
        if let Some(failure) = socket.failure {
            return Err(failure.into());
        }
        if !socket.flags.has(Flags::WRITABLE) {
            return Ok(None);
        }
        match pipe.drain(socket.fd(), most) {
            Ok(n) => {
                self.stats.writes += 1;
                self.stats.written_bytes += n as u64;
                Ok(Some(n))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                socket.flags.clear(Flags::WRITABLE);
                self.stats.writes_in_vain += 1;
                Ok(None)
            }
            Err(e) => self.failed(id, &e),
        }
    }
}
