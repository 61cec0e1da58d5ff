//! One module for each subcommand.

mod bench;
mod demo;
mod instance;
mod lab;
mod lanes;
mod load;
mod rss;
mod serve;
mod shell;
mod stat;

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
    /// Show, plan and judge receive side scaling.
    #[command(subcommand)]
    Rss(rss::Rss),
    /// Run a service on addresses of our own, beside the kernel.
    #[command(subcommand)]
    Serve(Box<serve::Serve>),
    /// Show what a running instance counted.
    Stat(stat::Stat),
    Lanes(lanes::Lanes),
    /// Make a network to try real links on, and remove it.
    #[command(subcommand)]
    Lab(lab::Lab),
    #[command(hide = true)]
    RestoreCard(crate::keeper::RestoreCard),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Load(load) => load.run(),
            Self::Bench(bench) => bench.run(),
            Self::Rss(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Stat(command) => command.run(),
            Self::Lanes(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::RestoreCard(command) => command.run(),
            Self::Completions(completions) => completions.run(),
            Self::Man(man) => man.run(),
        }
    }
}
