//! Sending files: by the kernel alone where the socket is the kernel's, else in blocks that are read once and sent from where they are.

use std::fs::File;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, ready};

use flowlane_stack::tcp::Interest;
use flowlane_sys::block::OwnedBytes;
use rustix::io::Errno;

use super::TcpStream;
use super::write::sent;
use crate::context::budget;
use crate::error::SocketError;
use crate::tcp::Id;

/// Bytes of a file that the kernel is asked to send by one call: then it is others' turn.
const CALL: usize = 1 << 20;
/// Bytes of a file that are read at once.
const BLOCK: usize = 64 << 10;

impl TcpStream {
    /// Whether this is a socket of the kernel, and none of our stack.
    #[must_use]
    pub fn is_kernel_socket(&self) -> bool {
        matches!(self.id, Id::Kernel(_))
    }

    /// Sends of the `len` bytes of a file from `at` on as many as there is room for; 0 if the file ends there. On kernel sockets by
    /// `sendfile(2)`; on our stack a block is read when there is room, and segments refer to it. A file that is not in the page cache
    /// makes the lane wait for the disk.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`]; [`SocketError::Kernel`] if the file cannot be read.
    pub fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        len: u64,
    ) -> Poll<Result<usize, SocketError>> {
        ready!(budget::poll(cx));
        let most = |bytes: usize| usize::try_from(len).map_or(bytes, |len| len.min(bytes));
        let taken = self.lane.with(|slot, now, frames| match self.id {
            Id::Kernel(id) => slot.sockets()?.send_file(id, file.as_fd(), at, most(CALL)),
            Id::Stack(id) => {
                let ready = slot.lane.tcp().readiness(id)?;
                if !ready.writable && ready.failure.is_none() {
                    return Ok(None);
                }
                let mut block = vec![0; most(BLOCK)];
                let unread = |e: std::io::Error| e.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                let n = file.read_at(&mut block, at).map_err(|e| SocketError::Kernel(unread(e)))?;
                block.truncate(n);
                // What does not fit is read again when there is room; nearly always all of it does.
                sent(
                    slot.lane
                        .with_tcp(now, frames, |tcp, cx| tcp.send_owned(cx, id, &mut OwnedBytes::new(block))),
                )
            }
        })??;
        if let Some(n) = taken {
            budget::spend(n);
            return Poll::Ready(Ok(n));
        }
        self.wake_on(Interest::Write, cx)?;
        Poll::Pending
    }

    /// Sends `len` bytes of a file from `at` on; how many there were.
    ///
    /// # Errors
    /// As [`TcpStream::poll_send_file`].
    pub async fn send_file(&self, file: &File, at: u64, len: u64) -> Result<u64, SocketError> {
        let mut done = 0;
        while done < len {
            let n = poll_fn(|cx| self.poll_send_file(cx, file, at + done, len - done)).await?;
            if n == 0 {
                break;
            }
            done += n as u64;
        }
        Ok(done)
    }
}
