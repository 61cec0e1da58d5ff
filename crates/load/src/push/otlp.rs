//! Figures as an OTLP request: [`opentelemetry/proto/metrics/v1/metrics.proto`][proto] and what it takes of `common.proto`, `resource.proto` and
//! `collector/metrics/v1/metrics_service.proto`, with their numbers of fields.
//!
//! Counters are cumulative sums since the start of the run. Times are exponential histograms of scale 6: bounds are a factor of 2^(1/64), 1.1 %,
//! apart, as exact as what they are made of.
//!
//! [proto]: https://github.com/open-telemetry/opentelemetry-proto/blob/v1.5.0/opentelemetry/proto/metrics/v1/metrics.proto

use std::time::{SystemTime, UNIX_EPOCH};

use prost::{Message, Oneof};

use super::figures::{FIGURES, Figure};
use super::labels::Labels;
use super::state::{PoolState, State};
use crate::report::times::Times;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: i32 = 2;
/// Bounds of a histogram are a factor of 2^(2^-SCALE) apart.
const SCALE: i32 = 6;

#[derive(Clone, PartialEq, Message)]
struct ExportMetricsServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    /// A member of a `oneof`, of which no other is used.
    #[prost(string, optional, tag = "1")]
    string: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 10")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "10")]
    ExponentialHistogram(ExponentialHistogram),
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<ExponentialHistogramDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    /// A member of a `oneof`, of which no other is used.
    #[prost(sfixed64, optional, tag = "6")]
    as_int: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct ExponentialHistogramDataPoint {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    scale: i32,
    #[prost(message, optional, tag = "8")]
    positive: Option<Buckets>,
    #[prost(double, optional, tag = "12")]
    min: Option<f64>,
    #[prost(double, optional, tag = "13")]
    max: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Buckets {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportMetricsServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_data_points: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`, the body of an answer that is an error.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

/// The request of a state, of a run with these labels that began at `start`.
pub(super) fn encode(state: &State, labels: &Labels, start: SystemTime) -> Vec<u8> {
    let times = (nanos(start), nanos(state.at));
    let metrics = FIGURES.iter().filter_map(|figure| metric(figure, state, times)).collect();
    let scope = Scope { name: "flowlane".into(), version: env!("CARGO_PKG_VERSION").into() };
    let attributes = labels.attributes().map(|(key, value)| attribute(key, value)).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics }],
        }],
    }
    .encode_to_vec()
}

/// What a receiver that took a request did not take of it, if it says so ("partial success").
pub(super) fn rejected(body: &[u8]) -> Option<String> {
    let partial = ExportMetricsServiceResponse::decode(body).ok()?.partial_success?;
    let PartialSuccess { rejected_data_points: count, error_message: why } = partial;
    (count > 0).then(|| format!("{count} values were not taken: {why}"))
}

/// The words of an answer that is an error.
pub(super) fn message(body: &[u8]) -> Option<String> {
    Status::decode(body).ok().map(|status| status.message).filter(|message| !message.is_empty())
}

/// A figure of all pools; `None` if none has it.
fn metric(figure: &Figure, state: &State, times: (u64, u64)) -> Option<Metric> {
    let of_pools = |pool| figure.counts(pool).into_iter().map(move |(label, count)| (pool, label, count));
    let data_points: Vec<NumberDataPoint> = state
        .pools
        .iter()
        .flat_map(of_pools)
        .map(|(pool, label, count)| NumberDataPoint {
            attributes: attributes(pool, label),
            start_time_unix_nano: times.0,
            time_unix_nano: times.1,
            as_int: Some(i64::try_from(count).unwrap_or(i64::MAX)),
        })
        .collect();
    let histograms: Vec<_> =
        state.pools.iter().filter_map(|pool| Some(histogram(pool, figure.times(pool)?, times))).collect();
    let data = match (data_points.is_empty(), histograms.is_empty()) {
        (true, true) => return None,
        (true, false) => Data::ExponentialHistogram(ExponentialHistogram {
            data_points: histograms,
            aggregation_temporality: CUMULATIVE,
        }),
        _ if figure.is_counter() => {
            Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
        }
        _ => Data::Gauge(Gauge { data_points }),
    };
    Some(Metric {
        name: figure.name.into(),
        description: figure.text.into(),
        unit: figure.unit.ucum().into(),
        data: Some(data),
    })
}

fn histogram(pool: &PoolState, times: &Times, (start, at): (u64, u64)) -> ExponentialHistogramDataPoint {
    let mut positive = Buckets::default();
    let mut sum = 0.0;
    let mut recorded = times.classes().peekable();
    if let Some((nanos, _)) = recorded.peek() {
        positive.offset = index(*nanos);
    }
    for (nanos, count) in recorded {
        sum += nanos as f64 / 1e9 * count as f64;
        // They come in order of size.
        let at = (index(nanos) - positive.offset).max(0) as usize;
        positive.bucket_counts.resize(at + 1, 0);
        positive.bucket_counts[at] += count;
    }
    let some = |nanos: u64| (!times.is_empty()).then_some(nanos as f64 / 1e9);
    ExponentialHistogramDataPoint {
        attributes: attributes(pool, None),
        start_time_unix_nano: start,
        time_unix_nano: at,
        count: times.count(),
        sum: Some(sum),
        scale: SCALE,
        positive: Some(positive),
        min: some(times.classes().next().map_or(0, |(nanos, _)| nanos)),
        max: some(times.max()),
    }
}

/// The bucket of a time: number `i` is above 2^(i / 64) seconds, and up to 2^((i + 1) / 64).
fn index(nanos: u64) -> i32 {
    let log = (nanos.max(1) as f64 / 1e9).log2();
    (log * f64::from(1 << SCALE)).ceil() as i32 - 1
}

fn attributes(pool: &PoolState, label: Option<(&str, &str)>) -> Vec<KeyValue> {
    let pool = ("pool", pool.name.as_str());
    std::iter::once(pool).chain(label).map(|(key, value)| attribute(key, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { string: Some(value.into()) }) }
}

fn nanos(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_within_the_bounds_of_its_bucket() {
        let bound = |i: i32| 2f64.powf(f64::from(i) / 64.0) * 1e9;
        for nanos in (0..36).flat_map(|n| [1u64 << n, (1 << n) + 1, (1 << n) * 3 / 2]).chain([1_000_000_000])
        {
            let i = index(nanos);
            let of = nanos as f64;
            assert!(bound(i) < of * (1.0 + 1e-9) && of <= bound(i + 1) * (1.0 + 1e-9), "{nanos}: {i}");
        }
        // A power of two belongs to the bucket below it.
        assert_eq!((index(1_000_000_000), index(2_000_000_000), index(2_000_000_001)), (-1, 63, 64));
    }

    #[test]
    fn what_is_not_taken_has_a_reason() {
        let partial = PartialSuccess { rejected_data_points: 3, error_message: "too old".into() };
        let body = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(rejected(&body).unwrap(), "3 values were not taken: too old");
        assert_eq!(rejected(b""), None);
        assert_eq!(rejected(b"<html>"), None);
        assert_eq!(message(&Status { message: "no".into() }.encode_to_vec()).unwrap(), "no");
        assert_eq!(message(b"<html>"), None);
    }
}
