//! The interface of connections for applications, with a file for each kind of operation.
//!
//! Every call names its connection or listener by a handle. A handle whose connection has ended is an error, and so is one that was
//! released by `close` or `abort`.

mod accept;
mod close;
mod flows;
mod open;
mod options;
mod port;
mod readiness;
mod receive;
mod send;

pub use accept::Accepted;
pub use open::{ConnectOptions, FirstData};
pub(super) use port::PortTurns;
pub use readiness::{Interest, Readiness};

use crate::tcp::Tcp;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::error::StaleError;
use crate::tcp::table::ConnId;

impl Tcp {
    /// A connection whose handle has not been given up.
    fn handle_mut(&mut self, id: ConnId) -> Result<&mut Connection, StaleError> {
        self.connections.get_mut(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)
    }
}
