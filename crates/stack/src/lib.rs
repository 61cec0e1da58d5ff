//! One lane of the Flowlane network stack, without I/O, without a clock and without randomness of its own.
//!
//! See the workspace README.
#![forbid(unsafe_code)]

pub mod address;
mod interface;
mod neighbour;
pub mod packet;
pub mod rng;
mod route;
pub mod stats;
pub mod time;
pub mod wire;

pub use interface::{Destination, InterfaceConfig};
pub use route::{Hop, Route, Routes};
