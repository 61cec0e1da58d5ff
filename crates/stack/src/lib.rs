//! One lane of the Flowlane network stack, without I/O, without a clock and without randomness of its own.
//!
//! The rooms, in the order a packet meets them:
//!
//! * [`wire`]: what headers say; bytes to meaning and back.
//! * [`Lane`]: one bucket's share of a host: frames in, frames out, sockets by handle.
//! * `ip`: Ethernet, ARP and neighbour discovery, IPv4, IPv6, ICMP; `neighbour`, `route`, `interface`, [`address`].
//! * [`tunnel`]: interfaces whose link is the lane's own IP output.
//! * [`reassembly`]: fragments waiting for one another; `chain`: packets in several frames.
//! * `fastpath`: the fast path of plain UDP and TCP over IPv4, with the same result as the slow path.
//! * `udp`: sockets, lookup, input, output; [`tcp`]: the engine of a lane's connections.
//! * [`packet`]: what passes between IP and the transports; `path_mtu`: paths narrower than their link; [`stats`]: what was counted on the way.
//! * [`time`], [`timer`], [`rng`]: time, deadlines and randomness, all handed in.
#![forbid(unsafe_code)]

pub mod address;
mod chain;
mod fastpath;
mod interface;
mod ip;
mod lane;
mod neighbour;
pub mod packet;
mod path_mtu;
pub mod reassembly;
pub mod rng;
mod route;
pub mod stats;
pub mod steering;
pub mod tcp;
pub mod time;
pub mod timer;
pub mod tunnel;
pub mod udp;
pub mod wire;

pub use interface::{Destination, InterfaceConfig};
pub use ip::{IpConfig, LaneEvent, RouterNews, SendError};
pub use lane::{Class, Connect, Lane, LaneConfig, Redirect, Unsent};
pub use path_mtu::PathMtus;
pub use route::{Hop, Route, Routes};
