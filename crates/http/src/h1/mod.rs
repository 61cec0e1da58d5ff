//! HTTP/1 messages as bytes, for both sides of a connection: bytes in, events out, no I/O.
//!
//! A [`Reader`] takes received bytes and returns events: a head, pieces of the body as slices of the input, the end of the message.
//! `httparse` parses heads; framing (RFC 9112 §6) and persistence (§9.3) are derived from them here. How the bytes were segmented affects
//! only where pieces of a body begin.
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
//! Invariants: memory is bounded by [`Limits::head`], and none is held between messages and inside bodies. A byte is examined a bounded
//! number of times, however the input is segmented. A malformed message ends in a named [`Fault`], after which the reader stays ended. The
//! reader is stricter than required where leniency has allowed request smuggling: it refuses both lengths in a request, an unknown transfer
//! coding, a bare line feed in a chunked body, a space before a colon.
//!
//! Not supported: decoding of content (gzip stays gzip), upgrades, trailers (checked and counted against the limit, but not returned).

mod authority;
mod body;
mod fault;
mod head;
mod reader;

pub use authority::is_host;
pub use body::{BodyDecoder, Framing, Piece};
pub use fault::Fault;
pub use head::{Fields, Request, Response, Version, request, response};
pub use reader::{Event, Found, Kind, MOST_INTERIM, Reader, Requests, Responses};

/// Reader of a server.
pub type RequestReader = Reader<Requests>;
/// Reader of a client.
pub type ResponseReader = Reader<Responses>;

/// Most header fields that a head may have, whatever [`Limits`] say.
pub const MAX_FIELDS: usize = 128;

/// Limits of a message's head.
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
