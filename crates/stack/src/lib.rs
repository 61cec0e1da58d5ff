//! One lane of the Flowlane network stack, without I/O, without a clock and without randomness of its own.
//!
//! Modules, in the order of a packet's path:
//!
//! * [`wire`]: parsing and writing of headers.
//! * [`Lane`]: the part of a host that belongs to one bucket: frames in, frames out, sockets by handle.
//! * `ip`: Ethernet, ARP and neighbour discovery, IPv4, IPv6, ICMP; `neighbour`, `route`, `interface`, [`address`].
//! * [`tunnel`]: interfaces whose link is the lane's own IP output.
//! * [`reassembly`]: reassembly of fragments; `chain`: packets in several frames.
//! * `fastpath`: the fast path of plain UDP and TCP over IPv4, with the same result as the slow path.
//! * `udp`: sockets, lookup, input, output; [`tcp`]: the engine of a lane's connections.
//! * [`packet`]: packets between IP and the transports; `path_mtu`: path MTUs; [`stats`]: counters.
//! * [`top`]: the flows with most packets and bytes.
//! * [`time`], [`timer`], [`rng`]: time, deadlines and randomness, all passed in by the caller.
//!
//! # Stability
//!
//! A release 0.1.x breaks no program that an earlier one builds; what does waits for 0.2.0 and has a line in `CHANGELOG.md`.
//! Counters ([`stats`]) are added in any release.
#![forbid(unsafe_code)]

pub mod address;
mod chain;
mod datagram_flows;
mod fastpath;
mod interface;
mod ip;
mod lane;
mod neighbour;
pub mod packet;
mod path_mtu;
mod queue;
pub mod reassembly;
pub mod rng;
mod route;
pub mod stats;
pub mod steering;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod time;
pub mod timer;
pub mod top;
pub mod tunnel;
pub mod udp;
pub mod wire;

pub use interface::{Destination, InterfaceConfig};
pub use ip::{AddressNews, IpConfig, LaneEvent, RouterNews, SendError, Slaac};
pub use lane::{Class, Connect, Lane, LaneConfig, Redirect, Unsent};
pub use path_mtu::PathMtus;
pub use route::{Hop, Route, Routes};
