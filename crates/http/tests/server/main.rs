//! The server over a link in memory: every endpoint, every kind of bad input, both versions of HTTP, with and without TLS.

mod bad;
mod endpoints;
mod files;
mod kit;
mod others;
mod slow;
