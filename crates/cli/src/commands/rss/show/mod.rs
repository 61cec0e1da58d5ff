//! `flowlane rss show`: how a card and the kernel spread received packets.
//!
//! It shows bucket, queue, interrupt and processor, in this order, and settings that contradict one another, with the command that fixes
//! each. It reads and changes nothing, and names what it could not read. Whether the card obeys its settings is for `rss check`.

pub(super) mod findings;
mod json;
mod text;
mod watch;

use crate::lab_card;
use crate::stdout;
use crate::units;
use findings::Finding;
use flowlane::card::{self, Card, Features, Surroundings, Told, Untold};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Interface, as named by 'ip link'.
    #[arg(value_name = "IFACE", value_parser = crate::interface::named)]
    interface: String,
    /// Show the key. It is a secret: whoever knows it can aim packets at one queue.
    #[arg(long)]
    key: bool,
    /// Show packets and bytes of each queue instead, at this interval until ^C: first the counts, then rates per second, at the end what was
    /// added [default: 1s, if given without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = units::duration,
        conflicts_with = "key")]
    watch: Option<Duration>,
    /// Print JSON; with --watch a document on each line.
    #[arg(long)]
    json: bool,
}

/// The content of the page.
struct Shown {
    card: Card,
    around: Surroundings,
    findings: Vec<Finding>,
    /// What the driver can do for AF_XDP.
    features: Told<Features>,
    key: bool,
}

impl Show {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if let Some(every) = self.watch {
            return watch::run(&self.interface, every, self.json);
        }
        let card = lab_card::read(&self.interface)?;
        let around = Surroundings::read(Path::new("/"), &self.interface);
        let findings = findings::of(&card, &around);
        let features = card::features(&self.interface).unwrap_or(Err(Untold::Unsupported));
        let shown = Shown { card, around, findings, features, key: self.key };
        let said = if self.json { format!("{}\n", json::document(&shown)) } else { text::page(&shown) };
        stdout::lock().write_all(said.as_bytes())?;
        Ok(())
    }
}

/// Queues that receive, as far as is known.
pub(crate) fn queues(card: &Card, around: &Surroundings) -> u32 {
    let channels = || card.channels.map(|channels| channels.now.receiving()).ok().filter(|&n| n > 0);
    card.rings.ok().or_else(channels).unwrap_or(around.receive.len() as u32)
}

/// What AF_XDP can do with a driver, in words.
pub(crate) fn af_xdp_words(features: &Features) -> String {
    text::zero_copy(features)
}

/// How many slots name a queue.
pub(super) fn slots_of(card: &Card, queue: u32) -> usize {
    card.rss.as_ref().map_or(0, |rss| rss.table.iter().filter(|&&named| named == queue).count())
}

#[cfg(test)]
pub(super) mod tests;
