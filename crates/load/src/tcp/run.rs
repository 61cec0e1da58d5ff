//! A run in one lane: opens connections at their moments, lets each of them do its work in a task of its own, and
//! accounts for what became of them.
//!
//! ```text
//!   start line ▸ ramp ▸ measured for the duration ▸ nothing new is begun ▸ what is on its way ▸ report
//! ```

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use flowlane::{Connect, Endpoint, Failure, SocketOptions, TcpStream, Time};

use super::lane::Lane;
use super::outcome::{TcpLaneOutcome, Trouble};
use super::talk::{Slots, Talk, Task};
use super::{LaneProgress, Mode, Sources, TcpLoadConfig};
use crate::clients::ClientRange;
use crate::gate::Gate;
use crate::lane::clock;
use crate::schedule::Schedule;

/// Time between two looks at what is slow: progress, the end.
const TICK: u64 = 50_000_000;
/// Connections begun before the worker does its other work.
const BATCH: usize = 32;
/// So near to a moment the worker stays awake: the kernel wakes a sleeper up to this late.
const NEAR: u64 = 80_000;
/// How long a generator that is behind goes on after the end of the schedule.
const GRACE: u64 = 1_000_000_000;
/// A lane that cannot begin a connection tries again after this.
const PAUSE: Duration = Duration::from_millis(1);

/// What lanes of a run have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) config: TcpLoadConfig,
    pub(super) gate: Gate,
    /// Lanes that have something to do, by bucket.
    pub(super) takes_part: Vec<bool>,
    /// Connections of each lane, by bucket: in all, or at once.
    pub(super) connections: Vec<u64>,
    /// Share of the rate of connections of each lane, by bucket.
    pub(super) rates: Vec<u64>,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Mutex<mpsc::Sender<TcpLaneOutcome>>,
}

impl Common {
    /// How long it takes until all connections that stay have been begun.
    pub(super) fn ramp_time(&self) -> Duration {
        if self.config.mode == Mode::Connect {
            return Duration::ZERO;
        }
        let all: u64 = self.connections.iter().sum();
        Duration::from_secs_f64(all as f64 / self.config.ramp as f64)
    }

    /// Connections of the lanes before that of `bucket`.
    fn before(&self, bucket: u16) -> u64 {
        self.connections[..usize::from(bucket)].iter().sum()
    }

    fn options(&self) -> SocketOptions {
        SocketOptions { nodelay: self.config.nodelay, ..SocketOptions::default() }
    }
}

/// The whole run of one lane.
pub(super) async fn lane(common: Arc<Common>, bucket: u16) -> TcpLaneOutcome {
    let Some(start) = common.gate.start_line().await else {
        return TcpLaneOutcome { bucket, ..TcpLaneOutcome::default() };
    };
    let measured = start + common.ramp_time().as_nanos() as u64;
    let end = measured + common.config.duration.as_nanos() as u64;
    let lane = Arc::new(Lane::new(common.clone(), start, measured, end));
    let opener = Opener { lane: lane.clone(), bucket, turn: 0 };
    match common.config.mode {
        Mode::Connect if common.config.rate.is_some() => opener.open_loop().await,
        Mode::Connect => opener.closed_loop().await,
        _ => opener.ramp().await,
    }
    wait(&lane, bucket, lane.end).await;
    let stopped = clock();
    lane.inner().did.span = (measured.min(stopped), stopped.min(end));
    // What is on its way may still arrive.
    lane.wake_all();
    wait(&lane, bucket, clock() + common.timeout).await;
    lane.give_up();
    wait(&lane, bucket, u64::MAX).await;
    publish(&lane, bucket);
    lane.outcome(bucket)
}

/// Waits until nobody is left, or until `until`, or until the run is stopped before its end.
async fn wait(lane: &Lane, bucket: u16, until: u64) {
    loop {
        publish(lane, bucket);
        let now = clock();
        let cut = until == lane.end && lane.common.gate.stopped();
        if now >= until || cut || lane.inner().live == 0 {
            return;
        }
        let mut tick = pin!(flowlane::sleep_until(Time::from_nanos(until.min(now + TICK))));
        poll_fn(|cx| {
            if lane.inner().live == 0 {
                return Poll::Ready(());
            }
            lane.wake_main(cx.waker());
            tick.as_mut().poll(cx)
        })
        .await;
    }
}

