//! One module for each subcommand.

mod demo;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the whole stack in one process, without root.
    Demo(demo::Demo),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Demo(demo) => demo.run(),
        }
    }
}
