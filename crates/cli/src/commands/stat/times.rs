//! Where the time of workers goes, as shares.

use std::io::{self, Write};

use flowlane::control::WorkersView;
use flowlane::stats::StepTimes;

/// Percent of the whole, with one decimal; a dash for nothing of nothing.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}", part as f64 * 100.0 / whole as f64) }
}

/// A line for each worker: percent of its time.
pub(super) fn table(mut out: impl Write, workers: &WorkersView) -> io::Result<()> {
    // An instance older than this command does not say.
    if workers.workers.iter().all(|w| w.time.total() == 0) {
        return Ok(());
    }
    writeln!(out, "\nTime, percent:")?;
    let names: String = StepTimes::FIELDS.iter().map(|name| format!(" {name:>9}")).collect();
    writeln!(out, "{:>6}{names}", "worker")?;
    for worker in &workers.workers {
        let times = worker.time.values();
        let whole = worker.time.total();
        let shares: String = times.iter().map(|t| format!(" {:>9}", percent(*t, whole))).collect();
        writeln!(out, "{:>6}{shares}", worker.worker)?;
    }
    Ok(())
}
