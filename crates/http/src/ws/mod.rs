//! WebSocket (RFC 6455) for both sides, without I/O: frames, their masks, messages from fragments, UTF-8, the opening handshake.
//!
//! ```text
//! bytes ▸ Reader ▸ pieces of messages, pings, pongs, a close, or the fault that ends it
//! frame::write ▸ bytes
//! ```
//!
//! [`Reader`] takes bytes however they are cut. A message comes in pieces, as far as it is there, so that nobody has to keep it who does not want
//! to. A fault has the code of the close frame that it is answered with ([`Fault::code`]).
//!
//! Messages may be compressed (`deflate`, RFC 7692): the reader says so of a message, and gives out what came.
//!
//! Not supported: other extensions, WebSocket over HTTP/2 (RFC 8441).

mod close;
#[cfg(feature = "net")]
pub mod deflate;
mod fault;
pub mod frame;
#[cfg(feature = "net")]
pub mod handshake;
pub mod mask;
mod reader;
mod utf8;

pub use close::{Code, is_code};
pub use fault::Fault;
pub use frame::{Kind, Opcode};
pub use reader::{Event, Reader, Side};

/// Most bytes of a control frame's payload (RFC 6455 §5.5).
pub const MOST_CONTROL: usize = 125;
