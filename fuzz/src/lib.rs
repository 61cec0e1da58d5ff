//! What is fuzzed, as functions of bytes: one module a target, each with `run(&[u8])`, which panics when something that
//! must always hold does not.
//!
//! The fuzzer calls them from `targets/`, and `tests/corpus.rs` calls them as plain tests over the seeds, over every
//! seed cut short and with bits flipped, and over the inputs kept in `corpus/` because they once failed.

pub mod bytes;
pub mod classify;
pub mod count;
pub mod http1;
pub mod http3;
pub mod lane;
pub mod memcached;
pub mod mutate;
pub mod proxy;
pub mod reassembly;
pub mod rss_key_hex;
pub mod seeds;
pub mod switch;
pub mod tcp;
pub mod websocket;
pub mod wire;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 12] = [
    ("lane", lane::run),
    ("wire", wire::run),
    ("classify", classify::run),
    ("reassembly", reassembly::run),
    ("tcp", tcp::run),
    ("rss_key_hex", rss_key_hex::run),
    ("http1", http1::run),
    ("switch", switch::run),
    ("proxy", proxy::run),
    ("memcached", memcached::run),
    ("websocket", websocket::run),
    ("http3", http3::run),
];
