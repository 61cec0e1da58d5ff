//! A run in one lane: opens connections by the schedule, runs each in its own task, and records how each ends.
//!
//! ```text
//!   common start ▸ opening ▸ measured for the duration ▸ nothing new is started ▸ outstanding answers ▸ report
//! ```

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flowlane::{Connect, Endpoint, SocketError, TcpStream, Time};

use super::common::{BATCH, Common};
use super::connection::Connection;
use super::half_open;
use super::lane::Lane;
use super::outcome::{TcpCounts, Trouble};
use super::resizes::Resize;
use super::talk::{Slots, Task};
use super::{Mode, Sources, pattern};
use crate::run::flows::address;
use crate::run::outcome::LaneOutcome;
use crate::run::wait::{begin, until};
use crate::run::{GRACE, HURRY, TICK, clock};

/// Pause of a lane that cannot open a connection.
const PAUSE: Duration = Duration::from_millis(1);

/// The whole run of one lane.
pub(super) async fn lane(common: Arc<Common>, bucket: u16) -> LaneOutcome<TcpCounts> {
    let Some(start) = common.gate.start_line().await else { return LaneOutcome::none(None) };
    let lane = Arc::new(Lane::new(common.clone(), bucket, start));
    if common.config.mode.is_half_open() {
        return half_open::lane(lane, bucket).await;
    }
    let mut opener = Opener { lane: lane.clone(), bucket, turn: 0 };
    match common.config.mode {
        Mode::Connect => match common.config.rate {
            Some(rate) => opener.open_loop(rate).await,
            None => opener.closed_loop().await,
        },
        _ => opener.stay().await,
    }
    wait(&lane, bucket, lane.end, None).await;
    let stopped = clock();
    // What is on its way may still arrive.
    lane.wake_all();
    outstanding(&lane, bucket).await;
    lane.give_up();
    wait(&lane, bucket, u64::MAX, None).await;
    lane.publish(bucket);
    lane.outcome(stopped)
}

/// Waits until nobody is left, as long as the timeout, or for a moment once the run is stopped.
async fn outstanding(lane: &Lane, bucket: u16) {
    let patience = clock() + lane.common.timeout;
    loop {
        // Guard: `lane.common.gate.stopped()` as `false` fails load/staying::what_is_under_way
        let stopped = lane.common.gate.stopped();
        let until = if stopped { patience.min(clock() + HURRY) } else { patience.min(clock() + TICK) };
        wait(lane, bucket, until, None).await;
        if stopped || clock() >= patience || lane.inner().live == 0 {
            return;
        }
    }
}

