//! The switch: what it forwards where, and what its configuration may say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[allow(dead_code, reason = "each program, and the fuzz target, uses a part")]
mod common;
mod config;
mod forwarding;
mod model;
