//! In place of the ring, where there is none: none can be made.

use std::convert::Infallible;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use super::Completion;

/// A ring that nobody has.
#[derive(Debug)]
pub struct Ring(Infallible);

#[allow(missing_docs, reason = "as of the ring that there is elsewhere")]
#[allow(clippy::missing_errors_doc, reason = "as of the ring that there is elsewhere")]
impl Ring {
    pub fn new(_: u16, _: usize) -> io::Result<Self> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    pub fn enable(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    pub fn accept(&mut self, _: BorrowedFd<'_>, _: u64) {}

    pub fn receive(&mut self, _: BorrowedFd<'_>, _: u64) {}

    pub fn watch(&mut self, _: BorrowedFd<'_>, _: u64) {}

    pub fn cancel_accept(&mut self, _: u64) {}

    pub fn cancel_receive(&mut self, _: u64) {}

    pub fn close(&mut self, _: OwnedFd) {}

    pub fn signal(&mut self, _: BorrowedFd<'_>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn is_quiet(&mut self) -> bool {
        match self.0 {}
    }

    pub fn enter(&mut self) {}

    pub fn wait(&mut self, _: Option<Duration>) {}

    pub fn next_completion(&mut self) -> Option<Completion> {
        match self.0 {}
    }

    pub fn bytes(&self, _: u16) -> &[u8] {
        match self.0 {}
    }

    pub fn free_buffers(&self) -> usize {
        match self.0 {}
    }

    pub fn give_back(&mut self, _: u16) {}
}
