//! `POST /v1/load`: a load is changed while it runs.

use serde::{Deserialize, Serialize};

/// How a load is to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadRequest {
    /// The nominal rate, per second.
    Rate(f64),
    /// Nothing is due from then on.
    Pause,
    /// There is the rate again.
    Resume,
    /// How many connections there are to be.
    Connections(u32),
}

/// What was agreed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LoadView {
    /// Version of this document.
    pub version: u32,
    /// When it takes effect in all lanes, seconds from the start of the run.
    pub at_seconds: f64,
    /// The nominal rate from then on, per second, if it is not paused.
    pub rate: f64,
    /// Whether it is paused from then on.
    pub paused: bool,
    /// The same in words.
    pub words: String,
}

/// How a program changes its load; an error is one line.
pub(super) type Turn = dyn Fn(&LoadRequest) -> Result<LoadView, String> + Send + Sync;
