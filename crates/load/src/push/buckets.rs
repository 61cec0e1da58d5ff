//! Times as a classic histogram of Prometheus: how many were no longer than each bound.
//!
//! There are two buckets to each doubling from 1 us to 67 s, as `flowlane_tcp_rtt_seconds` has them.

use flowlane_stack::stats::{CLASSES, Histogram};

use crate::report::times::Times;

/// Bounds in seconds as text, the last `+Inf`, with how many times were no longer; and the sum of all, seconds, exact to 1 %.
pub(super) fn buckets(times: &Times) -> (Vec<(String, u64)>, f64) {
    let mut counts = Histogram::default();
    let mut sum = 0.0;
    for (nanos, count) in times.classes() {
        // A bound belongs to what is below it.
        counts.count_all(u32::try_from(nanos.div_ceil(1000)).unwrap_or(u32::MAX), count);
        sum += nanos as f64 / 1e9 * count as f64;
    }
    let mut up_to = 0;
    let bucket = |(class, count): (usize, &u64)| {
        up_to += count;
        let bound = Histogram::bound(class).map(|micros| (f64::from(micros) / 1e6).to_string());
        (bound.unwrap_or_else(|| "+Inf".to_owned()), up_to)
    };
    (counts.counts().iter().enumerate().take(CLASSES).map(bucket).collect(), sum)
}
