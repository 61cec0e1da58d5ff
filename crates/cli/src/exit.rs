//! How a command ends: exit codes, and one line that says what went wrong.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::lost;
use crate::say::{self, say};
use crate::stdout;

/// The error of a command that ran and missed its goal: exit code 1.
#[derive(Debug)]
pub(crate) struct Missed(pub(crate) String);

/// The error of a generator that did all that it was asked, but not at the times it was asked: exit code 3, so that a loop can tell a slow
/// generator from a slow server.
#[derive(Debug)]
pub(crate) struct Slipped(pub(crate) String);

impl fmt::Display for Slipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Slipped {}

/// The error of a run that a signal ended before its end: exit code 128 and the signal's number, as a shell has it.
#[derive(Debug)]
pub(crate) struct EndedBy(pub(crate) u8, pub(crate) String);

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for EndedBy {}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missed {}

/// Something that was asked for could not be written, as a line has said, and the rest went on.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// Notes that something that was asked for could not be written, which a line has said: a command that else did all ends with exit code 1.
pub(crate) fn note_unwritten() {
    UNWRITTEN.store(true, Relaxed);
}

/// Turns a command's result into its exit code, and prints an error in one line.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    if let Some(lost) = lost::link() {
        say!("flowlane: {lost}");
        return ExitCode::from(1);
    }
    let Err(error) = result else { return ExitCode::from(u8::from(UNWRITTEN.load(Relaxed))) };
    if let Some(e) = error.downcast_ref::<io::Error>() {
        // The reader of standard output has closed it: success.
        if e.kind() == io::ErrorKind::BrokenPipe {
            return ExitCode::SUCCESS;
        }
    }
    say!("flowlane: {}", line(&error));
    match error.downcast_ref::<EndedBy>() {
        Some(EndedBy(signal, _)) => ExitCode::from(128 + signal),
        None if error.is::<Missed>() || stdout::is_of(&error) => ExitCode::from(1),
        None if error.is::<Slipped>() => ExitCode::from(3),
        None => ExitCode::from(2),
    }
}

/// The error and its causes in one line. A cause that an error's text already contains is left out.
fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(std::string::ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}

/// Prints in one line what is wrong with the arguments. Help and version that were asked for are printed as a success.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // An error means that standard output is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say::text(format_args!("{text}"));
        return ExitCode::from(2);
    }
    // After the first empty line clap prints usage and, sometimes, a tip.
    let lines: Vec<&str> = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let mut line = lines.join(" ");
    for tip in text.lines().filter_map(|l| l.trim().strip_prefix("tip: ")) {
        line = format!("{line}; {tip}");
    }
    let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(ours) = crate::guesses::answer(error, &arguments) {
        line = format!("{line}; {ours}");
    }
    let file =
        crate::service_file::said(error).map_or_else(String::new, |file| format!("{}: ", file.display()));
    say!("flowlane: {file}{}", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}
