//! The report as one self-contained HTML page: no external files, no scripts, plots as inline SVG.
//!
//! The page is also well-formed XML. All text from outside (targets, names, errors) is escaped by [`svg::escape`].

mod plots;
pub mod svg;

use std::io::{self, Write};

use super::model::{Ended, Figures, Part, Run};
use super::text::{scenario, show_bytes};
use super::times::Times;
use crate::units::{show_count, show_nanos};
pub(crate) use plots::latency_over_rate;
use svg::escape;

const STYLE: &str = include_str!("style.css");

/// Writes the whole page.
///
/// # Errors
/// Those of writing.
pub fn page(run: &Run, out: &mut impl Write) -> io::Result<()> {
    begin(&format!("{} {}", run.setup.command, run.setup.targets.first().map_or("", String::as_str)), out)?;
    head(run, out)?;
    cards(run, out)?;
    latency(run, out)?;
    time(run, out)?;
    phases(run, out)?;
    pools(run, out)?;
    requests(run, out)?;
    lanes(run, out)?;
    counts(run, out)?;
    setup(run, out)?;
    end(&run.setup.program, run.version, out)
}

/// A page up to its content.
pub(crate) fn begin(title: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
         <title>{}</title>\n<style>\n{STYLE}</style></head><body>",
        escape(title)
    )
}

/// A page from its content on: the version of the program that made it, and of the report.
pub(crate) fn end(program: &str, version: u32, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<footer>flowlane {}, report version {version}</footer>\n</body></html>", escape(program))
}

fn head(run: &Run, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<h1>{}</h1>", escape(&format!("{} {}", run.setup.command, run.setup.targets.join(" "))))?;
    let how = match run.ended {
        Ended::Done => String::new(),
        Ended::Interrupted => ", ended early on request".to_owned(),
        Ended::Failed => ", ended early because it could not go on".to_owned(),
        Ended::Aborted => {
            run.aborted.as_ref().map_or_else(String::new, |aborted| format!(", {}", aborted.words()))
        }
    };
    let measured = if run.seconds - run.total.seconds < 0.05 {
        String::new()
    } else {
        format!(", {:.1} s of them measured", run.total.seconds)
    };
    if let Some(scenario) = scenario(run) {
        writeln!(out, "<p>{}</p>", escape(&scenario))?;
    }
    writeln!(
        out,
        "<p>{} over {}, {} {}, begun {}, {:.1} s{measured}{}</p>",
        escape(&run.setup.schedule),
        escape(&run.setup.link),
        run.setup.workers,
        if run.setup.workers == 1 { "worker" } else { "workers" },
        escape(&run.started),
        run.seconds,
        escape(&how)
    )?;
    let (class, word) = if run.ok { ("verdict", "Passed") } else { ("verdict bad", "Failed") };
    write!(out, "<div class=\"{class}\"><b>{word}</b>")?;
    if !run.failed.is_empty() {
        write!(out, "<ul>")?;
        for failed in &run.failed {
            write!(out, "<li>{}</li>", escape(failed))?;
        }
        write!(out, "</ul>")?;
    }
    let words = escape(&run.slip.words());
    let schedule = match (run.slip.judged, run.slip.kept) {
        (false, _) if run.setup.open_loop => "No request was due.".to_owned(),
        (false, _) => "Closed loop: the generator had no schedule to keep.".to_owned(),
        (true, true) => format!("The schedule was kept: {words}."),
        // What was missed stands above.
        (true, false) => {
            "The figures are the generator's rather than the target's, or its connections were too few."
                .to_owned()
        }
    };
    writeln!(out, "<p>{schedule}</p></div>")
}

fn cards(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let part = &run.total;
    let rate = |r: f64| format!("{}/s", show_count(r.round() as u64));
    writeln!(out, "<div class=\"cards\">")?;
    for (name, value) in [
        ("answered", rate(part.rates.answered)),
        ("p50", show_nanos(part.latency.at(0.5))),
        ("p99", show_nanos(part.latency.at(0.99))),
        ("p99.9", show_nanos(part.latency.at(0.999))),
        ("longest", show_nanos(part.latency.max())),
        ("errors", format!("{:.3} %", part.counts.error_share() * 100.0)),
        ("slip p99.9", show_nanos(run.slip.p99_9_ns)),
        ("CPU for each answer", show_nanos(run.generator.cpu_ns_per_answer)),
    ] {
        writeln!(out, "<div><span>{name}</span><strong>{value}</strong></div>")?;
    }
    writeln!(out, "</div>")
}

