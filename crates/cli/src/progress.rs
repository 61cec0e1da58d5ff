//! A progress line on the terminal during a run of the generator.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use flowlane_load::{Load, Outcome, Progress};

use crate::interrupt::Interrupt;
use crate::say;
use crate::terminal::is_dumb;
use crate::units::show_count;

/// Interval between updates.
const EVERY: Duration = Duration::from_millis(250);

/// Waits for the end of a run or for ^C, and shows progress if standard error is a terminal.
pub(crate) fn watch(load: &Load, duration: Duration, interrupt: &Interrupt, quiet: bool) -> Outcome {
    let mut line = Line::<Progress>::new(duration, quiet);
    load.wait(EVERY, |progress| {
        line.show(progress, |p, before, rate| {
            format!(
                "sent {} ({}/s)   answered {} ({}/s)",
                show_count(p.sent),
                rate(p.sent, before.sent),
                show_count(p.received),
                rate(p.received, before.received),
            )
        });
        !interrupt.came()
    })
}

/// The parts of a line, three blanks between them, that find room whole. A line of all columns would scroll.
pub(crate) fn fitting(line: &str, columns: usize) -> &str {
    let mut end = 0;
    for part in line.split("   ") {
        let with = end + part.len() + if end > 0 { 3 } else { 0 };
        if with >= columns {
            break;
        }
        end = with;
    }
    &line[..end]
}

/// The line and its last values. Dropping it clears the line.
struct Line<P> {
    shown: bool,
    begun: Instant,
    duration: Duration,
    last: (Instant, P),
}

impl<P: Copy + Default> Line<P> {
    fn new(duration: Duration, quiet: bool) -> Self {
        let begun = Instant::now();
        let shown = !quiet && std::io::stderr().is_terminal() && !is_dumb();
        Self { shown, begun, duration, last: (begun, P::default()) }
    }

    /// Shows `now`. `words` formats the new and the last values; its third argument computes the rate, per second, from two counts.
    fn show(&mut self, now: P, words: impl Fn(&P, &P, &dyn Fn(u64, u64) -> String) -> String) {
        let (since, before) = &self.last;
        let seconds = since.elapsed().as_secs_f64();
        let rate = |n: u64, m: u64| show_count((n.saturating_sub(m) as f64 / seconds) as u64);
        if self.shown {
            let columns =
                ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
            let line = format!(
                "{:5.1} of {:.1} s   {}",
                self.begun.elapsed().min(self.duration).as_secs_f64(),
                self.duration.as_secs_f64(),
                words(&now, before, &rate)
            );
            say::text(format_args!("\r{}\x1b[K", fitting(&line, columns)));
        }
        self.last = (Instant::now(), now);
    }
}

impl<P> Drop for Line<P> {
    fn drop(&mut self) {
        if self.shown {
            say::text(format_args!("\r\x1b[K"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fitting;

    #[test]
    fn a_figure_is_shown_whole_or_left_out() {
        let line = "  1.0 of 10.0 s   sent 12 million (3 million/s)   answered 12 million (3 million/s)";
        assert_eq!(fitting(line, line.len() + 1), line);
        assert_eq!(fitting(line, line.len()), "  1.0 of 10.0 s   sent 12 million (3 million/s)");
        assert_eq!(fitting(line, 20), "  1.0 of 10.0 s");
        assert_eq!(fitting(line, 5), "");
    }
}
