//! One module for each subcommand.

mod bench;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(bench::Bench),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Bench(bench) => bench.run(),
        }
    }
}
