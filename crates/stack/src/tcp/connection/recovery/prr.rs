//! Proportional rate reduction (RFC 9937): how much is sent while the window is being reduced.
//!
//! Above the threshold as much is sent for each byte delivered as leads to the threshold within the round. At or below it at most as much
//! as was delivered (PRR-CRB), and a segment more where the acknowledgement shows progress without new losses (PRR-SSRB).

/// Of one episode.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Prr {
    /// prr_delivered.
    pub(super) delivered: u32,
    /// prr_out.
    pub(super) out: u32,
    /// RecoverFS.
    pub(super) recover_fs: u32,
}

impl Prr {
    /// RFC 9937 §6.2: sndcnt, how much more may be sent on this acknowledgement. `safe` is SafeACK: it acknowledged in sequence and told
    /// of no new loss, so the bound may grow as in slow start.
    pub(super) fn allowance(
        &mut self,
        in_flight: u32,
        ssthresh: u32,
        delivered: u32,
        mss: u32,
        safe: bool,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        // Guard: `in_flight > ssthresh` as `false` fails prr::tests::reduction
        let more = if in_flight > ssthresh {
            let target =
                (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(u64::from(self.recover_fs.max(1)));
            (target.min(u64::from(u32::MAX)) as u32).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + if safe { mss } else { 0 };
            limit.min(ssthresh - in_flight)
        };
        // The first retransmission goes out at once.
        // Guard: `self.out == 0` as `false` fails prr::tests::the_first
        if self.out == 0 { more.max(mss) } else { more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9937 §6.2: over a round that delivers everything, ssthresh/RecoverFS of it is sent.
    #[test]
    fn reduction_is_spread_over_the_round() {
        let mut prr = Prr { delivered: 0, out: 0, recover_fs: 20_000 };
        let mut in_flight = 19_000u32;
        let mut sent = 0;
        for _ in 0..19 {
            in_flight -= 1000;
            let more = prr.allowance(in_flight, 14_000, 1000, 1000, false) / 1000 * 1000;
            prr.out += more;
            sent += more;
            in_flight += more;
        }
        assert!((13_000..=15_000).contains(&sent), "{sent}");
        assert!(in_flight <= 14_000, "{in_flight}");
    }

    /// RFC 9937 §6.2: the first retransmission waits for no further acknowledgement.
    #[test]
    fn the_first_retransmission_goes_at_once() {
        let mut prr = Prr { delivered: 0, out: 0, recover_fs: 20_000 };
        assert_eq!(prr.allowance(19_000, 14_000, 1000, 1000, false), 1000);
        prr.out = 1000;
        assert_eq!(prr.allowance(18_000, 14_000, 1000, 1000, false), 400);
    }
}
