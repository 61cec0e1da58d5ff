//! Export of TCP connections and UDP flows as IPFIX (RFC 7011), to a collector over UDP.
//!
//! ```text
//!   lanes ── FlowRecord ──▶ FlowRecords (a queue, in memory) ──▶ exporter: a thread ── messages ──▶ collector
//! ```
//!
//! The thread takes what is in the queue ten times a second. The lanes do not wait for it: what finds no room is lost and counted.

mod exporter;
mod message;

pub(crate) use exporter::{Collector, Exported, Exporter, Opened};
