//! How frames arrived.

use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

figures! {
    /// How the frames of one host arrived at one worker.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct SteeringStats {
        received: count "frames received";
        aligned: count "frames whose bucket belonged to the worker of their queue";
        redirected: count "frames handed to another worker";
        #[serde(skip)]
        redirected_no_flow: count "of those handed over, frames without a flow";
        /// The queue is that which the card's table names.
        #[serde(skip)]
        redirected_away: count "of those handed over, frames on the right queue of a lane that is elsewhere";
        #[serde(skip)]
        redirected_late: count "of those handed over, frames of a lane that had just moved";
        /// The hash is the delivered one, or with a card's own table any correct hash.
        misdirected: count "frames on another queue than their hash names";
        /// It was computed then, and so are all later ones.
        #[serde(default)]
        foreign_hash: count "frames whose delivered hash was not that of the key";
        hash_delivered: count "hashes taken as delivered";
        hash_computed: count "hashes computed in software";
        no_flow: count "frames without a flow";
    }
}

impl SteeringStats {
    /// Share of frames that arrived where they belong, 0 to 1; 1 when none arrived.
    #[must_use]
    pub fn alignment(&self) -> f64 {
        if self.received == 0 { 1.0 } else { self.aligned as f64 / self.received as f64 }
    }
}

/// How the frames of one host arrived on one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueArrivals {
    /// Host, by order of configuration.
    pub host: usize,
    /// Interface of the host: the first on the queue's link.
    pub interface: u8,
    /// Number of the queue within the link.
    pub queue: u16,
    /// Whether a card's own table steers the host, so that every frame should come on the queue of its lane.
    pub by_card: bool,
    /// The counters.
    pub stats: SteeringStats,
}

/// A frame whose delivered hash named another queue than the one it arrived on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Misdirected {
    /// The flow, for people.
    pub flow: String,
    /// The hash as delivered.
    pub hash: u32,
    /// The queue that the hash selects.
    pub expected_queue: u16,
    /// The queue on which it arrived.
    pub queue: u16,
}
