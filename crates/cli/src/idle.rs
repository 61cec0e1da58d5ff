//! `--idle`: what workers do that have nothing to do.

use std::time::Duration;

use flowlane::Idle;

/// Values of `--idle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IdleKind {
    /// Poll without pause: most exact, uses the whole core.
    Spin,
    /// Poll for a short time, then sleep.
    Adaptive,
    /// Sleep at once, without polling.
    Sleep,
}

impl From<IdleKind> for Idle {
    fn from(kind: IdleKind) -> Self {
        match kind {
            IdleKind::Spin => Self::Spin,
            IdleKind::Adaptive => Self::default(),
            IdleKind::Sleep => Self::Adaptive(Duration::ZERO),
        }
    }
}
