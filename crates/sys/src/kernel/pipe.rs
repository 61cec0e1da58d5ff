//! Pipes through which bytes go from one socket to another without being copied: `splice(2)`.
//!
//! A pipe holds references to the pages in which the kernel has the bytes. They are never mapped here. A pipe has a number of places, each
//! for a part of one page, so how many bytes fit depends on how they arrived.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A pipe, neither of whose ends waits.
#[derive(Debug)]
pub struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    /// A pipe for `bytes` of whole pages, or for fewer if the kernel does not allow so many (`/proc/sys/fs/pipe-max-size`, and of all pipes
    /// of a user `/proc/sys/fs/pipe-user-pages-soft`).
    ///
    /// # Errors
    /// No descriptor is free, or no memory.
    pub fn new(bytes: u32) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors; if it succeeds they are ours alone.
        let pipe = unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
            Self { out: OwnedFd::from_raw_fd(ends[0]), into: OwnedFd::from_raw_fd(ends[1]) }
        };
        let wanted = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: no memory is involved. Failure leaves the size as it is.
        unsafe { libc::fcntl(pipe.into.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) };
        Ok(pipe)
    }

    /// Bytes of whole pages that it holds at most.
    #[must_use]
    pub fn size(&self) -> usize {
        // SAFETY: no memory is involved.
        let size = unsafe { libc::fcntl(self.into.as_raw_fd(), libc::F_GETPIPE_SZ) };
        usize::try_from(size).unwrap_or(0)
    }

    /// Moves at most `most` bytes from a socket into the pipe; 0 is the end of the stream.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if the socket has none, or the pipe has no room.
    #[inline]
    pub fn fill(&self, from: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        splice(from.as_raw_fd(), self.into.as_raw_fd(), most)
    }

    /// Copies bytes of ours into the pipe; how many were taken.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if the pipe has no room.
    pub fn put(&self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the bytes are valid for the call and only read.
        let n = unsafe { libc::write(self.into.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// Moves at most `most` bytes from the pipe into a socket.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` if the socket has no room, or the pipe is empty. On a kernel before Linux 6.5 the process must ignore
    /// `SIGPIPE`, as every Rust program does from its start.
    #[inline]
    pub fn drain(&self, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        splice(self.out.as_raw_fd(), to.as_raw_fd(), most)
    }
}

#[inline]
fn splice(from: libc::c_int, to: libc::c_int, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let none = std::ptr::null_mut();
    // SAFETY: descriptors only; neither has an offset.
    let n = unsafe { libc::splice(from, none, to, none, most, flags) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Waits for bytes as the kernel's poll has them.
    fn until_readable(of: &TcpStream) {
        crate::poll::wait_readable(&[of.as_fd()], Some(30_000_000_000)).unwrap();
    }

    #[test]
    fn bytes_pass_from_socket_to_socket() {
        let ((mut writer, from), (to, mut reader)) = (pair(), pair());
        from.set_nonblocking(true).unwrap();
        to.set_nonblocking(true).unwrap();
        let pipe = Pipe::new(1 << 16).unwrap();
        assert!(pipe.size() >= 4096);
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap_err().kind(), ErrorKind::WouldBlock, "nothing came");
        assert_eq!(pipe.drain(to.as_fd(), 100).unwrap_err().kind(), ErrorKind::WouldBlock, "it is empty");
        writer.write_all(b"over the pipe").unwrap();
        until_readable(&from);
        assert_eq!(pipe.fill(from.as_fd(), 8).unwrap(), 8, "no more than asked for");
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap(), 5);
        assert_eq!(pipe.drain(to.as_fd(), 100).unwrap(), 13);
        let mut got = [0; 13];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"over the pipe");
        assert_eq!(pipe.put(b" by hand").unwrap(), 8);
        assert_eq!(pipe.drain(to.as_fd(), 100).unwrap(), 8);
        reader.read_exact(&mut got[..8]).unwrap();
        assert_eq!(&got[..8], b" by hand");
        drop(writer);
        until_readable(&from);
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap(), 0, "the end of the stream");
    }

    #[test]
    fn a_socket_without_a_peer_is_an_error_and_no_signal() {
        let ((mut writer, from), (to, reader)) = (pair(), pair());
        to.set_nonblocking(true).unwrap();
        to.shutdown(std::net::Shutdown::Write).unwrap();
        drop(reader);
        writer.write_all(b"for nobody").unwrap();
        let pipe = Pipe::new(1 << 16).unwrap();
        assert_eq!(pipe.fill(from.as_fd(), 100).unwrap(), 10);
        assert_eq!(pipe.drain(to.as_fd(), 100).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
