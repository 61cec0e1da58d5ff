//! One module for each subcommand.

mod capture;
mod compare;
mod demo;
mod doctor;
mod epair;
mod flows;
mod instance;
mod judging;
mod lab;
mod lanes;
mod load;
mod rss;
mod serve;
mod shell;
mod stat;
mod switch;
mod top;

use clap::Subcommand;

use crate::typed::Typed;

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole stack in one process, without root.
    Demo(Typed<demo::Demo>),
    /// Generate traffic and measure the answers.
    #[command(subcommand)]
    Load(load::Load),
    Bench(Typed<flowlane_bench::Bench>),
    Compare(Typed<compare::Compare>),
    Doctor(Typed<doctor::Doctor>),
    /// Show, plan and check receive side scaling (RSS).
    #[command(subcommand)]
    Rss(rss::Rss),
    /// Run a server on a link with addresses of its own, or on kernel sockets.
    #[command(subcommand)]
    Serve(Box<serve::Serve>),
    /// Show the counters of a running instance.
    Stat(Typed<stat::Stat>),
    Top(Typed<top::Top>),
    Lanes(lanes::Lanes),
    Flows(Typed<flows::Flows>),
    /// Join two interfaces back to back, in any two network namespaces.
    #[command(subcommand)]
    Epair(epair::Epair),
    Capture(Typed<capture::Capture>),
    /// Run a switch with VLANs between links, and change it while it runs.
    #[command(subcommand)]
    Switch(Box<switch::Switch>),
    /// Create and remove a network to try real links on.
    #[command(subcommand)]
    Lab(lab::Lab),
    #[command(hide = true)]
    RestoreCard(crate::keeper::RestoreCard),
    #[command(hide = true)]
    RestoreInterrupts(crate::suspension::RestoreInterrupts),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl Command {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Demo(Typed(demo)) => demo.run(),
            Self::Load(load) => load.run(),
            Self::Bench(Typed(bench)) => bench.run(&mut crate::stdout::lock()),
            Self::Compare(Typed(compare)) => compare.run(),
            Self::Doctor(Typed(doctor)) => doctor.run(),
            Self::Rss(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Stat(Typed(command)) => command.run(),
            Self::Top(Typed(command)) => command.run(),
            Self::Lanes(command) => command.run(),
            Self::Flows(Typed(command)) => command.run(),
            Self::Epair(command) => command.run(),
            Self::Capture(Typed(command)) => command.run(),
            Self::Switch(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::RestoreCard(command) => command.run(),
            Self::RestoreInterrupts(command) => command.run(),
            Self::Completions(completions) => completions.run(),
            Self::Man(man) => man.run(),
        }
    }
}
