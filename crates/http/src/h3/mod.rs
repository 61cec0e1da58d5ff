//! HTTP/3 (RFC 9114) for both sides, without I/O: frames, the heads of messages in QPACK (RFC 9204), settings.
//!
//! ```text
//! bytes of a stream ▸ Reader ▸ heads, pieces of content, settings, GOAWAY, or the fault that ends the connection
//! block of a head ▸ Fields ▸ names and values, checked          names and values ▸ Block ▸ bytes of a frame
//! ```
//!
//! [`Reader`] takes bytes however they are cut, and keeps no content. A fault has the code with which the connection is closed
//! ([`Fault::code`]). Of QPACK there are the static table, literals and the Huffman code: our settings leave the peer no dynamic table, so that
//! no head waits for another stream.
//!
//! Not supported: a dynamic table, server push (no peer may), CONNECT, priorities.

mod fault;
mod field;
mod frame;
mod huffman;
mod qpack;
mod settings;
mod table;
mod varint;

pub use fault::Fault;
pub use field::{Fields, Kind, Most};
pub use frame::{Event, Of, Reader, data, go_away, headers};
pub use qpack::Block;
pub use settings::{Settings, greeting};
pub use varint::{Varint, varint};

/// The name of the protocol for ALPN (RFC 9114 §3.1).
pub const ALPN: &[u8] = b"h3";

/// Whether a request with this method does nothing but ask (RFC 9110 §9.2.1), so that whoever sends it twice does no harm.
#[must_use]
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

/// Codes of errors (RFC 9114 §8.1).
pub mod code {
    /// There is nothing wrong: the end.
    pub const NO_ERROR: u32 = 0x100;
    /// A fault of our own.
    pub const INTERNAL: u32 = 0x102;
    /// The peer has opened a stream of a type that is not known.
    pub const STREAM_CREATION: u32 = 0x103;
    /// The peer asks for more than it is given.
    pub const EXCESSIVE_LOAD: u32 = 0x107;
    /// The request was not processed, and may be sent again.
    pub const REQUEST_REJECTED: u32 = 0x10b;
    /// The answer is no longer wanted, or no longer given.
    pub const REQUEST_CANCELLED: u32 = 0x10c;
    /// The request ended before it was whole.
    pub const REQUEST_INCOMPLETE: u32 = 0x10d;
    /// The message is malformed.
    pub const MESSAGE: u32 = 0x10e;
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream {
    /// Settings, and what concerns the whole connection.
    pub const CONTROL: u64 = 0;
    /// An answer that nobody has asked for.
    pub const PUSH: u64 = 1;
    /// What is put into the dynamic table.
    pub const ENCODER: u64 = 2;
    /// What was taken from it.
    pub const DECODER: u64 = 3;
}
