//! All system calls and processor intrinsics of Flowlane, with their unsafe code, behind a safe interface.
//!
//! Modules, in the order of a packet's path:
//!
//! * [`xdp`], [`packet`], [`tun`]: queues of real links: AF_XDP, AF_PACKET, TAP; [`plug`]: packets between processes; [`queue`]: the common
//!   trait.
//! * [`kernel`]: kernel sockets, used without a link.
//! * [`bpf`]: the small programs in the kernel that choose which packets and which queue.
//! * [`frame`]: packet memory, a [`Pool`](frame::Pool) for each worker, and the owned [`Frame`](frame::Frame).
//! * [`block`]: memory of senders, written once and referred to by frames.
//! * [`ring`]: bounded rings between cores, and the cursor that they share with the rings of AF_XDP.
//! * [`doorbell`]: sleep and wake-up of a worker without lost wake-ups; [`poll`]: the sleep itself.
//! * [`toeplitz`] and [`checksum`]: vector forms of the RSS hash and of the Internet checksum's sum.
//! * [`ticks`]: a counter of the processor, to compare times with.
//! * [`prefetch`]: prefetching memory; [`heap`]: returning free memory to the system, and counting it.
//! * [`mod@figures`]: how counted numbers are declared, in every crate.
//!
//! Set-up: [`netdev`] (interfaces), [`netns`], [`affinity`], [`privilege`], and [`error`] for what can go wrong.
//!
//! No protocol is implemented here, apart from the headers that the programs of [`bpf`] parse; that is for `flowlane-stack`. The crates
//! above forbid `unsafe`. Functions for C are in `flowlane-c`.
//!
//! # Stability
//!
//! A part of the command and of the crate `flowlane-net`, published because they need it. It promises nothing: any release may change it.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod affinity;
pub mod block;
pub mod bpf;
pub mod caught;
pub mod checksum;
pub mod doorbell;
pub mod error;
pub mod figures;
pub mod frame;
pub mod heap;
#[cfg(not(loom))]
pub mod kernel;
pub mod locked;
#[cfg(not(loom))]
pub mod mmsg;
pub mod needs;
pub mod netdev;
pub mod netns;
#[cfg_attr(loom, allow(dead_code, reason = "links are left out"))]
mod numa;
#[cfg(not(loom))]
pub mod packet;
#[cfg(not(loom))]
pub mod perf;
#[cfg(not(loom))]
pub mod plug;
pub mod poll;
pub mod prefetch;
pub mod privilege;
pub mod process;
pub mod published;
#[cfg(not(loom))]
pub mod queue;
pub mod ring;
#[cfg(not(loom))]
mod sharing;
mod sync;
pub mod ticks;
pub mod toeplitz;
#[cfg(not(loom))]
pub mod trace;
#[cfg(not(loom))]
pub mod tun;
#[cfg(not(loom))]
mod vnet;
pub mod words;
#[cfg(not(loom))]
pub mod xdp;

/// Tests that do not run here say so past libtest and are counted. The crate that has this depends on this one.
#[cfg(test)]
#[path = "../../testnet/src/skipped.rs"]
#[allow(unreachable_pub, dead_code, reason = "is public where it lives")]
mod skips;
#[cfg(test)]
use skips::skipped;
