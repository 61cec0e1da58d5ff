//! What `compare` and `load compare` have in common: the options that say what counts as a difference.

use flowlane_load::report::compare::{CompareOptions, Metric};

/// Largest report, or output of a command, that is read, bytes; usual reports have some hundred kilobytes.
pub(super) const LARGEST: u64 = 256 << 20;

/// Options of a verdict.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub(super) struct Judging {
    /// Confidence of the result, in percent; of several intervals jointly.
    #[arg(long, default_value = "95", value_parser = confidence)]
    pub(super) confidence: f64,
    /// Difference in percent that does not count.
    #[arg(long, default_value = "0", value_parser = neglect)]
    pub(super) neglect: f64,
    /// Seed of the random choices; the same seed and figures give the same result.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl Judging {
    /// What a comparison is to show.
    pub(super) fn wish(&self) -> CompareOptions {
        CompareOptions {
            confidence: self.confidence,
            neglect: self.neglect,
            seed: self.seed,
            ..CompareOptions::default()
        }
    }
}

/// A metric by its name.
pub(super) fn metric(text: &str) -> Result<Metric, String> {
    let names: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
    Metric::ALL.into_iter().find(|m| m.name() == text).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn percent(text: &str) -> Option<f64> {
    text.trim().trim_end_matches('%').parse().ok()
}

fn confidence(text: &str) -> Result<f64, String> {
    let percent = percent(text).filter(|p| (50.0..=99.9).contains(p));
    percent.map(|p| p / 100.0).ok_or_else(|| "a share from 50 to 99.9 percent".to_owned())
}

/// A share that does not count, as a ratio.
pub(super) fn neglect(text: &str) -> Result<f64, String> {
    let percent = percent(text).filter(|p| (0.0..=1000.0).contains(p));
    percent.map(|p| p / 100.0).ok_or_else(|| "a share from 0 to 1000 percent".to_owned())
}
