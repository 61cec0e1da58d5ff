//! Setting the timers: until when, by the round-trip times and by what a socket was told. What happens when they fire is in
//! `timers`.

use crate::tcp::connection::deadlines::RtxTimer;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::time::Time;

impl Connection {
    /// Takes a round-trip sample, microseconds.
    pub(crate) fn sample_rtt(&mut self, core: &mut Core, micros: u32, now: Time) {
        core.stats.rtt_samples += 1;
        core.rtts.count(micros);
        self.rtt.sample(micros, now);
        // Guard: no `self.timers.measured();` fails loss::the_doubled_timeout_stays
        self.timers.measured();
    }

    /// RFC 6298 §5.1: the retransmission timeout counts from now.
    pub(crate) fn arm_rto(&mut self, core: &Core, now: Time) {
        let timeout = self.rtt.timeout(self.timers.doublings(), core.timeouts);
        self.timers.start_rtx(RtxTimer::Rto, now.plus_micros(timeout));
        self.heed_user_timeout();
    }

    /// The timer fires no later than the user timeout ends.
    pub(crate) fn heed_user_timeout(&mut self) {
        if let (Some(limit), Some(since)) = (self.user_timeout(), self.waits_since()) {
            self.timers.bound_rtx(since + limit);
        }
    }

    /// Silence counts from now.
    pub(crate) fn arm_keepalive(&mut self, now: Time) {
        if self.has(Flags::KEEPALIVE) && !self.has(Flags::DETACHED) {
            self.timers.limit_life(now, self.keepalive().idle);
            self.timers.end_probes();
        }
    }

    /// A closed socket does not wait for the peer's FIN for ever.
    pub(crate) fn arm_fin_wait_2(&mut self, core: &Core, now: Time) {
        let limit = self.options().and_then(|o| o.linger2).unwrap_or(core.config.fin_wait_2);
        self.timers.limit_life(now, limit);
    }
}
