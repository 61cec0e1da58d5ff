//! Load over WebSockets (RFC 6455): connections that stay, messages that an echo server sends back, each accounted for and compared.
//!
//! ```text
//!   payload ▸ conn ▸ the connection's task ▸ opening, then frames ▸ conn ▸ book ▸ report
//! ```
//!
//! An open loop sends at moments fixed in advance, on the connections in turn, and latencies count from these moments, so a stall of the server shows. A
//! closed loop keeps so many messages in flight on each connection. What a message carries is known from its number, so an answer is compared as it comes,
//! in whichever fragments, and nothing is kept of it.
//!
//! [`WsLoad`] is a run as [`crate::TcpLoad`] is one: a main function for the lanes of a host, progress, and an outcome.

mod book;
mod closes;
mod conn;
mod opening;
mod outcome;
mod payload;

use std::sync::Arc;
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::{Recorder, SnapshotsTo};
use crate::run::flows::Sources;
use crate::run::lanes::Lanes;
use crate::run::part::Part;
use crate::run::staying::{self, Counted, Dialogue, Lane, Parts, connect, within};
use crate::run::timeline::Phase;

use book::Own;
use conn::{Conn, Pen};
use opening::Opened;
use outcome::{Fault, NotOpened, Trouble};

pub use crate::run::staying::StayingError as WsLoadError;
pub use opening::Opening;
pub use outcome::{WsCounts, WsOutcome};
pub use payload::Payload;

pub use flowlane_http::ws::Kind;

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct WsLoadConfig {
    /// The target.
    pub target: Endpoint,
    /// Where connections come from.
    pub sources: Sources,
    /// How a connection becomes a WebSocket.
    pub opening: Arc<Opening>,
    /// Connections over all lanes.
    pub connections: usize,
    /// Most messages in flight on a connection.
    pub depth: usize,
    /// Messages per second over all lanes; `None` for a closed loop.
    pub rate: Option<u64>,
    /// Poisson arrivals of messages, with a rate.
    pub poisson: bool,
    /// What messages carry.
    pub payload: Payload,
    /// The phases, see [`timeline::usual`](crate::timeline::usual); shares other than 1 are for a rate only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for the opening handshake, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of schedules, keys and masks.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SnapshotsTo>,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WsProgress {
    /// Answers.
    pub answers: u64,
}

/// What the lanes of a run share.
pub type Common = staying::Common<WsLoadConfig>;

/// A run.
pub type WsLoad = Lanes<Common>;

impl WsLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`WsLoadError`].
    pub fn new(config: WsLoadConfig) -> Result<Self, WsLoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`WsLoadError`].
    pub fn part(config: WsLoadConfig, part: Option<Part>) -> Result<Self, WsLoadError> {
        Self::staying(config, part)
    }
}

impl Dialogue for WsLoadConfig {
    type Counts = WsCounts;
    type Progress = WsProgress;
    type Own = Own;
    type Pen = Pen;
    type Conn = Conn;
    type Opened = Opened;
    type Fault = Fault;

    const NOUN: &'static str = "message";
    const SAYS_BYE: bool = true;

    fn parts(&self) -> Parts<'_> {
        staying::parts!(self)
    }

    fn pen(common: &Common, _bucket: u16, seed: u64) -> Pen {
        Pen::new(common.config.payload, seed)
    }

    async fn open(lane: &Lane<Self>, at: usize, turn: u64) -> Result<Opened, Option<Trouble>> {
        let stream = connect(lane, at, turn).await?;
        let nonce = lane.inner().pen.nonce();
        let opening = &lane.common.config.opening;
        let opening = async { opening.open(stream, nonce).await.map_err(|why| Fault::Opening(why).into()) };
        within(lane, at, opening, Fault::Opening(NotOpened::TooLate).into()).await
    }

    fn tls(opened: &Opened) -> Option<u64> {
        opened.tls
    }

    fn opened(own: &mut Own, opened: &Opened) {
        own.deflating += u64::from(opened.deflates);
    }

    fn not_opened(own: &mut Own, trouble: &Trouble) {
        if let Trouble::Own(Fault::Opening(why)) = trouble {
            own.handshake_failed(why);
        }
    }

    fn progress(answers: u64, _prepared: u64) -> WsProgress {
        WsProgress { answers }
    }

    fn counts(all: &Counted, own: &Own) -> WsCounts {
        WsCounts {
            messages: all.sent,
            answered: all.answered,
            timed_out: all.timed_out,
            lost: all.lost,
            unfinished: all.unfinished,
            late: all.late,
            wrong: all.wrong,
            fragmented: own.fragmented,
            deflated: own.deflated,
            unasked: own.unasked,
            pings: own.pings,
            unsent: all.unsent,
            held_up: all.held_up,
            connected: all.connected,
            not_connected: all.not_connected,
            connections_refused: all.connections_refused,
            handshakes_failed: own.handshakes_failed,
            deflating: own.deflating,
            broken: all.broken,
            closed_by_server: own.closed_by_server,
            closed: own.closed,
            unclosed: own.unclosed,
            bytes_written: all.bytes_written,
            bytes_read: all.bytes_read,
        }
    }

    fn name(all: &Counted, own: &Own, recorder: &mut Recorder, moment: u64, _before: u64) {
        let tally = recorder.tally(moment);
        let counts = [
            ("late", all.late),
            ("fragmented", own.fragmented),
            ("deflated", own.deflated),
            ("unasked", own.unasked),
            ("pings", own.pings),
            ("handshakes-failed", own.handshakes_failed),
            ("broken", all.broken),
            ("closed-by-server", own.closed_by_server),
            ("closed", own.closed),
            ("unclosed", own.unclosed),
        ];
        for (name, count) in counts.into_iter().chain(own.closes.each()).chain(own.handshakes.iter().copied())
        {
            tally.named(name, count);
        }
    }
}
