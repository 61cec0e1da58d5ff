//! Why a task was not started, and how the first task of a lane failed.

use std::fmt;

/// Why a task was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such host or bucket.
    #[error("there is no such host or bucket")]
    NoSuchLane,
    /// The runtime has stopped.
    #[error("the runtime has stopped")]
    Stopped,
}

/// How a lane's first task failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// It panicked; otherwise it ended with an error.
    pub panicked: bool,
    /// The message of the panic or error.
    pub words: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.panicked { "panicked" } else { "failed" };
        write!(f, "its first task {how}: {}", self.words)
    }
}
