//! The flows with most packets and bytes, asked of a running runtime lane by lane.
//!
//! Each lane answers for itself, between two turns of its worker, so a worker with very many lanes stops for no longer than one lane's table
//! takes. The question follows a lane that has moved.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowlane_stack::rng::Rng;
use flowlane_stack::time::Time;
use flowlane_stack::top::{TopConfig, TopReport};

use super::handle::Handle;
use crate::entropy::random_u64;
use crate::lane::LaneSlot;
use crate::shared::{Message, TopWish};
use crate::stats::LaneTop;

/// How long all lanes together may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a lane that is on its way between workers is asked.
const ATTEMPTS: usize = 3;

/// Which flows lanes are to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchFlows {
    /// Flows by packets, and as many by bytes, in each lane; at least 8, at most 2^20.
    pub flows: usize,
    /// A flow without packets for longer is forgotten; whole seconds.
    pub idle: Duration,
}

impl Default for WatchFlows {
    /// 256 flows, and a minute.
    fn default() -> Self {
        let TopConfig { flows, idle, .. } = TopConfig::new([0; 2]);
        Self { flows, idle }
    }
}

impl WatchFlows {
    /// With so many flows in each lane.
    #[must_use]
    pub fn flows(self, flows: usize) -> Self {
        Self { flows, ..self }
    }

    /// A flow without packets for longer is forgotten.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }
}

impl Handle {
    /// From now on each lane keeps its flows with most packets and bytes; `None`: no more. What was counted before is forgotten. Lanes of
    /// kernel sockets keep nothing: their sockets are asked when somebody wants to know.
    ///
    /// # Errors
    /// The system has no randomness for the tables' seed.
    pub fn watch_flows(&self, wanted: Option<WatchFlows>) -> io::Result<()> {
        let config = match wanted {
            Some(WatchFlows { flows, idle }) => {
                let flows = flows.clamp(8, 1 << 20);
                Some(TopConfig { flows, idle, seed: [random_u64()?, random_u64()?] })
            }
            None => None,
        };
        self.shared().top.set(config);
        for worker in 0..self.workers() {
            self.shared().send(worker, Message::WatchFlows);
        }
        Ok(())
    }

    /// Asks every lane for its flows with most packets and bytes. Lanes whose worker does not answer within five seconds are left out, and
    /// so are those that do not stop moving. A lane of kernel sockets tells of all its connections and connected sockets of datagrams, by the
    /// kernel's counters ([`TopFlow::by_kernel`](crate::TopFlow::by_kernel)): each costs two system calls or three, and some are looked at a time.
    #[must_use]
    pub fn top_flows(&self) -> Vec<LaneTop> {
        let until = Instant::now() + PATIENCE;
        (0..self.lane_count()).filter_map(|lane| self.ask_lane(lane, until)).collect()
    }

    fn ask_lane(&self, lane: u32, until: Instant) -> Option<LaneTop> {
        let (mut all, mut next) = self.ask_lane_from(lane, 0, until)?;
        while let Some(from) = next {
            let (more, then) = self.ask_lane_from(lane, from, until)?;
            next = then;
            if let (Some(all), Some(more)) = (&mut all.top, more.top) {
                all.flows.extend(more.flows);
                all.counted.packets += more.counted.packets;
                all.counted.octets += more.counted.octets;
            }
        }
        Some(all)
    }

    fn ask_lane_from(&self, lane: u32, from: u32, until: Instant) -> Option<(LaneTop, Option<u32>)> {
        for _ in 0..ATTEMPTS {
            let (to, answer) = mpsc::sync_channel(1);
            self.shared().send(self.shared().owner_of(lane), Message::TopFlows { lane, from, to });
            match answer.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(answer) => return Some(answer),
                // The lane was on its way, and nobody had it.
                Err(mpsc::RecvTimeoutError::Disconnected) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
            }
        }
        None
    }
}

impl LaneSlot {
    /// Its flows with most packets and bytes, if it keeps them; of kernel sockets those in some slots from `from` on, and where to go on.
    pub(crate) fn top_flows(&mut self, now: Time, from: u32) -> (Option<TopReport>, Option<u32>) {
        let mut top = if from == 0 { self.lane.top(now) } else { None };
        let watched = self.lane.watches_top();
        let Some(kernel) = self.kernel.as_ref().filter(|kernel| !kernel.is_beside() || watched) else {
            return (top, None);
        };
        let report = top.get_or_insert_default();
        let next = kernel.top_flows(now, from, report);
        (top, next)
    }

    /// Keeps its flows as is wished now, if it does not yet.
    pub(crate) fn watch_as(&mut self, wish: &TopWish) {
        if self.top_wish == wish.number {
            return;
        }
        self.top_wish = wish.number;
        let config = wish.config.map(|config| {
            // A seed of its own, that does not tell those of others.
            let mut seeds = Rng::new(config.seed[0] ^ u64::from(self.id.index) << 32);
            TopConfig { seed: [seeds.next_u64(), seeds.next_u64() ^ config.seed[1]], ..config }
        });
        self.lane.watch_top(config.as_ref());
    }
}
