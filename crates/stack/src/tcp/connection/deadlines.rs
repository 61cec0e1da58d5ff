//! The deadlines of a connection, and its one entry on the lane's wheel.

use crate::time::Time;
use crate::timer::{TimerId, Wheel};
use core::time::Duration;

/// No timer.
pub(crate) const NEVER: Time = Time::MAX;

/// What the retransmission timer is running for; one at a time (RFC 8985 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RtxTimer {
    /// Retransmission timeout.
    Rto,
    /// Probe timeout of TLP.
    Tlp,
    /// RACK's reordering timer.
    Reorder,
    /// Zero-window probe.
    Persist,
    /// Corked data has waited long enough.
    Cork,
}

/// No deadline in 32 bits is further away: half of what they can tell apart, 24 days.
const FURTHEST: Duration = Duration::from_millis(i32::MAX as u64);

/// A deadline in four bytes: the low bits of its millisecond, rounded up as the wheel does, or none. It is at most [`FURTHEST`] away, before
/// it comes and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Soon(u32);

impl Soon {
    const NONE: Soon = Soon(0);

    /// The one millisecond in 49 days whose number says that there is none has the next.
    #[inline]
    fn at(at: Time) -> Self {
        // Guard: `.max(1)` as `.max(0)` fails deadlines::tests::four_bytes_tell
        Self((at.as_nanos().div_ceil(1_000_000) as u32).max(1))
    }

    #[inline]
    fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// The moment itself, if `near` milliseconds is the time; if that was long ago, perhaps an earlier one, never a later.
    #[inline]
    fn time(self, near: u64) -> Time {
        let ahead = self.0.wrapping_sub(near as u32) as i32;
        Time::from_millis(near.saturating_add_signed(ahead.into()))
    }

    #[inline]
    fn is_due(self, now: Time) -> bool {
        self.is_some() && self.time(now.as_millis()) <= now
    }
}

/// When what is due, and how often in a row it was for nothing.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Deadlines {
    /// Of the retransmission timer.
    rtx_at: Time,
    /// When the wheel will look at this connection; later deadlines need no change to the wheel.
    armed_at: Time,
    /// Of the delayed acknowledgement.
    ack_at: Soon,
    /// Keep-alive, FIN-WAIT-2 or linger: whatever ends a silent connection.
    life_at: Soon,
    /// Where it hangs on the wheel, if it is armed.
    entry: u32,
    rtx_kind: RtxTimer,
    /// Timeouts in a row, since anything was acknowledged.
    backoff: u8,
    /// How often the timeout is doubled, until a round trip is measured (RFC 6298 §5.5, Karn's rule).
    doublings: u8,
    /// Probes in a row that were not answered: of a closed window or of keep-alive.
    probes: u8,
}