/// A heading, a sentence and a plot; nothing if there is no plot.
pub(crate) fn figure(
    out: &mut impl Write,
    heading: &str,
    note: &str,
    plot: Option<String>,
) -> io::Result<()> {
    let Some(plot) = plot else { return Ok(()) };
    writeln!(out, "<section><h2>{heading}</h2>\n<p class=\"note\">{note}</p>\n{plot}</section>")
}

fn latency(run: &Run, out: &mut impl Write) -> io::Result<()> {
    figure(
        out,
        "Latency",
        "By percentile, each further nine as wide as the one before. Latency counts from the moment a request was to be \
         sent, service time from when it was sent, slip is the difference: the generator's own lateness.",
        plots::latency_spectrum(&run.total),
    )?;
    percentiles(&run.total, out)?;
    let t = &run.total;
    let staged = !t.connect.is_empty() || !t.tls.is_empty() || !t.first_byte.is_empty();
    figure(out, "Stages", &stages(run), if staged { plots::stage_spectra(t) } else { None })?;
    figure(
        out,
        "Events",
        "Of server-sent events: from the moment a request was to be sent to the first event and to the last of its stream, and from one event to \
         the next.",
        plots::event_spectra(t),
    )
}

/// What the stages are: those of connections count from the intended moment (docs/load-tcp.md).
fn stages(run: &Run) -> String {
    let t = &run.total;
    let tcp = run.setup.command == "load tcp";
    let first = if tcp {
        "from the intended moment to the first byte that came back"
    } else {
        "from sending to the first byte of the answer"
    };
    let connect = if tcp { "from the intended moment to the connection" } else { "to make a connection" };
    let all = [
        (!t.connect.is_empty(), connect),
        (!t.tls.is_empty(), "to agree on TLS"),
        (!t.first_byte.is_empty(), first),
        (!t.last_byte.is_empty(), "from sending to its last byte"),
    ];
    let words: Vec<&str> = all.into_iter().filter(|(there, _)| *there).map(|(_, words)| words).collect();
    let words = words.join("; ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn percentiles(part: &Part, out: &mut impl Write) -> io::Result<()> {
    write!(out, "<div class=\"wide\"><table><tr><th></th>")?;
    for head in ["count", "p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max", "mean"] {
        write!(out, "<th>{head}</th>")?;
    }
    writeln!(out, "</tr>")?;
    for (name, times) in part.all_spectra() {
        if !times.is_empty() {
            write!(out, "<tr><td>{name}</td><td>{}</td>", show_count(times.count()))?;
            for nanos in row(times) {
                write!(out, "<td>{}</td>", show_nanos(nanos))?;
            }
            writeln!(out, "</tr>")?;
        }
    }
    writeln!(out, "</table></div>")
}

fn row(t: &Times) -> [u64; 9] {
    let [p50, p75, p90, p95, p99, p999, p9999] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999].map(|q| t.at(q));
    [p50, p75, p90, p95, p99, p999, p9999, t.max(), t.mean()]
}

fn time(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let shaded = match (run.phases.iter().all(|p| p.measured), run.phases.len() > 1) {
        (true, false) => "",
        (true, true) => " Marks say where phases begin.",
        (false, false) => " What is shaded was not measured.",
        (false, true) => " Marks say where phases begin; what is shaded was not measured.",
    };
    let note = format!("Requests sent, answers, and errors (bars) a second.{shaded}");
    figure(out, "Rate over time", &note, plots::rates(run))?;
    let note = format!("Of the answers of each interval, with the slip of what was sent in it.{shaded}");
    figure(out, "Latency over time", &note, plots::latencies(run))?;
    for period in &run.periods {
        let heading = format!("{} over one period", if period.of == "slip" { "Slip" } else { "Latency" });
        let note = format!("It repeats: {}. The mean of each part of the period.", period.words());
        figure(out, &heading, &escape(&note), plots::period(period))?;
    }
    figure(out, "Concurrency", "Connections, or requests on their way.", plots::concurrency(run))?;
    figure(out, "Bytes over time", "Heads included.", plots::bandwidth(run))
}

