//! How a command ends: exit codes, and one line that says what went wrong.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::lost;
use crate::say::{self, say};

/// The error of a command that ran and missed its goal: exit code 1.
#[derive(Debug)]
pub(crate) struct Missed(pub(crate) String);

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missed {}

/// Turns a command's result into its exit code, and prints an error in one line.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    if let Some(lost) = lost::link() {
        say!("flowlane: {lost}");
        return ExitCode::from(1);
    }
    let Err(error) = result else { return ExitCode::SUCCESS };
    if let Some(e) = error.downcast_ref::<io::Error>() {
        // The reader of standard output has closed it: success.
        if e.kind() == io::ErrorKind::BrokenPipe {
            return ExitCode::SUCCESS;
        }
    }
    say!("flowlane: {}", line(&error));
    if error.is::<Missed>() { ExitCode::from(1) } else { ExitCode::from(2) }
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
    say!("flowlane: {}", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}
