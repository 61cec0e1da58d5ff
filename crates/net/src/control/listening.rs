//! Listening on TCP for people and programs who watch. Nothing listens unless it is asked for, and the address has to be named: one that
//! stands for all addresses of the machine is refused, so that nobody opens more than intended.

use std::io;
use std::net::{SocketAddr, TcpListener};

use crate::error::mended;

/// Why a view cannot be served over TCP: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address stands for all addresses of this machine.
    #[error("{what} on {address}: that is every address of this machine; name one, such as 127.0.0.1:{port}", port = .address.port())]
    Everywhere {
        /// What was to be served.
        what: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("{what} on {address}: {}", mended(.source))]
    System {
        /// What was to be served.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// An open socket and its address, which has a port even if port 0 was asked for.
#[derive(Debug)]
pub(super) struct Listening {
    what: &'static str,
    pub(super) socket: TcpListener,
    pub(super) address: SocketAddr,
}

impl Listening {
    /// Opens a socket for `what`.
    pub(super) fn open(what: &'static str, address: SocketAddr) -> Result<Self, ListenError> {
        if address.ip().to_canonical().is_unspecified() {
            return Err(ListenError::Everywhere { what, address });
        }
        let system = |source| ListenError::System { what, address, source };
        let socket = TcpListener::bind(address).map_err(system)?;
        let address = socket.local_addr().map_err(system)?;
        Ok(Self { what, socket, address })
    }

    /// What makes an error of this socket's of what the system said.
    pub(super) fn refused(&self) -> impl FnOnce(io::Error) -> ListenError + use<> {
        let Self { what, address, .. } = *self;
        move |source| ListenError::System { what, address, source }
    }
}
