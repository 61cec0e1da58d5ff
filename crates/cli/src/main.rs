//! The `flowlane` command: one binary, many programs.
//!
//! Results go to standard output, progress and errors to standard error. Exit code 0 is success, 1 means that the command ran and
//! missed its goal or could not write its result, 2 that it could not start: bad arguments, a missing link, capability or file; 3 that a generator did not keep its
//! schedule and missed nothing else, 128 and the signal's number that a signal ended a load early. A closed output pipe, as with
//! `| head`, ends the command without a message and with exit code 0.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod address;
mod asking;
mod capture;
mod color;
mod commands;
mod congestion;
mod cpus;
mod description;
mod discovery;
mod document;
mod drops;
mod ecn;
mod examples;
mod exit;
mod fast_open;
mod flow_log;
mod guesses;
mod help;
mod idle;
mod instruments;
mod interface;
mod interrupt;
mod io;
mod ipfix;
mod keeper;
mod lab_card;
mod legible;
mod link;
mod lost;
mod notify;
mod output;
mod progress;
mod reassembly;
mod recorders;
mod rss_options;
mod rule_file;
mod say;
#[cfg(test)]
mod schemas;
mod service_file;
mod stdout;
mod steering;
mod suspension;
mod terminal;
mod trace;
mod tunnel;
mod typed;
mod units;
mod wrap;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser};

/// A network stack, traffic generator and set of instruments in which every flow keeps to its lane.
#[derive(Debug, Parser)]
#[command(name = "flowlane", version, max_term_width = 80)]
struct Cli {
    /// When to use colours.
    #[arg(
        long,
        global = true,
        display_order = 1000,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    color: color::When,
    #[command(subcommand)]
    command: commands::Command,
}

/// The command, with the examples that its help shows.
fn command() -> clap::Command {
    help::arrange(examples::add_to(Cli::command()))
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut command = typed::tree(&arguments, command).color(color::of_arguments().into());
    if help::is_asked_to_be_brief(std::env::args_os().filter_map(|argument| argument.into_string().ok())) {
        command = help::brief(command);
    }
    let arguments = match service_file::with_files(arguments, &command) {
        Ok(arguments) => arguments,
        Err(e) => return exit::code(Err(e)),
    };
    let parsed = command
        .try_get_matches_from_mut(guesses::with_targets_apart(arguments.into_iter()))
        .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut command)));
    match parsed {
        Ok(cli) => {
            let result = trace::begin().and_then(|()| cli.command.run());
            keeper::links_are_closed();
            suspension::end();
            exit::code(result)
        }
        Err(e) => exit::usage(&e),
    }
}
