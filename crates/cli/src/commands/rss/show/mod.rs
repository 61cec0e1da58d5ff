//! `flowlane rss show`: how a card and the kernel spread received packets.
//!
//! It shows bucket, queue, interrupt and processor, in this order, and settings that contradict one another, with the command that fixes
//! each. It reads and changes nothing, and names what it could not read. Whether the card obeys its settings is for `rss check`.

pub(super) mod findings;
mod json;
mod text;

use crate::stdout;
use findings::Finding;
use flowlane::card::{self, Card, Surroundings};
use std::io::Write;
use std::path::Path;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Interface, as named by 'ip link'.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// Show the key. It is a secret: whoever knows it can aim packets at one queue.
    #[arg(long)]
    key: bool,
    /// Print JSON (docs/schema/rss-show-v1.json).
    #[arg(long)]
    json: bool,
}

/// The content of the page.
struct Shown {
    card: Card,
    around: Surroundings,
    findings: Vec<Finding>,
    key: bool,
}

impl Show {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let card = card::read(&self.interface)?;
        let around = Surroundings::read(Path::new("/"), &self.interface);
        let findings = findings::of(&card, &around);
        let shown = Shown { card, around, findings, key: self.key };
        let said = if self.json { format!("{}\n", json::document(&shown)) } else { text::page(&shown) };
        stdout::lock().write_all(said.as_bytes())?;
        Ok(())
    }
}

/// Queues that receive, as far as is known.
fn queues(card: &Card, around: &Surroundings) -> u32 {
    let channels = || card.channels.map(|channels| channels.now.receiving()).ok().filter(|&n| n > 0);
    card.rings.ok().or_else(channels).unwrap_or(around.receive.len() as u32)
}

/// How many slots name a queue.
fn slots_of(card: &Card, queue: u32) -> usize {
    card.rss.as_ref().map_or(0, |rss| rss.table.iter().filter(|&&named| named == queue).count())
}

#[cfg(test)]
pub(super) mod tests;
