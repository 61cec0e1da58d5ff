//! Output for other programs: JSON, the series as CSV, and HdrHistogram's interval log.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::model::{Figures, Part, Phase, Point, Run};
use super::text::plain;

/// Writes the run as JSON (`docs/schema/load-run.json`).
///
/// # Errors
/// Those of writing.
pub fn json(run: &Run, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, run)?;
    writeln!(out)
}

/// Reads a run, or an array of runs, from JSON.
///
/// # Errors
/// What is wrong and where, in one line.
pub fn runs_from_json(text: &str) -> Result<Vec<Run>, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let values = match value {
        serde_json::Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err("no runs in it".to_owned());
    }
    values.into_iter().map(run_from_value).collect()
}

fn run_from_value(value: serde_json::Value) -> Result<Run, String> {
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(super::model::VERSION)) || value.get("total").is_none() {
        return Err(format!(
            "not the report of a run, version {}: they are written by `flowlane load ... --json`",
            super::model::VERSION
        ));
    }
    serde_json::from_value(value).map_err(|e| format!("not the report of a run: {e}"))
}

/// A field of CSV (RFC 4180): quoted where it must be. A text that a spreadsheet would take for a formula gets a quote in
/// front.
fn field(text: &str) -> String {
    let text = plain(text);
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Writes the series as CSV: a line for each interval of the total and of each pool. With a scenario, a line for each phase over all
/// pools and for each request of a pool follows; the column `part` tells them apart. The column `phase` has the phase in which an
/// interval begins. Times are nanoseconds.
///
/// # Errors
/// Those of writing.
pub fn csv(run: &Run, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "pool,at_s,seconds,sent,answered,failed,bytes_sent,bytes_received,connections_opened,concurrency,\
         p50_ns,p90_ns,p99_ns,p99.9_ns,max_ns,slip_p99_ns,slip_max_ns,part,phase,request,scenario"
    )?;
    let scenario = field(&run.setup.name);
    let pools = if run.pools.len() > 1 { &run.pools[..] } else { &[] };
    for part in std::iter::once(&run.total).chain(pools) {
        for p in &part.series {
            let phase = phase_at(run, p.at_seconds).map_or(String::new(), |p| field(&p.name));
            csv_line(&field(&part.name), p, out)?;
            writeln!(out, ",interval,{phase},,{scenario}")?;
        }
    }
    // Without a scenario the file is what it says of the intervals, so that columns can be added up.
    if run.setup.scenario.is_none() {
        return Ok(());
    }
    for phase in &run.phases {
        if let Some(figures) = &phase.figures {
            csv_figures("", phase.from_seconds, figures, out)?;
            writeln!(out, ",phase,{},,{scenario}", field(&phase.name))?;
        }
    }
    for pool in &run.pools {
        for asked in &pool.requests {
            csv_figures(&field(&pool.name), 0.0, &asked.figures, out)?;
            writeln!(out, ",request,,{},{scenario}", field(&asked.name))?;
        }
    }
    Ok(())
}

/// The phase at a time, seconds from the start; after the end the last.
fn phase_at(run: &Run, seconds: f64) -> Option<&Phase> {
    run.phases.iter().find(|p| seconds < p.to_seconds).or(run.phases.last())
}

/// What is known of a phase or a request; the other fields are empty.
fn csv_figures(pool: &str, at: f64, f: &Figures, out: &mut impl Write) -> io::Result<()> {
    let t = &f.latency;
    write!(out, "{pool},{at},{},{},{},{},,,,", f.seconds, f.sent, f.answered, f.failed)?;
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|q| t.at(q));
    write!(out, ",{p50},{p90},{p99},{p999},{},,", t.max())
}

fn csv_line(name: &str, p: &Point, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{name},{},{}", p.at_seconds, p.seconds)?;
    for n in [
        p.sent,
        p.answered,
        p.failed,
        p.bytes_sent,
        p.bytes_received,
        p.connections_opened,
        p.concurrency,
        p.p50_ns,
        p.p90_ns,
        p.p99_ns,
        p.p99_9_ns,
        p.max_ns,
        p.slip_p99_ns,
        p.slip_max_ns,
    ] {
        write!(out, ",{n}")?;
    }
    Ok(())
}

/// Writes the latencies of each interval as an HdrHistogram log: a line for each interval of the total, tagged lines for pools. Values are
/// nanoseconds; the column of the maximum is in milliseconds.
///
/// # Errors
/// Those of writing.
pub fn hdr_log(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let started = UNIX_EPOCH + Duration::from_millis(run.started_ms);
    let mut serializer = V2DeflateSerializer::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment(&format!(
            "{}: latency from the intended moment of sending, ns",
            plain(&run.setup.command)
        ))
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(1e6)
        .begin_log_with(out, &mut serializer)?;
    let pools = if run.pools.len() > 1 { &run.pools[..] } else { &[] };
    for (i, part) in std::iter::once(&run.total).chain(pools).enumerate() {
        let tag = if i == 0 { None } else { Some(tag(part, i)) };
        for (point, times) in part.series.iter().zip(&part.intervals) {
            let tag = tag.as_deref().and_then(Tag::new);
            writer
                .write_histogram(&times.0, time(point.at_seconds), time(point.seconds), tag)
                .map_err(|e| io::Error::other(format!("{e:?}")))?;
        }
    }
    Ok(())
}

fn time(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A pool's tag: tags have no commas and no white space.
fn tag(part: &Part, place: usize) -> String {
    let name: String =
        plain(&part.name).chars().map(|c| if c == ',' || c.is_whitespace() { '_' } else { c }).collect();
    if name.is_empty() { format!("pool-{place}") } else { name }
}
