//! The other end of the protocol: requests to bytes, and answers from bytes.
//!
//! ```text
//!   GET, set, meta_get, meta_set ▸ bytes ▸ the caller's connection ▸ bytes ▸ Answers::next ▸ one Answer after the other
//! ```
//!
//! No I/O and no clock: the caller has the connection, and knows which requests wait for which answers, in the order in which it asked. Nothing is
//! allocated in steady state. A value is never put together: its bytes are handed on as they come ([`Answer::Bytes`]), so that a client needs no memory
//! for it, whatever a server says its length is.
//!
//! What a server says is hostile: a line has at most [`LINE`] bytes, a value at most [`VALUE`], and what does not keep to the protocol is
//! [`Malformed`], after which nothing on that connection can be believed.
//!
//! Read memcached's `doc/protocol.txt`. Not here: the binary protocol, as in the server, and the answers of `stats`' sub-commands that are not lines
//! of `STAT`.

mod answer;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Answers, LINE, Malformed, VALUE};
pub use request::{END_OF_LINE, GET, meta_get, meta_no_op, meta_set, one_more, set};
