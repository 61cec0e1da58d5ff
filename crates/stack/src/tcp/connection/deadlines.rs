//! The deadlines of a connection, and its one entry on the lane's wheel.

use crate::time::Time;
use crate::timer::{TimerId, Wheel};

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

/// When what is due, and how often in a row it was for nothing.
// Packed, since four of its bytes decide whether plain exchanges touch four cache lines of a connection or five.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct Deadlines {
    /// Of the retransmission timer.
    rtx_at: Time,
    /// Of the delayed acknowledgement.
    ack_at: Time,
    /// Keep-alive, FIN-WAIT-2 or linger: whatever ends a silent connection.
    life_at: Time,
    /// When the wheel will look at this connection; later deadlines need no change to the wheel.
    armed_at: Time,
    entry: Option<TimerId>,
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
            ack_at: NEVER,
            life_at: NEVER,
            armed_at: NEVER,
            entry: None,
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
        NEVER != { self.rtx_at }
    }

    /// Whether it is not about data in flight.
    #[inline]
    pub(crate) const fn is_probe(&self) -> bool {
        matches!(self.rtx_kind, RtxTimer::Persist | RtxTimer::Cork)
    }

    /// What it ran for, if it is due.
    #[inline]
    pub(crate) fn rtx_due(&self, now: Time) -> Option<RtxTimer> {
        ({ self.rtx_at } <= now).then_some(self.rtx_kind)
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
        self.ack_at = at;
    }

    #[inline]
    pub(crate) fn ack_is_delayed(&self) -> bool {
        NEVER != { self.ack_at }
    }

    #[inline]
    pub(crate) fn stop_ack(&mut self) {
        self.ack_at = NEVER;
    }

    /// Whether it is due; then it waits no longer.
    #[inline]
    pub(crate) fn take_ack(&mut self, now: Time) -> bool {
        let due = { self.ack_at } <= now;
        if due {
            self.ack_at = NEVER;
        }
        due
    }

    // What ends a silent connection.

    /// Silence is looked at again at `at`.
    #[inline]
    pub(crate) fn limit_life(&mut self, at: Time) {
        self.life_at = at;
    }

    /// Silence has no limit.
    #[inline]
    pub(crate) fn stop_life(&mut self) {
        self.life_at = NEVER;
    }

    #[inline]
    pub(crate) fn life_is_over(&self, now: Time) -> bool {
        now >= { self.life_at }
    }

    // The wheel.

    /// Brings the wheel up to date. `also`: a deadline kept elsewhere. `crowded`: among very many connections, an entry that fires
    /// for nothing finds its connection cold, so one without a deadline is taken off.
    // Nearly always there is nothing to do, which is found out where it is called.
    #[inline(always)]
    pub(crate) fn settle(&mut self, wheel: &mut Wheel<u32>, slot: u32, also: Time, crowded: bool) {
        let next = self.rtx_at.min(self.ack_at).min(self.life_at).min(also);
        if next < { self.armed_at } {
            self.arm(wheel, slot, next);
        } else if crowded && next == NEVER && { self.armed_at } != NEVER {
            self.leave(wheel);
        }
    }

    /// The wheel looks at this connection at `next`, earlier than it would have.
    #[inline(never)]
    fn arm(&mut self, wheel: &mut Wheel<u32>, slot: u32, next: Time) {
        let armed = self.entry.is_some_and(|id| wheel.rearm(id, next));
        if !armed {
            self.entry = Some(wheel.arm(next, slot));
        }
        self.armed_at = next;
    }

    /// The entry has fired.
    #[inline]
    pub(crate) fn fired(&mut self) {
        (self.entry, self.armed_at) = (None, NEVER);
    }

    /// Nothing is due any more.
    pub(crate) fn disarm(&mut self, wheel: &mut Wheel<u32>) {
        (self.rtx_at, self.ack_at, self.life_at) = (NEVER, NEVER, NEVER);
        self.leave(wheel);
    }

    #[inline(never)]
    fn leave(&mut self, wheel: &mut Wheel<u32>) {
        if let Some(id) = self.entry.take() {
            wheel.cancel(id);
        }
        self.armed_at = NEVER;
    }
}
