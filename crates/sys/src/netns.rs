//! Network namespaces: entering one on a thread, and coming back.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// Moves the calling thread into the network namespace behind `namespace` until the guard is dropped.
///
/// # Errors
/// `CAP_SYS_ADMIN` is missing, or the descriptor is not a network namespace.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<Entered> {
    enter_named(namespace, "a network namespace")
}

fn enter_named(namespace: BorrowedFd<'_>, name: &str) -> Result<Entered> {
    let home = File::open("/proc/thread-self/ns/net")
        .map_err(|e| Error::from_io(e, "this thread's network namespace", "CAP_SYS_ADMIN"))?;
    set(namespace).map_err(|e| match e.raw_os_error() {
        Some(libc::EINVAL) => Error::Invalid(format!(
            "{name}: not a network namespace: give a name of 'ip netns', or a path such as /proc/PID/ns/net"
        )),
        _ => Error::from_io(e, format!("entering {name}"), "CAP_SYS_ADMIN"),
    })?;
    Ok(Entered { home, on_this_thread: std::marker::PhantomData })
}

/// As [`enter`], by a path such as `/run/netns/NAME`.
///
/// # Errors
/// As [`enter`], and when there is no such file.
pub fn enter_path(path: &Path) -> Result<Entered> {
    use std::os::fd::AsFd;
    let file = File::open(path)
        .map_err(|e| Error::from_io(e, format!("network namespace {}", path.display()), "CAP_SYS_ADMIN"))?;
    enter_named(file.as_fd(), &path.display().to_string())
}

fn set(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The calling thread is in another network namespace; dropping this brings it back. Stays on its thread.
#[derive(Debug)]
pub struct Entered {
    home: File,
    on_this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        use std::os::fd::AsFd;
        // Only a thread that lost its privileges meanwhile cannot go home; what it opens next would be in the wrong
        // place, and nothing can be done about it here.
        let _ = set(self.home.as_fd());
    }
}
