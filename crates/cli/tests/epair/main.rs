//! `flowlane epair` as people run it: beside the kernel's veth, with traffic of the kernel through it, with impairments, and how it ends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod arguments;
mod ends;
mod impairments;
mod kit;
mod missing;
mod traffic;
mod veth;
