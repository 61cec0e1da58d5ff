//! Every unsafe line of Flowlane, behind a safe interface.
//!
//! The rooms, in the order a packet meets them:
//!
//! * [`frame`]: the memory packets live in, one [`Pool`](frame::Pool) a worker, and the owned [`Frame`](frame::Frame).
//! * [`ring`]: bounded rings between cores, and the cursor that they share with the rings of AF_XDP.
//! * [`doorbell`]: how a worker goes to sleep without missing work, and how others wake it.
//! * [`toeplitz`]: vector forms of the RSS hash.
//!
//! Nothing here knows a protocol; `flowlane-stack` does. Everything above this crate forbids `unsafe`.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod doorbell;
pub mod frame;
pub mod ring;
mod sync;
pub mod toeplitz;
