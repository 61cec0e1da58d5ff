//! The plots of a report.

use super::super::model::{Lane, Part, Phase, Point, Run};
use super::super::periods::Period;
use super::super::text::show_bytes;
use super::super::times::Times;
use super::svg::{Axis, Plot};
use crate::units::{show_count, show_nanos};

/// Pools that have a curve of their own.
const POOLS: usize = 8;

/// A time on an axis: no more digits than it has.
fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 999.5 => (n, "ns"),
        n if n < 999.5e3 => (n / 1e3, "us"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if (value - value.round()).abs() < 0.05 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

fn seconds(value: f64) -> String {
    if value.fract().abs() < 1e-6 { format!("{value:.0} s") } else { format!("{value:.1} s") }
}

fn number(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{} M", trim(v / 1e6)),
        v if v >= 9_999.5 => format!("{} k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn bytes(value: f64) -> String {
    show_bytes(value).replace(".00 ", " ").replace(".0 ", " ")
}

/// Points of a spectrum: the share as 1 / (1 - share), and the time. Twenty for each nine, up to the last that can be told.
fn spectrum(times: &Times) -> Vec<(f64, f64)> {
    let count = times.count();
    if count == 0 {
        return Vec::new();
    }
    let mut points = Vec::new();
    for step in 0.. {
        let inverse = 10f64.powf(f64::from(step) / 20.0);
        points.push((inverse, times.at(1.0 - 1.0 / inverse).max(1) as f64));
        if inverse >= count as f64 {
            break;
        }
    }
    points
}

fn nines(count: u64) -> u32 {
    (count.max(1) as f64).log10().ceil().clamp(2.0, 7.0) as u32
}

fn spectra(title: &str, curves: &[(&str, &Times, usize, &str)]) -> Option<String> {
    let there = || curves.iter().filter(|(_, times, ..)| !times.is_empty());
    let least = there().map(|(_, t, ..)| t.0.min()).min()?;
    let most = there().map(|(_, t, ..)| t.max()).max()?;
    let count = there().map(|(_, t, ..)| t.count()).max()?;
    let mut plot = Plot::new(title, Axis::nines(nines(count)), Axis::log(least as f64, most as f64, time));
    for (name, times, colour, dash) in there() {
        plot.curve(name, *colour, dash, &spectrum(times), |x, y| {
            format!("{name}: {} % within {}", trim_share(100.0 - 100.0 / x), show_nanos(y as u64))
        });
    }
    Some(plot.finish())
}

fn trim_share(percent: f64) -> String {
    let text = format!("{percent:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Latency, service time and slip by percentile.
pub(super) fn latency_spectrum(part: &Part) -> Option<String> {
    let curves = [
        ("latency", &part.latency, 0, ""),
        ("service time", &part.service, 2, "dash"),
        ("slip", &part.slip, 1, "dot"),
    ];
    spectra("Latency by percentile", &curves)
}

/// The latencies of the pools by percentile.
pub(super) fn pool_spectra(pools: &[Part]) -> Option<String> {
    let curves: Vec<(&str, &Times, usize, &str)> = pools
        .iter()
        .take(POOLS)
        .enumerate()
        .map(|(i, p)| (p.name.as_str(), &p.latency, i, ["", "dash", "dot"][i % 3]))
        .collect();
    spectra("Latency of each pool by percentile", &curves)
}

/// Where time goes: to connect, TLS, to the first byte and to the last.
pub(super) fn stage_spectra(part: &Part) -> Option<String> {
    let curves = [
        ("connect", &part.connect, 3, ""),
        ("TLS", &part.tls, 4, "dash"),
        ("first byte", &part.first_byte, 5, ""),
        ("last byte", &part.last_byte, 6, "dot"),
    ];
    spectra("Stages of a request by percentile", &curves)
}

/// The times of streams of events.
pub(super) fn event_spectra(part: &Part) -> Option<String> {
    let events = part.events.as_ref()?;
    let curves = [
        ("1st event", &events.first_event, 3, ""),
        ("event gap", &events.event_gap, 5, ""),
        ("last event", &events.last_event, 6, "dot"),
    ];
    spectra("Events of streams by percentile", &curves)
}

/// A plot over the time of the run: each phase has a mark where it begins, and what was not measured is shaded.
fn over_time(title: &str, run: &Run, y: Axis) -> Plot {
    let mut plot = Plot::new(title, Axis::exactly(run.seconds, seconds), y);
    for phase in run.phases.iter().filter(|p: &&Phase| !p.measured) {
        plot.shade(phase.from_seconds, phase.to_seconds, &format!("{}: not measured", phase.name));
    }
    let several = run.phases.len() > 1;
    // An end before its time leaves phases out.
    for phase in run.phases.iter().filter(|p| several && p.from_seconds < run.seconds) {
        plot.mark(phase.from_seconds, &phase.name, phase.to_seconds.min(run.seconds));
    }
    plot
}

/// The middle of an interval, and a number of it.
fn middles(series: &[Point], value: impl Fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
    series.iter().filter_map(|p| Some((p.at_seconds + p.seconds / 2.0, value(p)?))).collect()
}

fn each_second(count: u64, point: &Point) -> Option<f64> {
    (point.seconds > 0.0).then(|| count as f64 / point.seconds)
}

fn most(values: &[(f64, f64)]) -> f64 {
    values.iter().map(|(_, y)| *y).fold(0.0, f64::max)
}

/// Requests, answers and errors a second.
pub(super) fn rates(run: &Run) -> Option<String> {
    let series = &run.total.series;
    let sent = middles(series, |p| each_second(p.sent, p));
    let answered = middles(series, |p| each_second(p.answered, p));
    if sent.is_empty() {
        return None;
    }
    let mut plot = over_time("Rate over time", run, Axis::linear(most(&sent).max(most(&answered)), number));
    for point in series.iter().filter(|p| p.failed > 0) {
        let failed = each_second(point.failed, point).unwrap_or_default();
        let what = format!("{} errors in {} s", show_count(point.failed), point.seconds);
        plot.bar("fbad", point.at_seconds + point.seconds / 2.0, point.seconds, failed, &what);
    }
    let say = |name: &'static str| {
        move |x: f64, y: f64| format!("{name}: {} a second at {}", show_count(y as u64), seconds(x))
    };
    plot.curve("sent", 1, "dash", &sent, say("sent"));
    plot.curve("answered", 0, "", &answered, say("answered"));
    Some(plot.finish())
}

/// Latency and slip over time.
pub(super) fn latencies(run: &Run) -> Option<String> {
    let some = |nanos: u64| (nanos > 0).then_some(nanos as f64);
    let series = &run.total.series;
    let curves = [
        ("max", 6, "dot", middles(series, |p| some(p.max_ns))),
        ("p99.9", 2, "", middles(series, |p| some(p.p99_9_ns))),
        ("p99", 3, "dash", middles(series, |p| some(p.p99_ns))),
        ("p50", 0, "", middles(series, |p| some(p.p50_ns))),
        ("slip p99", 1, "dot", middles(series, |p| some(p.slip_p99_ns))),
    ];
    let values = || curves.iter().flat_map(|(.., points)| points.iter().map(|(_, y)| *y));
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if high <= 0.0 {
        return None;
    }
    let mut plot = over_time("Latency over time", run, Axis::log(low, high, time));
    for (name, colour, dash, points) in &curves {
        plot.curve(name, *colour, dash, points, |x, y| {
            format!("{name}: {} at {}", show_nanos(y as u64), seconds(x))
        });
    }
    Some(plot.finish())
}

/// A curve of latencies: its name, colour, dashes, and its points (rate per second, nanoseconds).
pub(crate) type Latencies<'a> = (&'a str, usize, &'a str, Vec<(f64, f64)>);

/// Latency over rate, both by powers of ten, with the highest rate that held and the lowest that failed.
pub(crate) fn latency_over_rate(
    curves: &[Latencies<'_>],
    held: Option<f64>,
    failed: Option<f64>,
) -> Option<String> {
    let points = || curves.iter().flat_map(|(.., points)| points);
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, 0.0), |(low, high), v| (v.min(low), v.max(high)))
    };
    let ((slow, fast), (low, high)) = (bounds(|(x, _)| *x), bounds(|(_, y)| *y));
    if high <= 0.0 {
        return None;
    }
    let mut plot = Plot::new("Latency over rate", Axis::log(slow, fast, number), Axis::log(low, high, time));
    for (name, colour, dash, points) in curves {
        plot.curve(name, *colour, dash, points, |x, y| {
            format!("{name}: {} at {} a second", show_nanos(y as u64), show_count(x as u64))
        });
    }
    let marks = [(held, "holds"), (failed, "does not hold")];
    for (rate, name) in marks.into_iter().filter_map(|(rate, name)| Some((rate?, name))) {
        plot.mark(rate, &format!("{name}: {} a second", number(rate)), fast * 10.0);
    }
    Some(plot.finish())
}

/// Latency or slip over one period.
pub(super) fn period(period: &Period) -> Option<String> {
    let steps = period.steps_ns.len() as f64;
    let points: Vec<(f64, f64)> = (period.steps_ns.iter().enumerate())
        .filter(|(_, nanos)| **nanos > 0)
        .map(|(i, nanos)| (period.period_ns as f64 * (i as f64 + 0.5) / steps, *nanos as f64))
        .collect();
    if points.is_empty() {
        return None;
    }
    let title = format!("{} over one period", period.of);
    let mut plot =
        Plot::new(&title, Axis::exactly(period.period_ns as f64, time), Axis::linear(most(&points), time));
    plot.curve(&period.of, 0, "", &points, |x, y| format!("{} at {}", show_nanos(y as u64), time(x)));
    Some(plot.finish())
}

/// Connections, or requests on their way, over time.
pub(super) fn concurrency(run: &Run) -> Option<String> {
    let points = middles(&run.total.series, |p| Some(p.concurrency as f64));
    if most(&points) <= 0.0 {
        return None;
    }
    let mut plot = over_time("At once", run, Axis::linear(most(&points), number));
    plot.curve("at once", 5, "", &points, |x, y| format!("{} at {}", show_count(y as u64), seconds(x)));
    Some(plot.finish())
}

/// Bytes received a second.
pub(super) fn bandwidth(run: &Run) -> Option<String> {
    let received = middles(&run.total.series, |p| each_second(p.bytes_received, p));
    let sent = middles(&run.total.series, |p| each_second(p.bytes_sent, p));
    let highest = most(&received).max(most(&sent));
    if highest <= 0.0 {
        return None;
    }
    let mut plot = over_time("Bytes a second over time", run, Axis::linear(highest, bytes));
    let say =
        |name: &'static str| move |x: f64, y: f64| format!("{name}: {} a second at {}", bytes(y), seconds(x));
    plot.curve("received", 0, "", &received, say("received"));
    plot.curve("sent", 1, "dash", &sent, say("sent"));
    Some(plot.finish())
}

fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        name.to_owned()
    } else {
        name.chars().take(most - 1).chain(['…']).collect()
    }
}

