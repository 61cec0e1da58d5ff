//! What can go wrong, where more than one module says it. An error of one operation is beside that.
//!
//! Each is a small enum of one operation, in one line that says what is wrong and how to mend it.

use std::io;

use flowlane_sys::kernel::socket::errno;

mod open;
mod socket;
mod start;
mod task;

pub use open::OpenError;
pub use socket::SocketError;
pub use start::StartError;
pub use task::{Failed, SpawnError};

/// What the kernel has no more of, and how it is mended.
pub(crate) fn mended(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno::EMFILE) => SocketError::NoDescriptor.to_string(),
        _ if error.kind() == io::ErrorKind::WouldBlock => {
            "no thread may be made: raise the limit with 'ulimit -u', or that of the control group (pids.max)"
                .to_owned()
        }
        _ if error.kind() == io::ErrorKind::AddrInUse => {
            "another program has this port ('ss -lntp' shows which)".to_owned()
        }
        _ if error.kind() == io::ErrorKind::AddrNotAvailable => {
            "no interface here has this address ('ip addr' shows which there are)".to_owned()
        }
        _ => error.to_string(),
    }
}
