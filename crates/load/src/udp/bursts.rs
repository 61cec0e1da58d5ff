//! A plan of bursts, for the back-to-back benchmark ([`crate::find::burst`]).

use std::sync::mpsc::Sender;

use crate::find::burst::Trial;

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
