//! Real links against the Linux kernel, in network namespaces. Every test that cannot run says so and passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod card;
mod common;
mod faults;
mod groups;
mod ip;
mod kernel;
mod merged;
mod offload;
mod packet;
mod routers;
mod suspend;
mod tap;
mod tap_tcp;
mod xdp;
mod zero_copy;
