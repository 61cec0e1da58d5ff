//! A back-to-back benchmark as text: the line of each trial, and what they came to.

use std::io::{self, Write};

use super::{FoundBursts, Spread, Trial};
use crate::find::{Ended, Limit};
use crate::report::text::wrapped;
use crate::units::{show_count, show_frequency, show_nanos};

/// One trial in one line.
#[must_use]
pub fn line(number: usize, trial: &Trial) -> String {
    let (bursts, rate) = (show_count(trial.bursts), show_frequency(trial.rate.round()));
    let slow =
        if trial.slow > 0 { format!(", {} sent again: slow", show_count(trial.slow)) } else { String::new() };
    let found = match (trial.longest, trial.fails_at) {
        (longest, _) if trial.too_slow => {
            let passed = show_count(longest.unwrap_or(0));
            format!("given up, a burst is not sent at the rate that was asked for; {passed} datagrams passed")
        }
        (Some(longest), Some(fails)) => {
            format!("{} datagrams pass, and {} do not", show_count(longest), show_count(fails))
        }
        (Some(longest), None) => format!("{} datagrams pass, the longest burst", show_count(longest)),
        (None, Some(fails)) => format!("{} datagrams do not pass, the shortest burst", show_count(fails)),
        (None, None) => "nothing was tried".to_owned(),
    };
    format!("trial {number}: {found} ({bursts} bursts at {rate} a second{slow})")
}

/// What was found.
///
/// # Errors
/// Those of writing.
pub fn summary(found: &FoundBursts, out: &mut impl Write) -> io::Result<()> {
    let spread = |of: &Spread, digits: usize| {
        let Spread { average, min, max, stdev } = of;
        format!("average {average:.digits$}, {min:.0} to {max:.0}, standard deviation {stdev:.digits$}")
    };
    let complete = |trial: &&Trial| trial.longest.is_some() && !trial.too_slow;
    let trials = found.trials.iter().filter(complete).count();
    writeln!(out, "payload          {:.0} bytes", found.payload)?;
    if let Some(rate) = &found.rate {
        let asked = found.rate_asked.map_or("as fast as they could be sent".to_owned(), |rate| {
            format!("asked for {}", show_frequency(rate))
        });
        writeln!(out, "rate of bursts   {} a second ({asked})", spread(rate, 0))?;
    }
    if let Some(longest) = &found.longest {
        writeln!(out, "longest burst    {} datagrams (of {trials} trials)", spread(longest, 1))?;
    }
    let time = |seconds: f64| show_nanos((seconds * 1e9).round() as u64);
    if let Some(seconds) = found.implied_buffer_seconds {
        writeln!(out, "implied buffer   {}", time(seconds))?;
    }
    if let Some((seconds, throughput)) = found.corrected_buffer_seconds.zip(found.throughput) {
        let throughput = show_frequency(throughput);
        writeln!(out, "corrected buffer {} (throughput {throughput} a second)", time(seconds))?;
    }
    writeln!(out)?;
    wrapped(out, &words(found))?;
    if found.throughput.is_none() {
        wrapped(
            out,
            "note: the corrected buffer time needs the highest rate without loss: --throughput, as --find-rate 'lost <= 0' finds it",
        )?;
    } else if found.corrected_buffer_seconds.is_none() && found.longest.is_some() {
        wrapped(out, "note: the throughput is not below the rate of the bursts, so these filled no buffer")?;
    }
    if found.dropped > 0 {
        let dropped = show_count(found.dropped);
        wrapped(out, &format!("note: our own side dropped {dropped} packets, which count as lost"))?;
    }
    Ok(())
}

/// What was found, in a sentence.
fn words(found: &FoundBursts) -> String {
    let limit = found.limit.map_or(String::new(), |limit| format!(" (limit: {})", limit.name()));
    let [shortest, longest] = found.between.map(show_count);
    if found.limit == Some(Limit::Generator) {
        return "bursts were not sent at the rate that was asked for (limit: generator)".to_owned();
    }
    let average = found.longest.map_or("none".to_owned(), |of| format!("{:.1} datagrams", of.average));
    match found.ended {
        Ended::NoneHolds => format!("not even bursts of {shortest} datagrams pass without loss{limit}"),
        Ended::AllHold => format!("bursts of {longest} datagrams pass without loss, the longest: --between"),
        Ended::Narrow => format!("bursts of up to {average} pass without loss{limit}"),
        Ended::Time => format!("the time was up (--find-for) before all trials were made: {average} so far"),
        Ended::Interrupted => format!("it was ended before all trials were made: {average} so far"),
    }
}
