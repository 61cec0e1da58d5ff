//! One lane of Flowlane behind packetdrill's interface for shared objects.
//!
//! ```text
//!   packetdrill ─▶ table (flowlane-sys) ─▶ Shim ─▶ Gate: two threads in step
//!                                                   └▶ World: clock, link, sockets ─▶ Lane
//! ```
//!
//! The lane is passive: nothing happens but by a call, and time is a number that packetdrill moves. So a script of a minute
//! runs in a tenth of a second, and the same script gives the same packets. How to run it: `docs/conformance/packetdrill.md`.
//!
//! The one line of this crate that is not safe Rust is the macro that exports the table's C function; its text is in
//! `flowlane-sys`.
#![deny(unsafe_code)]
#![allow(clippy::unnecessary_cast, reason = "how wide C's integers are depends on the machine")]

mod calls;
mod chrono;
mod counts;
mod data;
mod descriptor;
mod errqueue;
mod fast_open;
mod flags;
mod gate;
mod info;
mod link;
mod options;
mod queue;
mod ready;
mod shim;
mod sysctl;
mod world;

pub use flags::Network;
pub use shim::make;

/// The C functions, under the names that packetdrill and the loader look for.
#[allow(
    unsafe_code,
    missing_docs,
    reason = "exported names are unsafe attributes; the functions are flowlane-c's"
)]
pub mod exported {
    flowlane_c::export_packetdrill!(crate::make);
}
