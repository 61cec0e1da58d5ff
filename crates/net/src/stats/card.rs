//! What was done to cards, and to balance the load of workers.

use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

figures! {
    /// What was done to a card whose table steers a host and can be changed.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct CardCounts {
        slots_moved: count "slots of the card's table changed because their lane had moved";
        /// Its driver refused them.
        refused: count "changes that the card did not take";
        /// Lanes were moved to the workers of their queues then.
        followed: count "times that another program had changed the card's table";
        /// Packets had arrived on other queues.
        set_again: count "times that the card's settings were set again";
    }
}

/// A card whose table steers a host and can be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardReport {
    /// The host, by order of configuration.
    pub host: usize,
    /// What was done to it.
    pub counts: CardCounts,
    /// Why packets arrived on other queues, as last found out.
    pub strayed: Option<Strayed>,
}

/// Why packets came on other queues than hash and table of a card name, as far as its driver shows.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strayed {
    /// Another program has set another table.
    Table,
    /// Another program has set another key.
    Key,
    /// Another program has set another hash function or transform.
    Function,
    /// Another program has chosen other fields to hash.
    Fields,
    /// The table has another number of slots.
    Slots,
    /// The driver shows what it should, but the card had lost it: it was set again.
    Forgotten,
    /// The driver shows what it should, and setting it again did not help.
    AnotherRule,
    /// The settings cannot be read or set any more.
    Unreachable,
}

impl Strayed {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Table,
        Self::Key,
        Self::Function,
        Self::Fields,
        Self::Slots,
        Self::Forgotten,
        Self::AnotherRule,
        Self::Unreachable,
    ];

    /// The cause in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Table => "another program changed the card's table",
            Self::Key => "another program changed the card's key: a restart takes it",
            Self::Function => "another program changed the card's hash function: a restart takes it",
            Self::Fields => "another program changed the fields that the card hashes: a restart takes them",
            Self::Slots => "the number of slots of the card's table changed: a restart takes it",
            Self::Forgotten => "the card had lost its settings, which were set again",
            Self::AnotherRule => "the card follows another rule than it shows: 'flowlane rss learn' finds it",
            Self::Unreachable => "the card's settings cannot be read or set any more",
        }
    }
}

figures! {
    /// What was done to balance the load of workers ([`rebalance`](crate::rebalance)).
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct RebalanceCounts {
        rounds: count "periods whose loads were judged";
        unanswered: count "periods that were not judged because a worker did not answer";
        moves: count "lanes moved because of their load";
        /// Refused, or given up because a worker did not answer.
        failed: count "moves that did not come about";
    }
}
