//! What the lanes of a run share.

use std::time::Duration;

use flowlane::{FastOpen, SocketOptions};

use super::outcome::TcpCounts;
use super::{LaneProgress, TcpLoadConfig};
use crate::run::gate::{Gate, Outcomes};
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::timeline::Phase;
use crate::run::turns::Turns;

/// Most connections opened before the worker does its other work.
pub(super) const BATCH: usize = 32;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(super) config: TcpLoadConfig,
    pub(super) gate: Gate,
    /// Connections of each lane: in all, or at once.
    pub(super) turns: Turns,
    /// The phases of the run, including the opening of connections that stay.
    pub(super) phases: Vec<Phase>,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<TcpCounts>>,
}

impl Common {
    /// How long it takes until all connections that stay have been begun.
    pub(super) fn ramp_time(&self) -> Duration {
        self.config.opening_time(self.turns.all())
    }

    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let seed = self.config.poisson.then_some(self.config.seed);
        self.turns.moments(bucket, &self.phases, (start, rate as f64), seed)
    }

    pub(super) fn options(&self) -> SocketOptions {
        let fast_open = if self.config.fast_open { FastOpen::Cookie } else { FastOpen::Off };
        SocketOptions { nodelay: self.config.nodelay, fast_open, ..SocketOptions::default() }
    }
}
