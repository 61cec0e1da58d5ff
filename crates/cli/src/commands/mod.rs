//! One module for each subcommand.

mod lab;
mod rss;
mod serve;
mod stat;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show, plan and judge receive side scaling.
    #[command(subcommand)]
    Rss(rss::Rss),
    /// Run a service on addresses of our own, beside the kernel.
    #[command(subcommand)]
    Serve(serve::Serve),
    /// Show what a running instance counted.
    Stat(stat::Stat),
    /// Make a network to try real links on, and remove it.
    #[command(subcommand)]
    Lab(lab::Lab),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Rss(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Stat(command) => command.run(),
            Self::Lab(command) => command.run(),
        }
    }
}
