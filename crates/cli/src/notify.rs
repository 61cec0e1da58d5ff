//! Telling the service manager that a service is ready, and that it ends: sd_notify(3), of which this is the whole.
//!
//! A unit of `Type=notify` is started when the links are open and every lane has its socket, so that what is ordered after it finds it serving.
//! The manager names a Unix socket in the environment; where it names none, there is nobody to tell.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves.
pub(crate) fn is_ready() {
    tell("READY=1");
}

/// It serves no more, and sends what is left.
pub(crate) fn is_ending() {
    tell("STOPPING=1");
}

/// A manager that is not there misses it, and nothing else does.
fn tell(what: &str) {
    if let Some(place) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = address(&place)
            .and_then(|address| UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address));
    }
}

/// A path, or a name without a file, which begins with '@'.
fn address(place: &OsStr) -> std::io::Result<SocketAddr> {
    match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_socket_are_understood() {
        assert_eq!(address(OsStr::new("@a/b")).unwrap().as_abstract_name(), Some(&b"a/b"[..]));
        let path = std::path::Path::new("/run/systemd/notify");
        assert_eq!(address(path.as_os_str()).unwrap().as_pathname(), Some(path));
    }
}
