//! The same bodies over a wire in memory and over sockets of the kernel: what is written against the socket types runs on
//! either, and ends the same way.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod bodies;
mod datagrams;
mod floods;
mod kernel;
mod kit;
mod ring;
#[path = "../common/streams.rs"]
mod streams;
mod zero_copy;
