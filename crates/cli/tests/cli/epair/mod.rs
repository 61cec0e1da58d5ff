//! `flowlane epair` as people run it: beside the kernel's veth, with traffic of the kernel through it, with impairments, and how it ends.

mod arguments;
mod ends;
mod impairments;
mod kit;
mod missing;
mod traffic;
mod veth;