impl Deadlines {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            rtx_at: NEVER,
            armed_at: NEVER,
            ack_at: Soon::NONE,
            life_at: Soon::NONE,
            entry: 0,
            rtx_kind: RtxTimer::Rto,
            backoff: 0,
            doublings: 0,
            probes: 0,
        }
    }

    // The retransmission timer.

    /// It fires at `at`, whatever it ran for before.
    #[inline]
    pub(crate) fn start_rtx(&mut self, kind: RtxTimer, at: Time) {
        (self.rtx_kind, self.rtx_at) = (kind, at);
    }

    /// It fires at `at` if that is earlier.
    #[inline]
    pub(crate) fn bound_rtx(&mut self, at: Time) {
        self.rtx_at = self.rtx_at.min(at);
    }

    /// It fires at `at`, if it runs for a retransmission and would fire later; whether it did.
    pub(crate) fn hasten_rto(&mut self, at: Time) -> bool {
        let due = self.rtx_at;
        let later = self.rtx_kind == RtxTimer::Rto && due != NEVER && due > at;
        if later {
            self.rtx_at = at;
        }
        later
    }

    #[inline]
    pub(crate) fn stop_rtx(&mut self) {
        self.rtx_at = NEVER;
    }

    /// RACK has no segment left to wait for: the timer stops if it ran for that.
    pub(crate) fn stop_reordering(&mut self) {
        if self.rtx_kind == RtxTimer::Reorder {
            self.start_rtx(RtxTimer::Rto, NEVER);
        }
    }

    /// What it runs for, or ran for last.
    #[inline]
    pub(crate) const fn rtx_kind(&self) -> RtxTimer {
        self.rtx_kind
    }

    #[inline]
    pub(crate) const fn rtx_at(&self) -> Time {
        self.rtx_at
    }

    #[inline]
    pub(crate) fn rtx_runs(&self) -> bool {
        self.rtx_at != NEVER
    }

    /// Whether it is not about data in flight.
    #[inline]
    pub(crate) const fn is_probe(&self) -> bool {
        matches!(self.rtx_kind, RtxTimer::Persist | RtxTimer::Cork)
    }

    /// What it ran for, if it is due.
    #[inline]
    pub(crate) fn rtx_due(&self, now: Time) -> Option<RtxTimer> {
        (self.rtx_at <= now).then_some(self.rtx_kind)
    }

    /// Timeouts in a row.
    #[inline]
    pub(crate) const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// How often the timeout is doubled now.
    #[inline]
    pub(crate) const fn doublings(&self) -> u8 {
        self.doublings
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
        // Guard: no `self.doublings = self.doublings.saturating_add(1);` fails
        // loss::the_doubled_timeout_stays
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Something was acknowledged. It may have been sent again, which tells nothing about the round trip: the timeout stays as it is
    /// (RFC 6298 §5, Karn's rule), but giving up counts from here.
    #[inline]
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }

    /// A tail loss probe was a segment sent again, and which of the two was acknowledged is unknown: the next is given as long as after a
    /// timeout.
    pub(crate) fn probed_for_nothing(&mut self) {
        self.doublings = self.doublings.max(1);
    }

    /// A round trip was measured (RFC 6298 §5.7): the timeout is that of the measurement.
    #[inline]
    pub(crate) fn measured(&mut self) {
        self.doublings = 0;
    }

    /// The last timeouts were those of a closed window: they tell nothing of the path.
    pub(crate) fn forget_last_timeouts(&mut self) {
        self.doublings = self.doublings.saturating_sub(self.backoff);
        self.backoff = 0;
    }

    /// A connection begins: nothing of its handshake's timeouts stays, but what RFC 6298 §5.7 says.
    pub(crate) fn forget_backoff(&mut self) {
        (self.backoff, self.doublings) = (0, 0);
    }

    // Probes.

    /// Those that were not answered.
    #[inline]
    pub(crate) const fn probes(&self) -> u8 {
        self.probes
    }

    pub(crate) fn count_probe(&mut self) {
        self.probes = self.probes.saturating_add(1);
    }

    /// The peer lives.
    #[inline]
    pub(crate) fn end_probes(&mut self) {
        self.probes = 0;
    }

    // The delayed acknowledgement.

    /// It waits until `at` for data to go with.
    #[inline]
    pub(crate) fn delay_ack(&mut self, at: Time) {
        self.ack_at = Soon::at(at);
    }

    #[inline]
    pub(crate) fn ack_is_delayed(&self) -> bool {
        self.ack_at.is_some()
    }

    #[inline]
    pub(crate) fn stop_ack(&mut self) {
        self.ack_at = Soon::NONE;
    }

    /// Whether it is due; then it waits no longer.
    #[inline]
    pub(crate) fn take_ack(&mut self, now: Time) -> bool {
        let due = self.ack_at.is_due(now);
        if due {
            self.ack_at = Soon::NONE;
        }
        due
    }

    // What ends a silent connection.

    /// Silence is looked at again after `wait` from `now`: after 24 days at the latest.
    #[inline]
    pub(crate) fn limit_life(&mut self, now: Time, wait: Duration) {
        // Guard: `wait.min(FURTHEST)` as `wait` fails deadlines::tests::silence_has_a_limit
        self.life_at = Soon::at(now + wait.min(FURTHEST));
    }

    /// Silence has no limit.
    #[inline]
    pub(crate) fn stop_life(&mut self) {
        self.life_at = Soon::NONE;
    }

    #[inline]
    pub(crate) fn life_is_over(&self, now: Time) -> bool {
        self.life_at.is_due(now)
    }

    // The wheel.

    /// Brings the wheel up to date. `clock`: when timers last fired, milliseconds. `also`: a deadline kept elsewhere. `crowded`: among very
    /// many connections, an entry that fires for nothing finds its connection cold, so one without a deadline is taken off.
    // Nearly always there is nothing to do, which is found out where it is called.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        (wheel, clock): (&mut Wheel<u32>, u64),
        slot: u32,
        also: Time,
        crowded: bool,
    ) {
        let mut next = self.rtx_at.min(also);
        if self.ack_at.0 | self.life_at.0 != 0 {
            for soon in [self.ack_at, self.life_at] {
                if soon.is_some() {
                    next = next.min(soon.time(clock));
                }
            }
        }
        if next < self.armed_at {
            self.arm(wheel, slot, next);
        } else if crowded && next == NEVER && self.armed_at != NEVER {
            self.leave(wheel);
        }
    }

    /// The wheel looks at this connection at `next`, earlier than it would have.
    #[inline(never)]
    fn arm(&mut self, wheel: &mut Wheel<u32>, slot: u32, next: Time) {
        match self.armed(wheel) {
            Some(id) => _ = wheel.rearm(id, next),
            None => self.entry = wheel.arm(next, slot).index(),
        }
        self.armed_at = next;
    }

    /// Its name on the wheel, if it is armed. What has fired hangs there no longer, so whoever takes entries off the wheel says so at
    /// once, before another can be armed: see [`fired`](Self::fired).
    #[inline]
    fn armed(&self, wheel: &Wheel<u32>) -> Option<TimerId> {
        if self.armed_at == NEVER { None } else { wheel.named(self.entry) }
    }

    /// The entry has fired.
    #[inline]
    pub(crate) fn fired(&mut self) {
        // Guard: no `self.armed_at = NEVER;` fails deadlines::tests::what_has_fired
        self.armed_at = NEVER;
    }

    /// Nothing is due any more.
    pub(crate) fn disarm(&mut self, wheel: &mut Wheel<u32>) {
        (self.rtx_at, self.ack_at, self.life_at) = (NEVER, Soon::NONE, Soon::NONE);
        self.leave(wheel);
    }

    #[inline(never)]
    fn leave(&mut self, wheel: &mut Wheel<u32>) {
        if let Some(id) = self.armed(wheel) {
            wheel.cancel(id);
        }
        self.armed_at = NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often 32 bits of milliseconds begin anew.
    const ROUND: u64 = 1 << 32;

    #[test]
    fn four_bytes_tell_deadlines_of_the_last_and_the_next_24_days() {
        let day = 24 * 3600 * 1000;
        for now in [0, 1, ROUND - 1, ROUND, ROUND + 1, 7 * ROUND - 3, 7 * ROUND + day] {
            for wait in [1, 40, 1000, day, 24 * day] {
                let at = Time::from_millis(now + wait);
                let soon = Soon::at(at);
                let given = soon.time(now);
                let next = Time::from_millis((now + wait).next_multiple_of(ROUND) + 1);
                assert!(given == at || (now + wait) % ROUND == 0 && given == next, "{now} + {wait}: {given}");
                assert!(!soon.is_due(Time::from_millis(now + wait - 1)), "{now} + {wait}");
                assert!(soon.is_due(given), "{now} + {wait}");
                assert!(soon.is_due(given + Duration::from_millis(day)), "{now} + {wait}");
                // By an old clock it looks due at most too early.
                for old in [0, now / 3, now.saturating_sub(30 * day)] {
                    assert!(soon.time(old) <= given, "{now} + {wait} by {old}");
                }
            }
        }
        // A part of a millisecond counts as a whole one, as on the wheel.
        assert_eq!(Soon::at(Time::from_micros(4_000_001)).time(0), Time::from_millis(4_001));
    }

    #[test]
    fn silence_has_a_limit_of_24_days() {
        let now = Time::from_secs(1_000_000);
        for days in [1, 24, 30, 100] {
            let mut timers = Deadlines::new();
            timers.limit_life(now, Duration::from_secs(days * 24 * 3600));
            assert!(!timers.life_is_over(now), "{days}");
            assert!(!timers.life_is_over(now + Duration::from_secs(20 * 3600)), "{days}");
            assert!(timers.life_is_over(now + Duration::from_secs(25 * 24 * 3600)), "{days}");
        }
    }

    /// Another is armed where what has fired hung, before that is looked at.
    #[test]
    fn what_has_fired_leaves_the_wheel_to_others() {
        let at = Time::from_millis;
        let mut wheel = Wheel::new(at(0));
        let (mut one, mut other) = (Deadlines::new(), Deadlines::new());
        one.start_rtx(RtxTimer::Rto, at(10));
        one.settle((&mut wheel, 0), 1, NEVER, false);
        assert_eq!(wheel.pop_due(at(10)), Some(1));
        one.fired();
        other.start_rtx(RtxTimer::Rto, at(30));
        other.settle((&mut wheel, 10), 2, NEVER, false);
        one.stop_rtx();
        one.settle((&mut wheel, 10), 1, NEVER, true);
        one.start_rtx(RtxTimer::Rto, at(20));
        one.settle((&mut wheel, 10), 1, NEVER, false);
        assert_eq!((wheel.len(), wheel.pop_due(at(20)), wheel.pop_due(at(30))), (2, Some(1), Some(2)));
    }
}
