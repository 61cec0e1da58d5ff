//! A line on the terminal that says how far a run of the generator is, for those who wait.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use flowlane_load::{Load, Outcome, Progress};

use crate::interrupt::Interrupt;
use crate::units::show_count;

/// Waits for the end of a run, or for ^C to end it, showing how far it is if standard error is a terminal.
pub(crate) fn watch(load: &Load, duration: Duration, interrupt: &Interrupt, quiet: bool) -> Outcome {
    let shown = !quiet && std::io::stderr().is_terminal();
    let begun = Instant::now();
    let mut last = (begun, Progress::default());
    let outcome = load.wait(Duration::from_millis(250), |progress| {
        if shown {
            let (since, before) = last;
            let per_second =
                |n: u64, m: u64| show_count(((n - m) as f64 / since.elapsed().as_secs_f64()) as u64);
            eprint!(
                "\r{:5.1} of {:.1} s   sent {} ({}/s)   answered {} ({}/s)\x1b[K",
                begun.elapsed().min(duration).as_secs_f64(),
                duration.as_secs_f64(),
                show_count(progress.sent),
                per_second(progress.sent, before.sent),
                show_count(progress.received),
                per_second(progress.received, before.received),
            );
        }
        last = (Instant::now(), progress);
        !interrupt.came()
    });
    if shown {
        // Results stand alone.
        eprint!("\r\x1b[K");
    }
    outcome
}
