//! C names of Flowlane: what programs in other languages load or link.
//!
//! Pointers, lengths and `errno` of C become safe calls of a trait here, and every panic ends here. The stack behind a trait is elsewhere and
//! has no unsafe line: this crate and `flowlane-sys`, which calls the kernel, are the only ones that have some.
//!
//! * [`packetdrill`]: a stack as a shared object for packetdrill.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod packetdrill;
