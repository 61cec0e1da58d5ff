//! What the lanes of a run share.

use std::time::Duration;

use flowlane::{FastOpen, SocketOptions};
use flowlane_stack::rng::Rng;

use super::outcome::TcpCounts;
use super::{LaneProgress, TcpLoadConfig};
use crate::run::gate::{Gate, Outcomes};
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::timeline::Phase;

/// Most connections opened before the worker does its other work.
pub(super) const BATCH: usize = 32;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(super) config: TcpLoadConfig,
    pub(super) gate: Gate,
    /// Connections of each lane, by bucket: in all, or at once. A lane without any does not take part.
    pub(super) connections: Vec<u64>,
    /// The phases of the run, including the opening of connections that stay.
    pub(super) phases: Vec<Phase>,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<TcpCounts>>,
}

impl Common {
    /// How long it takes until all connections that stay have been begun.
    pub(super) fn ramp_time(&self) -> Duration {
        opening(&self.config, self.connections.iter().sum())
    }

    /// Connections of the lanes before that of `bucket`.
    pub(super) fn before(&self, bucket: u16) -> u64 {
        self.connections[..usize::from(bucket)].iter().sum()
    }

    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let nth = self.connections[..usize::from(bucket)].iter().filter(|n| **n > 0).count() as f64;
        let all = self.gate.active as f64;
        let rng = self.config.poisson.then(|| Rng::new(self.config.seed ^ u64::from(bucket) << 48));
        Moments::new(&self.phases, start, rate as f64, 1.0 / all, nth / all, rng)
    }

    pub(super) fn options(&self) -> SocketOptions {
        let fast_open = if self.config.fast_open { FastOpen::Cookie } else { FastOpen::Off };
        SocketOptions { nodelay: self.config.nodelay, fast_open, ..SocketOptions::default() }
    }
}

/// How long connections that stay are being opened.
pub(super) fn opening(config: &TcpLoadConfig, connections: u64) -> Duration {
    if config.mode.stays() {
        Duration::from_secs_f64(connections as f64 / config.opening as f64)
    } else {
        Duration::ZERO
    }
}
