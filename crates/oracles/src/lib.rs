//! Tests only: the wire formats of `flowlane-stack` against two independent implementations, smoltcp and etherparse.
//!
//! They live in a crate of their own because the oracles need a newer compiler than the stack does.
#![forbid(unsafe_code)]
