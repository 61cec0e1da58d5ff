//! Home ports: source ports whose replies arrive in the connection's own lane.
//!
//! A client that opens a connection wants the replies on its own core. The hash of a reply is linear in its
//! destination port, our source port `x`:
//!
//! ```text
//!   slot(x) = c + A x     c: the rest of the reply's fields; A: a matrix of the key; + is exclusive or
//! ```
//!
//! So ports fall into classes of equal size, one for each slot reached, and each class is a shifted copy of the same
//! kernel. [`coordinates`] changes basis: `x` becomes `y = (u, v)`, with `u` the part that moves the slot and `v` the
//! part that does not. For any destination the ports of one slot are then the run of all `y` with one `u`, and only
//! `u` depends on the destination, by exclusive or of a constant. That gives, for any key, destination and set of slots:
//!
//! * the number of home ports without counting, and the n-th of them in constant time;
//! * one [`PortSet`], a bitmap over `y`, in which a free home port is a free bit in one of a few aligned runs, found by
//!   looking at a word or two however full the set is.
//!
//! UDP hashed on addresses, and protocols without ports, are the case `A = 0`: all ports are home or none. Tables
//! whose size is no power of two have no such structure, nor have hashes that sort a packet's ends first: there ports are
//! tried, which is exact but not constant. Any hash that is affine in the port will do, not only Toeplitz.
//!
//! What this does not do: decide which ports exist for others (the caller gives a range and reserves), or remember
//! connections.

mod coordinates;
mod home;
mod set;
mod targets;
#[cfg(test)]
mod tests;

pub use home::{HomePorts, HomePortsError, Ports};
pub use set::PortSet;
