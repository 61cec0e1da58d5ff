//! Where the time of workers goes, as shares.

use std::io::{self, Write};

use flowlane::control::{TimeView, WorkersView};

/// Names of the steps, in the order of [`values`].
pub(crate) use flowlane::stats::StepTimes;

/// The times of one worker, in the order of their names.
pub(crate) fn values(time: &TimeView) -> [u64; 7] {
    let TimeView { receive, stack, tasks, netisr, transmit, looking, asleep } = *time;
    [receive, stack, tasks, netisr, transmit, looking, asleep]
}

/// Percent of the whole, with one decimal; a dash for nothing of nothing.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

/// A line for each worker: percent of its time.
pub(super) fn table(mut out: impl Write, workers: &WorkersView) -> io::Result<()> {
    // An instance older than this command does not say.
    if workers.workers.iter().all(|w| values(&w.time).iter().sum::<u64>() == 0) {
        return Ok(());
    }
    writeln!(out, "\nTime, percent:")?;
    let names: String = StepTimes::NAMES.iter().map(|name| format!(" {name:>9}")).collect();
    writeln!(out, "{:>6}{names}", "worker")?;
    for worker in &workers.workers {
        let times = values(&worker.time);
        let whole = times.iter().sum();
        let shares: String = times.iter().map(|t| format!(" {:>9}", percent(*t, whole))).collect();
        writeln!(out, "{:>6}{shares}", worker.worker)?;
    }
    Ok(())
}
