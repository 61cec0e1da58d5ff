//! Delivery-rate samples (draft-ietf-ccwg-bbr §4.1, formerly draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Each departure notes what had been delivered by then. When it has arrived, what was delivered since, over the longer of the times
//! that sending and acknowledging it took, is how fast the path delivers.

use super::{Acked, rate};
use crate::tcp::Seq;
use crate::time::Time;

/// A segment, or a batch of them, as it left (`P.*`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Departure {
    /// P.send_time.
    pub(crate) send_time: Time,
    /// The first number after it.
    pub(crate) end: Seq,
    /// P.size.
    pub(super) size: u32,
    /// P.tx_in_flight.
    pub(super) tx_in_flight: u32,
    pub(super) first_send_time: Time,
    pub(super) delivered_time: Time,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) is_app_limited: bool,
}

/// The connection's side of it (`C.*`).
#[derive(Debug)]
pub(super) struct Sampler {
    delivered: u64,
    delivered_time: Time,
    first_send_time: Time,
    lost: u64,
    /// C.app_limited: the count of delivered bytes at which the effect of having had nothing to send is over; 0 without.
    app_limited: u64,
}

/// `RS.*`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RateSample {
    pub(super) has_data: bool,
    /// Microseconds.
    pub(super) rtt: Option<u64>,
    pub(super) newly_acked: u64,
    pub(super) newly_lost: u64,
    pub(super) prior_delivered: u64,
    pub(super) delivered: u64,
    /// Bytes a second; 0 without a reliable sample.
    pub(super) delivery_rate: u64,
    pub(super) is_app_limited: bool,
    pub(super) tx_in_flight: u64,
    pub(super) lost: u64,
}

impl Sampler {
    pub(super) fn new(now: Time) -> Self {
        Self { delivered: 0, delivered_time: now, first_send_time: now, lost: 0, app_limited: 0 }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// So many bytes more are deemed lost.
    pub(super) fn note_lost(&mut self, bytes: u32) {
        self.lost += u64::from(bytes);
    }

    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// OnPacketSent (§4.1.2.2); `inflight` includes the packet.
    pub(super) fn on_sent(&mut self, now: Time, end: Seq, size: u32, inflight: u32) -> Departure {
        if inflight <= size {
            (self.first_send_time, self.delivered_time) = (now, now);
        }
        Departure {
            send_time: now,
            end,
            size,
            tx_in_flight: inflight,
            first_send_time: self.first_send_time,
            delivered_time: self.delivered_time,
            delivered: self.delivered,
            lost: self.lost,
            is_app_limited: self.is_app_limited(),
        }
    }

    /// MarkConnectionAppLimited (§4.1.2.4).
    pub(super) fn mark_app_limited(&mut self, inflight: u32) {
        self.app_limited = (self.delivered + u64::from(inflight)).max(1);
    }

    /// So many bytes more have arrived.
    pub(super) fn on_delivered(&mut self, now: Time, bytes: u32) {
        if bytes > 0 {
            self.delivered += u64::from(bytes);
            self.delivered_time = now;
        }
    }

    /// What of UpdateRateSample is about the newest packet, and GenerateRateSample (§4.1.2.3). What was delivered is counted.
    pub(super) fn sample(&mut self, now: Time, acked: &Acked) -> RateSample {
        let mut rs = RateSample {
            rtt: acked.rtt_us.map(u64::from),
            newly_acked: u64::from(acked.newly_acked),
            newly_lost: u64::from(acked.newly_lost),
            ..RateSample::default()
        };
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let Some(p) = acked.newest else { return rs };
        let send_elapsed = p.send_time.saturating_duration_since(p.first_send_time);
        let ack_elapsed = now.saturating_duration_since(p.delivered_time);
        self.first_send_time = p.send_time;
        rs.has_data = true;
        rs.prior_delivered = p.delivered;
        rs.delivered = self.delivered.saturating_sub(p.delivered);
        rs.is_app_limited = p.is_app_limited;
        rs.tx_in_flight = u64::from(p.tx_in_flight);
        rs.lost = self.lost.saturating_sub(p.lost);
        let interval = send_elapsed.max(ack_elapsed).as_nanos() as u64;
        // Shorter than any round trip: acknowledgements came in a heap.
        if interval > 0 && interval >= u64::from(acked.min_rtt_us) * 1000 {
            rs.delivery_rate = rate(rs.delivered, interval);
        }
        rs
    }
}
