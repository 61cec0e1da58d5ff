//! TCP: connections, listeners, and sends without a copy.
//!
//! ```text
//!   listener ── accepts ──▶ connection ◀── flowlane_tcp_connect
//!                             └─ opened ▸ readable, writable ... ▸ closed
//! ```

pub mod connection;
pub mod listener;
pub mod sends;
pub mod stream;
pub mod zero_copy;
