//! Periods: what comes again every so many milliseconds, as a timer of the server's or a card's interrupt moderation does.
//!
//! Figures of seconds do not show it, and percentiles show only that some requests are slow. So a recorder also notes latency and slip in
//! bins of a millisecond (`fine.rs`), and the report is searched for lines in their spectrum (`search.rs`). What is found is said in words and
//! drawn: the latency over one period.
//!
//! Logarithms of times are noted, not times: one request of a second would hide a thousand that wait 200 microseconds instead of 100.

pub(super) mod fine;
mod search;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::recorder::LaneRecord;
use crate::units::show_nanos;
use fine::Fine;

/// A period that was found.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Period {
    /// What repeats: `latency` or `slip`.
    pub of: String,
    /// The length of the period, nanoseconds.
    pub period_ns: u64,
    /// The share of the variance that it explains, of the logarithms of the times; 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0, max = 1.0)))]
    pub share: f64,
    /// The geometric mean of the times in each of 24 parts of the period, nanoseconds, in the part of the run where it was clearest; a part
    /// without requests has 0.
    pub steps_ns: Vec<u64>,
}

/// Parts of a period: 24, as the documentation of [`Period::steps_ns`] says.
pub const STEPS: usize = 24;

/// Periods in the latency and, with a schedule, in the slip of all records together; the strongest first.
pub(super) fn find(records: &[LaneRecord], open_loop: bool) -> Vec<Period> {
    let all = |fine: fn(&LaneRecord) -> &Fine| -> Vec<&Fine> { records.iter().map(fine).collect() };
    let mut found = find_in("latency", &all(|record| &record.fine_latency));
    if open_loop {
        found.extend(find_in("slip", &all(|record| &record.fine_slip)));
    }
    found
}

/// Periods in what all these series noted of it; the strongest first.
fn find_in(of: &str, series: &[&Fine]) -> Vec<Period> {
    let found = search::search(&fine::join(series));
    found.into_iter().map(|found| Period { of: of.to_owned(), ..found }).collect()
}

impl Period {
    /// The period in words.
    #[must_use]
    pub fn words(&self) -> String {
        let (low, high) = self.range();
        format!(
            "every {} {} goes from {} to {}: {:.1} % of its variance",
            show_nanos(self.period_ns),
            self.of,
            show_nanos(low),
            show_nanos(high),
            100.0 * self.share
        )
    }

    /// The least and the largest of the steps.
    fn range(&self) -> (u64, u64) {
        let known = || self.steps_ns.iter().copied().filter(|nanos| *nanos > 0);
        (known().min().unwrap_or(0), known().max().unwrap_or(0))
    }

    /// The steps as a row of characters, each of eight heights; a part without requests is a space.
    #[must_use]
    pub fn drawn(&self) -> String {
        const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let (low, high) = self.range();
        let height = |nanos: u64| (nanos - low) as f64 / (high - low).max(1) as f64 * 7.0;
        let of = |nanos: &u64| if *nanos == 0 { ' ' } else { HEIGHTS[height(*nanos).round() as usize] };
        self.steps_ns.iter().map(of).collect()
    }
}
