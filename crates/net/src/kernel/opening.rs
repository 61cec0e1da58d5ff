//! How a flow begins: a connection with a plain SYN or one with data (RFC 7413), a connected socket of datagrams without a packet.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_rss::Protocol;
use flowlane_sys::kernel::socket::{self, errno};

/// Where a flow goes, and what goes with its SYN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) protocol: Protocol,
    pub(super) remote: SocketAddr,
    /// Nothing: a plain SYN.
    pub(super) data: &'a [u8],
}

/// A flow that has begun.
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
