//! HTTP on Flowlane: messages, TLS, and a server that is an ordinary user of the crate `flowlane`.
//!
//! * [`h1`]: framing of HTTP/1 messages for both sides, without I/O.
//! * [`h3`]: framing of HTTP/3 for both sides, without I/O.
//! * [`ws`]: WebSocket for both sides, without I/O.
//! * [`quic`]: connections of QUIC on the UDP sockets of a lane.
//! * [`tls`]: set-up of TLS for servers and clients, and a stream that is plain or encrypted.
//! * [`server`]: a web server in every lane, with the endpoints of `flowlane serve http`.
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![forbid(unsafe_code)]

#[cfg(feature = "net")]
mod ending;
mod fault;
pub mod h1;
pub mod h3;
#[cfg(feature = "net")]
pub mod quic;
#[cfg(feature = "net")]
pub mod server;
#[cfg(feature = "net")]
pub mod tls;
pub mod ws;
