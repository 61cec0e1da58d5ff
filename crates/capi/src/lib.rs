//! libflowlane: Flowlane for programs in C and in whatever calls C.
//!
//! ```text
//!   builder ── hosts, links ──▶ runtime ──▶ a callback for each lane: start(lane)
//!                                              └─ sockets, listeners, timers of that lane, each with callbacks
//!   rss: hash, bucket, reply ports        poll loop: one lane that its caller drives, without callbacks
//! ```
//!
//! A C program describes a runtime, and is called in each lane when that begins. It opens sockets there, and is called in the lane when
//! something happens to them. This crate is a user of `flowlane` like any other: an object of C is a task of its lane, which waits and
//! calls.
//!
//! **Rules of all functions.** They return 0 or a code below zero ([`error`]); results are written where an argument points. A null pointer
//! where a value is needed is [`error::FLOWLANE_ERR_INVALID`]. A panic of this library ends the call with [`error::FLOWLANE_ERR_PANIC`] and
//! never reaches C. What belongs to a lane works only in callbacks of that lane, and says [`error::FLOWLANE_ERR_WRONG_LANE`] elsewhere.
//!
//! **Who owns what.** Objects of a lane belong to the library. A handle is valid until the last callback of its object (`closed`) has
//! returned; closing asks for that end, and the end of the runtime brings it in any case. What a program allocates itself (builder, runtime,
//! rss, poll loop) it frees with the function of that name.
//!
//! **Unsafe.** Pointers of C are read and written here and nowhere else; each function is `unsafe` to call because it trusts them: a pointer
//! is null or valid for what the function's page says, and a handle is used only while it is valid.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the rule is the same for all of them and is at the head of the crate"
)]

pub mod address;
pub mod batch;
pub mod builder;
pub mod error;
pub mod lane;
mod named;
mod pointer;
pub mod poll_loop;
pub mod rebalance;
pub mod rss;
pub mod runtime;
mod task;
pub mod tcp;
pub mod timer;
pub mod udp;
