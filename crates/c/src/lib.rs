//! Functions of Flowlane with C names, for programs in other languages.
//!
//! Pointers, lengths and `errno` of C are translated to safe calls of a trait, and panics are caught. The stack behind a trait is in
//! another crate without unsafe code; only this crate and `flowlane-sys`, which calls the kernel, have any.
//!
//! * [`packetdrill`]: a stack as a shared object for packetdrill.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod packetdrill;
