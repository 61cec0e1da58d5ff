//! Prefetching a connection's memory before its segment is handled.
//!
//! Among very many connections the next one is in no cache: neither its line of the table nor the connection itself. For a burst of
//! segments the worker makes two passes before handling any: it prefetches every table line, then every connection, so that the memory
//! accesses of a whole burst overlap. Nothing is changed or decided here; a wrong guess costs time only.

use crate::tcp::Tcp;
use crate::tcp::connection::PLAIN;
use crate::tcp::lane::CROWDED;
use crate::tcp::table::{ConnId, Tuple};
use crate::tcp::tuple_table::Found;
use core::net::SocketAddr;

/// How many segments, or uses of a connection by name, to expect before they are handled: connections of many more would
/// push one another out of the nearest cache again.
pub const AHEAD: usize = 16;

/// A segment whose table line has been prefetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched(u32);

impl Tcp {
    /// Whether there are so many connections that prefetching is worthwhile.
    #[inline]
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.connections.len() >= CROWDED
    }

    /// First pass: prefetches the table line of a received segment's flow. `local` is our end.
    #[inline]
    #[must_use]
    pub fn prefetch(&self, local: SocketAddr, remote: SocketAddr) -> Prefetched {
        let tuple = Tuple {
            local: local.ip(),
            remote: remote.ip(),
            local_port: local.port(),
            remote_port: remote.port(),
        };
        let hash = self.core.table.hash(&tuple);
        self.core.table.prefetch(hash);
        Prefetched(hash)
    }

    /// Second pass: prefetches the connection, if there is one.
    #[inline]
    pub fn prefetch_connection(&self, expected: Prefetched) {
        if let Some(Found::Connection(slot)) = self.core.table.find(expected.0, |_| true) {
            self.connections.prefetch(slot, PLAIN);
        }
    }

    /// Asks for a connection that is about to be used by name.
    #[inline]
    pub fn prefetch_id(&self, id: ConnId) {
        self.connections.prefetch(id.slot, PLAIN);
    }
}
