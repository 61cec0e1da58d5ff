//! `flowlane rss`: what a card does with packets.
//!
//! A card as it is (`show`), one flow on it (`why`), and put back as it was (`restore`). Without a card three questions: where does this packet go and why (`hash`), which addresses or ports go where I want (`plan`), and
//! is this key any good (`key`). All answers come from the crate `flowlane-rss`, which is also what workers ask, so
//! what is printed here is what happens there. None of these
//! needs privileges or opens anything.

mod check;
mod hash;
mod key;
mod learn;
mod plan;
mod restore;
mod show;
pub(crate) mod steering;
mod way;
mod why;
mod words;

use clap::Subcommand;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Rss {
    /// Where a packet goes, and why: fields, hash, slot, bucket, worker.
    Hash(hash::Hash),
    /// Which source addresses or ports reach given buckets.
    Plan(plan::Plan),
    /// Make a key, or judge one.
    Key(key::KeyCommand),
    /// How a card spreads what it receives, what the kernel does then, and what does not fit together.
    Show(show::Show),
    /// One flow step by step: rule, hash, slot, queue, interrupt, processor, and a run of Flowlane on the card.
    Why(why::Why),
    /// Whether packets take the way that card and kernel are set to, from a sample of them; where not, why, and what mends it.
    Check(check::Check),
    /// Put back the RSS of a card that a killed run has left changed.
    Restore(restore::Restore),
    /// How a card of unknown make steers: its hash and table, from what it does with packets.
    Learn(learn::Learn),
}

impl Rss {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Hash(command) => command.run(),
            Self::Plan(command) => command.run(),
            Self::Key(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Why(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Learn(command) => command.run(),
        }
    }
}