/// A table of parts: name and figures, and words about each.
fn figures<'a>(
    heading: &str,
    note: &str,
    heads: [&str; 2],
    rows: impl Iterator<Item = (&'a str, &'a Figures, String)>,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "<h2>{heading}</h2>\n<p class=\"note\">{note}</p>")?;
    write!(out, "<div class=\"wide\"><table><tr><th>{}</th>", heads[0])?;
    for head in ["seconds", "sent", "answered", "answered/s", "failed", "p50", "p90", "p99", "p99.9", "max"] {
        write!(out, "<th>{head}</th>")?;
    }
    writeln!(out, "<th>{}</th></tr>", heads[1])?;
    for (name, f, words) in rows {
        let t = &f.latency;
        write!(
            out,
            "<tr><td class=\"text\">{}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td>",
            escape(name),
            f.seconds,
            show_count(f.sent),
            show_count(f.answered),
            f.answered_rate,
            show_count(f.failed)
        )?;
        for nanos in [t.at(0.5), t.at(0.9), t.at(0.99), t.at(0.999), t.max()] {
            write!(out, "<td>{}</td>", show_nanos(nanos))?;
        }
        writeln!(out, "<td class=\"text\">{}</td></tr>", escape(&words))?;
    }
    writeln!(out, "</table></div>")
}

fn phases(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.phases.len() < 2 || run.phases.iter().all(|p| p.figures.is_none()) {
        return Ok(());
    }
    let rows = run.phases.iter().filter_map(|phase| {
        let measured = if phase.measured { "" } else { ", not measured" };
        Some((phase.name.as_str(), phase.figures.as_ref()?, format!("{}{measured}", phase.load)))
    });
    let note = "What was intended in each, all pools together; latencies are exact to 1 %.";
    figures("Phases", note, ["phase", "load"], rows, out)
}

fn requests(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.pools.iter().all(|p| p.requests.len() < 2) {
        return Ok(());
    }
    let of = |pool: &'_ Part| pool.name.clone();
    let rows = run.pools.iter().flat_map(|pool| {
        pool.requests.iter().map(move |asked| (asked.name.as_str(), &asked.figures, of(pool)))
    });
    let note = "What was measured of each, by what is asked; latencies are exact to 1 %.";
    figures("Requests", note, ["request", "pool"], rows, out)
}

fn pools(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.pools.len() < 2 {
        return Ok(());
    }
    figure(out, "Pools", "Answers a second of each pool.", plots::pools(&run.pools))?;
    figure(
        out,
        "Latency of the pools",
        "By percentile; the first eight pools.",
        plots::pool_spectra(&run.pools),
    )?;
    write!(out, "<div class=\"wide\"><table><tr><th>pool</th>")?;
    for head in ["sent/s", "answered/s", "failed", "p50", "p90", "p99", "p99.9", "max"] {
        write!(out, "<th>{head}</th>")?;
    }
    writeln!(out, "<th>schedule</th></tr>")?;
    for pool in &run.pools {
        let t = &pool.latency;
        write!(
            out,
            "<tr><td class=\"text\">{}</td><td>{:.0}</td><td>{:.0}</td><td>{}</td>",
            escape(&pool.name),
            pool.rates.sent,
            pool.rates.answered,
            show_count(pool.counts.failed)
        )?;
        for nanos in [t.at(0.5), t.at(0.9), t.at(0.99), t.at(0.999), t.max()] {
            write!(out, "<td>{}</td>", show_nanos(nanos))?;
        }
        writeln!(out, "<td class=\"text\">{}</td></tr>", escape(&pool.schedule))?;
    }
    writeln!(out, "</table></div>")
}

fn lanes(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let mut note = "Answers that came to each lane.".to_owned();
    if let Some(alignment) = run.alignment {
        note = format!("{note} {:.2} % of frames came to the worker of their bucket.", alignment * 100.0);
    }
    figure(out, "Buckets", &note, plots::lanes(&run.lanes))?;
    figure(out, "Latency of the buckets", "99th percentile.", plots::lane_latencies(&run.lanes))
}

