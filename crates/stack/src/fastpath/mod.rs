//! The fast path: shorter code with the same result for nearly all packets.
//!
//! It is header prediction (Jacobson, 1990) for the whole lane. One check of the headers finds whether a frame is plain. Any other frame
//! takes the slow path unchanged. Drops, counters and answers are the same on both paths. The code is separate so that the slow path
//! stays readable.

mod tcp;
#[cfg(test)]
mod tests;
mod udp;
mod udp_output;

pub(crate) use tcp::may_be_segment;
pub(crate) use udp::{Datagrams, Run};
