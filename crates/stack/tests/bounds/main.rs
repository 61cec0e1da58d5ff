//! The bounds of a lane's memory, by measurement: every byte of the heap counts, and every frame that the lane keeps counts with its
//! whole buffer, whatever the engine's own books say.
//!
//! Strangers open connections whose application does not read, and each sends as much as its window allows, in every shape that
//! costs the receiver most. The rows of the table "Bounds" in `docs/conformance/tcp.md` name these tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod flows;
mod host;
mod kit;
mod link;
mod receive;
mod send;
