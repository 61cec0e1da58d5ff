//! Waiting: `ppoll(2)` over a few descriptors, and the descriptor by which other threads end the wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Waits until one of `fds` is readable (or has failed), or until `timeout_ns` nanoseconds are over; `None` waits without limit. Returns
/// the number of ready descriptors; `0` is a timeout. A signal counts as a timeout, so that callers can check their state.
///
/// # Errors
/// The system's; none is expected of valid descriptors.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout_ns: Option<u64>) -> io::Result<usize> {
    const INLINE: usize = 8;
    let blank = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 };
    let mut few = [blank; INLINE];
    let mut many;
    let polled = if fds.len() <= INLINE {
        &mut few[..fds.len()]
    } else {
        many = vec![blank; fds.len()];
        &mut many[..]
    };
    for (slot, fd) in polled.iter_mut().zip(fds) {
        slot.fd = fd.as_raw_fd();
    }
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and the time are valid for the call; the signal mask is left as it is.
    let n = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, time, std::ptr::null()) };
    if n >= 0 {
        return Ok(n as usize);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        e => Err(e),
    }
}

/// Takes the error that a socket has to report (`SO_ERROR`), after which it reports none. `false` if `fd` is no socket.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> bool {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: at most `len` bytes are written to `error`.
    let result = unsafe {
        let to = (&raw mut error).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, to, &raw mut len)
    };
    result == 0
}

/// A descriptor that any thread can make readable: the signal behind a [`Doorbell`](crate::doorbell::Doorbell).
#[derive(Debug)]
pub struct WakeFd {
    fd: OwnedFd,
}

impl WakeFd {
    /// A new one, not readable.
    ///
    /// # Errors
    /// Too many descriptors are open.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { fd: OwnedFd::from_raw_fd(fd) }) }
        }
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`. The only failure, a full counter, leaves it readable as wished.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes every signal given so far; whether there was one.
    pub fn take(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to `count`.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) == 8 }
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_is_taken_once() {
        let (a, b) = (WakeFd::new().unwrap(), WakeFd::new().unwrap());
        assert_eq!(wait_readable(&[a.as_fd(), b.as_fd()], Some(0)).unwrap(), 0);
        std::thread::scope(|s| {
            s.spawn(|| b.signal());
            assert_eq!(wait_readable(&[a.as_fd(), b.as_fd()], None).unwrap(), 1);
        });
        b.signal();
        assert!(b.take() && !b.take() && !a.take());
        assert_eq!(wait_readable(&[a.as_fd(); 20], Some(1000)).unwrap(), 0, "many descriptors");
    }
}
