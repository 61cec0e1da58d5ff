//! Sends without copies: which are worth it, what becomes of their completions, and connections that are closed before these have come.
//!
//! The kernel reads memory that it sends in place until the peer has acknowledged it. A connection that is closed before keeps its descriptor
//! here, under a name that nobody else has, until the last completion has come: then nothing reads the memory any more. A peer that
//! acknowledges nothing for [`PATIENCE`] is reset by the kernel, which ends that, too.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_sys::block::OwnedBytes;
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};
use flowlane_sys::kernel::zerocopy::{PIECES, ZeroCopy};

use super::slab::{Flags, SocketId};
use super::{KernelLane, stream};
use crate::error::SocketError;

/// Fewer bytes than that are copied: pinning pages and reading a completion costs more.
const WORTH: usize = 16 << 10;
/// So many sends of a connection that the kernel copied are enough to know.
const IN_VAIN: u32 = 4;
/// Milliseconds without an acknowledgement after which a closed connection is reset.
const PATIENCE: i32 = 60_000;
/// Closed connections of a lane that wait for completions; further ones are reset when they are closed.
const LINGERING: usize = 1024;

impl KernelLane {
    /// As [`KernelLane::send`], from where the bytes are, of as many pieces as one call takes. What is taken is taken off
    /// them, and kept for as long as the kernel reads it.
    pub(crate) fn send_in_place(
        &mut self,
        id: SocketId,
        pieces: &mut [OwnedBytes],
    ) -> Result<Option<usize>, SocketError> {
        // A call that takes less than it is given waits for room.
        let most = pieces.len().min(PIECES);
        let pieces = &mut pieces[..most];
        let len: usize = pieces.iter().map(OwnedBytes::len).sum();
        let mut all = std::mem::take(&mut self.zero_copy);
        let mut sends = self.prepared(id, len, &mut all);
        let mut refused = false;
        let mut copied = true;
        let done = self.write(id, len, |socket| {
            if let Some(sends) = &mut sends {
                match sends.send(socket.fd(), pieces) {
                    Err(e) if e.raw_os_error() == Some(errno::ENOBUFS) => refused = true,
                    done => {
                        copied = false;
                        return done;
                    }
                }
            }
            copy(socket.fd(), pieces)
        });
        self.zero_copy = all;
        if let Ok(Some(1..)) = done {
            let counter = match (copied, refused) {
                (false, _) => &mut self.stats.zerocopy_sends,
                (true, true) => &mut self.stats.zerocopy_refused,
                (true, false) => &mut self.stats.zerocopy_skipped,
            };
            *counter += 1;
        }
        done
    }

    /// Where the sends of this connection are held, if `len` bytes are worth it and the kernel is able to.
    fn prepared<'a>(
        &mut self,
        id: SocketId,
        len: usize,
        all: &'a mut std::collections::HashMap<u32, ZeroCopy>,
    ) -> Option<&'a mut ZeroCopy> {
        if len < WORTH {
            return None;
        }
        self.watch_accepted(id).ok()?;
        let socket = self.sockets.get_mut(id)?;
        if !socket.flags.has(Flags::ZERO_COPY) {
            let sends = ZeroCopy::enable(socket.fd()).ok()?;
            socket.flags.set(Flags::ZERO_COPY);
            all.insert(id.slot, sends);
            // Epoll tells of completions.
            self.watch(id);
        }
        all.get_mut(&id.slot).filter(|sends| !sends.is_in_vain(IN_VAIN))
    }

    /// The error queue of a connection has completions, or the connection has failed. `true` if it was closed before and is gone now.
    pub(super) fn on_completions(&mut self, slot: u32, hung_up: bool) -> bool {
        let Some(socket) = self.sockets.in_slot_mut(slot) else { return true };
        if hung_up && socket.failure.is_none() && stream::waiting_error(socket).is_err() {
            self.stats.ended_badly += 1;
        }
        let Some(socket) = self.sockets.in_slot(slot) else { return true };
        let Some(sends) = self.zero_copy.get_mut(&slot) else { return false };
        let told = sends.take_completions(socket.fd(), socket.failure.is_some());
        self.stats.zerocopy_copied += told.copied;
        if socket.flags.has(Flags::LINGERS) && sends.outstanding() == 0 {
            self.zero_copy.remove(&slot);
            self.sockets.remove_slot(slot);
            self.lingering -= 1;
            return true;
        }
        false
    }

    /// Closes a connection, when the kernel has told that it reads none of its memory any more.
    pub(super) fn close_when_complete(&mut self, slot: u32, fd: OwnedFd) {
        let Some(mut sends) = self.zero_copy.remove(&slot) else { return };
        let reset = options::reset_on_close(fd.as_fd()).unwrap_or(false);
        self.stats.zerocopy_copied += sends.take_completions(fd.as_fd(), false).copied;
        if sends.outstanding() == 0 {
            return;
        }
        let too_many = self.lingering >= LINGERING;
        if reset || too_many {
            // The kernel throws away what it has not sent, and completes it.
            // Guard: no `let _ = socket::disconnect(fd.as_fd());` fails sockets/zero_copy::a_reset
            let _ = socket::disconnect(fd.as_fd());
            self.stats.zerocopy_cut_off += 1;
            self.stats.zerocopy_copied += sends.take_completions(fd.as_fd(), true).copied;
            if sends.outstanding() == 0 {
                return;
            }
        } else {
            let _ = options::set(fd.as_fd(), Number::USER_TIMEOUT, PATIENCE);
            let _ = socket::shutdown(fd.as_fd(), Shutdown::Both);
        }
        // It is registered under the name that others know.
        let _ = self.epoll.remove(fd.as_fd());
        if let Ok(id) = self.insert(fd, Flags::ZERO_COPY | Flags::LINGERS) {
            self.lingering += 1;
            // Guard: no `self.zero_copy.insert(id.slot, sends);` fails sockets/zero_copy::dropped_futures
            self.zero_copy.insert(id.slot, sends);
        }
    }

    /// The lane ends. What the kernel still reads is never freed.
    pub(super) fn take_last_completions(&mut self) {
        for (slot, sends) in &mut self.zero_copy {
            if let Some(socket) = self.sockets.in_slot(*slot) {
                self.stats.zerocopy_copied += sends.take_completions(socket.fd(), false).copied;
            }
        }
    }
}

/// Sends of the first pieces what there is room for, copied, and takes it off them.
fn copy(fd: std::os::fd::BorrowedFd<'_>, pieces: &mut [OwnedBytes]) -> io::Result<usize> {
    let slices: Vec<_> = pieces.iter().map(|piece| io::IoSlice::new(piece.data())).collect();
    let sent = socket::send_slices(fd, &slices)?;
    let mut left = sent;
    for piece in pieces {
        left -= piece.split_to(left).len();
        if left == 0 {
            break;
        }
    }
    Ok(sent)
}
