//! A run as text: the final table, and the line of each second.
//!
//! Control characters in text from servers and scenarios are escaped, so that an error message cannot control the terminal. Counts have
//! groups of three digits; times have three significant digits and a unit.

mod agents;

use std::io::{self, Write};

use flowlane::metrics::steering;

use super::late;
use super::live::Frame;
use super::model::{Counts, Ended, Figures, Part, Point, Run};
use super::times::Times;
use crate::units::{show_count, show_nanos};

/// Most codes shown separately; the rest are shown together.
const CODES: usize = 8;
/// Columns of a terminal.
const WIDTH: usize = 80;

/// Untrusted text for one line of a terminal: control characters and characters that change the writing direction are escaped.
#[must_use]
pub fn plain(text: &str) -> String {
    flowlane_sys::words::legible(text)
}

/// Bytes with a decimal unit: `1.23 MB`.
#[must_use]
pub fn show_bytes(bytes: f64) -> String {
    let mut value = bytes.max(0.0);
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            let digits = if unit == "B" || value >= 99.95 { 0 } else { usize::from(value < 9.995) + 1 };
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    unreachable!("the last unit takes anything")
}

/// A share in percent, with the significant digits.
fn percent(share: f64) -> String {
    format!("{:.4} %", share * 100.0)
}

fn rate(per_second: f64) -> String {
    if per_second >= 99.5 { show_count(per_second.round() as u64) } else { format!("{per_second:.1}") }
}

/// Writes the final table.
///
/// # Errors
/// Those of writing.
pub fn table(run: &Run, out: &mut impl Write) -> io::Result<()> {
    head(run, out)?;
    counts(run, out)?;
    writeln!(out)?;
    spectra(&run.total, run.setup.open_loop, out)?;
    parts(run, out)?;
    writeln!(out)?;
    tail(run, out)
}

