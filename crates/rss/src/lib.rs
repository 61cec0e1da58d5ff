//! The mathematics of steering: which core a packet belongs to, and which packets belong to a core.
//!
//! A network card with Receive Side Scaling hashes a packet's addresses and ports with a key ([`Toeplitz`], [`Key`]),
//! selects a slot of its [`Indirection`] table by the hash, and finds a [`Bucket`] there; a bucket belongs to
//! a worker ([`BucketMap`]). [`Rss`] combines these and computes for any [`Flow`] what a card would do with it:
//!
//! ```text
//!   Flow ── HashConfig: which fields ──▶ HashType
//!     └──── Toeplitz under a Key ──────▶ hash ── Indirection ──▶ slot ▶ bucket ── BucketMap ──▶ worker
//! ```
//!
//! [`HomePorts`] solves the inverse problem: the source ports of an outgoing connection whose replies hit given slots. Since the hash is
//! linear, they are computed and not searched.
//!
//! Addresses and ports are `core::net` types and host-order integers at the surface and network order in raw tuples;
//! nothing depends on the processor's byte order. Nothing here does I/O or draws random numbers. Constructors
//! allocate; queries do not.
//!
//! ```
//! use flowlane_rss::{Flow, Key, Rss, Protocol};
//!
//! let rss = Rss::new(Key::MICROSOFT, 4);
//! let flow = Flow::new("66.9.149.187:2794".parse()?, "161.142.100.80:1766".parse()?, Protocol::TCP);
//! assert_eq!(rss.steer(&flow).hash, 0x51cc_c178);
//! # Ok::<(), core::net::AddrParseError>(())
//! ```
//!
//! Semantics follow FreeBSD's RSS; `docs/rss.md` lists the differences and their reasons. [`learn`] finds the rule of a card from the
//! hashes or queues of probe packets.
//!
//! # Stability
//!
//! A release 0.1.x breaks no program that an earlier one builds; what does waits for 0.2.0 and has a line in `CHANGELOG.md`.
#![forbid(unsafe_code)]

mod affine;
mod arrangement;
mod buckets;
mod card;
mod config;
pub mod emulated;
mod explain;
mod flow;
mod hash_type;
mod hasher;
mod indirection;
mod key;
pub mod learn;
mod packet;
mod ports;
mod quality;
mod random;
mod steer;
mod toeplitz;

pub use affine::{Affine, MAX_BITS};
pub use arrangement::Arrangement;
pub use buckets::{Bucket, BucketError, BucketMap, MAX_BUCKETS, Worker, default_buckets};
pub use card::{CardTableError, worker_of_queue};
pub use config::{HashConfig, UdpFields};
pub use explain::{Explanation, Fields};
pub use flow::{Flow, Protocol};
pub use flowlane_sys::toeplitz::Columns4;
pub use hash_type::HashType;
pub use hasher::{General, Hasher};
pub use indirection::{Indirection, IndirectionError, MAX_SLOTS, SlotSet};
pub use key::{Key, KeyError};
pub use packet::PacketKind;
pub use ports::{HomePorts, HomePortsError, PortSet, Ports};
pub use quality::{FamilyQuality, FieldQuality, Quality};
pub use steer::{Rss, Steered};
pub use toeplitz::{Form, Toeplitz};
