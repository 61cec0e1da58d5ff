//! A search as text: the line of each run, and the table at the end.

use std::io::{self, Write};

use super::{Ended, Found, Limit, Step};
use crate::report::text::{plain, wrapped};
use crate::units::{show_frequency, show_nanos};

/// One run in one line.
#[must_use]
pub fn line(step: &Step) -> String {
    let rate = show_frequency(step.rate);
    match &step.why {
        None => format!("{rate} a second: holds, {}", plain(&step.measured)),
        Some(why) => format!("{rate} a second: does not hold, {}", plain(why)),
    }
}

/// The runs by their rates, and what was found.
///
/// # Errors
/// Those of writing.
pub fn table(found: &Found, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:>10}  {:>10}  {:>8}  {:>8}  {:>8}", "rate/s", "answered/s", "p50", "p90", "p99")?;
    let mut steps: Vec<&Step> = found.steps.iter().collect();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    for step in steps {
        writeln!(
            out,
            "{:>10}  {:>10}  {:>8}  {:>8}  {:>8}  {}",
            show_frequency(step.rate),
            show_frequency(step.answered_rate),
            show_nanos(step.p50_ns),
            show_nanos(step.p90_ns),
            show_nanos(step.p99_ns),
            step.limit.map_or("holds", Limit::name)
        )?;
    }
    writeln!(out)?;
    wrapped(out, &plain(&words(found)))?;
    if !found.recovered {
        wrapped(out, "note: after a run that failed the target did not answer as before within 10 s")?;
    }
    Ok(())
}

/// What was found, in a sentence.
pub(super) fn words(found: &Found) -> String {
    let per_second = |rate: Option<f64>| show_frequency(rate.unwrap_or_default());
    let (rate, fails) = (per_second(found.rate), per_second(found.fails_at));
    let condition = &found.condition;
    let limit = found.limit.map_or(String::new(), |limit| format!(" (limit: {})", limit.name()));
    match (found.ended, found.rate, found.fails_at) {
        (Ended::NoneHolds, ..) => {
            format!("{condition} does not hold at {fails} a second, the lowest rate{limit}")
        }
        (Ended::AllHold, ..) => format!("{condition} holds at {rate} a second, the highest rate: --between"),
        (Ended::Narrow, ..) => format!("{condition} holds up to {rate} a second and not at {fails}{limit}"),
        (ended, rate_held, failed) => {
            let why = if ended == Ended::Time { "the time was up (--find-for)" } else { "it was ended" };
            let so_far = match (rate_held, failed) {
                (Some(_), Some(_)) => format!("holds at {rate} a second and not at {fails}{limit}"),
                (Some(_), None) => format!("holds at {rate} a second"),
                (None, Some(_)) => format!("does not hold at {fails} a second{limit}"),
                (None, None) => "was tried at no rate".to_owned(),
            };
            format!("{why} before the search was: {condition} {so_far}")
        }
    }
}
