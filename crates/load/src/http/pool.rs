//! A pool in one lane: its share of connections and requests, which of them are free, and what is due.

use std::sync::Arc;

use flowlane_stack::rng::Rng;
use quinn_proto::ClientConfig;

use super::anew::{Share, requests_of};
use super::aws::Signed;
use super::beside::Shared;
use super::book::Book;
use super::choice::Weighted;
use super::idle::Idle;
use super::numbers::Numbers;
use super::open::Routes;
use super::origins::{Finder, Origins};
use super::pacing::Pacing;
use super::plan::{Behaviour, Pace, Pool, Version};
use super::prepared::Prepared;
use super::replay::Lines;
use super::way::Way;
use crate::fill::Order;
use crate::run::moments::Moments;
use crate::run::part::{Part, even};
use crate::run::timeline::Phase;

/// Interval of a burst of new connections, nanoseconds.
pub(super) const BURST_EVERY: u64 = 10_000_000;

/// The part of a pool that all lanes share.
#[derive(Debug)]
pub(super) struct PoolPlan {
    pub(super) pool: Pool,
    pub(super) prepared: Vec<Prepared>,
    /// What connections to each target need besides TCP.
    pub(super) ways: Vec<Option<Arc<Way>>>,
    /// QUIC, for HTTP/3.
    pub(super) quic: Option<ClientConfig>,
    /// Who finds where redirects lead, if they are followed.
    pub(super) finder: Option<Arc<Finder>>,
    pub(super) requests: Weighted,
    /// Whether any request has placeholders, is a step, or is looked at for more than is checked: connections then keep a client.
    pub(super) has_clients: bool,
    /// Whether its requests are recorded or signed: these are not made from what was prepared alone.
    pub(super) is_apart: bool,
    /// The hashes of its requests' bodies, if they are signed.
    pub(super) hashes: Arc<[String]>,
    /// For each target, what recorded requests have besides what was recorded.
    pub(super) lines: Vec<Lines>,
    /// How many names its steps capture, and which of them each request does.
    pub(super) names: usize,
    pub(super) slots: Vec<Vec<u16>>,
}

impl PoolPlan {
    /// A request to a target, by their indices.
    #[inline]
    pub(super) fn prepared(&self, target: u16, request: u16) -> &Prepared {
        &self.prepared[usize::from(target) * self.pool.requests.len() + usize::from(request)]
    }
}

/// A pool in one lane.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) plan: Arc<PoolPlan>,
    pub(super) book: Book,
    pub(super) routes: Routes,
    /// The numbers of its requests, or flows, and memory for a body that is filled in.
    pub(super) numbers: Numbers,
    pub(super) scratch: Vec<u8>,
    /// What was signed, if requests are.
    pub(super) signed: Option<Box<Signed>>,
    /// Where redirects led.
    pub(super) origins: Origins,
    /// Its connections: a range of the lane's.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Idle connections, longest idle first; and numbers without a connection.
    pub(super) idle: Idle,
    pub(super) vacant: Vec<u32>,
    /// What the tasks share that speak HTTP/2 or HTTP/3, for a pool that does, while the run lasts.
    pub(super) beside: Option<Arc<Shared>>,
    /// Closed loop: connections established at the start that have not sent a request yet.
    pub(super) unstarted: u32,
    /// When requests are due, in an open loop.
    pub(super) moments: Option<Moments>,
    /// Time between the last two scheduled times.
    pub(super) gap: u64,
    /// Whether no due request was waiting, when last checked before the end.
    pub(super) kept_up: bool,
    /// Since when a due request waits for a connection, if one does.
    pub(super) blocked: Option<u64>,
    /// Requests and connections that may still be started.
    pub(super) requests_left: u64,
    pub(super) connections_left: u64,
    /// What it has of the run, with what others left that are gone.
    pub(super) share: Share,
    /// Behind its last connection, between which those of other pools may be.
    pub(super) last: u32,
    /// Connections that may be opened before `refill`.
    pub(super) burst_left: u64,
    pub(super) refill: u64,
    /// No connection is opened before this time, since the last attempt failed.
    pub(super) hold: u64,
    /// None is opened in advance before this time, since the last that ended had been asked nothing.
    pub(super) rests_until: u64,
    /// Connections being opened that no request waits for yet, and the limit of these.
    pub(super) opening: u32,
    pub(super) pacing: Pacing,
    /// After the last request was sent: no connection before this one has anything to do.
    pub(super) quiet: u32,
    /// Connections that this lane is to have, and those of the current phase: fewer in a closed loop that ramps up.
    pub(super) wanted: u32,
    pub(super) allowed: u32,
    burst: u64,
    part: f64,
    offset: f64,
}

