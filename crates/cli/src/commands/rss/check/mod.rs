//! `flowlane rss check`: whether packets take the way that card and kernel are set to, and if not, why.
//!
//! The check changes nothing. For some seconds it samples a share of the packets that an interface receives
//! ([`flowlane_sys::packet::sample`]), and compares each sample with the settings:
//!
//! ```text
//!   expected   slot ─▶ queue ─▶ interrupt's CPU ─▶ the same CPU ─▶ a thread there        judge/
//!   seen               queue     /proc/interrupts   CPU of the stack  threads of the socket   take.rs, sockets.rs, counters.rs
//! ```
//!
//! Each deviation gets a cause ([`judge`]), with examples and the command that removes it. No packet socket sees frames that an XDP program
//! takes, as AF_XDP's does. So runs of Flowlane on the interface are asked for their own counters ([`ours`]).

mod causes;
mod counters;
mod json;
mod judge;
mod ours;
pub(super) mod packet;
mod share;
mod sockets;
mod take;
#[cfg(test)]
mod tests;
mod text;

use super::way::Spread;
use crate::exit::Missed;
use crate::interrupt::Interrupt;
use crate::lab_card;
use crate::rule_file::Rule;
use crate::stdout;
use crate::units;
use anyhow::bail;
use flowlane::card::{Card, Surroundings};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Interface, as named by 'ip link'.
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: String,
    /// Duration of the check.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::duration)]
    time: Duration,
    /// Packets to sample per second, 10 to 10000.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rate: u32,
    /// The card's rule and table, from a file written by 'rss learn' [default: as reported by the driver].
    #[arg(long, value_name = "FILE")]
    rss: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The settings at one moment.
#[derive(Debug, Clone)]
struct Settings {
    card: Card,
    around: Surroundings,
    spread: Result<Spread, String>,
    /// Threads of the kernel poll the queues (`threaded` in sysfs), not the processors of the interrupts.
    threaded: bool,
}

impl Settings {
    fn read(interface: &str, file: Option<&Rule>) -> anyhow::Result<Self> {
        let card = lab_card::read(interface)?;
        let threaded = std::fs::read_to_string(format!("/sys/class/net/{interface}/threaded"));
        Ok(Self {
            around: Surroundings::read(Path::new("/"), interface),
            spread: Spread::of(&card, file),
            threaded: threaded.is_ok_and(|text| text.trim() == "1"),
            card,
        })
    }
}

/// Everything that a check saw.
#[derive(Debug)]
struct Checked {
    before: Settings,
    after: Settings,
    taken: take::Taken,
    runs: Vec<ours::Run>,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if self.time < Duration::from_millis(100) || self.time > Duration::from_secs(3600) {
            bail!("--for: must be 100ms to 1h");
        }
        if !(10..=10_000).contains(&self.rate) {
            bail!("--rate {}: must be 10 to 10000", self.rate);
        }
        let file = self.rss.as_deref().map(Rule::read).transpose()?;
        let before = Settings::read(&self.interface, file.as_ref())?;
        let runs = ours::find(&self.interface);
        let interrupt = Interrupt::listen()?;
        let taken = take::take(&before.card, self.time, self.rate, &interrupt)?;
        // An interface that is removed during the check is an error, too.
        let after = Settings::read(&self.interface, file.as_ref())?;
        let checked = Checked { before, after, taken, runs: ours::again(runs) };
        let judged = judge::judge(&checked);
        let said = if self.json {
            format!("{}\n", json::document(&checked, &judged))
        } else {
            text::page(&checked, &judged)
        };
        stdout::lock().write_all(said.as_bytes())?;
        match judged.verdict() {
            None => Ok(()),
            Some(why) => Err(Missed(format!("{}: {why}", self.interface)).into()),
        }
    }
}