/// Waits until nobody is left, or until `until`, or until the run is stopped before its end, or, if `known` is said, the number of connections was
/// changed more often or more generators are gone.
async fn wait(lane: &Lane, bucket: u16, until: u64, known: Option<(usize, usize)>) {
    loop {
        lane.publish(bucket);
        let now = clock();
        let gate = &lane.common.gate;
        let is_new =
            |(resized, gone): (usize, usize)| lane.resizes.count() > resized || gate.are_gone() > gone;
        let cut = until == lane.end && gate.stopped() || known.is_some_and(is_new);
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

/// Begins connections of one lane.
struct Opener {
    lane: Arc<Lane>,
    bucket: u16,
    /// Connections begun, of those that stay the number of the next.
    turn: u64,
}

impl Opener {
    /// Waits for a moment; `false` if the run ends before.
    async fn until(&self, moment: u64) -> bool {
        let (lane, exact) = (&self.lane, self.lane.common.config.exact);
        until(moment, exact, |now| lane.ending(now), || lane.publish(self.bucket)).await
    }

    /// Connections that stay: those of the start, more whenever more are wanted, and those that others had.
    async fn stay(&mut self) {
        let lane = self.lane.clone();
        let turns = &lane.common.turns;
        let (all, first, count) = (turns.all(), turns.before(self.bucket), turns.of(self.bucket));
        let start =
            Resize { at: lane.start, from: lane.standing, before: 0, all, mine: first..first + count };
        self.resize(0, &start, 0).await;
        let (mut had, mut resized, mut gone) = (count, 0, 0);
        loop {
            wait(&lane, self.bucket, lane.end, Some((resized, gone))).await;
            if lane.ending(clock()) {
                return;
            }
            if let Some(resize) = lane.resizes.nth(resized) {
                resized += 1;
                self.resize(had, &resize, resized).await;
                had = resize.count();
            } else if let Some(list) = lane.common.gate.gone(gone) {
                gone = list.len();
                let numbers = turns.taken(self.bucket, &list, true).into_iter().flatten();
                // The first are those that it has taken already.
                let more: Vec<u64> = numbers.skip(had.saturating_sub(count) as usize).collect();
                self.take_over(had, &more).await;
                had += more.len() as u64;
            } else {
                return;
            }
        }
    }

    /// Opens those that the lane has not yet.
    async fn resize(&mut self, had: u64, resize: &Resize, resized: usize) {
        let config = &self.lane.common.clone().config;
        let more = had..had.max(resize.count());
        let time = config.opening_time(resize.all.saturating_sub(resize.before));
        let task = |nth: u64| {
            let slots = config.rate.map(|rate| Slots::of(resize, nth, rate));
            Task { phase: phase(config.mode, resize.mine.start + nth), slots, nth, resized, begun: None }
        };
        self.open(more.end - more.start, more.map(task), resize.at, time).await;
    }

    /// Opens connections with these numbers that others had. What was due of them before was the others'.
    async fn take_over(&mut self, had: u64, numbers: &[u64]) {
        let (common, standing, now) = (self.lane.common.clone(), self.lane.standing, clock());
        let (config, all) = (&common.config, common.turns.all());
        let mine = common.turns.of(self.bucket).max(1);
        let time = config.opening_time((numbers.len() as u64).saturating_mul(all) / mine);
        let task = |(nth, number): (u64, &u64)| {
            let slots =
                config.rate.map(|rate| Slots::numbered(standing, *number, (all, rate)).since(clock()));
            Task { phase: phase(config.mode, *number), slots, nth, resized: 0, begun: None }
        };
        let tasks = (had..).zip(numbers).map(task);
        self.open(numbers.len() as u64, tasks, now, time).await;
    }

    /// Opens so many connections that stay one after the other, evenly over a time, in turn with the other lanes.
    async fn open(
        &mut self,
        count: u64,
        mut tasks: impl Iterator<Item = Task> + Send,
        at: u64,
        time: Duration,
    ) {
        let common = self.lane.common.clone();
        for n in 0..count {
            let due = at + (u128::from(n) * time.as_nanos() / u128::from(count)) as u64;
            if !self.until(due).await {
                if common.gate.door.is_shut() {
                    return;
                }
                let (mut inner, now) = (self.lane.inner(), clock());
                inner.counts.unsent += count - n;
                inner.recorder.tally(now).unsent += count - n;
                return;
            }
            let Some(task) = tasks.next() else { return };
            self.turn = task.nth;
            let (connect, _) = self.next(&common);
            let goes_on = || {
                self.lane.publish(self.bucket);
                !self.lane.ending(clock())
            };
            let begun = begin(&connect, goes_on).await;
            self.begin(begun.map(|stream| (stream, 0)), due, task);
            if n % BATCH as u64 == BATCH as u64 - 1 {
                flowlane::yield_now().await;
            }
        }
    }

    /// Connections that come and go, at moments fixed beforehand.
    async fn open_loop(&mut self, rate: u64) {
        let common = self.lane.common.clone();
        let mut schedule = common.moments(self.bucket, self.lane.start, rate);
        let mut in_batch = 0;
        loop {
            let now = clock();
            schedule.follow(&common.gate, now);
            let due = schedule.peek();
            // Who wakes late, even after the end, still begins what was due before it.
            if now >= self.lane.end + GRACE || common.gate.stopped() || due.is_none() && now >= self.lane.end
            {
                break;
            }
            let Some(due) = due.filter(|due| *due <= now) else {
                // No longer than a tick: the schedule may be another one then.
                self.until(due.unwrap_or(self.lane.end).min(now + TICK)).await;
                continue;
            };
            if self.lane.inner().live as u64 >= self.lane.resizes.wanted() {
                self.lane.inner().held_up(now);
                self.one_leaves().await;
                continue;
            }
            schedule.advance();
            self.once(&common, due, now);
            in_batch += 1;
            if in_batch == BATCH {
                in_batch = 0;
                flowlane::yield_now().await;
            }
        }
        if common.gate.door.is_shut() {
            return;
        }
        let (mut inner, now) = (self.lane.inner(), clock());
        // What would have come after an early end was never due.
        schedule.pass(now.min(self.lane.end) + 1, u64::MAX, |due, n| inner.unsent(due, now, n));
    }

    /// Begins a connection now that was due at that moment and comes and goes.
    fn once(&mut self, common: &Common, due: u64, begun: u64) {
        self.lane.inner().sent(due, begun);
        let (connect, phase) = self.next(common);
        // With Fast Open it asks with its SYN.
        let config = &common.config;
        let first = if config.fast_open { pattern::slice(phase, config.size) } else { &[] };
        let opened = TcpStream::begin_with_data(connect, first);
        let task = Task { phase, slots: None, nth: 0, resized: 0, begun: Some((due, begun)) };
        self.begin(opened, due, task);
    }

    /// Connections that come and go, so many at once.
    async fn closed_loop(&mut self) {
        let common = self.lane.common.clone();
        let mut in_batch = 0;
        self.until(self.lane.start).await;
        loop {
            let now = clock();
            if self.lane.ending(now) {
                return;
            }
            if self.lane.inner().live as u64 >= self.lane.resizes.wanted() {
                self.one_leaves().await;
                continue;
            }
            let before = self.lane.inner().counts.not_begun;
            self.once(&common, now, now);
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

    /// Waits until fewer are left than may be at once, for no longer than a tick.
    async fn one_leaves(&self) {
        self.lane.publish(self.bucket);
        let mut tick = pin!(flowlane::sleep(Duration::from_nanos(TICK)));
        poll_fn(|cx| {
            if (self.lane.inner().live as u64) < self.lane.resizes.wanted() {
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
                    local_ip: address(clients, nth),
                    options: common.options(),
                    ..Connect::to(common.config.target)
                }
            }
        };
        (connect, turn.wrapping_mul(7919) + u64::from(common.turns.number(self.bucket)))
    }

    /// Starts the task of a connection that was due at that moment and was begun, with so many bytes that went with its SYN.
    fn begin(&self, begun: Result<(TcpStream, usize), SocketError>, due: u64, task: Task) {
        let mut inner = self.lane.inner();
        inner.counts.begun += 1;
        match begun {
            Ok((stream, taken)) => {
                inner.live += 1;
                drop(inner);
                // Only fails outside a lane, where nothing of this runs.
                let _ = flowlane::spawn(Connection::new(self.lane.clone(), stream, taken, due, task));
            }
            Err(error) => self.lane.left(&mut inner, Err(Trouble::Connect(error))),
        }
    }
}

/// Where in the pattern the connection with this number begins.
fn phase(mode: Mode, number: u64) -> u64 {
    if mode == Mode::Read { 0 } else { number.wrapping_mul(7919) }
}

fn from(common: &Common, client: Endpoint) -> Connect {
    Connect {
        local_ip: Some(client.ip),
        local_port: client.port,
        options: common.options(),
        ..Connect::to(common.config.target)
    }
}
