//! Kernel descriptors that represent the object's sockets.
//!
//! packetdrill closes descriptors that a script left open by `close(2)` without calling the object, so every descriptor must be one of the
//! kernel's. An unused TCP socket serves, because `getsockopt` of `TCP_INFO` in code blocks then gets an answer from the kernel, although a
//! meaningless one, instead of ending the run.

use super::{Answer, Errno};

/// A new descriptor.
///
/// # Errors
/// The kernel's.
pub fn open_place() -> Answer<i32> {
    // SAFETY: no memory is involved.
    let mut fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        // A kernel without IPv4.
        // SAFETY: as above.
        fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    }
    if fd < 0 { Err(last_error()) } else { Ok(fd) }
}

/// Two new descriptors.
///
/// # Errors
/// The kernel's.
pub fn open_pipe_places() -> Answer<[i32; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: two integers are written to the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(last_error());
    }
    Ok(ends)
}

/// Closes a descriptor that one of the functions here gave and that nobody has closed.
pub fn close_place(fd: i32) {
    // SAFETY: a number; at worst the kernel says that it is no descriptor.
    unsafe { libc::close(fd) };
}

/// The calling thread's `errno`.
pub(super) fn last_error() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
