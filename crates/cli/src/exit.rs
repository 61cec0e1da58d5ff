//! How a command ends: exit codes, and one line that says what went wrong.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The command ran, and what was to be reached or shown was not.
#[derive(Debug)]
pub(crate) struct Missed(pub(crate) String);

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missed {}

/// Bad arguments, in one line; asked-for help and version in as many as they have.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone has read enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    // The first paragraph says what is wrong; usage and hints follow behind an empty line.
    let text = error.to_string();
    let said: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    eprintln!("flowlane: {}", said.strip_prefix("error: ").unwrap_or(&said));
    ExitCode::from(2)
}

/// Turns a command's result into its exit code, saying what was wrong in one line.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if let Some(e) = error.downcast_ref::<io::Error>() {
        // Whoever reads us has read enough.
        if e.kind() == io::ErrorKind::BrokenPipe {
            return ExitCode::SUCCESS;
        }
    }
    eprintln!("flowlane: {error:#}");
    if error.is::<Missed>() { ExitCode::from(1) } else { ExitCode::from(2) }
}
