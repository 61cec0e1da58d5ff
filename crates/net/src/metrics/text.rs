//! Metrics as text: OpenMetrics 1.0 and the older format of Prometheus (0.0.4).
//!
//! Both have lines of three kinds: what a metric is, its samples, and in OpenMetrics an end. They differ in the name of a counter's
//! `# TYPE` (OpenMetrics leaves `_total` out), in `# UNIT`, and in `# EOF`. [`Format::accepted`] chooses by the `Accept` line of a request.
//!
//! Specification: <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>.

use std::fmt::Write;

use flowlane_sys::words;

use super::{Kind, Metric, Sample};

/// One of the two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Format {
    /// As `Content-Type` names it.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that a request's `Accept` prefers: OpenMetrics only if it is named.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let quality = |wanted: &str| {
            accept
                .split(',')
                .filter_map(|range| {
                    let mut parts = range.split(';').map(str::trim);
                    if !parts.next()?.eq_ignore_ascii_case(wanted) {
                        return None;
                    }
                    let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
                    Some(q.map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0)))
                })
                .fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// The metrics as text.
#[must_use]
pub fn write(metrics: &[Metric], format: Format) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for metric in metrics {
        one(&mut out, metric, format);
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn one(out: &mut String, metric: &Metric, format: Format) {
    let suffix = match metric.kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    let sample = format!("{}{suffix}", metric.name);
    let (family, kind) = match (format, metric.kind) {
        (_, Kind::Gauge) => (&metric.name, "gauge"),
        (_, Kind::Histogram) => (&metric.name, "histogram"),
        (Format::OpenMetrics, Kind::Counter) => (&metric.name, "counter"),
        (Format::OpenMetrics, Kind::Info) => (&metric.name, "info"),
        (Format::Prometheus, Kind::Counter) => (&sample, "counter"),
        (Format::Prometheus, Kind::Info) => (&sample, "gauge"),
    };
    let help = escaped(&metric.help, format == Format::OpenMetrics);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# TYPE {family} {kind}");
    if format == Format::OpenMetrics && !metric.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {family} {}", metric.unit);
    }
    let _ = writeln!(out, "# HELP {family} {help}");
    for s in &metric.samples {
        match (metric.kind, s.label("le")) {
            (Kind::Histogram, "") => line(out, &format!("{sample}_sum"), s),
            (Kind::Histogram, bound) => {
                line(out, &format!("{sample}_bucket"), s);
                if bound == "+Inf" {
                    let labels = s.labels.iter().filter(|(name, _)| *name != "le");
                    let labels = labels.map(|(name, value)| (name.clone(), value.clone())).collect();
                    line(out, &format!("{sample}_count"), &Sample { labels, value: s.value });
                }
            }
            _ => line(out, &sample, s),
        }
    }
}

fn line(out: &mut String, name: &str, s: &Sample) {
    out.push_str(name);
    if !s.labels.is_empty() {
        let labels: Vec<String> =
            s.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true))).collect();
        let _ = write!(out, "{{{}}}", labels.join(","));
    }
    let _ = writeln!(out, " {}", s.value);
}

/// A backslash, the end of a line and, if wanted, a quotation mark are written with a backslash; what would act where a page or a terminal
/// shows it is written in words.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c if words::acts(c) => c.escape_default().for_each(|c| match c {
                '\\' => out.push_str("\\\\"),
                c => out.push(c),
            }),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, kind: Kind, unit: &str, labels: &[(&str, &str)], value: f64) -> Metric {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Metric {
            name: name.to_owned(),
            kind,
            unit: unit.to_owned(),
            help: "Says \"this\".".to_owned(),
            samples: vec![Sample { labels, value }],
        }
    }

    /// The text as the specifications have it, worked out by hand.
    #[test]
    fn both_formats_are_as_specified() {
        let metrics = [
            metric("a_turns", Kind::Counter, "", &[("worker", "0")], 7.0),
            metric("a_time_seconds", Kind::Counter, "seconds", &[("b", "x\"y\\z\n"), ("worker", "1")], 0.25),
            metric("a_free", Kind::Gauge, "", &[], 18_446_744_073_709_551_615.0),
            metric("a_instance", Kind::Info, "", &[("version", "1")], 1.0),
        ];
        let open = "# TYPE a_turns counter\n\
            # HELP a_turns Says \\\"this\\\".\n\
            a_turns_total{worker=\"0\"} 7\n\
            # TYPE a_time_seconds counter\n\
            # UNIT a_time_seconds seconds\n\
            # HELP a_time_seconds Says \\\"this\\\".\n\
            a_time_seconds_total{b=\"x\\\"y\\\\z\\n\",worker=\"1\"} 0.25\n\
            # TYPE a_free gauge\n\
            # HELP a_free Says \\\"this\\\".\n\
            a_free 18446744073709552000\n\
            # TYPE a_instance info\n\
            # HELP a_instance Says \\\"this\\\".\n\
            a_instance_info{version=\"1\"} 1\n\
            # EOF\n";
        assert_eq!(write(&metrics, Format::OpenMetrics), open);
        let old = "# TYPE a_turns_total counter\n\
            # HELP a_turns_total Says \"this\".\n\
            a_turns_total{worker=\"0\"} 7\n\
            # TYPE a_time_seconds_total counter\n\
            # HELP a_time_seconds_total Says \"this\".\n\
            a_time_seconds_total{b=\"x\\\"y\\\\z\\n\",worker=\"1\"} 0.25\n\
            # TYPE a_free gauge\n\
            # HELP a_free Says \"this\".\n\
            a_free 18446744073709552000\n\
            # TYPE a_instance_info gauge\n\
            # HELP a_instance_info Says \"this\".\n\
            a_instance_info{version=\"1\"} 1\n";
        assert_eq!(write(&metrics, Format::Prometheus), old);
    }

    #[test]
    fn a_histogram_has_buckets_a_count_and_a_sum() {
        let mut m =
            metric("a_wait_seconds", Kind::Histogram, "seconds", &[("host", "h"), ("le", "0.5")], 3.0);
        let sample =
            |labels: &[(&str, &str)], value| metric("", Kind::Gauge, "", labels, value).samples.remove(0);
        m.samples.push(sample(&[("host", "h"), ("le", "+Inf")], 4.0));
        m.samples.push(sample(&[("host", "h")], 1.25));
        let lines = "# TYPE a_wait_seconds histogram\n\
            # UNIT a_wait_seconds seconds\n\
            # HELP a_wait_seconds Says \\\"this\\\".\n\
            a_wait_seconds_bucket{host=\"h\",le=\"0.5\"} 3\n\
            a_wait_seconds_bucket{host=\"h\",le=\"+Inf\"} 4\n\
            a_wait_seconds_count{host=\"h\"} 4\n\
            a_wait_seconds_sum{host=\"h\"} 1.25\n\
            # EOF\n";
        assert_eq!(write(&[m], Format::OpenMetrics), lines);
    }

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; q=0.3, text/plain; q=0.2", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.1,text/plain", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=lots", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("", Format::Prometheus),
            (",;,;q=,", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
