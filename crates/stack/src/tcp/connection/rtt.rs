//! Round-trip time and the retransmission timeout (RFC 6298).
//!
//! Microseconds in 32 bits. The variance term is never below the configured least timeout, so that a path with a very
//! steady round-trip time still gets that much slack over it: the timeout is `SRTT + max(min_rto, 4 * RTTVAR)`.

use crate::tcp::config::TcpConfig;
use core::time::Duration;

use crate::time::Time;

/// Estimates of one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time, 0 before the first sample.
    srtt: u32,
    /// Before the first sample the timeout without backoff, which follows from both later.
    rttvar: u32,
    /// Least sample of the last minutes; `u32::MAX` before the first.
    min: u32,
    min_at: u32,
}

/// How long a minimum is believed, seconds.
const MIN_WINDOW: u32 = 300;

/// Whole microseconds, at most what 32 bits hold.
#[inline]
pub(crate) fn micros(duration: Duration) -> u32 {
    let micros = duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into());
    u32::try_from(micros).unwrap_or(u32::MAX)
}

/// The first, the least and the greatest timeout, microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timeouts {
    initial: u32,
    min: u32,
    max: u32,
}

impl Timeouts {
    /// Those of a configuration.
    pub(crate) fn of(config: &TcpConfig) -> Self {
        Self { initial: micros(config.initial_rto), min: micros(config.min_rto), max: micros(config.max_rto) }
    }
}

impl Rtt {
    /// RFC 6298 §2.1.
    pub(crate) const fn new(bounds: Timeouts) -> Self {
        Self { srtt: 0, rttvar: bounds.initial, min: u32::MAX, min_at: 0 }
    }

    /// SRTT, microseconds; 0 before the first sample.
    #[inline]
    pub(crate) const fn srtt(&self) -> u32 {
        self.srtt
    }

    /// RTTVAR, microseconds; 0 before the first sample.
    pub(crate) const fn rttvar(&self) -> u32 {
        if self.srtt == 0 { 0 } else { self.rttvar }
    }

    /// The timeout without backoff, microseconds.
    #[inline]
    pub(crate) fn rto(&self, bounds: Timeouts) -> u32 {
        if self.srtt == 0 {
            return self.rttvar;
        }
        // Guard: `.max(bounds.min)` as `.max(0)` fails tcp::tests::loss rtt::tests
        let slack = self.rttvar.saturating_mul(4).max(bounds.min);
        // Guard: `.min(bounds.max)` as `.min(u32::MAX)` fails rtt::tests::no_sample
        self.srtt.saturating_add(slack).min(bounds.max)
    }

    /// Least sample of the last minutes, microseconds; `u32::MAX` before the first.
    #[inline]
    pub(crate) const fn min(&self) -> u32 {
        self.min
    }

    /// RFC 6298 §2.2 and §2.3, with alpha 1/8 and beta 1/4.
    #[inline]
    pub(crate) fn sample(&mut self, us: u32, now: Time) {
        let us = us.max(1);
        if self.srtt == 0 {
            self.srtt = us;
            self.rttvar = us / 2;
        } else {
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(us) / 4;
            self.srtt = self.srtt - self.srtt / 8 + us / 8;
        }
        self.srtt = self.srtt.max(1);
        let secs = (now.as_nanos() / 1_000_000_000) as u32;
        if us <= self.min || secs.wrapping_sub(self.min_at) > MIN_WINDOW {
            self.min = us;
            self.min_at = secs;
        }
    }

    /// The timeout after `backoff` doublings (RFC 6298 §5.5), microseconds.
    #[inline]
    pub(crate) fn timeout(&self, backoff: u8, bounds: Timeouts) -> u64 {
        let us = u64::from(self.rto(bounds));
        if backoff == 0 && self.srtt != 0 {
            return us;
        }
        let us = us << backoff.min(20);
        // Guard: `.min(bounds.max.into())` as `.min(u64::MAX)` fails rtt::tests::backoff
        us.min(bounds.max.into())
    }

    /// RFC 6298 §5.7: the SYN was lost and there is no sample: 3 seconds.
    pub(crate) fn syn_was_lost(&mut self) {
        if self.srtt == 0 {
            self.rttvar = self.rttvar.max(3_000_000);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6298 §2.2, §2.3.
    #[test]
    fn first_and_later_samples() {
        let config = TcpConfig { min_rto: Duration::from_millis(1), ..TcpConfig::default() };
        let bounds = Timeouts::of(&config);
        let mut rtt = Rtt::new(Timeouts::of(&config));
        assert_eq!(rtt.timeout(0, bounds), 1_000_000);
        assert_eq!(rtt.rttvar(), 0);
        rtt.sample(100_000, Time::ZERO);
        assert_eq!((rtt.srtt, rtt.rttvar(), rtt.rto(bounds)), (100_000, 50_000, 300_000));
        rtt.sample(200_000, Time::ZERO);
        assert_eq!((rtt.srtt, rtt.rttvar), (112_500, 62_500));
        assert_eq!(rtt.min, 100_000);
    }

    /// RFC 6298 §2.5: what is reported and what idleness is measured by has the greatest timeout, too.
    #[test]
    fn no_sample_makes_the_timeout_greater_than_the_greatest() {
        let config = TcpConfig::default();
        let mut rtt = Rtt::new(Timeouts::of(&config));
        rtt.sample(200_000_000, Time::ZERO);
        assert_eq!(rtt.rto(Timeouts::of(&config)), micros(config.max_rto));
    }

    /// RFC 6298 §5.5 and §2.5.
    #[test]
    fn backoff_doubles_up_to_the_greatest_timeout() {
        let config = TcpConfig::default();
        let rtt = Rtt::new(Timeouts::of(&config));
        let timeouts: Vec<_> = (0..9).map(|n| rtt.timeout(n, Timeouts::of(&config)) / 1_000_000).collect();
        assert_eq!(timeouts, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    }
}
