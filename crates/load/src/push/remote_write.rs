//! Figures as a request of remote write 1.0: `prometheus.WriteRequest` of [`remote.proto`][remote] and [`types.proto`][types], with their numbers of
//! fields, compressed by snappy's block format.
//!
//! Times are classic histograms ([`buckets`](super::buckets)).
//!
//! [remote]: https://github.com/prometheus/prometheus/blob/v2.53.0/prompb/remote.proto
//! [types]: https://github.com/prometheus/prometheus/blob/v2.53.0/prompb/types.proto

use std::time::UNIX_EPOCH;

use prost::Message;

use super::buckets::buckets;
use super::figures::{FIGURES, Figure};
use super::labels::Labels;
use super::state::{PoolState, State};
use crate::report::times::Times;

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMetadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    metric_family_name: String,
    #[prost(string, tag = "4")]
    help: String,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Unknown = 0,
    Counter = 1,
    Gauge = 2,
    Histogram = 3,
}

/// The request of a state, of a run with these labels; not compressed.
pub(super) fn encode(state: &State, labels: &Labels) -> Vec<u8> {
    let since = state.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut series = AllSeries { labels, at: since.as_millis() as i64, all: Vec::new() };
    for figure in FIGURES {
        let name = figure.prometheus();
        for pool in &state.pools {
            for (label, count) in figure.counts(pool) {
                series.add(&name, pool, label, count as f64);
            }
            if let Some(times) = figure.times(pool) {
                series.histogram(&name, pool, times);
            }
        }
    }
    WriteRequest { timeseries: series.all, metadata: FIGURES.iter().map(metadata).collect() }.encode_to_vec()
}

/// Compresses a request.
pub(super) fn compress(request: &[u8]) -> Vec<u8> {
    // It refuses more than 4 GiB alone.
    snap::raw::Encoder::new().compress_vec(request).unwrap_or_default()
}

fn metadata(figure: &Figure) -> MetricMetadata {
    let kind = match &figure.values {
        super::figures::Values::Times(_) => MetricType::Histogram,
        _ if figure.is_counter() => MetricType::Counter,
        _ => MetricType::Gauge,
    };
    MetricMetadata {
        kind: kind.into(),
        metric_family_name: figure.prometheus(),
        help: figure.text.into(),
        unit: figure.unit.word().into(),
    }
}

/// Series with one sample each, of one moment.
struct AllSeries<'a> {
    labels: &'a Labels,
    at: i64,
    all: Vec<TimeSeries>,
}

impl AllSeries<'_> {
    fn add(&mut self, name: &str, pool: &PoolState, label: Option<(&str, &str)>, value: f64) {
        let own = [("__name__", name), ("pool", pool.name.as_str())].into_iter().chain(label);
        let mut labels: Vec<Label> =
            own.map(|(name, value)| Label { name: name.into(), value: value.into() }).collect();
        labels.extend(self.labels.plain().map(|(name, value)| Label { name, value: value.into() }));
        // "MUST be sorted by label name"; an empty value would be no label.
        labels.retain(|label| !label.value.is_empty());
        labels.sort_unstable();
        self.all.push(TimeSeries { labels, samples: vec![Sample { value, timestamp: self.at }] });
    }

    fn histogram(&mut self, name: &str, pool: &PoolState, times: &Times) {
        let (buckets, sum) = buckets(times);
        let bucket = format!("{name}_bucket");
        for (bound, count) in buckets {
            self.add(&bucket, pool, Some(("le", &bound)), count as f64);
        }
        self.add(&format!("{name}_sum"), pool, None, sum);
        self.add(&format!("{name}_count"), pool, None, times.count() as f64);
    }
}

/// The names of the labels of all series, in their order.
#[cfg(test)]
pub(super) fn names(state: &State, labels: &Labels) -> Vec<Vec<String>> {
    let request = WriteRequest::decode(encode(state, labels).as_slice()).unwrap_or_default();
    let names = |series: TimeSeries| series.labels.into_iter().map(|label| label.name).collect();
    request.timeseries.into_iter().map(names).collect()
}