fn publish(lane: &Lane, bucket: u16) {
    let progress = &lane.common.progress[usize::from(bucket)];
    let inner = lane.inner();
    progress.open.store(inner.live as u64, Ordering::Relaxed);
    progress.failed.store(inner.counts.failed(), Ordering::Relaxed);
    progress.answers.store(inner.counts.answers, Ordering::Relaxed);
    progress.written.store(inner.counts.bytes_written, Ordering::Relaxed);
    progress.read.store(inner.counts.bytes_read, Ordering::Relaxed);
}

/// Begins connections of one lane.
struct Opener {
    lane: Arc<Lane>,
    bucket: u16,
    /// Connections begun.
    turn: u64,
}

impl Opener {
    /// Waits for a moment; `false` if the run ends before.
    async fn until(&self, moment: u64) -> bool {
        loop {
            let now = clock();
            if self.lane.ending(now) {
                return false;
            }
            if now >= moment {
                return true;
            }
            if moment > now + 2 * NEAR {
                let then = (moment - NEAR).min(now + TICK);
                flowlane::sleep_until(Time::from_nanos(then)).await;
                publish(&self.lane, self.bucket);
            } else {
                flowlane::yield_now().await;
            }
        }
    }

    /// Connections that stay, one after the other.
    async fn ramp(self) {
        let common = self.lane.common.clone();
        let Sources::Flows(flows) = &common.config.sources else { return };
        let mine = &flows[usize::from(self.bucket)];
        let (all, before) = (common.connections.iter().sum::<u64>(), common.before(self.bucket));
        // Evenly over the ramp, in turn with the other lanes.
        let lane_rate = (common.config.ramp as f64 * mine.len() as f64 / all.max(1) as f64).max(1e-3);
        for (nth, client) in mine.iter().enumerate() {
            let due = self.lane.start + (nth as f64 * 1e9 / lane_rate) as u64;
            if !self.until(due).await {
                self.lane.inner().counts.unsent += (mine.len() - nth) as u64;
                return;
            }
            if common.config.rate.is_none() {
                self.lane.inner().slipped(clock().saturating_sub(due));
            }
            let index = before + nth as u64;
            let slots = common.config.rate.map(|rate| Slots {
                start: self.lane.measured,
                nth: index,
                step: all,
                rate,
            });
            let phase = if common.config.mode == Mode::Read { 0 } else { index.wrapping_mul(7919) };
            let task = Task { phase, slots, intended: None };
            self.begin(connection(self.lane.clone(), from(&common, *client), due, task));
            if nth % BATCH == BATCH - 1 {
                flowlane::yield_now().await;
            }
        }
    }

    /// Connections that come and go, at moments fixed beforehand.
    async fn open_loop(mut self) {
        let common = self.lane.common.clone();
        let (mine, most) =
            (common.rates[usize::from(self.bucket)], common.connections[usize::from(self.bucket)]);
        let lanes = common.rates.iter().filter(|r| **r > 0).count() as u64;
        let nth = common.rates[..usize::from(self.bucket)].iter().filter(|r| **r > 0).count() as u64;
        let start = self.lane.start;
        let mut schedule = if common.config.poisson {
            Schedule::poisson(start, mine, common.config.seed ^ u64::from(self.bucket) << 48)
        } else {
            Schedule::constant(start + nth * 1_000_000_000 / mine / lanes.max(1), mine)
        };
        let mut in_batch = 0;
        let stopped = || common.gate.stopped();
        while schedule.peek() < self.lane.end {
            let due = schedule.peek();
            let now = clock();
            let go =
                if due > now { self.until(due).await } else { now < self.lane.end + GRACE && !stopped() };
            if !go {
                break;
            }
            if self.lane.inner().live as u64 >= most {
                self.lane.inner().counts.held_up += 1;
                self.one_leaves(most).await;
                continue;
            }
            schedule.advance();
            self.lane.inner().slipped(clock().saturating_sub(due));
            let (connect, phase) = self.next(&common);
            self.begin(once(self.lane.clone(), connect, due, phase));
            in_batch += 1;
            if in_batch == BATCH {
                in_batch = 0;
                flowlane::yield_now().await;
            }
        }
        let mut inner = self.lane.inner();
        let now = clock();
        while schedule.peek() < self.lane.end {
            inner.counts.unsent += 1;
            if schedule.peek() < now {
                inner.slipped(now - schedule.peek());
            }
            schedule.advance();
        }
    }

