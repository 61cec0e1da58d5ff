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
//!
//! Set-up: [`netdev`] (interfaces), [`netns`], [`affinity`], [`privilege`], and [`error`] for what can go wrong.
//!
//! No protocol is implemented here, apart from the headers that the programs of [`bpf`] parse; that is for `flowlane-stack`. The crates
//! above forbid `unsafe`. Functions for C are in `flowlane-c`.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod affinity;
pub mod block;
pub mod bpf;
pub mod caught;
pub mod checksum;
pub mod doorbell;
pub mod error;
pub mod frame;
pub mod heap;
#[cfg(not(loom))]
pub mod kernel;
pub mod locked;
#[cfg(not(loom))]
pub mod mmsg;
pub mod netdev;
pub mod netns;
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

/// Says past libtest, which keeps what a test that passes prints, that the calling test does not run here: "skipped, because ...".
#[cfg(test)]
fn skipped(line: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {line}\n", thread.name().unwrap_or("test"));
    // Nobody may read it.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