impl PoolState {
    /// The share of the lane of this bucket, its connections from number `first` on; `here`: lanes of this generator.
    pub(super) fn new(plan: &Arc<PoolPlan>, bucket: u16, part: Part, here: usize, first: u32) -> Self {
        let pool = &plan.pool;
        let (lane, lanes) = (part.lane(bucket), part.of);
        let count = even(pool.connections as u64, lane, lanes) as u32;
        // Lanes without a connection have no requests; the others share them.
        let before = pool.connections as u64 * lane as u64 / lanes.max(1) as u64;
        let part = f64::from(count) / pool.connections as f64;
        let mine = |amount: Option<u64>| {
            amount.map_or(u64::MAX, |amount| requests_of(amount, pool.connections as u64, lane, lanes))
        };
        let (requests, in_all) = (mine(pool.total_requests), mine(pool.total_connections));
        let burst = (pool.burst as f64 * part).ceil() as u64;
        let numbers = Numbers::new(pool, before, u64::from(count));
        let once = pool.data.as_ref().filter(|data| data.order == Order::Once);
        let rows = once.map_or(u64::MAX, |data| numbers.below(data.rows()));
        let recorded = pool.replay.as_ref().map_or(u64::MAX, |r| numbers.below(r.requests() as u64));
        Self {
            routes: Routes::new(pool, lane, (usize::from(bucket), here)),
            origins: Origins::default(),
            book: Book::new(),
            first,
            count,
            idle: Idle::default(),
            vacant: (first..first + count).rev().collect(),
            beside: None,
            unstarted: 0,
            moments: None,
            gap: u64::MAX,
            kept_up: true,
            blocked: None,
            requests_left: requests.min(rows).min(recorded),
            numbers,
            scratch: Vec::new(),
            signed: Signed::new(pool, &plan.hashes),
            connections_left: in_all,
            share: Share { connections: count.into(), requests, in_all },
            last: first + count,
            burst_left: burst,
            refill: 0,
            hold: 0,
            rests_until: 0,
            opening: 0,
            pacing: Pacing::new(u32::try_from(burst).unwrap_or(u32::MAX)),
            quiet: first,
            wanted: count,
            allowed: count,
            burst,
            part,
            offset: lane as f64 / lanes.max(1) as f64,
            plan: plan.clone(),
        }
    }

    /// Whether all connections are opened before the first request; not if each request has its own.
    pub(super) fn connects_first(&self) -> bool {
        self.plan.pool.connects_first()
    }

    /// Whether each request of a closed loop has a connection of its own.
    pub(super) fn is_request_of_its_own(&self) -> bool {
        let pool = &self.plan.pool;
        pool.requests_per_connection == Some(1)
            && pool.pace == Pace::Closed
            && pool.behaviour == Behaviour::Normal
    }

    /// Whether the engine leaves it to tasks of its own.
    pub(super) fn is_beside(&self) -> bool {
        !matches!(self.plan.pool.version, Version::Http1 { .. })
    }

    /// Whether any of its connections was ever established.
    pub(super) fn ever_opened(&self) -> bool {
        self.beside.as_ref().map_or(self.book.ever_opened, |shared| shared.opened().0)
    }

    /// The first error of a connection.
    pub(super) fn first_error(&self) -> Option<String> {
        match &self.beside {
            Some(shared) => shared.opened().1,
            None => self.book.first_error.clone(),
        }
    }

    /// Computes the schedule of its requests.
    pub(super) fn schedule(&mut self, phases: &[Phase], start: u64, rng: &mut Rng) {
        if let Some(recording) = &self.plan.pool.replay {
            self.moments = Some(Moments::recorded(recording.due().clone(), self.numbers.dealt(), start));
        } else if let Pace::Rate { per_second, poisson } = self.plan.pool.pace {
            let rng = poisson.then(|| Rng::new(rng.next_u64()));
            self.moments = Some(Moments::new(phases, start, per_second, self.part, self.offset, rng));
        }
    }

    /// Requests in flight on a connection, at most.
    pub(super) fn pipeline(&self) -> usize {
        match self.plan.pool.version {
            Version::Http1 { pipeline } => usize::from(pipeline),
            Version::Http2 { .. } | Version::Http3 { .. } => 1,
        }
    }

    /// Allows one connection to be opened now.
    ///
    /// # Errors
    /// The time at which to ask again.
    pub(super) fn may_open(&mut self, now: u64) -> Result<(), u64> {
        if self.connections_left == 0 {
            return Err(u64::MAX);
        }
        if now < self.hold {
            return Err(self.hold);
        }
        // More handshakes at once would flood a slow server or link.
        if self.opening >= self.pacing.limit() {
            return Err(now + BURST_EVERY);
        }
        if now >= self.refill {
            self.refill = now + BURST_EVERY;
            self.burst_left = self.burst;
        }
        if self.burst_left == 0 {
            return Err(self.refill);
        }
        self.burst_left -= 1;
        Ok(())
    }

    /// Whether no request is left to send.
    pub(super) fn exhausted(&self) -> bool {
        self.requests_left == 0 || (self.connections_left == 0 && self.vacant.len() == self.count as usize)
    }

    /// Whether another connection would have anything to do.
    pub(super) fn needs_more(&self) -> bool {
        u64::from(self.opening) + (self.idle.len() as u64) < self.requests_left && self.connections_left > 0
    }

    /// Whether it has a number for another connection, and may have one.
    pub(super) fn has_room(&self) -> bool {
        !self.vacant.is_empty() && self.active() < self.allowed
    }

    /// Whether connections are being opened that are kept open.
    pub(super) fn shakes_hands(&self) -> bool {
        self.opening > 0 && self.plan.pool.behaviour == Behaviour::Normal
    }

    /// Connections that are established or being opened.
    pub(super) fn active(&self) -> u32 {
        self.count - self.vacant.len() as u32
    }
}