/// Bars with names under them, at most as many names as fit.
fn bars(title: &str, y: Axis, names: &[String], values: &[f64], what: &[String]) -> String {
    let count = values.len();
    let mut plot = Plot::new(title, Axis::exactly(count as f64, number), y);
    let colour = |i: usize| if count <= POOLS { format!("f{}", i % 8) } else { "f0".to_owned() };
    for (i, (value, what)) in values.iter().zip(what).enumerate() {
        plot.bar(&colour(i), i as f64 + 0.5, 0.8, *value, what);
    }
    let every = count.div_ceil(16).max(1);
    let long = 80 / count.clamp(1, 16);
    let words =
        names.iter().enumerate().step_by(every).map(|(i, n)| (i as f64 + 0.5, shortened(n, long.max(4))));
    plot.x_words(words.collect());
    plot.finish()
}

/// Answers in each lane.
pub(super) fn lanes(lanes: &[Lane]) -> Option<String> {
    if lanes.len() < 2 {
        return None;
    }
    let names: Vec<String> = lanes.iter().map(|l| l.bucket.to_string()).collect();
    let values: Vec<f64> = lanes.iter().map(|l| l.answered as f64).collect();
    let what: Vec<String> = lanes
        .iter()
        .map(|l| {
            format!("bucket {}: {} answers, p99 {}", l.bucket, show_count(l.answered), show_nanos(l.p99_ns))
        })
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    Some(bars("Answers of each bucket", Axis::linear(most, number), &names, &values, &what))
}

