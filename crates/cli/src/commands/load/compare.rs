//! `flowlane load compare`: compares two sets of runs, with confidence intervals.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane_load::report::compare::{Bounds, Compared, Finding, Method, Metric, compare};
use flowlane_load::report::model::Counts;
use flowlane_load::report::text::{plain, wrapped};
use flowlane_load::report::{Run, files};
use serde::Serialize;

use crate::commands::judging::{Judging, LARGEST, metric};
use crate::exit::Missed;
use crate::stdout;
use crate::units::{show_count, show_nanos};

/// Compare runs by their JSON reports: A1.json A2.json A3.json -- B1.json B2.json B3.json.
///
/// The exit code is 1 if B is shown to be worse in a metric, otherwise 0. One report on each side gives ratios without a finding, and
/// exit code 0, since one run does not show how much runs differ. Alternate the runs: A, B, A, B, ...
#[derive(Debug, Args)]
#[command(override_usage = "flowlane load compare [OPTIONS] A.json B.json\n       \
    flowlane load compare [OPTIONS] A1.json A2.json -- B1.json B2.json")]
pub(crate) struct Compare {
    /// Reports of A, the baseline. Without '--', the second report is B.
    #[arg(required = true)]
    a: Vec<PathBuf>,
    /// Reports of B.
    #[arg(last = true)]
    b: Vec<PathBuf>,
    /// Metrics to compare: p50, p99, p99.9, mean, rate, cpu [default: all].
    #[arg(long, value_delimiter = ',', value_parser = metric)]
    metric: Vec<Metric>,
    #[command(flatten)]
    judging: Judging,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Answer<'a> {
    version: u32,
    runs_a: usize,
    runs_b: usize,
    confidence: f64,
    neglect: f64,
    compared: &'a [Compared],
    warnings: &'a [String],
    worse: bool,
}

impl Compare {
    /// Prints the comparison.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let (a, b) = match (&self.a[..], &self.b[..]) {
            ([a, b], []) => (std::slice::from_ref(a), std::slice::from_ref(b)),
            (_, []) => {
                bail!("reports of two sides are needed: A.json B.json, or A1.json A2.json -- B1.json B2.json")
            }
            (a, b) => (a, b),
        };
        let (a, b) = (read_all(a)?, read_all(b)?);
        let wish = self.judging.wish();
        let metrics = if self.metric.is_empty() { &Metric::ALL[..] } else { &self.metric[..] };
        let compared = compare(metrics, &a, &b, &wish);
        ensure!(!compared.is_empty(), "no metric was measured in all of these runs");
        let warnings = warnings(&a, &b, &compared);
        let worse: Vec<&str> =
            compared.iter().filter(|c| c.finding == Finding::Worse).map(|c| c.metric.name()).collect();
        let mut out = stdout::lock();
        if self.judging.json {
            let answer = Answer {
                version: 1,
                runs_a: a.len(),
                runs_b: b.len(),
                confidence: wish.confidence,
                neglect: wish.neglect,
                compared: &compared,
                warnings: &warnings,
                worse: !worse.is_empty(),
            };
            serde_json::to_writer_pretty(&mut out, &answer)?;
            writeln!(out)?;
        } else {
            self.print(&mut out, &compared, &warnings, (a.len(), b.len()))?;
        }
        out.flush()?;
        if worse.is_empty() { Ok(()) } else { bail!(Missed(format!("B is worse: {}", worse.join(", ")))) }
    }

    fn print(
        &self,
        out: &mut impl Write,
        compared: &[Compared],
        warnings: &[String],
        (a, b): (usize, usize),
    ) -> io::Result<()> {
        let how = match compared.first().map(|c| c.method) {
            Some(Method::Paired) => "in pairs",
            Some(Method::Independent) => "as independent samples",
            _ => "without a finding",
        };
        let runs = format!("{a} of A, {b} of B, compared {how}");
        if compared.iter().any(|c| c.bounds.is_some()) {
            writeln!(out, "{runs}; all intervals hold with {} %", self.judging.confidence * 100.0)?;
        } else {
            writeln!(out, "{runs}")?;
        }
        writeln!(out, "{:<6} {:>11} {:>11} {:>8}  {:<18} B is", "", "A", "B", "B / A", "between")?;
        for c in compared {
            let finding = match (c.finding, c.metric) {
                (Finding::NotJudged, _) if c.runs_needed.is_some() => "too few runs",
                (Finding::NotJudged, _) => "not judged",
                (Finding::NoDifferenceShown, _) => "no difference shown",
                (Finding::Better, Metric::Cpu) => "cheaper",
                (Finding::Worse, Metric::Cpu) => "dearer",
                (Finding::Better, _) => "faster",
                (Finding::Worse, _) => "slower",
            };
            writeln!(
                out,
                "{:<6} {:>11} {:>11} {:>8.3}  {:<18} {finding}",
                c.metric.name(),
                shown(c.metric, c.a),
                shown(c.metric, c.b),
                c.ratio,
                c.bounds.map_or("-".to_owned(), |Bounds { low, high }| format!("{low:.3} and {high:.3}"))
            )?;
        }
        for warning in warnings {
            wrapped(out, &format!("note: {warning}"))?;
        }
        Ok(())
    }
}

fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Rate => format!("{}/s", show_count(value.round() as u64)),
        _ => show_nanos(value.round() as u64),
    }
}

fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for path in paths {
        runs.extend(read(path).with_context(|| path.display().to_string())?);
    }
    Ok(runs)
}

fn read(path: &Path) -> anyhow::Result<Vec<Run>> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    flowlane::written::note_read(&file).keep();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= LARGEST, "too large for a report");
    files::runs_from_json(&text).map_err(anyhow::Error::msg)
}

/// Warnings about runs that limit what the comparison shows.
fn warnings(a: &[Run], b: &[Run], compared: &[Compared]) -> Vec<String> {
    let mut warnings = Vec::new();
    if compared.iter().any(|c| c.method == Method::OneRun) {
        warnings.push(
            "one run on a side does not show how much runs differ, so there is no finding: compare several, \
             taken in turns (A, B, A, B, ...)"
                .to_owned(),
        );
    } else if let Some(late) = taken_one_after_the_other(a, b) {
        warnings.push(late);
    }
    warnings.extend(too_few(compared));
    let late = a.iter().chain(b).filter(|r| !r.slip.kept).count();
    if late > 0 {
        warnings.push(format!("in {late} of the runs the generator did not keep its schedule"));
    }
    let failing = |runs: &[Run]| {
        let mut counts = Counts::default();
        runs.iter().for_each(|r| counts.add(&r.total.counts));
        counts.error_share()
    };
    let (errors_a, errors_b) = (failing(a), failing(b));
    if (errors_a - errors_b).abs() > 0.001 {
        warnings.push(format!("errors: {:.3} % in A, {:.3} % in B", errors_a * 100.0, errors_b * 100.0));
    }
    let what = |r: &Run| (r.setup.command.clone(), r.setup.schedule.clone(), r.setup.link.clone());
    if let Some(first) = a.first()
        && let Some(other) = a.iter().chain(b).find(|r| what(r) != what(first))
    {
        let say = |r: &Run| plain(&format!("{}, {}, {}", r.setup.command, r.setup.schedule, r.setup.link));
        warnings.push(format!("not all runs are of the same kind: {} and {}", say(first), say(other)));
    }
    warnings
}

/// How many runs would tell, where there are too few for a finding.
fn too_few(compared: &[Compared]) -> Option<String> {
    let all: Vec<_> = compared.iter().filter_map(|c| Some((c.metric.name(), c.runs_needed?))).collect();
    let most = all.iter().map(|(_, n)| *n).max()?;
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let fewer = if compared.len() > 1 { "; --metric with fewer metrics takes fewer" } else { "" };
    Some(format!(
        "runs of a side differ too much for a finding by so few of them ({}): about {most} of each would show a difference of this size{fewer}",
        names.join(", ")
    ))
}

/// A warning if all runs of one side were made before all of the other: a change of the machine in between then looks like a difference
/// of the programs.
fn taken_one_after_the_other(a: &[Run], b: &[Run]) -> Option<String> {
    let span = |runs: &[Run]| {
        let times = || runs.iter().map(|r| r.started_ms);
        Some((times().min()?, times().max()?))
    };
    let ((first_a, last_a), (first_b, last_b)) = (span(a)?, span(b)?);
    let (earlier, later) = if last_a < first_b {
        ("A", "B")
    } else if last_b < first_a {
        ("B", "A")
    } else {
        return None;
    };
    Some(format!(
        "all runs of {earlier} were made before those of {later}: what changed on the machine meanwhile shows as a difference; \
         take them in turns (A, B, A, B, ...)"
    ))
}
