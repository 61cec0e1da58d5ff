//! `flowlane compare`: runs two commands in turns until it is clear whether they differ.
//!
//! The first of a pair is A and B in turns, so that what the first run does to the second, such as to the temperature of a processor,
//! happens to both alike.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane_load::report::compare::{Bounds, Judged, Metric, Turns, Verdict};
use flowlane_load::report::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use serde::Serialize;

use super::judging::{Judging, LARGEST, metric, neglect};
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::say::say;
use crate::stdout;

/// Interval between looks for ^C while a command runs.
const LOOK: Duration = Duration::from_millis(50);

/// Bounds that are further apart than this factor are not shown.
const TOO_WIDE: f64 = 4.0;

/// Time for a command to end in order after ^C.
const GRACE: Duration = Duration::from_secs(2);

/// Run two commands in turns, as often as it takes, and say whether their figures differ.
///
/// Each command is run by the shell, to its end; it starts and stops what servers it needs. Its figure is taken from the JSON report of
/// 'flowlane load --json' (--metric), or is the last line that it prints, which is then one number. The exit code is 1 if B is shown to
/// be worse, 2 if a command failed or ^C came, otherwise 0.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Command of A, the baseline.
    #[arg(long, value_name = "COMMAND")]
    a: String,
    /// Command of B.
    #[arg(long, value_name = "COMMAND")]
    b: String,
    /// Metric of a report: p50, p99, p99.9, mean, rate or cpu; without it, rate.
    #[arg(long, value_parser = metric)]
    metric: Option<Metric>,
    /// A printed number is a cost: less of it is better.
    #[arg(long)]
    less_is_better: bool,
    /// Difference in percent that is to be seen if there is one.
    #[arg(long, default_value = "2", value_parser = smallest)]
    smallest: f64,
    /// Most pairs.
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pairs: u32,
    #[command(flatten)]
    judging: Judging,
}

fn smallest(text: &str) -> Result<f64, String> {
    neglect(text).ok().filter(|share| *share > 0.0).ok_or_else(|| "a share above 0 percent".to_owned())
}

/// Runs a command in a process group of its own: how it ended, and what it printed. ^C ends the group.
fn run_to_its_end(command: &str, interrupt: &Interrupt) -> anyhow::Result<(ExitStatus, Vec<u8>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("sh")?;
    let out = child.stdout.take().context("its output")?;
    let (done, is_done) = mpsc::channel();
    let read = move || {
        let mut text = Vec::new();
        let read = out.take(LARGEST).read_to_end(&mut text);
        // Nobody wants it after ^C.
        let _ = done.send(read.map(|_| text));
    };
    thread::Builder::new().name("flowlane-output".into()).spawn(read).context("starting a thread")?;
    let mut text = None;
    loop {
        if interrupt.came() {
            end(child)?;
            bail!("interrupted");
        }
        let Some(printed) = &mut text else {
            match is_done.recv_timeout(LOOK) {
                Ok(read) => text = Some(read.context("reading its output")?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("its output was not read"),
            }
            continue;
        };
        if has_ended(&child, LOOK)? {
            return Ok((child.wait()?, std::mem::take(printed)));
        }
    }
}

/// Waits so long for the end of a child.
fn has_ended(child: &Child, time: Duration) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time)) {
        Err(Errno::INTR) => Ok(false),
        found => Ok(found? > 0),
    }
}

/// Ends a child and all of its process group: in order, and after [`GRACE`] at once.
fn end(mut child: Child) -> io::Result<()> {
    let group = Pid::from_child(&child);
    let until = Instant::now() + GRACE;
    // An error means that nobody is left of it.
    let _ = kill_process_group(group, Signal::TERM);
    while Instant::now() < until && !has_ended(&child, LOOK)? {}
    // The child is there until it is waited for, so the group has its number still.
    while child.try_wait()?.is_some() && test_kill_process_group(group).is_ok() && Instant::now() < until {
        thread::sleep(LOOK);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}

/// The number that is all there is in the last line that is not empty.
fn last_line(text: &str) -> Option<f64> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())?.parse().ok()
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Answer {
    /// 1.
    version: u32,
    /// Confidence of the result, 0 to 1.
    confidence: f64,
    /// Share of a difference that does not count: 0.02 is 2 %.
    neglect: f64,
    /// Share of a difference that was to be seen.
    smallest: f64,
    #[serde(flatten)]
    judged: Judged,
    /// B was shown to be worse.
    worse: bool,
}

#[cfg(test)]
#[test]
fn schema_of_compare() {
    let title = "Document of flowlane compare --json, version 1";
    let about = "Two commands in turns: what their figures are, and whether they differ.";
    flowlane_schema::Made::new("compare-v1", title, about).form::<Answer>().closed().keep();
}

