//! `flowlane rss restore`: restores card settings that a killed run left changed, and, for an interface that is named, what `rss tune` changed.
//!
//! A run restores its card at its end, and the next run on the interface restores what a killed one left; this command does so without a
//! run. What was tuned stays until somebody takes it back. Exit code: 0 if nothing is left to restore, 1 if something was not restored, 2 if the state file is unreadable or permission is
//! missing.

use crate::exit::Missed;
use crate::stdout;
use anyhow::{Context, bail};
use flowlane::card::tune::{self, TakenBack};
use flowlane::card::{self, Outcome, Place, Why};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// Interface, also one that 'rss tune' changed [default: all that killed runs left changed in this network namespace].
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
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
        let named = self.interface.is_some();
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
        for interface in &interfaces {
            let outcome = card::put_back(&place, interface, why)?;
            let line = format!("{interface}: {outcome}");
            let nothing = outcome == Outcome::Nothing;
            match outcome {
                // What was tuned is said instead, or that nothing was.
                Outcome::Nothing => {}
                Outcome::Restored(_) | Outcome::AsItWas(_) => writeln!(out, "{line}")?,
                Outcome::Gone | Outcome::AnotherCard if why == Why::Force => {
                    writeln!(out, "{interface}: forgotten: the card is gone")?;
                }
                _ => {
                    left.push(line);
                    continue;
                }
            }
            if named {
                left.extend(tuned(&mut out, &place, interface, self.force, nothing)?);
            } else if nothing {
                writeln!(out, "{line}")?;
            }
        }
        if !named {
            for interface in place.tuned(card::namespace().context("/proc")?) {
                writeln!(out, "{interface}: is tuned; 'flowlane rss restore {interface}' takes that back")?;
            }
        }
        if !left.is_empty() {
            bail!(Missed(left.join("; ")));
        }
        Ok(())
    }
}

/// Takes back what was tuned. Returns a line about what was left alone.
fn tuned(
    out: &mut impl Write,
    place: &Place,
    interface: &str,
    force: bool,
    nothing: bool,
) -> anyhow::Result<Option<String>> {
    let outcome = tune::take_back(place, interface, force)?;
    if outcome == TakenBack::Nothing && nothing && !Path::new("/sys/class/net").join(interface).exists() {
        bail!(
            "{interface}: no interface has this name, and none that had it was left changed: 'ip link' lists them"
        );
    }
    let line = format!("{interface}: {outcome}");
    match outcome {
        TakenBack::Nothing if !nothing => {}
        TakenBack::Nothing | TakenBack::Restored | TakenBack::AsItWas => writeln!(out, "{line}")?,
        TakenBack::Gone | TakenBack::AnotherCard if force => {
            writeln!(out, "{interface}: forgotten: the interface is gone")?;
        }
        _ => return Ok(Some(line)),
    }
    Ok(None)
}
