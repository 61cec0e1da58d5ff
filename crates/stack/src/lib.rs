//! One lane of the Flowlane network stack, without I/O, without a clock and without randomness of its own.
//!
//! See the workspace README.
#![forbid(unsafe_code)]

pub mod packet;
pub mod rng;
pub mod tcp;
pub mod time;
pub mod timer;
pub mod wire;
