//! What can go wrong with a switch.

use std::io;

use crate::error::StartError;

/// Why a switch could not be started or changed: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// A link could not be opened.
    #[error("{0}")]
    Link(String),
    /// A host of the switch itself could not be started.
    #[error("{0}")]
    Host(String),
    /// A thread, or what it needs, could not be had.
    #[error("starting the switch: {0}")]
    Thread(#[source] io::Error),
    /// Giving up privileges failed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A worker does not answer.
    #[error("the switch does not answer")]
    Silent,
}
