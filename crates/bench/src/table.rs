//! Results of a benchmark: rounds, median and spread, ratios to a baseline; as a table or as JSON.

use std::io::Write;

use serde::Serialize;

/// Version of the JSON.
const VERSION: u32 = 1;

/// One figure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    min: f64,
    median: f64,
    max: f64,
    rounds: Vec<f64>,
    /// Median over rounds of this figure divided by the baseline's of the same round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Ratio>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Ratio {
    to: String,
    min: f64,
    median: f64,
    max: f64,
}

/// All figures of one benchmark.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Report {
    version: u32,
    bench: &'static str,
    command: String,
    processors: usize,
    processor: String,
    kernel: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(bench: &'static str) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo")
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(':').map(|(_, m)| m.trim().to_owned()));
        Self {
            version: VERSION,
            bench,
            command: std::env::args().skip(1).fold("flowlane".into(), |a, b| a + " " + &b),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            processor: model.unwrap_or_else(|| "unknown".into()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a figure, with the baseline's rounds if it has one.
    pub(crate) fn row(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        rounds: &[f64],
        peer: Option<(&str, &[f64])>,
    ) {
        let (min, median, max) = spread(rounds.to_vec());
        let ratio = peer.map(|(to, theirs)| {
            let ratios = rounds.iter().zip(theirs).filter(|(_, t)| **t > 0.0).map(|(o, t)| o / t).collect();
            let (min, median, max) = spread(ratios);
            Ratio { to: to.to_owned(), min, median, max }
        });
        self.rows.push(Row { name: name.into(), unit, min, median, max, rounds: rounds.to_vec(), ratio });
    }

    /// Adds a note on the figures.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Writes it as a table or as JSON.
    pub(crate) fn print(&self, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
        if json {
            serde_json::to_writer_pretty(&mut *out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(
            out,
            "{} on {} ({} processors, Linux {})",
            self.bench, self.processor, self.processors, self.kernel
        )?;
        let width = self.rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
        for r in &self.rows {
            let number = |n: f64| if n >= 1000.0 { format!("{n:.0}") } else { format!("{n:.2}") };
            write!(out, "  {:width$}  {:>10} {}", r.name, number(r.median), r.unit)?;
            write!(out, "  ({} to {})", number(r.min), number(r.max))?;
            if let Some(q) = &r.ratio {
                write!(out, "  {:.2} times {} ({:.2} to {:.2})", q.median, q.to, q.min, q.max)?;
            }
            writeln!(out)?;
        }
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        Ok(())
    }
}

fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(min), Some(median), Some(max)) => (*min, *median, *max),
        _ => (0.0, 0.0, 0.0),
    }
}
