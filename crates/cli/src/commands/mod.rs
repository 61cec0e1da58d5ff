//! One module for each subcommand.

mod rss;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show, plan and judge receive side scaling.
    #[command(subcommand)]
    Rss(rss::Rss),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Rss(command) => command.run(),
        }
    }
}
