//! The generator in one lane: one task, one socket, its own flows, schedule and histograms.
//!
//! Sending and receiving are one loop, so nothing is shared and nothing is locked: take what came, send what is due,
//! and then wait for whichever is next. What is due is sent in batches of bounded size; between two of them the worker
//! does its other work, receiving above all. When there is no room the datagram keeps its intended moment and is tried
//! again in the next turn: being held up is lateness of ours, not loss.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use flowlane::{Bind, Datagram, Endpoint, SendError, Sleep, SocketError, Time, UdpSocket};
use hdrhistogram::Histogram;

use crate::load::{Common, Pace};
use crate::order::{Arrival, Order};
use crate::outcome::{Counts, LaneOutcome, histogram};
use crate::payload::{Header, Parsed, template};
use crate::schedule::Schedule;
use crate::window::Window;

/// Datagrams sent before the worker does its other work.
const BATCH: usize = 64;
/// Datagrams received at once.
const BURST: usize = 256;
/// Time between two looks at what is slow: progress, timeouts.
const TICK: u64 = 50_000_000;
/// How long a generator that is behind goes on after the end of the schedule.
const GRACE: u64 = 100_000_000;
/// How often it is asked whether anybody answers, and how long in all.
const PROBE_EVERY: Duration = Duration::from_millis(100);
const PROBES: u64 = 30;
/// The kernel wakes a sleeper up to this late (its timer slack is 50 us): so near to a moment the worker stays awake.
const NEAR: u64 = 80_000;
/// Wait after the last answer, for answers that come twice.
const LINGER: u64 = 10_000_000;

/// The time now, nanoseconds on the runtime's clock.
pub(crate) fn clock() -> u64 {
    flowlane::precise_now().map_or(0, Time::as_nanos)
}

struct Flow {
    client: Endpoint,
    order: Order,
}

/// What to do after sending.
enum Next {
    /// More is due, or was held up.
    More,
    /// Nothing before this moment.
    At(u64),
    /// Nothing before an answer or a timeout.
    Answer,
    /// Nothing any more.
    Done,
}

/// The generator in one lane.
pub(crate) struct Lane {
    common: Arc<Common>,
    bucket: u16,
    socket: UdpSocket,
    flows: Vec<Flow>,
    /// The flow whose turn it is.
    turn: usize,
    payload: Vec<u8>,
    came: Vec<Datagram>,
    window: Window,
    counts: Counts,
    latency: Histogram<u64>,
    slip: Histogram<u64>,
    next_tick: u64,
    /// A sleep that is still to come, and until when.
    alarm: Option<(u64, Sleep)>,
}

impl Lane {
    /// The whole run.
    pub(crate) async fn run(common: Arc<Common>, bucket: u16) -> LaneOutcome {
        let mut outcome = LaneOutcome {
            bucket,
            flows: common.config.flows[usize::from(bucket)].len(),
            counts: Counts::default(),
            latency: histogram(),
            slip: histogram(),
            span: (u64::MAX, 0),
            failure: None,
        };
        let socket = match UdpSocket::bind(Bind { any_port: true, queue: Some(4096), ..Bind::default() }) {
            Ok(socket) => socket,
            Err(e) => {
                common.stop();
                outcome.failure = Some(e.to_string());
                return outcome;
            }
        };
        let mut lane = Self::new(common, bucket, socket);
        match lane.all().await {
            Ok(span) => outcome.span = span,
            Err(failure) => {
                lane.common.stop();
                outcome.failure = Some(failure);
            }
        }
        outcome.counts = lane.counts;
        outcome.latency = lane.latency;
        outcome.slip = lane.slip;
        outcome
    }

    fn new(common: Arc<Common>, bucket: u16, socket: UdpSocket) -> Self {
        let flow = |client: &Endpoint| Flow { client: *client, order: Order::default() };
        let window = match common.config.pace {
            Pace::Window(size) => size,
            Pace::Rate { .. } => 0,
        };
        Self {
            bucket,
            socket,
            flows: common.config.flows[usize::from(bucket)].iter().map(flow).collect(),
            turn: 0,
            payload: template(common.config.size),
            came: Vec::with_capacity(BURST),
            window: Window::new(window),
            counts: Counts::default(),
            latency: histogram(),
            slip: histogram(),
            next_tick: 0,
            alarm: None,
            common,
        }
    }

    async fn all(&mut self) -> Result<(u64, u64), String> {
        self.probe().await?;
        let Some(start) = self.common.gate.start_line().await else { return Ok((u64::MAX, 0)) };
        self.sleep_or_receive(start).await?;
        let end = start + self.common.config.duration.as_nanos() as u64;
        let stopped = match self.common.config.pace {
            Pace::Rate { per_second, poisson } => self.open_loop(start, end, per_second, poisson).await?,
            Pace::Window(_) => self.closed_loop(end).await?,
        };
        if !self.common.config.discard {
            self.drain().await?;
            self.counts.lost = self.counts.sent - self.counts.received;
        }
        self.publish();
        Ok((start, stopped))
    }

