//! Sockets of other processes: the processor that last handled a packet for one.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The processor that last handled a packet for the socket which process `pid` has as descriptor `fd` (`SO_INCOMING_CPU`); `None` where no
/// packet came yet, and for a UDP socket without a peer, which does not note it. The socket itself is not touched.
///
/// # Errors
/// The process or its descriptor does not exist any more, it is not a socket, access to the process is denied (it needs the permission to
/// trace it), or the kernel is older than Linux 5.6.
pub fn incoming_cpu(pid: u32, fd: i32) -> io::Result<Option<u32>> {
    let pid = i32::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: no memory is involved; a non-negative result is a descriptor that is ours alone.
    let process = unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid, 0))? };
    // SAFETY: as above; what comes back is a duplicate of the other process's descriptor.
    let socket = unsafe { owned(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))? };
    let (mut cpu, mut len) = (-1i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: at most four bytes are written to `cpu`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(u32::try_from(cpu).ok()) } else { Err(io::Error::last_os_error()) }
}

/// The descriptor that a system call returned.
///
/// # Safety
/// A non-negative `result` is a descriptor that nobody else owns.
unsafe fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the caller's promise.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Name of the system call of this number, if it is one in which programs wait.
#[must_use]
pub fn system_call(number: i64) -> Option<&'static str> {
    macro_rules! calls {
        ($($name:ident $call:ident,)+) => { &[$((libc::$call as i64, stringify!($name))),+] };
    }
    const CALLS: &[(i64, &str)] = calls![
        read SYS_read, write SYS_write, readv SYS_readv, writev SYS_writev, pread64 SYS_pread64, pwrite64 SYS_pwrite64, openat SYS_openat,
        close SYS_close, fsync SYS_fsync, fdatasync SYS_fdatasync, futex SYS_futex, ppoll SYS_ppoll, pselect6 SYS_pselect6,
        epoll_pwait SYS_epoll_pwait, nanosleep SYS_nanosleep, clock_nanosleep SYS_clock_nanosleep, connect SYS_connect,
        accept4 SYS_accept4, sendto SYS_sendto, recvfrom SYS_recvfrom, sendmsg SYS_sendmsg, recvmsg SYS_recvmsg, recvmmsg SYS_recvmmsg,
        sendmmsg SYS_sendmmsg, wait4 SYS_wait4, waitid SYS_waitid, ioctl SYS_ioctl, fcntl SYS_fcntl, flock SYS_flock, mmap SYS_mmap,
        munmap SYS_munmap, madvise SYS_madvise, mlock SYS_mlock, getrandom SYS_getrandom, io_uring_enter SYS_io_uring_enter, bpf SYS_bpf,
        unlinkat SYS_unlinkat, renameat2 SYS_renameat2, getdents64 SYS_getdents64,
    ];
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[(i64, &str)] = calls![accept SYS_accept, poll SYS_poll, select SYS_select, epoll_wait SYS_epoll_wait, open SYS_open, stat SYS_stat, pause SYS_pause,];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[(i64, &str)] = &[];
    CALLS.iter().chain(OLDER).find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Microseconds of processor time that this process has used, in user and kernel mode.
#[must_use]
pub fn own_time() -> u64 {
    own_times().iter().sum()
}

/// As [`own_time`], user mode and kernel mode apart.
#[must_use]
pub fn own_times() -> [u64; 2] {
    // SAFETY: `rusage` is plain data for which all zeros is a value; the call writes its size.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return [0; 2];
        }
        let micros = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        [micros(usage.ru_utime), micros(usage.ru_stime)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_of_a_socket_of_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let pid = std::process::id();
        match incoming_cpu(pid, socket.as_raw_fd()) {
            Ok(cpu) => {
                assert_eq!(cpu, None);
                socket.connect(socket.local_addr().unwrap()).unwrap();
                socket.send(b"x").unwrap();
                socket.recv(&mut [0; 9]).unwrap();
                assert!(incoming_cpu(pid, socket.as_raw_fd()).unwrap().is_some());
            }
            Err(e) => crate::skipped(format_args!("skipped, because sockets cannot be looked at here: {e}")),
        }
        assert!(incoming_cpu(pid, -1).is_err() && incoming_cpu(u32::MAX, 0).is_err());
        assert!(own_time() < 1 << 40);
    }
}
