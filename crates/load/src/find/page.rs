//! A search as one self-contained HTML page: latency over rate, and the runs.

use std::io::{self, Write};

use super::text::words;
use super::{Found, Limit, Step};
use crate::report::html::svg::escape;
use crate::report::html::{begin, end, figure, latency_over_rate};
use crate::units::{show_frequency, show_nanos};

/// Writes the whole page.
///
/// # Errors
/// Those of writing.
pub fn page(found: &Found, out: &mut impl Write) -> io::Result<()> {
    let title = format!("{} {}", found.command, found.targets.join(" "));
    begin(&title, out)?;
    writeln!(out, "<h1>{}</h1>\n<p>{}</p>", escape(&title), escape(&words(found)))?;
    let mut steps: Vec<&Step> = found.steps.iter().collect();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let curves = [
        ("p99", 3, "dash", points(&steps, |step| step.p99_ns)),
        ("p90", 2, "dot", points(&steps, |step| step.p90_ns)),
        ("p50", 0, "", points(&steps, |step| step.p50_ns)),
    ];
    figure(
        out,
        "Latency over rate",
        "Each point is one run, in the order of the rates. At the first line the condition held, at the second it did not.",
        latency_over_rate(&curves, found.rate, found.fails_at),
    )?;
    writeln!(
        out,
        "<h2>Runs</h2>\n<div class=\"wide\"><table><tr><th>rate/s</th><th>answered/s</th><th>p50</th><th>p90</th><th>p99</th>\
         <th>failed</th><th></th></tr>"
    )?;
    for step in steps {
        let verdict = match &step.why {
            None => "holds".to_owned(),
            Some(why) => format!("{}: {why}", step.limit.map_or("", Limit::name)),
        };
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            show_frequency(step.rate),
            show_frequency(step.answered_rate),
            show_nanos(step.p50_ns),
            show_nanos(step.p90_ns),
            show_nanos(step.p99_ns),
            step.failed,
            escape(&verdict)
        )?;
    }
    writeln!(out, "</table></div>")?;
    end(&found.program, found.version, out)
}

/// The points of a curve; runs without an answer have none.
fn points(steps: &[&Step], nanos: fn(&Step) -> u64) -> Vec<(f64, f64)> {
    steps.iter().map(|step| (step.rate, nanos(step) as f64)).filter(|(_, nanos)| *nanos > 0.0).collect()
}