    /// Asks whether anybody answers; finds the next hop on the way.
    async fn probe(&mut self) -> Result<(), String> {
        let discard = self.common.config.discard;
        for _ in 0..PROBES {
            if self.common.stopped() {
                return Ok(());
            }
            let now = clock();
            match self.put(Header::PROBE, 0, 0, now) {
                Ok(true) => self.counts.probes += 1,
                Ok(false) => {}
                Err(e) => return Err(e),
            }
            let until = now + PROBE_EVERY.as_nanos() as u64;
            while clock() < until && self.counts.probes_answered == 0 && !self.common.stopped() {
                self.sleep_or_receive(until).await?;
                self.take(clock());
            }
            if self.counts.probes_answered > 0 || (discard && self.counts.probes > 1) {
                return Ok(());
            }
        }
        let target = self.common.config.target;
        Err(format!(
            "{target} does not answer ({PROBES} datagrams in {} s): is an echo running there, and its route back right?",
            PROBES / 10
        ))
    }

    /// Sends at the moments of the schedule. Returns when it stopped.
    async fn open_loop(&mut self, start: u64, end: u64, rate: u64, poisson: bool) -> Result<u64, String> {
        let mine = self.common.rates[usize::from(self.bucket)];
        if mine == 0 {
            return Ok(end);
        }
        // Lanes take turns instead of sending all at the same moments.
        let before = self.common.rates[..usize::from(self.bucket)].iter().filter(|r| **r > 0).count() as u64;
        let mut schedule = if poisson {
            Schedule::poisson(start, mine, self.common.config.seed ^ u64::from(self.bucket) << 48)
        } else {
            Schedule::constant(start + before * 1_000_000_000 / rate, mine)
        };
        loop {
            self.receive_now()?;
            let now = clock();
            self.tick(now);
            if now >= end + GRACE || self.common.stopped() {
                return Ok(self.give_up_schedule(schedule, now.min(end), now));
            }
            match self.send_due(&mut schedule, now, end)? {
                Next::Done => {
                    // The rest of the time belongs to the run.
                    self.wait_until(end).await?;
                    return Ok(end);
                }
                Next::At(moment) if moment > now + 2 * NEAR => self.sleep_or_receive(moment - NEAR).await?,
                Next::At(_) | Next::More | Next::Answer => flowlane::yield_now().await,
            }
        }
    }

    /// Sends what is due, at most a batch.
    fn send_due(&mut self, schedule: &mut Schedule, now: u64, end: u64) -> Result<Next, String> {
        let mut moments = [0; BATCH];
        let mut sent = 0;
        let next = loop {
            let due = schedule.peek();
            if due >= end {
                break Next::Done;
            }
            if due > now {
                break Next::At(due);
            }
            if sent == BATCH {
                break Next::More;
            }
            if !self.send(0, due)? {
                self.counts.held_up += 1;
                break Next::More;
            }
            schedule.advance();
            moments[sent] = due;
            sent += 1;
        };
        if sent > 0 {
            // After the batch, so that the figure is rather too large than too small.
            let after = clock();
            for moment in &moments[..sent] {
                self.slip.saturating_record(after.saturating_sub(*moment).max(1));
            }
        }
        Ok(next)
    }

    /// What was due and will not be sent: as late as can be said.
    fn give_up_schedule(&mut self, mut schedule: Schedule, end: u64, now: u64) -> u64 {
        while schedule.peek() < end {
            self.counts.unsent += 1;
            self.slip.saturating_record(now.saturating_sub(schedule.peek()).max(1));
            schedule.advance();
        }
        end
    }

    /// Keeps the window full. Returns when it stopped.
    async fn closed_loop(&mut self, end: u64) -> Result<u64, String> {
        loop {
            self.receive_now()?;
            let now = clock();
            self.tick(now);
            if now >= end || self.common.stopped() {
                return Ok(now);
            }
            match self.fill_window(now)? {
                Next::More => flowlane::yield_now().await,
                _ => self.sleep_or_receive(end.min(self.next_tick)).await?,
            }
        }
    }

    /// Sends while the window has room, at most a batch.
    fn fill_window(&mut self, now: u64) -> Result<Next, String> {
        for _ in 0..BATCH {
            let Some(slot) = self.window.peek() else { return Ok(Next::Answer) };
            let flow = self.turn;
            let sequence = self.flows[flow].order.next();
            if !self.send(slot, now)? {
                self.counts.held_up += 1;
                return Ok(Next::More);
            }
            self.window.take(flow as u32, sequence, now);
        }
        Ok(Next::More)
    }

    /// Waits for the answers on their way.
    async fn drain(&mut self) -> Result<(), String> {
        let timeout = self.common.config.timeout.as_nanos() as u64;
        let limit = clock() + timeout;
        while self.counts.received < self.counts.sent && clock() < limit {
            self.sleep_or_receive(limit).await?;
            self.take(clock());
        }
        let linger = (clock() + LINGER).min(limit.max(clock() + 1));
        self.wait_until(linger).await
    }

