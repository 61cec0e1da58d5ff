//! One module for each subcommand.

mod bench;
mod demo;
mod load;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the whole stack in one process, without root.
    Demo(demo::Demo),
    /// Generates traffic and measures what comes back.
    #[command(subcommand)]
    Load(load::Load),
    Bench(bench::Bench),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Load(load) => load.run(),
            Self::Bench(bench) => bench.run(),
        }
    }
}
