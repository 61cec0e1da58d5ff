//! The `flowlane` command: one binary, many programs.
//!
//! Results go to standard output, progress and complaints to standard error. Exit code 0 is success, 1 means that the
//! command ran and missed its goal, 2 that it could not start: bad arguments, a missing link, capability or file.
#![forbid(unsafe_code)]

mod address;
mod commands;
mod drops;
mod exit;
mod interrupt;
mod keeper;
mod link;
mod lost;
mod output;
mod progress;
mod reassembly;
mod steering;
mod tunnel;
mod units;

use clap::Parser;

/// A network stack, traffic generator and set of instruments in which every flow keeps to its lane.
#[derive(Debug, Parser)]
#[command(name = "flowlane", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> std::process::ExitCode {
    match Cli::try_parse() {
        Ok(cli) => {
            let result = cli.command.run();
            keeper::links_are_closed();
            exit::code(result)
        }
        Err(e) => exit::usage(&e),
    }
}
