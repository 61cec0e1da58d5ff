//! `flowlane rss restore`: restores card settings that a killed run left changed.
//!
//! A run restores its card at its end, and the next run on the interface restores what a killed one left; this command does so without a
//! run. Exit code: 0 if nothing is left to restore, 1 if something was not restored, 2 if the state file is unreadable or permission is
//! missing.

use crate::exit::Missed;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane::card::{self, Outcome, Place, Why};
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Interface [default: all that killed runs left changed in this network namespace].
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
    /// Restore settings that have been changed since, too, and forget cards that no longer exist.
    #[arg(long)]
    force: bool,
    /// Directory with the saved settings [default: /run/flowlane for root, $XDG_RUNTIME_DIR/flowlane for others].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Restore {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let place = match &self.state {
            Some(directory) => Place::at(directory),
            None => Place::usual().context("--state")?,
        };
        let why = if self.force { Why::Force } else { Why::Stale };
        let mut out = stdout::lock();
        let interfaces = match self.interface {
            Some(interface) => vec![interface],
            None => {
                let namespace = card::namespace().context("/proc")?;
                let (ours, others) = place.interfaces(namespace);
                if ours.is_empty() {
                    let note = match others {
                        0 => String::new(),
                        n => format!(" ({n} of other network namespaces)"),
                    };
                    writeln!(out, "{}: nothing to put back{note}", place.path().display())?;
                }
                ours
            }
        };
        let mut left = Vec::new();
        for interface in interfaces {
            let outcome = card::put_back(&place, &interface, why)?;
            let line = format!("{interface}: {outcome}");
            match outcome {
                Outcome::Nothing | Outcome::Restored(_) | Outcome::AsItWas(_) => writeln!(out, "{line}")?,
                Outcome::Gone | Outcome::AnotherCard if why == Why::Force => {
                    writeln!(out, "{interface}: forgotten: the card is gone")?;
                }
                _ => left.push(line),
            }
        }
        if !left.is_empty() {
            bail!(Missed(left.join("; ")));
        }
        Ok(())
    }
}
