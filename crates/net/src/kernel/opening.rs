//! The first segment of a connection: a plain SYN, or one with data (RFC 7413).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_sys::kernel::socket::{self, errno};

/// Where a connection goes, and what goes with its SYN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) remote: SocketAddr,
    /// Nothing: a plain SYN.
    pub(super) data: &'a [u8],
}

/// A connection that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    /// It stands already.
    pub(super) connected: bool,
    /// Bytes that went with its SYN.
    pub(super) taken: usize,
}

impl Opening<'_> {
    /// Begins on this socket. A kernel that has no Fast Open for clients sends a plain SYN.
    pub(super) fn begin(&self, fd: &OwnedFd) -> io::Result<Opened> {
        if !self.data.is_empty() {
            match socket::connect_with_data(fd.as_fd(), self.remote, self.data) {
                Ok(taken) => return Ok(Opened { connected: false, taken }),
                Err(e) if e.raw_os_error() == Some(errno::EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Opened { connected: socket::connect(fd.as_fd(), self.remote)?, taken: 0 })
    }
}
