//! The highest rate at which a condition holds, found by runs at one rate each.
//!
//! A [`Search`] says which rate is tried next, and is told whether the condition held there:
//!
//! 1. upwards from the lowest rate, each four times the one before, until one fails;
//! 2. then the geometric middle between the highest that held and the lowest that failed, until these two are near enough;
//! 3. then the highest that held once more.
//!
//! A rate has failed when it failed twice in a row, since other work on a machine spoils one run, and hardly the next one as well. A rate that
//! held, and fails twice when it is tried again at the end, has failed, and the search goes on below it.

pub mod burst;
mod found;
mod page;
#[cfg(test)]
mod tests;
mod text;

pub use found::{Ended, Found, Limit, Step};
pub use page::page;
pub use text::{line, table};

/// How much higher the next rate is as long as none has failed.
const GROWTH: f64 = 4.0;
/// How often the rate that is the result has to hold.
const TIMES: u32 = 2;

/// A search for the highest rate that holds.
#[derive(Debug, Clone)]
pub struct Search {
    lowest: f64,
    highest: f64,
    within: f64,
    /// Rates that held, ascending, each with how often.
    held: Vec<(f64, u32)>,
    /// The lowest rate that failed.
    failed: Option<f64>,
    /// A rate that failed once.
    again: Option<f64>,
}

impl Search {
    /// A search between two rates, above 0 and the first not above the second, that ends when the lowest rate that failed is not more than
    /// the share `within` above the highest that held: 0.05 is 5 %, and 0.01 the least that rates of four digits can tell.
    #[must_use]
    pub fn new((lowest, highest): (f64, f64), within: f64) -> Self {
        Self { lowest, highest, within: within.max(0.01), held: Vec::new(), failed: None, again: None }
    }

    /// The rate to try; `None` at the end.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        if self.again.is_some() {
            return self.again;
        }
        match (self.held.last().copied(), self.failed) {
            (None, None) => Some(self.lowest),
            (None, Some(_)) => None,
            (Some((held, _)), None) if held < self.highest => Some(rounded(held * GROWTH).min(self.highest)),
            (Some((held, _)), Some(failed)) if failed > held * (1.0 + self.within) => {
                Some(rounded((held * failed).sqrt()))
            }
            // Guard: `(times < TIMES)` as `false` fails find::tests::a_rate_that_held_by_chance_is_not_found
            (Some((held, times)), _) => (times < TIMES).then_some(held),
        }
    }

    /// Notes whether the condition held at a rate that [`Self::rate`] gave.
    pub fn tell(&mut self, rate: f64, holds: bool) {
        let second = self.again.take() == Some(rate);
        match (holds, self.held.last_mut()) {
            (true, Some((held, times))) if *held == rate => *times += 1,
            (true, _) => self.held.push((rate, 1)),
            // Guard: `!second` as `false` fails find::tests::spoilt_runs_do_not_mislead
            (false, _) if !second => self.again = Some(rate),
            (false, _) => {
                self.failed = Some(rate);
                // Guard: `*held < rate` as `true` fails find::tests::a_rate_that_held_by_chance_is_not_found
                self.held.retain(|(held, _)| *held < rate);
            }
        }
    }

    /// The highest rate that held, and the lowest that failed.
    #[must_use]
    pub fn bounds(&self) -> (Option<f64>, Option<f64>) {
        (self.held.last().map(|(rate, _)| *rate), self.failed)
    }
}

/// A rate with four digits, as it is shown.
fn rounded(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 3.0);
    (rate / unit).round() * unit
}