/// The 99th percentile of latency in each lane.
pub(super) fn lane_latencies(lanes: &[Lane]) -> Option<String> {
    let most = lanes.iter().map(|l| l.p99_ns).max()? as f64;
    if lanes.len() < 2 || most <= 0.0 {
        return None;
    }
    let names: Vec<String> = lanes.iter().map(|l| l.bucket.to_string()).collect();
    let values: Vec<f64> = lanes.iter().map(|l| l.p99_ns as f64).collect();
    let what: Vec<String> = lanes
        .iter()
        .map(|l| format!("bucket {}: p50 {}, p99 {}", l.bucket, show_nanos(l.p50_ns), show_nanos(l.p99_ns)))
        .collect();
    Some(bars("p99 of each bucket", Axis::linear(most, time), &names, &values, &what))
}

/// Answers a second of each pool.
pub(super) fn pools(pools: &[Part]) -> Option<String> {
    if pools.len() < 2 {
        return None;
    }
    let names: Vec<String> = pools.iter().map(|p| p.name.clone()).collect();
    let values: Vec<f64> = pools.iter().map(|p| p.rates.answered).collect();
    let what: Vec<String> = pools
        .iter()
        .map(|p| format!("{}: {} answers a second", p.name, show_count(p.rates.answered as u64)))
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    Some(bars("Answers a second of each pool", Axis::linear(most, number), &names, &values, &what))
}
