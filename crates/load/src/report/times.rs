//! A histogram of times, and its JSON form: percentiles for people and the whole histogram for programs.
//!
//! In JSON it is `{"count": .., "min": .., .., "p99.9": .., "max": .., "hdr": ".."}`, nanoseconds; `hdr` is the histogram
//! itself, in HdrHistogram's V2 encoding, deflated, base 64, which every HDR tool reads. The percentiles are for people and small
//! scripts; reading a report uses the histogram alone.

use std::fmt;
use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Largest value of a histogram, nanoseconds; larger ones count as this.
pub(super) const LONGEST: u64 = 60_000_000_000;

/// An empty histogram of nanoseconds with three significant digits. It grows with the values, a few times in a run: one up to a minute takes
/// 221 KB, all of which are resident.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("the number of digits is a constant"))
}

/// Times in nanoseconds with three significant digits, up to a minute; longer ones count as a minute.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Shown", try_from = "Shown")]
pub struct Times(pub Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self(histogram())
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times: p50 {}, p99 {}, max {}", self.count(), self.at(0.5), self.at(0.99), self.max())
    }
}

impl Times {
    /// Records a time; 0 counts as one nanosecond.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.record_n(nanos, 1);
    }

    /// Records a time `count` times.
    #[inline]
    pub fn record_n(&mut self, nanos: u64, count: u64) {
        // It grows as far as a minute needs.
        let _ = self.0.record_n(nanos.clamp(1, LONGEST), count);
    }

    /// Adds another histogram. Values beyond the bounds count as the bound.
    pub fn add(&mut self, other: &Histogram<u64>) {
        if other.max() > LONGEST || self.0.add(other).is_err() {
            for value in other.iter_recorded() {
                self.record_n(value.value_iterated_to(), value.count_at_value());
            }
        }
    }

    /// The times that were recorded, microseconds, each with its number.
    #[must_use]
    pub fn counts(&self) -> Vec<(u32, u64)> {
        let micros = |nanos: u64| u32::try_from(nanos / 1000).unwrap_or(u32::MAX);
        let recorded = self.0.iter_recorded();
        recorded.map(|value| (micros(value.value_iterated_to()), value.count_at_value())).collect()
    }

    /// The times that were recorded, nanoseconds in order of size, each with its number: the middle of what counts as equal.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|value| (self.0.median_equivalent(value.value_iterated_to()), value.count_at_value()))
    }

    /// Number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quantile (0 to 1) in nanoseconds; 0 if there are no times.
    #[must_use]
    pub fn at(&self, quantile: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) }
    }

    /// Number of times that are at most `nanos`, within the precision of the histogram.
    #[must_use]
    pub fn within(&self, nanos: u64) -> u64 {
        self.0
            .iter_recorded()
            .take_while(|v| v.value_iterated_to() <= self.0.highest_equivalent(nanos))
            .map(|v| v.count_at_value())
            .sum()
    }

    /// The mean; 0 if there are none.
    #[must_use]
    pub fn mean(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.mean().round() as u64 }
    }

    /// The longest; 0 if there are none.
    #[must_use]
    pub fn max(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    /// The histogram in HdrHistogram's V2 encoding, deflated; its range is always up to a minute, however far it has grown.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Its bounds are constants that can be encoded, no value is beyond them, and writing to memory cannot fail.
        if let Ok(mut whole) = Histogram::new_with_bounds(1, LONGEST, 3) {
            let _ = whole.add(&self.0);
            let _ = V2DeflateSerializer::new().serialize(&whole, &mut bytes);
        }
        bytes
    }

    /// Reads a histogram in HdrHistogram's V2 encoding, deflated.
    ///
    /// # Errors
    /// Why the bytes are not such a histogram, in words.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut Cursor::new(bytes))
            .map_err(|e| format!("not a histogram in HdrHistogram's V2 encoding: {e}"))?;
        let mut times = Self::default();
        times.add(&read);
        Ok(times)
    }
}

/// A histogram of times, nanoseconds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", schemars(rename = "Times"))]
struct Shown {
    /// Times measured.
    count: u64,
    /// The shortest.
    min: u64,
    /// The mean.
    mean: u64,
    /// The standard deviation.
    stdev: u64,
    /// The median.
    p50: u64,
    /// 75 % are no longer.
    p75: u64,
    /// 90 % are no longer.
    p90: u64,
    /// 95 % are no longer.
    p95: u64,
    /// 99 % are no longer.
    p99: u64,
    /// 99.9 % are no longer.
    #[serde(rename = "p99.9")]
    p99_9: u64,
    /// 99.99 % are no longer.
    #[serde(rename = "p99.99")]
    p99_99: u64,
    /// The longest; those beyond a minute count as a minute.
    max: u64,
    /// The histogram: HdrHistogram V2, deflated, base 64; empty if nothing was measured.
    hdr: String,
}

impl From<Times> for Shown {
    fn from(times: Times) -> Self {
        let empty = times.is_empty();
        Self {
            count: times.count(),
            min: if empty { 0 } else { times.0.min() },
            mean: times.mean(),
            stdev: if empty { 0 } else { times.0.stdev().round() as u64 },
            p50: times.at(0.5),
            p75: times.at(0.75),
            p90: times.at(0.9),
            p95: times.at(0.95),
            p99: times.at(0.99),
            p99_9: times.at(0.999),
            p99_99: times.at(0.9999),
            max: times.max(),
            hdr: if empty { String::new() } else { STANDARD.encode(times.to_bytes()) },
        }
    }
}

impl TryFrom<Shown> for Times {
    type Error = String;

    fn try_from(shown: Shown) -> Result<Self, String> {
        if shown.hdr.is_empty() {
            return Ok(Self::default());
        }
        let bytes = STANDARD.decode(shown.hdr.trim()).map_err(|_| "a histogram that is not base 64")?;
        Self::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_travel_whole() {
        let mut times = Times::default();
        let mut rng = flowlane_stack::rng::Rng::new(8);
        for _ in 0..10_000 {
            times.record(u64::from(rng.below(2_000_000_000)) >> rng.below(30));
        }
        times.record(u64::MAX);
        let text = serde_json::to_string(&times).unwrap();
        let back: Times = serde_json::from_str(&text).unwrap();
        assert_eq!(back, times);
        let empty = serde_json::to_string(&Times::default()).unwrap();
        assert_eq!(serde_json::from_str::<Times>(&empty).unwrap(), Times::default());
    }

    #[test]
    fn damaged_histograms_are_refused() {
        let mut times = Times::default();
        times.record(5);
        let whole = times.to_bytes();
        for cut in 0..whole.len() {
            // Only the checksum at the very end may be missed.
            assert!(cut >= 36 || Times::from_bytes(&whole[..cut]).is_err(), "{cut}");
        }
        let mut rng = flowlane_stack::rng::Rng::new(9);
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                bytes[rng.below(whole.len() as u32) as usize] ^= 1 << rng.below(8);
            }
            // Refused or read as something else, but never a panic.
            let _ = Times::from_bytes(&bytes);
        }
    }
}
