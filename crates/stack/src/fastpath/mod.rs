//! The fast path: what nearly every packet is takes a shorter way to the same result.
//!
//! It is header prediction (Jacobson, 1990) for all of the lane. One look at the headers says whether a frame is plain. If anything
//! at all is different, the frame takes the slow path unchanged: nothing is dropped, counted or answered here that the slow path
//! would treat otherwise, and the counters come out the same. Kept apart so that the slow path stays readable.

mod tcp;
mod udp;

pub(crate) use tcp::may_be_segment;
pub(crate) use udp::Datagrams;
