//! The server over a link in memory: every endpoint, every kind of bad input, both versions of HTTP, with and without TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bad;
mod endpoints;
mod files;
mod frames;
mod http2;
mod kit;
mod memory;
mod others;
mod slow;
mod stop;
mod websocket;
