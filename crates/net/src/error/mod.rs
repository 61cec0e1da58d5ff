//! What can go wrong, where more than one module says it. An error of one operation is beside that.
//!
//! Each is a small enum of one operation, in one line that says what is wrong and how to mend it.

mod open;
mod socket;
mod start;
mod task;

pub use open::OpenError;
pub use socket::SocketError;
pub use start::StartError;
pub use task::{Failed, SpawnError};
