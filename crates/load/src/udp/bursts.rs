//! A plan of bursts, for the back-to-back benchmark ([`crate::find::burst`]).

use std::sync::mpsc::Sender;

use super::LoadConfig;
use crate::find::burst::Trial;
use crate::run::flows::Sources;

/// Bursts in the place of a rate: one lane sends them, one after the other.
#[derive(Debug, Clone)]
pub struct Bursts {
    /// Shortest and longest burst, datagrams.
    pub between: (u64, u64),
    /// How near the bounds of a trial come.
    pub within: f64,
    /// Trials, each a complete search.
    pub trials: u64,
    /// Datagrams per second within a burst; as fast as it goes without it.
    pub rate: Option<f64>,
    /// Where each trial goes.
    pub to: Sender<Option<Trial>>,
}

/// Leaves one flow of those that a plan has, so that one lane sends.
pub(super) fn keep_one_flow(config: &mut LoadConfig) {
    config.flows = 1;
    if let Sources::Flows(lanes) = &mut config.sources {
        let mut left = 1;
        for flows in lanes {
            flows.truncate(left);
            left -= flows.len();
        }
    }
}
