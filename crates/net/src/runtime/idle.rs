//! What a worker does when there is nothing to do: look again, or sleep, as it has paid lately. How it sleeps is in `worker/sleep.rs`.

use std::time::Duration;

/// Approximate cost of sleeping and waking, nanoseconds: polling longer than this costs more than sleeping.
const PAYS: Duration = Duration::from_micros(10);
/// How sure one can be.
const SURE: i8 = 8;
/// Of so many waits in which a worker would sleep at once, it looks again in one, to see whether it has begun to pay.
const TRY: u32 = 8;

/// What an idle worker does.
///
/// A worker with kernel sockets and no link sleeps at once unless `Spin` is set: polling needs a system call, which can as well wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Polls without pause: the shortest latency, uses the whole core.
    Spin,
    /// Polls for at most this time, then sleeps until something happens. If polling has not been worthwhile lately, since work took
    /// longer to arrive than sleeping costs, it sleeps at once.
    Adaptive(Duration),
}

impl Default for Idle {
    fn default() -> Self {
        Self::Adaptive(Duration::from_micros(50))
    }
}

/// Whether looking again pays, learnt from how it went lately.
#[derive(Debug)]
pub(crate) struct Patience {
    /// From `-SURE` (never) to `SURE` (always).
    pays: i8,
    sleeps: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { pays: SURE, sleeps: 0 }
    }
}

impl Patience {
    /// How long to look again this time, where `most` is the most.
    pub(crate) fn limit(&self, most: Duration) -> Duration {
        match self.pays {
            1.. => most,
            _ if self.sleeps.is_multiple_of(TRY) => most.min(2 * PAYS),
            _ => Duration::ZERO,
        }
    }

    /// There was work after `waited` of looking.
    pub(crate) fn worked(&mut self, waited: Duration) {
        let step = if waited <= PAYS { 1 } else { -1 };
        self.pays = (self.pays + step).clamp(-SURE, SURE);
    }

    /// There was none, and the worker goes to sleep.
    pub(crate) fn slept(&mut self) {
        if !self.limit(Duration::MAX).is_zero() {
            self.pays = (self.pays - 1).max(-SURE);
        }
        self.sleeps = self.sleeps.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(3);
    const LATE: Duration = Duration::from_micros(20);

    #[test]
    fn who_waits_in_vain_learns_to_sleep_and_who_would_not_learns_to_look() {
        let mut patience = Patience::default();
        for _ in 0..SURE {
            assert_eq!(patience.limit(MOST), MOST);
            patience.worked(LATE);
        }
        // Now and then it is tried, no longer than it can pay.
        let limits = |patience: &mut Patience| -> Vec<Duration> {
            (0..TRY)
                .map(|_| {
                    let limit = patience.limit(MOST);
                    patience.slept();
                    limit
                })
                .collect()
        };
        let limits = limits(&mut patience);
        assert_eq!(limits.iter().filter(|l| l.is_zero()).count(), TRY as usize - 1, "{limits:?}");
        assert_eq!(limits.iter().max(), Some(&(2 * PAYS)));
        for _ in 0..2 * SURE {
            patience.worked(SOON);
        }
        assert_eq!(patience.limit(MOST), MOST);
        // A slow one among many quick ones changes nothing.
        patience.worked(LATE);
        assert_eq!(patience.limit(MOST), MOST);
        for _ in 0..SURE {
            patience.slept();
        }
        assert!(patience.limit(MOST) < MOST);
        assert_eq!(Patience::default().limit(Duration::ZERO), Duration::ZERO);
    }
}