fn counts(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let c = &run.total.counts;
    writeln!(
        out,
        "<h2>Counts</h2>\n<div class=\"wide\"><table><tr><th></th><th>measured</th><th>besides</th><th></th></tr>"
    )?;
    let u = &run.total.unmeasured;
    let mut line = |name: &str, count: u64, besides: u64, text: &str, bad: bool| {
        let class = if bad && count > 0 { " class=\"bad\"" } else { "" };
        writeln!(
            out,
            "<tr><td>{}</td><td{class}>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            escape(name),
            show_count(count),
            show_count(besides),
            escape(text)
        )
    };
    line("sent", c.sent, u.sent, "", false)?;
    line("answered", c.answered, u.answered, "", false)?;
    for (code, count) in &c.codes {
        line(&format!("answered {code}"), *count, u.codes.get(code).copied().unwrap_or(0), "", false)?;
    }
    line("failed", c.failed, u.failed, "", true)?;
    for (kind, error) in &c.errors {
        let besides = u.errors.get(kind).map_or(0, |e| e.count);
        line(&format!("failed: {kind}"), error.count, besides, &format!("first: {}", error.example), true)?;
    }
    line("due and not sent", c.unsent, u.unsent, "", true)?;
    line("held up", c.held_up, u.held_up, "times something due had to wait for room or a connection", false)?;
    for (name, count) in &c.more {
        let first = c.firsts.get(name).map_or(String::new(), |first| format!("first: {first}"));
        line(name, *count, u.more.get(name).copied().unwrap_or(0), &first, false)?;
    }
    if let Some(events) = &run.total.events {
        let streams = format!(
            "in {} streams, {} of each on average",
            show_count(events.streams),
            show_count(events.per_stream.mean())
        );
        line("events", events.events, 0, &streams, false)?;
    }
    line(
        "bytes sent",
        c.bytes_sent,
        u.bytes_sent,
        &format!("{}/s", show_bytes(run.total.rates.bytes_sent)),
        false,
    )?;
    let received = format!("{}/s", show_bytes(run.total.rates.bytes_received));
    line("bytes received", c.bytes_received, u.bytes_received, &received, false)?;
    line("connections made", c.connections_opened, u.connections_opened, "", false)?;
    line("connections not made", c.connections_failed, u.connections_failed, "", true)?;
    line("connections ended", c.connections_closed, u.connections_closed, "", false)?;
    for (reason, count) in &run.drops {
        line(&format!("dropped by us: {reason}"), *count, 0, "", false)?;
    }
    for (name, count) in &run.server {
        line(&format!("server: {name}"), *count, 0, "", false)?;
    }
    writeln!(out, "</table></div>")?;
    thresholds(run, out)
}

fn thresholds(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.thresholds.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Thresholds</h2>\n<table><tr><th>fails if</th><th>it was</th><th></th></tr>")?;
    for verdict in &run.thresholds {
        let (class, word) = if verdict.failed { ("bad", "failed") } else { ("good", "passed") };
        writeln!(
            out,
            "<tr><td class=\"text\">{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(&verdict.threshold),
            escape(&verdict.measured)
        )?;
    }
    writeln!(out, "</table>")
}

fn setup(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let s = &run.setup;
    let g = &run.generator;
    writeln!(out, "<h2>What was run</h2>\n<table>")?;
    let mut line = |name: &str, value: &str| {
        writeln!(out, "<tr><td>{}</td><td class=\"text\">{}</td></tr>", escape(name), escape(value))
    };
    line("command", &s.command)?;
    for target in &s.targets {
        line("target", target)?;
    }
    line("link", &s.link)?;
    line("schedule", &s.schedule)?;
    if let Some(scenario) = &s.scenario {
        line("scenario", scenario)?;
    }
    if let Some(seed) = s.seed {
        line("seed", &seed.to_string())?;
    }
    for (name, value) in &s.more {
        line(name, value)?;
    }
    for phase in &run.phases {
        let measured = if phase.measured { "measured" } else { "not measured" };
        let load = if phase.load.is_empty() { String::new() } else { format!(", {}", phase.load) };
        let words = format!("{:.1} to {:.1} s, {measured}{load}", phase.from_seconds, phase.to_seconds);
        line(&format!("phase {}", phase.name), &words)?;
    }
    line(
        "generator",
        &format!(
            "{:.2} s of CPU in the program, {:.2} s in the kernel, {} of memory at most",
            g.cpu_user_seconds,
            g.cpu_system_seconds,
            show_bytes(g.memory_bytes as f64)
        ),
    )?;
    writeln!(out, "</table>")
}
