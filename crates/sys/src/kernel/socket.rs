//! Non-blocking sockets: one function for each system call.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::address::Address;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn length(result: isize) -> io::Result<usize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

fn open(v4: bool, kind: i32) -> io::Result<OwnedFd> {
    open_family(if v4 { libc::AF_INET } else { libc::AF_INET6 }, kind)
}

fn open_family(family: i32, kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
    unsafe {
        let fd = libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// A TCP socket of a family.
///
/// # Errors
/// The kernel's.
pub fn tcp(v4: bool) -> io::Result<OwnedFd> {
    open(v4, libc::SOCK_STREAM)
}

/// A UDP socket of a family.
///
/// # Errors
/// The kernel's.
pub fn udp(v4: bool) -> io::Result<OwnedFd> {
    open(v4, libc::SOCK_DGRAM)
}

/// Gives a socket its local address.
///
/// # Errors
/// The kernel's.
pub fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let address = Address::new(address);
    // SAFETY: the address is valid for the call and only read.
    check(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr(), address.len()) })
}

/// Makes a socket listen. The kernel has an upper bound of its own for `backlog` (`net.core.somaxconn`).
///
/// # Errors
/// The kernel's.
pub fn listen(fd: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::listen(fd.as_raw_fd(), i32::try_from(backlog).unwrap_or(i32::MAX)) })
}

/// Takes the next connection of a listening socket, and the address of its peer.
///
/// # Errors
/// The kernel's; `WouldBlock` if there is none.
pub fn accept(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut peer = Address::room();
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (address, len) = peer.room_and_len();
    // SAFETY: the kernel writes at most `len` bytes of address; a non-negative result is a descriptor that is ours alone.
    unsafe {
        let new = libc::accept4(fd.as_raw_fd(), address, len, flags);
        if new < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(new), peer.get()))
    }
}

/// Begins to connect. `true`: it is connected already; `false`: it will be known when the socket is writable.
///
/// # Errors
/// The kernel's.
pub fn connect(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<bool> {
    let address = Address::new(address);
    // SAFETY: the address is valid for the call and only read.
    match check(unsafe { libc::connect(fd.as_raw_fd(), address.as_ptr(), address.len()) }) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A Unix socket for a stream.
///
/// # Errors
/// The kernel's.
pub fn unix() -> io::Result<OwnedFd> {
    open_family(libc::AF_UNIX, libc::SOCK_STREAM)
}

/// Connects a Unix socket to the listener at a path. It is connected at once, or not at all.
///
/// # Errors
/// `InvalidInput` if the path is longer than an address has room for (107 bytes) or has a zero byte; the kernel's: `WouldBlock` if the
/// listener's queue is full, and nobody tells when it no longer is.
pub fn connect_path(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The zero behind the path is part of the address.
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for the call and only read.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Begins to connect with data in the SYN (`MSG_FASTOPEN`, RFC 7413). Returns how many bytes the SYN took: none if the kernel knows no cookie
/// of the peer's, and asks for one. As with [`connect`], the socket is writable when the connection stands.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` if it has no Fast Open for clients (`net.ipv4.tcp_fastopen`).
pub fn connect_with_data(fd: BorrowedFd<'_>, address: SocketAddr, data: &[u8]) -> io::Result<usize> {
    let address = Address::new(address);
    let flags = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    // SAFETY: data and address are valid for the call and only read.
    let taken = unsafe {
        libc::sendto(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), flags, address.as_ptr(), address.len())
    };
    if taken >= 0 {
        return Ok(taken as usize);
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(0),
        e => Err(e),
    }
}

/// Ends a connection at once: what was not acknowledged is not sent any more, and the peer is told by a reset. The socket stays.
///
/// # Errors
/// The kernel's.
pub fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this plain C structure; its family says that there is no address.
    let mut nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    nowhere.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: the address is valid for the call and only read.
    check(unsafe {
        libc::connect(fd.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t)
    })
}

/// The address a socket is bound to.
///
/// # Errors
/// The kernel's.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut address = Address::room();
    let (room, len) = address.room_and_len();
    // SAFETY: the kernel writes at most `len` bytes of address.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), room, len) })?;
    Ok(address.get())
}

/// The address of a connection's peer.
///
/// # Errors
/// The kernel's; `NotConnected` when there is none.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut address = Address::room();
    let (room, len) = address.room_and_len();
    // SAFETY: the kernel writes at most `len` bytes of address.
    check(unsafe { libc::getpeername(fd.as_raw_fd(), room, len) })?;
    Ok(address.get())
}

/// Sends bytes; how many were taken. Never raises `SIGPIPE`.
///
/// # Errors
/// The kernel's; `WouldBlock` if there is no room.
#[inline]
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes are valid for the call and only read.
    length(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) })
}

/// As [`send`], with more to come at once, the end of the stream for one: a piece that fills no segment is kept until then, or for
/// 200 ms.
///
/// # Errors
/// As [`send`].
#[inline]
pub fn send_before_more(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_MORE;
    // SAFETY: the bytes are valid for the call and only read.
    length(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Sends several slices, in order, by one call; how many bytes were taken.
///
/// # Errors
/// As [`send`].
pub fn send_slices(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    // What one call takes at most (`UIO_MAXIOV`).
    let slices = &slices[..slices.len().min(1024)];
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = slices.as_ptr().cast_mut().cast();
    header.msg_iovlen = slices.len() as _;
    // SAFETY: an `IoSlice` is laid out as an `iovec`, as its documentation promises; the kernel only reads.
    length(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })
}

/// Sends `len` bytes of a file from `at` on, by the kernel alone (`sendfile(2)`); how many were taken, 0 if the file ends there.
/// Fewer than asked for say neither that there is no room nor that the file ends.
///
/// # Errors
/// The kernel's; `WouldBlock` if there is no room.
pub fn send_file(fd: BorrowedFd<'_>, file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<usize> {
    let mut at = i64::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel reads and writes the offset during the call; no other memory is involved.
    length(unsafe { libc::sendfile64(fd.as_raw_fd(), file.as_raw_fd(), &raw mut at, len) })
}

/// Receives bytes; 0 is the end of the stream.
///
/// # Errors
/// The kernel's; `WouldBlock` if there are none.
#[inline]
pub fn recv(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most as many bytes as `into` holds.
    length(unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), 0) })
}

/// Ends one direction or both.
///
/// # Errors
/// The kernel's; `NotConnected` when the connection is over.
pub fn shutdown(fd: BorrowedFd<'_>, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => libc::SHUT_RD,
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    };
    // SAFETY: no memory is involved.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), how) })
}

/// The errors that sockets are known by.
#[allow(missing_docs, reason = "the names are the kernel's, described in errno(3)")]
pub mod errno {
    pub use libc::{
        EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, ECANCELED, ECONNABORTED, ECONNREFUSED,
        ECONNRESET, EDESTADDRREQ, EHOSTDOWN, EHOSTUNREACH, EINTR, EINVAL, EIO, EMFILE, EMSGSIZE, ENETDOWN,
        ENETUNREACH, ENFILE, ENOBUFS, ENOMEM, ENOPROTOOPT, ENOSYS, ENOTCONN, ENOTTY, EOPNOTSUPP, EPERM,
        EPIPE, EPROTO, ETIMEDOUT,
    };
}