    /// Goes on receiving until then.
    async fn wait_until(&mut self, moment: u64) -> Result<(), String> {
        loop {
            let now = clock();
            self.take(now);
            if now >= moment || (self.common.stopped() && self.counts.received >= self.counts.sent) {
                return Ok(());
            }
            self.sleep_or_receive(moment).await?;
        }
    }

    /// Sends the next datagram of the flow whose turn it is; `false` when there is no room now.
    #[inline]
    fn send(&mut self, slot: u32, intended: u64) -> Result<bool, String> {
        let sequence = self.flows[self.turn].order.next();
        let sent = self.put(self.turn as u32, slot, sequence, intended)?;
        if sent {
            self.flows[self.turn].order.sent();
            self.counts.sent += 1;
            self.turn += 1;
            if self.turn == self.flows.len() {
                self.turn = 0;
            }
        }
        Ok(sent)
    }

    #[inline]
    fn put(&mut self, flow: u32, slot: u32, sequence: u64, intended: u64) -> Result<bool, String> {
        Header { run: self.common.run, flow, slot, sequence, intended }.write(&mut self.payload);
        let client = self.flows.get(flow as usize).unwrap_or(&self.flows[0]).client;
        match self.socket.try_send(&self.payload, Some(client), Some(self.common.config.target)) {
            Ok(()) => Ok(true),
            Err(SocketError::Send(SendError::Full | SendError::NoFrame)) => Ok(false),
            Err(e) => Err(format!("sending from {client} to {}: {e}", self.common.config.target)),
        }
    }

    /// Takes what came, without waiting.
    #[inline]
    fn receive_now(&mut self) -> Result<(), String> {
        // What a wait brought is there already.
        if self.came.is_empty() {
            self.socket.try_recv_batch(&mut self.came, BURST).map_err(|e| e.to_string())?;
        }
        if !self.came.is_empty() {
            self.take(clock());
        }
        Ok(())
    }

    /// Counts and times what came.
    fn take(&mut self, now: u64) {
        let mut came = std::mem::take(&mut self.came);
        for datagram in came.drain(..) {
            match Header::read(datagram.payload(), self.common.run, self.common.config.size) {
                Parsed::Ours(header) if header.flow == Header::PROBE => self.counts.probes_answered += 1,
                Parsed::Ours(header) => self.answer(&header, &datagram, now),
                Parsed::Corrupt => self.counts.corrupt += 1,
                Parsed::Stray => self.counts.strays += 1,
            }
        }
        self.came = came;
    }

    #[inline]
    fn answer(&mut self, header: &Header, datagram: &Datagram, now: u64) {
        let target = self.common.config.target;
        let flow = match self.flows.get_mut(header.flow as usize) {
            Some(flow) if flow.client == datagram.destination && target == datagram.source => flow,
            // Another lane's: it came here although its flow does not belong here.
            _ => {
                self.counts.strays += 1;
                return;
            }
        };
        match flow.order.came(header.sequence) {
            Arrival::Duplicate => {
                self.counts.duplicates += 1;
                return;
            }
            Arrival::NeverSent => {
                self.counts.corrupt += 1;
                return;
            }
            Arrival::OutOfOrder => self.counts.reordered += 1,
            Arrival::InOrder => {}
        }
        self.counts.received += 1;
        let latency = now.saturating_sub(header.intended).max(1);
        self.latency.saturating_record(latency);
        self.counts.late += u64::from(latency > self.common.config.timeout.as_nanos() as u64);
        self.window.answered(header.slot, header.flow, header.sequence);
    }

    /// Waits until something came, or until `moment`.
    async fn sleep_or_receive(&mut self, moment: u64) -> Result<(), String> {
        // Arming a sleep costs more than looking at one that is armed.
        let (_, sleep) = match &mut self.alarm {
            Some(alarm) if alarm.0 == moment => alarm,
            alarm => alarm.insert((moment, flowlane::sleep_until(Time::from_nanos(moment)))),
        };
        let (socket, came) = (&self.socket, &mut self.came);
        let slept = poll_fn(|cx| {
            if let Poll::Ready(received) = pin!(socket.recv_batch(came, BURST)).poll(cx) {
                return Poll::Ready(received.map(|_| false));
            }
            Pin::new(&mut *sleep).poll(cx).map(|()| Ok(true))
        })
        .await
        .map_err(|e| e.to_string())?;
        if slept {
            self.alarm = None;
        }
        Ok(())
    }

    /// What is done now and then.
    #[inline]
    fn tick(&mut self, now: u64) {
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.publish();
        self.window.give_up_before(now.saturating_sub(self.common.config.timeout.as_nanos() as u64));
    }

    fn publish(&self) {
        let progress = &self.common.progress[usize::from(self.bucket)];
        progress.sent.store(self.counts.sent, Ordering::Relaxed);
        progress.received.store(self.counts.received, Ordering::Relaxed);
    }
}