fn head(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let setup = &run.setup;
    let targets: Vec<String> = setup.targets.iter().take(4).map(|t| plain(t)).collect();
    let more = setup.targets.len().saturating_sub(targets.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    wrapped(
        out,
        &format!(
            "{} {}{more} over {} for {:.1} s{}: {}, {} {}",
            plain(&setup.command),
            targets.join(" "),
            plain(&setup.link),
            run.seconds,
            measured(run),
            plain(&setup.schedule),
            setup.workers,
            if setup.workers == 1 { "worker" } else { "workers" },
        ),
    )?;
    if let Some(scenario) = scenario(run) {
        wrapped(out, &scenario)?;
    }
    for (name, value) in &setup.more {
        wrapped(out, &format!("{}: {}", plain(name), plain(value)))?;
    }
    match run.ended {
        Ended::Done => Ok(()),
        Ended::Interrupted => writeln!(out, "ended early on request: this is what was measured until then"),
        Ended::Failed => writeln!(out, "ended early because it could not go on"),
        Ended::Aborted => match &run.aborted {
            Some(aborted) => {
                wrapped(out, &plain(&format!("{}: this is what was measured until then", aborted.words())))
            }
            None => writeln!(out, "aborted: this is what was measured until then"),
        },
    }
}

/// The measured part of the run, if it is not the whole.
fn measured(run: &Run) -> String {
    let part = run.total.seconds;
    if run.seconds - part < 0.05 { String::new() } else { format!(" ({part:.1} s measured)") }
}

/// What the scenario is called and for, if the run had one.
pub(super) fn scenario(run: &Run) -> Option<String> {
    let setup = &run.setup;
    let file = setup.scenario.as_deref()?;
    let name = if setup.name.is_empty() {
        format!("scenario {}", plain(file))
    } else {
        format!("scenario '{}' ({})", plain(&setup.name), plain(file))
    };
    Some(if setup.about.is_empty() { name } else { format!("{name}: {}", plain(&setup.about)) })
}

fn line(out: &mut impl Write, name: &str, count: u64, rest: &str) -> io::Result<()> {
    // The rest, such as the words of an error, goes on below itself.
    let mut begin = format!("{name:<22} {:>15}  ", show_count(count));
    for piece in pieces(rest, WIDTH - 40) {
        writeln!(out, "{}", format!("{begin}{piece}").trim_end())?;
        begin = " ".repeat(40);
    }
    Ok(())
}

/// Writes a text, wrapped at 80 columns; following lines are indented.
///
/// # Errors
/// Those of `out`.
pub fn wrapped(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut begin = "";
    for piece in pieces(text, WIDTH - 4) {
        writeln!(out, "{begin}{piece}")?;
        begin = "    ";
    }
    Ok(())
}

/// Splits a text into pieces of at most `width` characters, at spaces if there are any; returns at least one piece.
fn pieces(text: &str, width: usize) -> Vec<String> {
    let (mut pieces, mut piece, mut len) = (Vec::new(), String::new(), 0);
    // Spaces at the beginning set a column.
    let begin: String = text.chars().take_while(|c| *c == ' ').collect();
    for word in text.trim_start().split(' ') {
        let word: Vec<char> = word.chars().collect();
        let fits = len == 0 || len + 1 + word.len() <= width;
        if !fits {
            pieces.push(std::mem::take(&mut piece));
            len = 0;
        }
        if len > 0 {
            piece.push(' ');
            len += 1;
        } else if pieces.is_empty() {
            piece.push_str(&begin);
            len += begin.len();
        }
        for part in word.chunks(width.max(1)) {
            if len + part.len() > width {
                pieces.push(std::mem::take(&mut piece));
                len = 0;
            }
            piece.extend(part);
            len += part.len();
        }
    }
    pieces.push(piece);
    pieces
}

fn counts(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let part = &run.total;
    let c = &part.counts;
    line(out, "sent", c.sent, &format!("{:>13}/s", rate(part.rates.sent)))?;
    line(out, "answered", c.answered, &format!("{:>13}/s", rate(part.rates.answered)))?;
    codes(c, out)?;
    line(out, "failed", c.failed, &format!("{:>15}", percent(c.error_share())))?;
    for (kind, error) in &c.errors {
        let example = if error.example.is_empty() {
            String::new()
        } else {
            format!("first: {}", plain(&error.example))
        };
        line(out, &format!("  {}", plain(kind)), error.count, &example)?;
    }
    for (name, count) in [("unsent", c.unsent), ("held up", c.held_up)] {
        if count > 0 {
            line(out, name, count, "")?;
        }
    }
    for (name, count) in c.more.iter().filter(|(_, count)| **count > 0) {
        let first = c.firsts.get(name).map_or(String::new(), |first| format!("first: {}", plain(first)));
        line(out, &plain(name), *count, &first)?;
    }
    if let Some(events) = &part.events {
        let streams = format!("{:>13}/s in {} streams", rate(events.rate), show_count(events.streams));
        line(out, "events", events.events, &streams)?;
        if !events.per_stream.is_empty() {
            let [p50, max] = [events.per_stream.at(0.5), events.per_stream.max()].map(show_count);
            line(
                out,
                "  of a stream",
                events.per_stream.mean(),
                &format!("on average; median {p50}, at most {max}"),
            )?;
        }
    }
    for (reason, count) in &run.drops {
        line(out, "dropped", *count, &plain(reason))?;
    }
    if c.bytes_sent + c.bytes_received > 0 {
        for (name, bytes, each) in [
            ("bytes sent", c.bytes_sent, part.rates.bytes_sent),
            ("bytes received", c.bytes_received, part.rates.bytes_received),
        ] {
            line(out, name, bytes, &format!("{:>13}/s", show_bytes(each)))?;
        }
    }
    connections(part, run.lanes.iter().map(|l| l.flows).sum(), out)?;
    let warm = part.unmeasured.sent;
    if warm > 0 {
        line(out, "not measured", warm, "sent while warming up or cooling down")?;
    }
    Ok(())
}

fn codes(c: &Counts, out: &mut impl Write) -> io::Result<()> {
    let mut codes: Vec<(&String, u64)> = c.codes.iter().map(|(code, count)| (code, *count)).collect();
    codes.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), (*code).clone()));
    for (code, count) in codes.iter().take(CODES) {
        line(out, &format!("  {}", plain(code)), *count, "")?;
    }
    let other: u64 = codes.iter().skip(CODES).map(|(_, count)| count).sum();
    if other > 0 {
        line(out, "  others", other, "")?;
    }
    Ok(())
}

