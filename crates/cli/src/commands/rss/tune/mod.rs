//! `flowlane rss tune`: queues, hash fields, table, interrupts, XPS, RPS and RFS of a card that fit together.
//!
//! It prints what it would change, old and new value and why, and changes nothing. With `--apply` it notes how the card is, and changes it;
//! `flowlane rss restore IFACE` takes all of it back. Exit code: 0 if everything fits or was made so, 1 if something would change (without
//! `--apply`) or was refused (with it), 2 if it cannot run.

mod json;
mod text;

use crate::cpus::Cpus;
use crate::exit::Missed;
use crate::stdout;
use anyhow::{anyhow, bail};
use flowlane::card::tune::{self, Done, Plan, TuneOptions};
use flowlane::card::{Card, Place, Surroundings};
use flowlane_sys::words::counted;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Tune {
    /// Interface, as named by 'ip link'.
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: String,
    /// Make the changes. 'flowlane rss restore IFACE' takes them back.
    #[arg(long)]
    apply: bool,
    /// Queues [default: one for each processor of the card's NUMA node, as many as the card has].
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Processors, the first for queue 0: 2-5 or 0,2,4 [default: those of the card's NUMA node, then others].
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Directory of the state file [default: /run/flowlane as root, else $XDG_RUNTIME_DIR/flowlane].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed.
struct Tuning {
    card: Card,
    around: Surroundings,
    plan: Plan,
    /// What was done; `None`: nothing was to be changed.
    done: Option<Vec<Done>>,
}

impl Tune {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let cpus = self.cpus.as_ref().map(Cpus::list);
        let wish = TuneOptions { queues: self.queues, cpus };
        let (card, around) = tune::read(&self.interface)?;
        let tuning = if self.apply {
            let place = self.state.as_deref().map_or_else(Place::usual, |at| Ok(Place::at(at)))?;
            let (plan, done) = tune::apply(&place, &self.interface, &wish)?;
            Tuning { card, around, plan, done: Some(done) }
        } else {
            let plan =
                tune::plan(&card, &around, &wish).map_err(|why| anyhow!("{}: {why}", self.interface))?;
            Tuning { card, around, plan, done: None }
        };
        let page = if self.json { format!("{}\n", json::document(&tuning)) } else { text::page(&tuning) };
        stdout::lock().write_all(page.as_bytes())?;
        tuning.judge()
    }
}

impl Tuning {
    fn name(&self) -> &str {
        self.card.interface.name()
    }

    /// Changes that were refused.
    fn refused(&self) -> usize {
        self.done.iter().flatten().filter(|done| done.refused.is_some()).count()
    }

    fn judge(&self) -> anyhow::Result<()> {
        let name = self.name();
        match (&self.done, self.plan.steps.len(), self.refused()) {
            (None, 0, _) | (Some(_), _, 0) => Ok(()),
            (None, n, _) => {
                bail!(Missed(format!("{name}: {} would change: '--apply' makes them", counted(n, "setting"))))
            }
            (Some(_), _, n) => bail!(Missed(format!(
                "{name}: {} not taken; 'flowlane rss restore {name}' takes the others back",
                if n == 1 { "a setting was".to_owned() } else { format!("{n} settings were") }
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
