//! Loads whose connections stay: what holds the connections of a lane, opens them, opens them again, hands out turns and ends the run, whatever is said on
//! them.
//!
//! ```text
//!   Common, of all lanes ▸ course: opened ▸ prepared ▸ start ▸ pace: open or closed loop ▸ end ▸ outcome
//!                          Lane ▸ Inner: places, each a connection and its task ▸ Dialogue's Conn ▸ Book ▸ report
//! ```
//!
//! [`Dialogue`] is what differs from load to load: what a connection says and hears, and what is counted of it. `load ws` and `load memcached` are two. The
//! connections of `load tcp` that stay are none: each of these has a schedule of its own, and is not opened again.

mod book;
mod common;
mod course;
mod lane;
mod pace;
mod task;
mod trouble;
mod wanted;

use std::fmt::Debug;
use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::Endpoint;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::flows::Sources;
use super::outcome::Account;
use super::timeline::Phase;
use crate::report::{Recorder, SnapshotsTo};

pub use book::{Book, Counted};
pub use common::{Common, StayingError};
pub use lane::Lane;
pub use trouble::{Fault, Trouble};

pub(crate) use book::{Lost, Waiting};
pub(crate) use task::{connect, within};

/// What is said over connections that stay: the configuration of a run.
pub trait Dialogue: Debug + Send + Sync + Sized + 'static {
    /// What a lane counts.
    type Counts: Account + Debug + Send + Serialize + DeserializeOwned;
    /// What is known while it runs.
    type Progress;
    /// What a lane counts besides [`Counted`].
    type Own: Debug + Default + Send;
    /// What connections of a lane share to say something.
    type Pen: Debug + Send;
    /// A connection, or the place of one.
    type Conn: Conn<Self>;
    /// A connection that was opened.
    type Opened: Send;
    /// How a connection ends besides those ways that all have.
    type Fault: Fault;

    /// What is sent, in the words of a report.
    const NOUN: &'static str;
    /// Kinds of requests that a report tells apart.
    const REQUESTS: usize = 0;
    /// Whether ends of a connection say that it ends.
    const SAYS_BYE: bool = false;

    /// What every such run has.
    fn parts(&self) -> Parts<'_>;
    /// What the connections of a lane share.
    fn pen(common: &Common<Self>, bucket: u16, seed: u64) -> Self::Pen;
    /// Opens the connection in the place `at` of a lane for the `turn`-th time. An error is why it failed, if it did not just become too late.
    fn open(
        lane: &Lane<Self>,
        at: usize,
        turn: u64,
    ) -> impl Future<Output = Result<Self::Opened, Option<Trouble<Self::Fault>>>> + Send;
    /// How long TLS's handshake took, nanoseconds, if there was one.
    fn tls(_opened: &Self::Opened) -> Option<u64> {
        None
    }
    /// Takes note of a connection that was opened.
    fn opened(_own: &mut Self::Own, _opened: &Self::Opened) {}
    /// Takes note of a connection that could not be opened.
    fn not_opened(_own: &mut Self::Own, _trouble: &Trouble<Self::Fault>) {}
    /// Whether something is to be sent before the run.
    fn prepares(&self) -> bool {
        false
    }
    /// Whether all that is sent before the run was sent, or why it cannot be; `None` for not yet.
    fn prepared(_pen: &Self::Pen, _own: &Self::Own) -> Option<Result<(), String>> {
        Some(Ok(()))
    }
    /// That it cannot be, in words.
    fn unprepared(why: &str) -> String {
        why.to_owned()
    }
    /// Progress: answers, and what was sent before the run.
    fn progress(answers: u64, prepared: u64) -> Self::Progress;
    /// What a lane counted.
    fn counts(all: &Counted, own: &Self::Own) -> Self::Counts;
    /// Names in the record of the report what only this load counts. `moment`: one that is measured; `before`: one that is not.
    fn name(all: &Counted, own: &Self::Own, recorder: &mut Recorder, moment: u64, before: u64);
}

/// One connection of a [`Dialogue`], or the place of one.
pub trait Conn<D: Dialogue>: Debug + Send {
    /// The place of the connection with this number among all.
    fn new(ordinal: u64) -> Self;
    /// It was opened. Returns what came already.
    fn stands(&mut self, opened: D::Opened, pen: &mut D::Pen) -> Vec<u8>;
    /// What is in flight on it.
    fn in_flight(&self) -> usize;
    /// Whether it stands and takes more, with at most `depth` in flight.
    fn has_room(&self, depth: usize) -> bool;
    /// When the oldest of what is in flight was sent.
    fn oldest(&self) -> Option<u64>;
    /// Answers that it brought, over all its turns, but for errors.
    fn heard(&self) -> u64;
    /// Whether there is something to be written.
    fn is_to_write(&self) -> bool;
    /// Says what was due at that moment.
    fn ask(&mut self, pen: &mut D::Pen, book: &mut Book<D>, intended: u64, now: u64);
    /// Says what is said before the run.
    fn prepare(&mut self, _pen: &mut D::Pen, _now: u64) {}
    /// Begins the end, of one that says so.
    fn close(&mut self, _pen: &mut D::Pen) {}
    /// Whether an end of the stream is one after both ends have said so.
    fn has_said_bye(&self) -> bool {
        false
    }
    /// Writes as much as the far side takes; how much.
    fn poll_write(&mut self, cx: &mut Context<'_>, pen: &mut D::Pen) -> Result<usize, Trouble<D::Fault>>;
    /// Reads once; 0 bytes are the end.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Trouble<D::Fault>>>;
    /// Takes bytes that came. An error is what they end the connection with.
    fn came(
        &mut self,
        bytes: &mut [u8],
        pen: &mut D::Pen,
        book: &mut Book<D>,
        now: u64,
    ) -> Result<(), Trouble<D::Fault>>;
    /// The connection is no more; `trouble` if it ended by itself. What was in flight is lost.
    fn end(&mut self, trouble: Option<&Trouble<D::Fault>>, pen: &mut D::Pen, book: &mut Book<D>, now: u64);
}

/// What every run of connections that stay has.
#[derive(Debug)]
pub struct Parts<'a> {
    pub(crate) target: Endpoint,
    pub(crate) sources: &'a Sources,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) rate: Option<u64>,
    pub(crate) poisson: bool,
    pub(crate) phases: &'a [Phase],
    pub(crate) timeout: Duration,
    pub(crate) exact: bool,
    pub(crate) seed: u64,
    pub(crate) snapshots: Option<&'a SnapshotsTo>,
}

/// The [`Parts`] of a configuration whose fields are named like these.
macro_rules! parts {
    ($config:expr) => {{
        let config = $config;
        $crate::run::staying::Parts {
            target: config.target,
            sources: &config.sources,
            connections: config.connections,
            depth: config.depth,
            rate: config.rate,
            poisson: config.poisson,
            phases: &config.phases,
            timeout: config.timeout,
            exact: config.exact,
            seed: config.seed,
            snapshots: config.snapshots.as_ref(),
        }
    }};
}
pub(crate) use parts;