impl Compare {
    /// Runs the pairs and prints the result.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        ensure!(
            self.judging.neglect <= self.smallest,
            "a difference that does not count (--neglect {:.2} %) cannot be above the one to be seen (--smallest {:.2} %)",
            self.judging.neglect * 100.0,
            self.smallest * 100.0
        );
        let mut turns = Turns::new(self.judging.wish(), self.smallest, self.pairs as usize);
        let mut less_is_better = self.less_is_better;
        // Of what kind the first figure was: a metric, or a plain number. All others are of the same.
        let mut kind = None;
        let interrupt = Interrupt::listen()?;
        // `None`: the run was cut short by ^C, or failed of it.
        let mut figure = |side: char| {
            let run = self.figure(if side == 'a' { &self.a } else { &self.b }, &interrupt);
            // Guard: `interrupt.came()` as `false` fails cli/compare::an_interrupted
            if interrupt.came() {
                return Ok(None);
            }
            let (figure, metric) = run.with_context(|| format!("--{side}"))?;
            ensure!(
                *kind.get_or_insert(metric) == metric,
                "one side prints a report and the other a plain number: they are not compared"
            );
            less_is_better |= metric.is_some_and(|m| !m.more_is_better());
            Ok::<_, anyhow::Error>(Some(figure))
        };
        let mut pairs = 0u32;
        let judged = loop {
            let [first, second] = if pairs.is_multiple_of(2) { ['a', 'b'] } else { ['b', 'a'] };
            let Some(one) = figure(first)? else { break None };
            let Some(other) = figure(second)? else { break None };
            let (a, b) = if first == 'a' { (one, other) } else { (other, one) };
            pairs += 1;
            say!("pair {pairs}: A {a}, B {b}, B / A {:.3}", b / a);
            if let Some(judged) = turns.pair(a, b) {
                break Some(judged);
            }
        };
        let Some(judged) = judged else {
            if let Some(judged) = turns.interrupted() {
                self.print(&judged, false)?;
            }
            bail!("interrupted after {pairs} pairs");
        };
        let worse = match judged.verdict {
            Verdict::BIsMore => less_is_better,
            Verdict::BIsLess => !less_is_better,
            _ => false,
        };
        self.print(&judged, worse)?;
        if worse { bail!(Missed("B is worse".to_owned())) } else { Ok(()) }
    }

    /// The figure of one run, and its metric if it is from a report.
    fn figure(&self, command: &str, interrupt: &Interrupt) -> anyhow::Result<(f64, Option<Metric>)> {
        let (status, text) = run_to_its_end(command, interrupt)?;
        ensure!(status.success(), "the command failed ({status})");
        let text = String::from_utf8_lossy(&text);
        if let Ok(runs) = files::runs_from_json(&text)
            && let Some(run) = runs.last()
        {
            let metric = self.metric.unwrap_or(Metric::Rate);
            let figure = metric.of_run(run).with_context(|| format!("the run has no {}", metric.name()))?;
            return Ok((figure, Some(metric)));
        }
        let figure = last_line(&text).context(
            "the last line it printed is no number, and there is no report (flowlane load --json)",
        )?;
        ensure!(
            self.metric.is_none(),
            "it printed a plain number, and --metric is for reports (flowlane load --json)"
        );
        ensure!(figure.is_finite() && figure > 0.0, "its figure is {figure}, which is not above 0");
        Ok((figure, None))
    }

    fn print(&self, judged: &Judged, worse: bool) -> io::Result<()> {
        let mut out = stdout::lock();
        let Judging { confidence, neglect, json, .. } = self.judging;
        if json {
            let smallest = self.smallest;
            let answer = Answer { version: 1, confidence, neglect, smallest, judged: *judged, worse };
            serde_json::to_writer(&mut out, &answer)?;
            writeln!(out)?;
            return out.flush();
        }
        let Judged { pairs, a, b, ratio, bounds: Bounds { low, high }, could_see, verdict } = judged;
        writeln!(out, "A {a:.1}, B {b:.1} (geometric means of {pairs} pairs)")?;
        // Bounds that are factors apart say nothing but that there are too few pairs.
        if high / low > TOO_WIDE && matches!(verdict, Verdict::Undecided | Verdict::Interrupted) {
            writeln!(out, "B / A {ratio:.4}; pairs differ too much for bounds by so few of them")?;
        } else {
            writeln!(out, "B / A {ratio:.4}, between {low:.4} and {high:.4} ({} %)", confidence * 100.0)?;
            writeln!(out, "smallest effect that could have been seen: {:.2} %", could_see * 100.0)?;
        }
        let better = if worse { "worse" } else { "better" };
        let smallest = self.smallest * 100.0;
        let words = match verdict {
            Verdict::BIsMore | Verdict::BIsLess => format!("B is {better}"),
            Verdict::NoDifference => format!("no difference of {smallest:.2} %"),
            Verdict::Undecided => {
                format!("no difference shown; more pairs (--pairs) would show one of {smallest:.2} %")
            }
            Verdict::Interrupted => "none, it was interrupted".to_owned(),
        };
        writeln!(out, "verdict: {words}")?;
        out.flush()
    }
}
