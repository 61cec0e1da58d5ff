//! Real links against the Linux kernel, in network namespaces. Every test that cannot run says so and passes.

mod common;
mod packet;
mod tap;
mod xdp;
