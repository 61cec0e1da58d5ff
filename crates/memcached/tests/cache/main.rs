//! The server over links in memory and over kernel sockets: what clients get, what bad ones cost, and the same bytes as memcached.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bad;
mod beside;
mod clients;
mod datagrams;
mod kit;
mod lanes;
mod moving;
