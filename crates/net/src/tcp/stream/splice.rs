//! Bytes from one connection to another through a pipe: for both ends on kernel sockets.

use flowlane_sys::kernel::pipe::Pipe;

use super::TcpStream;
use crate::error::SocketError;
use crate::tcp::Id;

const NO_PIPE: SocketError = SocketError::Unsupported("pass bytes through a pipe");

impl TcpStream {
    /// Whether it is the kernel's.
    pub(crate) fn is_of_kernel(&self) -> bool {
        matches!(self.id, Id::Kernel(_))
    }

    /// Whether the last byte that was read is known to be the stream's last; of kernel sockets only.
    pub(crate) fn is_at_end(&self) -> bool {
        let Id::Kernel(id) = self.id else { return false };
        self.lane.with(|slot, _, _| slot.kernel.as_ref().is_some_and(|k| k.is_at_end(id))).unwrap_or(false)
    }

    /// What the peer of a connection that was accepted a moment ago has sent already, if anything. On kernel sockets, before an event
    /// tells of it, a system call finds out.
    pub(crate) fn try_read_early(&self, into: &mut [u8]) -> Result<Option<usize>, SocketError> {
        self.expect_data()?;
        self.try_read(into)
    }

    /// As [`TcpStream::try_write`], for the last bytes of a stream. The end must follow at once, by [`shutdown`](TcpStream::shutdown) or by
    /// dropping the stream: kernel sockets hold the bytes back for it (`MSG_MORE`), so that both go in one segment.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn try_write_before_end(&self, bytes: &[u8]) -> Result<Option<usize>, SocketError> {
        let Id::Kernel(id) = self.id else { return self.try_write(bytes) };
        self.lane.with(|slot, _, _| slot.sockets()?.send_before_end(id, bytes))?
    }

    /// An empty pipe of the lane; `None` if none can be had.
    pub(crate) fn take_pipe(&self) -> Option<Pipe> {
        self.lane.with(|slot, _, _| slot.kernel.as_mut()?.take_pipe()).ok().flatten()
    }

    /// Gives an empty pipe back to the lane.
    pub(crate) fn give_pipe(&self, pipe: Pipe) {
        let _ = self.lane.with(|slot, _, _| {
            if let Some(kernel) = &mut slot.kernel {
                kernel.give_pipe(pipe);
            }
        });
    }

    /// Moves what was received into an empty pipe; `None` if nothing is there, 0 at the end of the stream.
    pub(crate) fn try_fill(&self, pipe: &Pipe) -> Result<Option<usize>, SocketError> {
        let Id::Kernel(id) = self.id else { return Err(NO_PIPE) };
        self.lane.with(|slot, _, _| slot.sockets()?.fill(id, pipe))?
    }

    /// Moves at most `most` bytes out of a pipe to the peer; `None` if there is no room.
    pub(crate) fn try_drain(&self, pipe: &Pipe, most: usize) -> Result<Option<usize>, SocketError> {
        let Id::Kernel(id) = self.id else { return Err(NO_PIPE) };
        self.lane.with(|slot, _, _| slot.sockets()?.drain(id, pipe, most))?
    }
}
