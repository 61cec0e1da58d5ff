//! Load for a memcached: gets and sets of known items over connections that stay, each request accounted for.
//!
//! ```text
//!   Sizes, Popularity ▸ Items, Mix ▸ asker ▸ conn ▸ the connection's task ▸ conn ▸ book ▸ report
//! ```
//!
//! An open loop sends at moments fixed in advance, on whichever connection has room, and latencies count from these moments, so a stall of the server shows. A
//! closed loop keeps so many requests in flight on each connection. Which value belongs to a key is known without having stored it ([`Items`]), so any answer
//! can be verified.
//!
//! [`MemcachedLoad`] is a run as [`crate::TcpLoad`] is one: a main function for the lanes of a host, progress, and an outcome.

mod asker;
mod book;
mod conn;
mod items;
mod laws;
mod outcome;
mod place;
mod popularity;
mod published;
mod sizes;
mod workload;

use std::time::Duration;

use flowlane::{Endpoint, TcpStream};
use flowlane_memcached::map::LaneMap;

use crate::report::{Recorder, SnapshotsTo};
use crate::run::flows::Sources;
use crate::run::lanes::Lanes;
use crate::run::part::Part;
use crate::run::staying::{self, Counted, Dialogue, Lane, Parts, connect, within};
use crate::run::timeline::Phase;

use asker::Asker;
use book::Own;
use conn::Conn;
use outcome::{Fault, Trouble};

pub use crate::run::staying::StayingError as MemcachedLoadError;
pub use asker::Mix;
pub use book::REQUESTS;
pub use items::{Items, ItemsError, LARGEST_VALUE, LONGEST_KEY};
pub use outcome::{MemcachedCounts, MemcachedOutcome};
pub use popularity::Popularity;
pub use sizes::{BadSizes, Sizes};
pub use workload::Workload;

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `get` and `set`.
    Text,
    /// `mg` and `ms`.
    Meta,
}

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct MemcachedLoadConfig {
    /// The target.
    pub target: Endpoint,
    /// Where connections come from.
    pub sources: Sources,
    /// Connections over all lanes.
    pub connections: usize,
    /// Most requests in flight on a connection.
    pub depth: usize,
    /// Requests per second over all lanes; `None` for a closed loop.
    pub rate: Option<u64>,
    /// Poisson arrivals of requests, with a rate.
    pub poisson: bool,
    /// What is asked.
    pub mix: Mix,
    /// Whether a key is asked for on a connection of the server's lane that has it, of a server that tells (`stats lanes`). Not with
    /// [`Sources::Flows`], whose ports are fixed.
    pub by_lane: bool,
    /// Whether all items are stored before the run.
    pub fill: bool,
    /// The phases, see [`timeline::usual`](crate::timeline::usual); shares other than 1 are for a rate only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of schedules and of what is asked.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SnapshotsTo>,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemcachedProgress {
    /// Answers.
    pub answers: u64,
    /// Items stored before the run.
    pub filled: u64,
}

/// What the lanes of a run share.
pub type Common = staying::Common<MemcachedLoadConfig>;

/// A run.
pub type MemcachedLoad = Lanes<Common>;

impl MemcachedLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`MemcachedLoadError`].
    pub fn new(config: MemcachedLoadConfig) -> Result<Self, MemcachedLoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`MemcachedLoadError`].
    pub fn part(config: MemcachedLoadConfig, part: Option<Part>) -> Result<Self, MemcachedLoadError> {
        if config.mix.multiget == 0 {
            return Err(MemcachedLoadError::Nothing("multiget"));
        }
        Self::staying(config, part)
    }
}

impl Dialogue for MemcachedLoadConfig {
    type Counts = MemcachedCounts;
    type Progress = MemcachedProgress;
    type Own = Own;
    type Pen = Asker;
    type Conn = Conn;
    type Opened = (TcpStream, Option<LaneMap>);
    type Fault = Fault;

    const NOUN: &'static str = "request";
    const REQUESTS: usize = REQUESTS.len();

    fn parts(&self) -> Parts<'_> {
        staying::parts!(self)
    }

    fn pen(common: &Common, bucket: u16, seed: u64) -> Asker {
        let mix = &common.config.mix;
        // Its share of all items.
        let fills = common.config.fill;
        let to_fill = if fills { common.turns.slice(mix.items.keys(), bucket) } else { 0..0 };
        Asker::new(mix.clone(), seed, to_fill)
    }

    /// Has it come to the lane that it is meant for, if that is asked for.
    async fn open(lane: &Lane<Self>, at: usize, turn: u64) -> Result<Self::Opened, Option<Trouble>> {
        let config = &lane.common.config;
        let mut tries = 0;
        loop {
            let stream = connect(lane, at, turn).await?;
            if !config.by_lane {
                return Ok((stream, None));
            }
            let map = within(lane, at, place::ask(&stream), Trouble::NoAnswer).await?;
            // Guard: `map.lanes > config.connections` as `false` fails
            // cli/each_key_is_asked_for_in_its_lane
            if map.lanes > config.connections {
                return Err(Some(Fault::ManyLanes(map.lanes).into()));
            }
            tries += 1;
            let before = lane.common.turns.before(lane.bucket);
            // Guard: `map.here == place::destination(before, at, map.lanes)` as `true` fails
            // cli/every_lane_has_a_connection
            if map.here == place::destination(before, at, map.lanes) || tries > place::TRIES * map.lanes {
                return Ok((stream, Some(map)));
            }
        }
    }

    fn prepares(&self) -> bool {
        self.fill
    }

    fn prepared(asker: &Asker, own: &Own) -> Option<Result<(), String>> {
        match &own.fill_failed {
            Some(why) => Some(Err(why.clone())),
            None => asker.to_fill.is_empty().then_some(Ok(())),
        }
    }

    fn unprepared(why: &str) -> String {
        format!("--fill: items cannot be stored: {why}")
    }

    fn progress(answers: u64, filled: u64) -> MemcachedProgress {
        MemcachedProgress { answers, filled }
    }

    fn counts(all: &Counted, own: &Own) -> MemcachedCounts {
        let (keys, hits) = (own.sum(|r| r.keys), own.sum(|r| r.hits));
        MemcachedCounts {
            requests: all.sent,
            answered: all.answered,
            timed_out: all.timed_out,
            lost: all.lost,
            unfinished: all.unfinished,
            late: all.late,
            gets: own.sum(|r| r.gets),
            sets: own.sum(|r| r.sets),
            keys,
            hits,
            misses: keys - hits,
            stored: own.sum(|r| r.stored),
            refused: own.refused,
            wrong: all.wrong,
            filled: all.prepared,
            unsent: all.unsent,
            held_up: all.held_up,
            connected: all.connected,
            not_connected: all.not_connected,
            connections_refused: all.connections_refused,
            broken: all.broken,
            bytes_written: all.bytes_written,
            bytes_read: all.bytes_read,
        }
    }

    fn name(all: &Counted, own: &Own, recorder: &mut Recorder, moment: u64, before: u64) {
        for (requests, moment) in own.requests.iter().zip([moment, before]) {
            let tally = recorder.tally(moment);
            for (name, count) in [
                ("gets", requests.gets),
                ("sets", requests.sets),
                ("keys", requests.keys),
                ("hits", requests.hits),
                ("misses", requests.keys - requests.hits),
                ("stored", requests.stored),
                ("late", requests.late),
            ] {
                tally.named(name, count);
            }
        }
        recorder.tally(moment).named("filled", all.prepared);
        recorder.tally(moment).named("broken", all.broken);
    }
}
