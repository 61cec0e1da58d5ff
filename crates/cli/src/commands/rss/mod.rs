//! `flowlane rss`: how cards steer packets.
//!
//! Commands about a card: its settings (`show`), one flow on it (`why`), its packets against its settings (`check`), its queues for
//! Prometheus (`export`), making queues, interrupts and the rest fit together (`tune`), and restoring settings (`restore`). Commands without a card: where a packet goes and why (`hash`), which addresses or ports reach a bucket (`plan`), whether
//! a key is useful (`key`), and learning the rule of an emulated card (`learn`). They compute with the crate `flowlane-rss`, as the workers
//! do, so what they print is what a run does; they need no privileges.

mod check;
mod documents;
mod export;
mod hash;
mod key;
mod learn;
mod plan;
mod restore;
mod show;
mod tune;
mod way;
mod why;
mod words;

pub(super) use show::{af_xdp_words, queues};

use clap::Subcommand;

use crate::typed::Typed;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Rss {
    /// Compute where a packet goes, and why: fields, hash, slot, bucket, worker.
    Hash(Typed<hash::Hash>),
    /// Find source addresses or ports that reach given buckets.
    Plan(Typed<Box<plan::Plan>>),
    /// Generate a key, or rate one.
    Key(key::KeyCommand),
    /// Show how a card and the kernel spread received packets, and which settings contradict one another.
    Show(Typed<show::Show>),
    /// Follow one flow step by step: rule, hash, slot, queue, interrupt, processor, and a running instance on the card.
    Why(Typed<why::Why>),
    /// Check on sampled packets whether they take the configured way; if not, show why and how to fix it.
    Check(Typed<check::Check>),
    /// Make queues, hash fields, table, interrupts, XPS, RPS and RFS of a card fit together; without --apply, show what would change.
    Tune(Typed<tune::Tune>),
    /// Restore what 'rss tune' changed of a card, and the RSS settings that a killed run left changed.
    Restore(restore::Restore),
    /// Serve packets and bytes of the queues of cards to Prometheus, or print them once.
    Export(Typed<export::Export>),
    /// Learn the hash and table of a card from where it puts packets.
    Learn(Typed<Box<learn::Learn>>),
    /// Send probes for 'rss learn --far-probes' on another machine.
    Probes(learn::Probes),
}

impl Rss {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Hash(Typed(command)) => command.run(),
            Self::Plan(Typed(command)) => command.run(),
            Self::Key(command) => command.run(),
            Self::Show(Typed(command)) => command.run(),
            Self::Why(Typed(command)) => command.run(),
            Self::Check(Typed(command)) => command.run(),
            Self::Tune(Typed(command)) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Export(Typed(command)) => command.run(),
            Self::Learn(Typed(command)) => command.run(),
            Self::Probes(command) => command.run(),
        }
    }
}
