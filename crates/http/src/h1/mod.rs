//! HTTP/1 messages as bytes, for both sides of a connection: bytes in, events out, no I/O.
//!
//! A [`Reader`] is given whatever arrived and says what it found: a head, pieces of the body where they lie in the input,
//! the end of the message. Heads are read by `httparse`, and what frames a message (RFC 9112 §6) and keeps a connection
//! (§9.3) is read from them here. How the bytes were cut on their way changes nothing but where pieces of a body begin.
//!
//! ```
//! use flowlane_http::h1::{Event, Limits, RequestReader};
//!
//! let mut reader = RequestReader::new(Limits::default());
//! let bytes = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
//! let (mut at, mut asked) = (0, Vec::new());
//! loop {
//!     let (used, event) = reader.next(&bytes[at..]).unwrap();
//!     at += used;
//!     match event {
//!         Some(Event::Head(head)) => asked.push(head.target.to_owned()),
//!         Some(_) => {}
//!         None => break,
//!     }
//! }
//! assert_eq!(asked, ["/a", "/b"]);
//! ```
//!
//! What always holds: memory is bounded by [`Limits::head`], and is none between messages and inside bodies; a byte is
//! looked at a bounded number of times however it is cut; whatever cannot be understood ends in a named [`Fault`], after
//! which the reader stays ended. Stricter than it must be where leniency has let requests be smuggled: a request with
//! both lengths, an unknown transfer coding, a bare line feed in a chunked body, a space before a colon.
//!
//! Not done: decoding of content (gzip stays gzip), upgrades, trailers (checked, counted against the limit, left out).

mod authority;
mod body;
mod fault;
mod head;
mod reader;

pub use authority::is_host;
pub use body::{BodyDecoder, Framing, Piece};
pub use fault::Fault;
pub use head::{Fields, Request, Response, Version, request, response};
pub use reader::{Event, Found, Kind, Reader, Requests, Responses};

/// Reads what a server hears.
pub type RequestReader = Reader<Requests>;
/// Reads what a client hears.
pub type ResponseReader = Reader<Responses>;

/// Most header fields that a head may have, whatever [`Limits`] say.
pub const MAX_FIELDS: usize = 128;

/// What a peer may make us hold and look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head; also of a body's trailers, and of all its chunk extensions together.
    pub head: u32,
    /// Header fields of a head; never more than [`MAX_FIELDS`].
    pub fields: u16,
}

impl Default for Limits {
    /// 16 KiB and 100 fields.
    fn default() -> Self {
        Self { head: 16 << 10, fields: 100 }
    }
}

impl Limits {
    fn head_bytes(&self) -> usize {
        usize::try_from(self.head).unwrap_or(usize::MAX)
    }
}
