//! Pacing (draft-ietf-ccwg-bbr §5.6.2, §5.6.3): bursts of a quantum at a rate. What rate that is, and how much time of it is a quantum, the
//! congestion control says that has the pace: with BBR a millisecond, two segments at least; with Prague a quarter of that.
//!
//! No quantum is more than 64 KB. Who comes late, because its timer did, may catch up with one quantum.

use crate::time::Time;
use core::time::Duration;

/// No burst is larger, bytes.
const MAX_QUANTUM: u64 = 64_000;
/// What a rate is at least, bytes a second: a model that has gone wrong does not stop a connection.
const LEAST_RATE: u64 = 3_000;

/// When the next burst of a connection may go, and how large it is.
#[derive(Debug)]
pub(crate) struct Pace {
    /// C.pacing_rate, bytes a second.
    rate: u64,
    /// C.send_quantum, bytes.
    quantum: u32,
    /// C.next_send_time.
    next_send_time: Time,
    /// What is left of the burst that began last, bytes.
    burst: u32,
    /// The lane will wake the connection.
    waits: bool,
}

impl Pace {
    /// A rate in bytes a second. A quantum is what goes at it in so many `micros`, and not less than `least` bytes.
    pub(super) fn new(now: Time, rate: u64, micros: u64, least: u32) -> Self {
        let mut pace = Self { rate: LEAST_RATE, quantum: 0, next_send_time: now, burst: 0, waits: false };
        pace.set_rate(rate);
        pace.set_quantum(micros, least);
        pace
    }

    /// Bytes a second at which data is paced.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Most bytes that go at once.
    pub(crate) fn quantum(&self) -> u32 {
        self.quantum
    }

    pub(super) fn set_rate(&mut self, rate: u64) {
        // Guard: `rate.max(LEAST_RATE)` as `rate.max(1)` fails pace::tests::no_rate
        self.rate = rate.max(LEAST_RATE);
    }

    /// SetSendQuantum (§5.6.3): what goes in so many `micros`, `least` bytes at least.
    pub(super) fn set_quantum(&mut self, micros: u64, least: u32) {
        self.quantum = (self.rate.saturating_mul(micros) / 1_000_000).min(MAX_QUANTUM) as u32;
        self.quantum = self.quantum.max(least);
    }

    fn time_of(&self, bytes: u32) -> Duration {
        Duration::from_nanos(u64::from(bytes).saturating_mul(1_000_000_000) / self.rate)
    }

    /// Until when nothing may be sent; `None` if a burst is under way or begins now.
    pub(crate) fn held_until(&mut self, now: Time) -> Option<Time> {
        if self.burst == 0 {
            // Guard: `self.next_send_time > now` as `false` fails pace::tests::as_much pace::tests::idleness
            if self.next_send_time > now {
                return Some(self.next_send_time);
            }
            self.burst = self.quantum;
            // Guard: `now - self.time_of(self.quantum)` as `Time::ZERO` fails pace::tests::idleness
            self.next_send_time = self.next_send_time.max(now - self.time_of(self.quantum));
        }
        None
    }

    /// So many bytes go out now.
    pub(super) fn sent(&mut self, bytes: u32) {
        self.burst = self.burst.saturating_sub(bytes);
        self.next_send_time += self.time_of(bytes);
    }

    /// Whether the lane is to wake the connection when it may send again: yes, unless it already will.
    pub(crate) fn wants_wake(&mut self) -> bool {
        !core::mem::replace(&mut self.waits, true)
    }

    /// The lane has woken it.
    pub(crate) fn woken(&mut self) {
        self.waits = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §5.6.2: over a second as much goes as the rate says, in bursts of a quantum, also if the timer is always late.
    #[test]
    fn as_much_goes_as_the_rate_says() {
        for late_us in [0, 50, 700] {
            let mut pace = Pace::new(Time::ZERO, 10_000_000, 1000, 2000);
            assert_eq!(pace.quantum(), 10_000);
            let (mut now, mut sent) = (Time::ZERO, 0u64);
            while now < Time::from_secs(1) {
                match pace.held_until(now) {
                    Some(at) => now = at + Duration::from_micros(late_us),
                    None => {
                        pace.sent(1000);
                        sent += 1000;
                    }
                }
            }
            assert!((10_000_000..=10_020_000).contains(&sent), "{late_us} us late: {sent}");
        }
    }

    /// Silence earns one quantum, not a burst of all that could have been sent.
    #[test]
    fn idleness_earns_one_quantum() {
        let mut pace = Pace::new(Time::ZERO, 10_000_000, 1000, 2000);
        let now = Time::from_secs(10);
        let mut sent = 0;
        while pace.held_until(now).is_none() {
            pace.sent(1000);
            sent += 1000;
        }
        assert_eq!(sent, 20_000, "the burst that is due and one more");
    }

    /// A rate that is next to nothing still lets something go.
    #[test]
    fn no_rate_is_zero() {
        let mut pace = Pace::new(Time::ZERO, 0, 1000, 2000);
        pace.sent(3000);
        assert!(pace.held_until(Time::from_secs(2)).is_none());
    }
}
