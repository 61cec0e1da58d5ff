//! Bounded rings between cores.
//!
//! * [`spsc`]: one producer, one consumer; batches; used between workers (netisr).
//! * [`mpsc`]: many producers, one consumer, and one order that all agree on; used by the pair link, where frames of
//!   one flow may come from two workers in turn while its lane moves.
//! * [`cursor`]: the arithmetic of both ends of a single-producer ring, shared with the rings of AF_XDP.
//!
//! Positions are free-running `u32`s; a slot is position modulo capacity, a power of two. Nothing here blocks,
//! allocates after construction, or calls the kernel: waking a sleeper is the business of [`crate::doorbell`].

pub mod cursor;
pub mod mpsc;
pub mod spsc;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
