//! What applications may do with connections, in files by what a caller does.
//!
//! Every call names its connection or listener by a handle; one that outlives what it names is an error, and so is one that was
//! given up by `close` or `abort`.

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
