//! The two sequence spaces of a connection (RFC 9293 §3.3.1), with the RFC's names, and values in sequence numbers.

mod recv;
mod send;
mod stamps;

pub(crate) use recv::RecvSpace;
pub(crate) use send::SendSpace;
pub(crate) use stamps::{Stamps, WindowScale, ts_clock};
