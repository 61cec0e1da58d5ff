//! One lane of the network stack, sans-I/O.
#![forbid(unsafe_code)]

pub mod packet;
pub mod rng;