/// Writes the line of connections; `asked` is the configured number.
fn connections(part: &Part, asked: u64, out: &mut impl Write) -> io::Result<()> {
    let all = |f: fn(&Counts) -> u64| f(&part.counts) + f(&part.unmeasured);
    let (opened, failed) = (all(|c| c.connections_opened), all(|c| c.connections_failed));
    if opened + failed == 0 {
        return Ok(());
    }
    let failed =
        if failed > 0 { format!(", {} could not be made", show_count(failed)) } else { String::new() };
    let asked =
        if part.concurrency_max < asked { format!(" of {}", show_count(asked)) } else { String::new() };
    let rest = format!("{} at once at most{asked}{failed}", show_count(part.concurrency_max));
    line(out, "connections", opened, &rest)
}

/// The times of a part, one kind a line.
fn spectra(part: &Part, open_loop: bool, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"
    )?;
    for (name, times) in part.all_spectra() {
        // A closed loop has no schedule and so no slip.
        if !times.is_empty() && (open_loop || name != "slip") {
            let cells: Vec<String> =
                percentiles(times).iter().map(|nanos| format!("{:>9}", show_nanos(*nanos))).collect();
            writeln!(out, "{name:<10} {}", cells.join(" "))?;
        }
    }
    Ok(())
}

fn percentiles(t: &Times) -> [u64; 7] {
    [t.at(0.5), t.at(0.9), t.at(0.99), t.at(0.999), t.at(0.9999), t.max(), t.mean()]
}

/// Pools, phases and requests, where there are several.
fn parts(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.pools.len() > 1 {
        columns("pool", out)?;
        for pool in &run.pools {
            let rates = (pool.rates.sent, pool.rates.answered);
            row(&plain(&pool.name), rates, pool.counts.failed, &pool.latency, out)?;
        }
    }
    let of = |figures: &Figures| (figures.sent_rate, figures.answered_rate);
    if run.phases.len() > 1 && run.phases.iter().any(|p| p.figures.is_some()) {
        columns("phase", out)?;
        for phase in &run.phases {
            let Some(figures) = &phase.figures else { continue };
            let name = plain(&phase.name);
            let name = if phase.measured { name } else { format!("({name})") };
            row(&name, of(figures), figures.failed, &figures.latency, out)?;
        }
        if run.phases.iter().any(|p| !p.measured) {
            writeln!(out, "phases in brackets are in no other figure of this table")?;
        }
    }
    if run.pools.iter().any(|p| p.requests.len() > 1) {
        columns("request", out)?;
        for pool in &run.pools {
            for asked in &pool.requests {
                let mut name = plain(&asked.name);
                if run.pools.len() > 1 {
                    name = format!("{}: {name}", plain(&pool.name));
                }
                let figures = &asked.figures;
                row(&name, of(figures), figures.failed, &figures.latency, out)?;
            }
        }
    }
    Ok(())
}

fn columns(what: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\n{what:<14} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "sent/s", "answered/s", "failed", "p50", "p99", "p99.9", "max"
    )
}

/// A line of such a table. A name that is too long for its column stands above it.
fn row(
    name: &str,
    (sent, answered): (f64, f64),
    failed: u64,
    t: &Times,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut name = name.to_owned();
    if name.chars().count() > 14 {
        wrapped(out, &name)?;
        name.clear();
    }
    writeln!(
        out,
        "{name:<14} {:>9} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        rate(sent),
        rate(answered),
        show_count(failed),
        show_nanos(t.at(0.5)),
        show_nanos(t.at(0.99)),
        show_nanos(t.at(0.999)),
        show_nanos(t.max())
    )
}

