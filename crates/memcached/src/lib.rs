//! A memcached that shares nothing: one store in each lane, and memcached's text and meta protocol over it.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | one lane's items: table, memory in size classes, eviction, expiry; no I/O, no clock |
//! | [`protocol`] | requests from bytes; no I/O, no copy |
//! | [`map`] | which lane has a key, and which connections come to a lane: for clients, too |
//! | [`answer`] | what a store answers to a request, byte for byte as memcached does |
//! | [`number`], [`counts`] | numbers as C reads them; what is counted |
//! | [`client`] | the other end: requests to bytes, answers from bytes; no I/O |
//! | `server` | connections, and requests that another lane answers; needs the feature `net` |
//!
//! Each uses those above it only, but for `answer`, which uses both. `docs/serve-memcached.md` says what is supported, and where answers differ from memcached's.
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
pub mod counts;
pub mod map;
pub mod number;
pub mod protocol;
#[cfg(feature = "net")]
pub mod server;
pub mod store;
