//! Reassembly by itself: every order, every overlap, every bound.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounds;
mod kit;
mod model;
mod operations;
mod orders;