fn tail(run: &Run, out: &mut impl Write) -> io::Result<()> {
    agents::table(run, out)?;
    if run.lanes.len() > 1 {
        let shares: Vec<u64> = run.lanes.iter().map(|l| l.answered).collect();
        let (least, most) =
            (shares.iter().min().copied().unwrap_or(0), shares.iter().max().copied().unwrap_or(0));
        let (least, most) = (show_count(least), show_count(most));
        wrapped(out, &format!("{} lanes, answers in each: {least} to {most}", run.lanes.len()))?;
    }
    if let Some(alignment) = run.alignment {
        writeln!(out, "alignment: {:.2} % of frames came to the worker of their bucket", alignment * 100.0)?;
        if run.arrivals.iter().any(|queue| !queue.causes.is_empty()) {
            write!(out, "{}", steering::table(&run.arrivals))?;
        }
    }
    if let Some(ports) = run.home_ports {
        let all = ports.home + ports.elsewhere;
        let (home, all) = (show_count(ports.home), show_count(all));
        let (did, what) =
            if run.setup.command == "load udp" { ("asks", "flows") } else { ("connected", "connections") };
        wrapped(
            out,
            &format!("source ports: answers come to the lane that {did} for {home} of {all} {what}"),
        )?;
    }
    let g = &run.generator;
    if g.memory_bytes > 0 {
        let cpu = g.cpu_user_seconds + g.cpu_system_seconds;
        let over = if g.seconds > 0.0 { g.seconds } else { run.seconds };
        let cores = if over > 0.0 { cpu / over } else { 0.0 };
        // Without answers there is no such figure.
        let cpu = match g.cpu_ns_per_answer {
            0 => format!("{cores:.2} cores"),
            each => format!("{} of CPU for each answer ({cores:.2} cores)", show_nanos(each)),
        };
        let memory = show_bytes(g.memory_bytes as f64);
        wrapped(out, &format!("generator: {cpu}, {memory} of memory at most"))?;
    }
    if run.slip.judged && run.slip.kept {
        wrapped(out, &format!("schedule: kept; {}", run.slip.words()))?;
        if run.slip.is_most_of(&run.total) {
            wrapped(
                out,
                &format!("note: most of p99 is the generator's own lateness (slip); {}", late::cause(run)),
            )?;
        }
    }
    for pushed in &run.pushes {
        wrapped(out, &plain(&pushed.words()))?;
    }
    for period in &run.periods {
        wrapped(out, &format!("period: {}", period.words()))?;
        writeln!(out, "        |{}|", period.drawn())?;
    }
    for (name, count) in &run.server {
        wrapped(out, &format!("server: {} {}", plain(name), show_count(*count)))?;
    }
    for verdict in &run.thresholds {
        let word = if verdict.failed { "FAILED" } else { "passed" };
        wrapped(out, &format!("{word}: {}, it was {}", plain(&verdict.threshold), verdict.measured))?;
    }
    let judged: Vec<String> =
        run.thresholds.iter().map(|v| format!("{}: it was {}", v.threshold, v.measured)).collect();
    for missed in run.failed.iter().filter(|f| !judged.contains(f)) {
        wrapped(out, &format!("FAILED: {}", plain(missed)))?;
    }
    Ok(())
}

/// Headings of the columns of [`second`].
#[must_use]
pub fn second_head() -> String {
    format!(
        "{:>5} {:>9} {:>9} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "s", "sent/s", "answers/s", "failed", "at once", "bytes/s", "p50", "p99", "max", "slip"
    )
}

/// The line of a second.
#[must_use]
pub fn second(point: &Point) -> String {
    let each = |n: u64| if point.seconds > 0.0 { n as f64 / point.seconds } else { 0.0 };
    format!(
        "{:>5.0} {:>9} {:>9} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        point.at_seconds + point.seconds,
        rate(each(point.sent)),
        rate(each(point.answered)),
        show_count(point.failed),
        show_count(point.concurrency),
        show_bytes(each(point.bytes_received)),
        show_nanos(point.p50_ns),
        show_nanos(point.p99_ns),
        show_nanos(point.max_ns),
        show_nanos(point.slip_p99_ns)
    )
}

/// The status line, which overwrites the one before. It has at most `columns` columns, since a line wider than the terminal cannot be
/// overwritten.
#[must_use]
pub fn status(frame: &Frame, of: f64, columns: usize) -> String {
    let now = &frame.total;
    let mut parts = vec![
        format!("{:.1} of {of:.0} s", frame.elapsed.as_secs_f64().min(of)),
        format!("{}/s sent", rate(now.sent_rate)),
        format!("{}/s answered", rate(now.answered_rate)),
        format!("{} failed", show_count(now.failed)),
    ];
    if let Some(last) = frame.last() {
        parts.push(format!("p50 {}", show_nanos(last.p50_ns)));
        parts.push(format!("p99 {}", show_nanos(last.p99_ns)));
    }
    parts.push(format!("{} at once", show_count(now.concurrency)));
    if let Some(last) = frame.last() {
        parts.push(format!("max {}", show_nanos(last.max_ns)));
        parts.push(format!("slip p99 {}", show_nanos(last.slip_p99_ns)));
    }
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { "" } else { "  " };
        // One column stays free: a terminal moves to the next line when the last column is written.
        if text.chars().count() + gap.len() + part.chars().count() < columns {
            text.push_str(gap);
            text.push_str(&part);
        }
    }
    text
}
