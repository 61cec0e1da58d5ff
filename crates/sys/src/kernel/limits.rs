//! Limits of this process in the kernel, and raising them as far as allowed.

use std::io;

/// Raises the limit of open descriptors to `wanted`, or as far as allowed: to the hard limit, and with `CAP_SYS_RESOURCE` to
/// `/proc/sys/fs/nr_open`. Returns the limit now in force.
///
/// # Errors
/// The limit cannot be read.
pub fn descriptors(wanted: u64) -> io::Result<u64> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let (current, hard) = (wide(now.rlim_cur), wide(now.rlim_max));
    if current >= wanted {
        return Ok(current);
    }
    let set = |soft: u64, hard: u64| {
        let limit = libc::rlimit { rlim_cur: soft as libc::rlim_t, rlim_max: hard as libc::rlim_t };
        // SAFETY: the kernel reads one structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 }
    };
    if wanted > hard {
        let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|t| t.trim().parse().ok());
        let beyond = wanted.min(most.unwrap_or(1 << 20));
        if beyond > hard && set(beyond, beyond) {
            return Ok(beyond);
        }
    }
    let within = wanted.min(hard);
    Ok(if within > current && set(within, hard) { within } else { current })
}

/// Limits of this process: what is in force, and to what it may be raised without privilege. [`u64::MAX`]: without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What is in force.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// The limit of open descriptors.
///
/// # Errors
/// It cannot be read.
pub fn open_files() -> io::Result<Limit> {
    // SAFETY: the kernel writes one structure.
    read(|now| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, now) })
}

/// The limit of bytes that may be locked into memory.
///
/// # Errors
/// It cannot be read.
pub fn locked_memory() -> io::Result<Limit> {
    // SAFETY: the kernel writes one structure.
    read(|now| unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, now) })
}

fn read(ask: impl FnOnce(&mut libc::rlimit) -> libc::c_int) -> io::Result<Limit> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    if ask(&mut now) < 0 {
        return Err(io::Error::last_os_error());
    }
    let endless = |limit: libc::rlim_t| if limit == libc::RLIM_INFINITY { u64::MAX } else { wide(limit) };
    Ok(Limit { soft: endless(now.rlim_cur), hard: endless(now.rlim_max) })
}

/// `rlim_t` has 64 bits on most machines, and 32 on the others.
fn wide(limit: impl Into<u64>) -> u64 {
    limit.into()
}

/// Lets this thread's timeouts end when they are due: by default the kernel may be 50 microseconds late.
pub fn exact_timers() {
    // SAFETY: no memory is involved. Failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}
