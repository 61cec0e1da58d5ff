//! The clock that senders in slots have in common. Nothing else here reads a clock.

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};

/// Nanoseconds of `CLOCK_TAI`, which goes on over leap seconds. Machines that are set by PTP or NTP agree on it if they have been told the
/// difference to UTC, or if none has; within one machine all agree.
#[inline]
#[must_use]
pub fn common_clock() -> u64 {
    // Linux has it since 3.10.
    let now = clock_gettime_dynamic(DynamicClockId::Tai).unwrap_or_else(|_| clock_gettime(ClockId::Realtime));
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