    /// Connections that come and go, so many at once.
    async fn closed_loop(mut self) {
        let common = self.lane.common.clone();
        let most = common.connections[usize::from(self.bucket)];
        let mut in_batch = 0;
        loop {
            let now = clock();
            if self.lane.ending(now) {
                return;
            }
            if self.lane.inner().live as u64 >= most {
                self.one_leaves(most).await;
                continue;
            }
            let before = self.lane.inner().counts.not_begun;
            let (connect, phase) = self.next(&common);
            self.begin(once(self.lane.clone(), connect, now, phase));
            in_batch += 1;
            if in_batch == BATCH {
                in_batch = 0;
                flowlane::yield_now().await;
                if self.lane.inner().counts.not_begun > before {
                    flowlane::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until fewer than `most` are left, for no longer than a tick.
    async fn one_leaves(&self, most: u64) {
        publish(&self.lane, self.bucket);
        let mut tick = pin!(flowlane::sleep(Duration::from_nanos(TICK)));
        poll_fn(|cx| {
            if (self.lane.inner().live as u64) < most {
                return Poll::Ready(());
            }
            self.lane.wake_main(cx.waker());
            tick.as_mut().poll(cx)
        })
        .await;
    }

    /// Where the next connection comes from, and where in the pattern it begins.
    fn next(&mut self, common: &Common) -> (Connect, u64) {
        let turn = self.turn;
        self.turn += 1;
        let connect = match &common.config.sources {
            Sources::Flows(flows) => {
                let mine = &flows[usize::from(self.bucket)];
                from(common, mine[(turn % mine.len() as u64) as usize])
            }
            Sources::Addresses { clients, lanes } => {
                let nth = u128::from(turn) * *lanes as u128 + u128::from(self.bucket);
                Connect {
                    local_ip: Some(pick(clients, nth)),
                    options: common.options(),
                    ..Connect::to(common.config.target)
                }
            }
        };
        (connect, turn.wrapping_mul(7919) + u64::from(self.bucket))
    }

    /// Starts a connection's task.
    fn begin(&self, connection: impl Future<Output = Result<(), Trouble>> + Send + 'static) {
        {
            let mut inner = self.lane.inner();
            inner.counts.begun += 1;
            inner.live += 1;
        }
        // Only fails outside a lane, where nothing of this runs.
        let _ = flowlane::spawn(self.lane.clone().supervise(connection));
    }
}

/// Address `nth` of all ranges, counted around.
fn pick(clients: &[ClientRange], nth: u128) -> IpAddr {
    let all = clients.iter().map(ClientRange::count).fold(0, u128::saturating_add).max(1);
    let mut nth = nth % all;
    for range in clients {
        if nth < range.count() {
            return range.nth(nth);
        }
        nth -= range.count();
    }
    clients[0].nth(nth)
}

fn from(common: &Common, client: Endpoint) -> Connect {
    Connect {
        local_ip: Some(client.ip),
        local_port: client.port,
        options: common.options(),
        ..Connect::to(common.config.target)
    }
}

/// A connection that stays: connects, and does its work until the end.
async fn connection(lane: Arc<Lane>, connect: Connect, due: u64, task: Task) -> Result<(), Trouble> {
    let config = &lane.common.config;
    let stream = TcpStream::connect_with(connect, Some(config.timeout)).await?;
    lane.inner().connected(clock().saturating_sub(due));
    let mut talk = Talk::new(&lane, &stream, task);
    let ended = poll_fn(|cx| talk.poll(cx)).await;
    finish(&lane, &stream, ended)
}

/// A connection that comes and goes: connects, asks once, is answered, and closes, all within the timeout.
async fn once(lane: Arc<Lane>, connect: Connect, due: u64, phase: u64) -> Result<(), Trouble> {
    let mut over = pin!(flowlane::sleep(lane.common.config.timeout));
    let mut connecting = pin!(TcpStream::connect_with(connect, None));
    let stream = poll_fn(|cx| match connecting.as_mut().poll(cx) {
        Poll::Ready(connected) => Poll::Ready(connected.map_err(Trouble::from)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| Err(Trouble::Socket(Failure::TimedOut.into()))),
    })
    .await?;
    lane.inner().connected(clock().saturating_sub(due));
    let mut talk = Talk::new(&lane, &stream, Task { phase, slots: None, intended: Some(due) });
    let ended = poll_fn(|cx| match talk.poll(cx) {
        Poll::Pending => over.as_mut().poll(cx).map(|()| Err(Trouble::NoAnswer)),
        done => done,
    })
    .await;
    finish(&lane, &stream, ended)
}

fn finish(lane: &Lane, stream: &TcpStream, ended: Result<(), Trouble>) -> Result<(), Trouble> {
    if let Ok(info) = stream.info() {
        lane.inner().counts.retransmits += u64::from(info.retransmits);
    }
    if lane.common.config.reset {
        let _ = stream.abort();
    }
    ended
}
