//! The rate of a direction: a wire that is busy until a moment.
//!
//! Each packet occupies the wire for as long as its bits take, from when it is free or the packet comes, whichever is later; it leaves when
//! its last bit does (virtual finish time). All senders of a direction share the wire, so this is the one cache line that they all write
//! for each packet, and only where a rate is asked for: a rate is a property of them together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Picoseconds in a nanosecond: whole nanoseconds would be wrong by one in fifty at 10 Gbit/s.
const PICOS: u64 = 1000;

/// When a wire is free again.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Wire {
    /// Picoseconds on the senders' clock.
    free: AtomicU64,
}

impl Wire {
    /// Occupies the wire from `now` on (nanoseconds) for so many bytes at `rate` bits a second; when the last bit has left, nanoseconds.
    #[inline]
    pub fn charge(&self, now: u64, bytes: u64, rate: u64) -> u64 {
        let (now, takes) = (now.saturating_mul(PICOS), picos(bytes, rate));
        let occupy = |free: u64| Some(free.max(now).saturating_add(takes));
        // There is no order to keep with anything else.
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, occupy).unwrap_or(now);
        before.max(now).saturating_add(takes).div_ceil(PICOS)
    }

    /// As [`Self::charge`], of a packet that waits already and leaves at `due` at the latest: from then on it does not occupy the wire.
    pub(super) fn charge_again(&self, now: u64, bytes: u64, rate: u64, due: u64) -> u64 {
        let (now, due) = (now.saturating_mul(PICOS), due.saturating_mul(PICOS));
        let ends = |free: u64| free.max(now).saturating_add(picos(bytes, rate)).min(free.max(due));
        let occupy = |free: u64| Some(ends(free).max(free));
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, occupy).unwrap_or(now);
        ends(before).div_ceil(PICOS)
    }
}

fn picos(bytes: u64, rate: u64) -> u64 {
    const SECOND: u128 = 1_000_000_000_000;
    u64::try_from(u128::from(bytes) * 8 * SECOND / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

/// What bytes take at a rate, nanoseconds.
pub(super) fn nanos(bytes: u64, rate: u64) -> u64 {
    picos(bytes, rate) / PICOS
}
