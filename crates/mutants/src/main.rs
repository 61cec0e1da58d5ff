//! Breaks guards of Flowlane one by one and demands that a test notices each.
//!
//! A suite may run every line and still miss what a line is for. So comments in the source mark guards: a piece of its text, what it
//! becomes when it is broken, and the tests that have to fail then. This program
//!
//! 1. copies the workspace, and in the copy turns each piece into `if crate::mutant(17) { broken } else { original }`;
//! 2. builds the tests of the copy, once for all guards;
//! 3. runs the named tests as they are: they have to pass, and there have to be some;
//! 4. runs them for each guard with `FLOWLANE_MUTANT=17`: one of them has to fail.
//!
//! A mark whose piece is no longer behind it is an error too, so marks stay true. See [`marks`] for how they are written.
//!
//! ```text
//! cargo run -p flowlane-mutants -- DIRECTORY [--copy] [--only WORD] [--changed FILE] [--tenth TURN] [--show]
//! ```
//!
//! `DIRECTORY` is where the copy goes; with `--copy` that is all: its tests, with nothing broken, are those of the workspace. With `--only` only guards whose text, file or test has the word; with `--changed` those of files that
//! are listed in FILE, with `--tenth` a tenth of the others by a number (see [`chosen`]); with `--show` also which tests noticed and after how
//! long.

mod chosen;
mod copy;
mod marks;
mod run;

use chosen::Choice;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut to, mut choice, mut show, mut only_copy) = (None, Choice::default(), false, false);
    while let Some(arg) = args.next() {
        let understood = match arg.as_str() {
            "--only" => {
                choice.only = args.next();
                choice.only.is_some()
            }
            "--changed" => {
                choice.changed = args.next().and_then(|file| std::fs::read_to_string(file).ok());
                choice.changed.is_some()
            }
            "--tenth" => {
                choice.tenth = args.next().and_then(|turn| turn.parse().ok());
                choice.tenth.is_some()
            }
            "--show" => {
                show = true;
                true
            }
            "--copy" => {
                only_copy = true;
                true
            }
            option if option.starts_with('-') => false,
            _ => {
                to = Some(PathBuf::from(arg));
                true
            }
        };
        if !understood {
            to = None;
            break;
        }
    }
    let Some(to) = to else {
        eprintln!(
            "usage: flowlane-mutants DIRECTORY [--copy] [--only WORD] [--changed FILE] [--tenth TURN] [--show]; FILE is there and TURN a number"
        );
        return ExitCode::from(2);
    };
    let done = if only_copy { copied(&to).map(|_| true) } else { all(&to, &choice, show) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::from(2)
        }
    }
}

/// Makes the copy; its guards.
fn copied(to: &Path) -> Result<Vec<marks::Guard>, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).ok_or("not in a workspace")?;
    let guards = marks::all(root)?;
    copy::make(root, to, &guards)?;
    Ok(guards)
}

fn all(to: &Path, choice: &Choice, show: bool) -> Result<bool, String> {
    let guards = copied(to)?;
    let chosen = chosen::chosen(&guards, choice);
    if chosen.is_empty() {
        // Nothing that changed lately has a guard, and its turn has none: that is as it may be.
        return if choice.only.is_some() { Err("no guard has that word".into()) } else { Ok(true) };
    }
    println!("{} of {} guards", chosen.len(), guards.len());
    run::all(to, &chosen, show)
}
