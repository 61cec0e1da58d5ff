//! A learning Ethernet switch with VLANs (IEEE 802.1D, 802.1Q, 802.1ad), without I/O.
//!
//! ```text
//!  frames of one port ──▶ ingress ──▶ learn source ──▶ look up destination ──▶ egress ──▶ frames of each port
//!                         tag, VLAN,   table/           one port, a group,      tag, MTU,
//!                         refusals                      or a flood              copies
//! ```
//!
//! [`Switch`] is a value that one thread owns: frames go in with the number of their port, and come out in an [`Output`] under the numbers of
//! theirs. Time and randomness are arguments, so a test can simulate a day and repeat it. Several threads each have a `Switch` of their own;
//! what one learns, the others are told as [`News`].
//!
//! * [`config`]: what the switch is told: modes, ports, VLAN groups; the words that change it, and its file.
//! * [`table`]: the table of addresses.
//! * [`path`]: what a frame passes, in that order: `ingress`, `egress`, and the [`Switch`] that joins them.
//! * [`storm`], [`snoop`], [`loops`]: limits of floods, who listens to a multicast group, loops outside.
//! * [`drops`]: the names of all ways in which a frame ends here.
//!
//! What always holds: a frame never leaves by the port on which it came, never twice by one port, and never by a port outside its VLAN. All
//! memory is taken when the switch is made or a port is added. A frame that meets nothing unusual is handled without allocation, lock or system call, and the
//! payload is copied only for a flood or a mirror.
//!
//! # Stability
//!
//! A release 0.1.x breaks no program that an earlier one builds; what does waits for 0.2.0 and has a line in `CHANGELOG.md`.
//! Reasons of drops are added in any release.
#![forbid(unsafe_code)]

pub mod config;
pub mod drops;
pub mod loops;
pub mod path;
pub mod ports;
mod rate;
mod seed;
pub mod snoop;
pub mod storm;
pub mod table;

pub use config::{Change, Config, ConfigError};
pub use drops::{Drop, FrameDrops, PortCounters};
pub use path::{Event, News, Output, Switch};
pub use ports::{MAX_PORTS, PortId, PortSet};
pub use seed::Seed;
