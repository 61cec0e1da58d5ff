//! The times that conditions may be about.

/// Which times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Timed {
    Latency,
    Slip,
    Service,
    Connect,
    Tls,
    FirstByte,
    LastByte,
    FirstEvent,
    EventGap,
    LastEvent,
}
