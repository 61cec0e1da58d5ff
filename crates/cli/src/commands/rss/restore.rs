//! `flowlane rss restore`: puts back what a run that was killed has left on a card.
//!
//! A run puts its card back itself, and so does the next one that starts there; this is for who does not want to start one. The exit code
//! is 0 if there is nothing left to be put back, 1 if something was left alone, 2 if the file makes no sense or the right is missing.

use crate::exit::Missed;
use anyhow::{Context, bail};
use flowlane::card::{self, Outcome, Place, Why};
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// The interface; all that runs have left in this network namespace, if none is named.
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
    /// Put back what was before even if somebody changed it since, and forget cards that are gone.
    #[arg(long)]
    force: bool,
    /// Where runs note how cards were; /run/flowlane for root, $XDG_RUNTIME_DIR/flowlane for others.
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
        let mut out = std::io::stdout().lock();
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
