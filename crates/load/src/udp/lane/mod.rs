//! The generator in one lane: one task, its own flows, schedule and recorder. On a link of ours all flows share one socket
//! that takes every port; on kernel sockets each flow has a connected socket of its own.
//!
//! Sending and receiving are one loop, so nothing is shared or locked: receive, send what is due, then wait for whichever is next. Due
//! datagrams are sent in batches of bounded size; between two batches the worker does its other work, mainly receiving. If there is no
//! room, the datagram keeps its intended time and is tried again in the next turn: the delay counts as lateness, not as loss.
//!
//! This module has the course of a run; [`pace`] has the schedule, [`answers`] has receiving.

mod answers;
mod bursts;
mod pace;
mod ports;
mod young;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use flowlane::impair::Edges;
use flowlane::{Datagram, Endpoint, Sleep, SocketError, Time, zone};
use flowlane_stack::packet::IcmpErrorKind;

use crate::report::{ErrorKind, Recorder, Span, Times};
use crate::run::door::Refusal;
use crate::run::outcome::{Counts, LaneOutcome};
use crate::run::{HURRY, TICK, UNFINISHED, clock, timeline};
use crate::udp::order::Order;
use crate::udp::payload::{Header, template};
use crate::udp::window::Window;
use crate::udp::{Common, Pace};
use ports::{BURST, Ports};
use young::Young;

/// Interval and number of probes before the run.
const PROBE_EVERY: Duration = Duration::from_millis(100);

const PROBES: u64 = 30;

/// Wait after the last answer, for duplicates, nanoseconds.
const LINGER: u64 = 10_000_000;

struct Flow {
    client: Endpoint,
    order: Order,
}

/// The generator in one lane.
pub(crate) struct Lane {
    common: Arc<Common>,
    bucket: u16,
    ports: Ports,
    flows: Vec<Flow>,
    /// The next flow to send from, and how many it has sent in a row.
    turn: usize,
    row: usize,
    payload: Vec<u8>,
    /// Datagrams of the present burst that are still to be sent.
    burst: u32,
    came: Vec<Datagram>,
    window: Window,
    counts: Counts,
    recorder: Recorder,
    /// Start of the measured part.
    measured: u64,
    next_tick: u64,
    /// The last ICMP error before the run.
    complaint: Option<IcmpErrorKind>,
    /// What was sent within the timeout.
    young: Young,
    /// How slots were kept; and of the datagrams of this turn, when each could be sent and when that was begun, by the common clock.
    edges: Edges,
    slotted: Vec<(u64, u64)>,
    /// The current sleep, and until when it lasts.
    alarm: Option<(u64, Sleep)>,
}

impl Lane {
    /// The whole run.
    pub(crate) async fn run(common: Arc<Common>, bucket: u16) -> LaneOutcome<Counts> {
        let mut lane = match Self::new(common.clone(), bucket) {
            Ok(lane) => lane,
            Err(failure) => {
                common.stop();
                return LaneOutcome::none(Some(failure));
            }
        };
        let (span, failure) = match lane.all().await {
            Ok(span) => (span, None),
            Err(failure) => {
                lane.common.stop();
                ((u64::MAX, 0), Some(failure))
            }
        };
        let record = lane.recorder.finish(clock()).with_first_bytes(Times::default());
        LaneOutcome { counts: lane.counts, record: Some(record), span, failure }
    }

    fn new(common: Arc<Common>, bucket: u16) -> Result<Self, String> {
        let window = match common.config.pace {
            Pace::Window(size) => size,
            Pace::Rate { .. } => 0,
        };
        let (ports, clients) = Ports::open(&common, bucket)?;
        let flow = |client| Flow { client, order: Order::default() };
        let flows = clients.len() as u64;
        Ok(Self {
            bucket,
            ports,
            flows: clients.into_iter().map(flow).collect(),
            turn: 0,
            row: 0,
            payload: template(common.config.sizes.ends().1),
            burst: common.config.burst,
            came: Vec::with_capacity(BURST),
            window: Window::new(window),
            counts: Counts::default(),
            // Replaced when the start time is known.
            recorder: Recorder::new(common.turns.number(bucket), 0, flows, Span::all(clock())),
            measured: 0,
            next_tick: 0,
            complaint: None,
            young: Young::default(),
            edges: Edges::default(),
            slotted: Vec::new(),
            alarm: None,
            common,
        })
    }

    async fn all(&mut self) -> Result<(u64, u64), String> {
        self.probe().await?;
        let Some(start) = self.common.gate.start_line().await else { return Ok((u64::MAX, 0)) };
        self.record_from(start);
        self.wait_until(start).await?;
        let end = start + timeline::duration(&self.common.config.phases).as_nanos() as u64;
        if let Some(plan) = self.common.config.bursts.clone() {
            let stopped = self.bursts(&plan, end).await?;
            self.publish(clock());
            return Ok((start, stopped));
        }
        let stopped = match self.common.config.pace {
            Pace::Rate { per_second, poisson } => self.open_loop(start, end, per_second, poisson).await?,
            Pace::Window(_) => self.closed_loop(end).await?,
        };
        if !self.common.config.discard {
            self.drain().await?;
            self.count_lost();
        }
        let (probes, measured) = (self.counts.probes, self.measured);
        self.recorder.tally(measured).named("probes", probes);
        if self.common.config.slots.is_some() {
            let kept = self.edges.counts();
            self.recorder.tally(measured).named("inside-slot", kept.inside);
            self.recorder.tally(measured).named("outside-slot", kept.outside);
            self.common.add_edges(&self.edges);
        }
        self.publish(clock());
        Ok((start, stopped))
    }

    /// Creates the recorder of the run.
    fn record_from(&mut self, start: u64) {
        let measured = timeline::measured(&self.common.config.phases, start);
        self.measured = measured.start;
        let (number, flows) = (self.common.turns.number(self.bucket), self.flows.len() as u64);
        let recorder = Recorder::new(number, 0, flows, Span::new(start, measured));
        self.recorder = match &self.common.config.snapshots {
            Some(to) => recorder.reporting_to(to.clone()),
            None => recorder,
        };
    }

    /// Counts datagrams that were never answered, in and outside the measured part.
    fn count_lost(&mut self) {
        self.counts.lost = self.counts.sent - self.counts.received;
        // What may still be answered when somebody ends the run is not lost.
        let timeout = self.common.config.timeout.as_nanos() as u64;
        let young = self.young.count(clock(), self.counts.sent, timeout);
        let mut young = if self.common.stopped() { young.min(self.counts.lost) } else { 0 };
        self.counts.lost -= young;
        for moment in [self.measured, 0] {
            let tally = self.recorder.tally(moment);
            // Where nothing is measured, both are the same.
            let lost = (tally.sent - tally.answered).saturating_sub(tally.errors_of(ErrorKind::Lost));
            let unfinished = young.min(lost);
            young -= unfinished;
            if unfinished > 0 {
                tally.named(UNFINISHED, unfinished);
            }
            tally.errors(ErrorKind::Lost, lost - unfinished);
        }
    }

    /// Checks that the target answers; also resolves the next hop.
    async fn probe(&mut self) -> Result<(), String> {
        let discard = self.common.config.discard;
        for _ in 0..PROBES {
            if self.common.stopped() {
                return Ok(());
            }
            let now = clock();
            match self.put(Header::PROBE, 0, 0, now) {
                Ok(true) => {
                    self.counts.probes += 1;
                    self.flush()?;
                }
                Ok(false) => {}
                Err(e) => return Err(e),
            }
            let until = now + PROBE_EVERY.as_nanos() as u64;
            while clock() < until && self.counts.probes_answered == 0 && !self.common.stopped() {
                self.sleep_or_receive(until).await?;
                self.take(clock());
                self.is_refused()?;
            }
            if self.counts.probes_answered > 0 || (discard && self.counts.probes > 1) {
                return Ok(());
            }
        }
        let target = zone::show(self.common.config.target.into());
        if self.complaint.is_some() {
            return Err(format!("{target} cannot be reached"));
        }
        Err(format!(
            "{target} does not answer ({PROBES} datagrams in {} s): is an echo running there, and its route back right?",
            PROBES / 10
        ))
    }

    /// Fails if the target said that no service has this port: one failure of the run, however many lanes hear of it.
    fn is_refused(&mut self) -> Result<(), String> {
        if self.complaint != Some(IcmpErrorKind::PortUnreachable) || self.counts.probes_answered > 0 {
            return Ok(());
        }
        let target = self.common.config.target;
        if self.common.gate.door.refuses() == Refusal::First {
            let now = clock();
            self.recorder.error(now, now, ErrorKind::Refused, || format!("{target}: port unreachable"));
        }
        Err(format!("nothing listens at {target}: the port is unreachable"))
    }

    /// Waits for outstanding answers.
    async fn drain(&mut self) -> Result<(), String> {
        let timeout = self.common.config.timeout.as_nanos() as u64;
        let mut limit = clock() + timeout;
        let mut hurries = false;
        while self.counts.received < self.counts.sent && clock() < limit {
            // Guard: `self.common.stopped()` as `false` fails cli/ends::a_run_whose_peer_is_silent
            if self.common.stopped() && !std::mem::replace(&mut hurries, true) {
                limit = limit.min(clock() + HURRY);
            }
            self.sleep_or_receive(limit.min(clock() + TICK)).await?;
            self.take(clock());
        }
        let linger = (clock() + LINGER).min(limit.max(clock() + 1));
        self.wait_until(linger).await
    }

    /// Receives until `moment`.
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

    /// Sends the next datagram of the next flow, and returns its size in bytes; `None` if there is no room now.
    #[inline]
    fn send(&mut self, slot: u32, intended: u64) -> Result<Option<u64>, String> {
        let sequence = self.flows[self.turn].order.next();
        let size = self.common.config.sizes.of(self.turn as u32, sequence) as u64;
        let sent = self.put(self.turn as u32, slot, sequence, intended)?;
        if sent {
            self.flows[self.turn].order.sent();
            self.counts.sent += 1;
            self.row += 1;
            if self.row >= self.ports.run() {
                self.next_flow();
            }
        }
        Ok(sent.then_some(size))
    }

    #[inline]
    fn next_flow(&mut self) {
        self.row = 0;
        self.turn += 1;
        if self.turn == self.flows.len() {
            self.turn = 0;
        }
    }

    /// Sends what is held to be sent together; `false` if there is no room now.
    #[inline]
    fn flush(&mut self) -> Result<bool, String> {
        if self.row > 0 {
            self.next_flow();
        }
        let mut sent = self.ports.flush();
        if let Err(SocketError::Network(kind)) = sent {
            self.complain(kind);
            sent = self.ports.flush();
        }
        match sent {
            Err(SocketError::Network(_)) => Ok(false),
            sent => {
                sent.map_err(|e| format!("sending to {}: {e}", zone::show(self.common.config.target.into())))
            }
        }
    }

    #[inline]
    fn put(&mut self, flow: u32, slot: u32, sequence: u64, intended: u64) -> Result<bool, String> {
        let size = self.common.config.sizes.of(flow, sequence);
        let payload = &mut self.payload[..size];
        Header { run: self.common.run, flow, slot, sequence, intended }.write(payload);
        let at = if (flow as usize) < self.flows.len() { flow as usize } else { 0 };
        let (client, target) = (self.flows[at].client, self.common.config.target);
        let mut sent = self.ports.send(at, client, target, &self.payload[..size]);
        // An ICMP error for an earlier datagram is returned for this one, once.
        if let Err(SocketError::Network(kind)) = sent {
            self.complain(kind);
            sent = self.ports.send(at, client, target, &self.payload[..size]);
        }
        match sent {
            Err(SocketError::Network(_)) => Ok(false),
            sent => sent.map_err(|e| format!("sending from {client} to {}: {e}", zone::show(target.into()))),
        }
    }

    /// Waits until a datagram arrives, or until `moment`.
    async fn sleep_or_receive(&mut self, moment: u64) -> Result<(), String> {
        // Setting a new sleep costs more than polling the current one.
        let (_, sleep) = match &mut self.alarm {
            Some(alarm) if alarm.0 == moment => alarm,
            alarm => alarm.insert((moment, flowlane::sleep_until(Time::from_nanos(moment)))),
        };
        let (ports, came) = (&self.ports, &mut self.came);
        let woken = poll_fn(|cx| match ports.poll_receive(cx, came) {
            Poll::Ready(received) => Poll::Ready(Some(received)),
            Poll::Pending => Pin::new(&mut *sleep).poll(cx).map(|()| None),
        })
        .await;
        let slept = woken.is_none();
        if let Some(heard) = woken {
            self.heard(heard)?;
        }
        if slept {
            self.alarm = None;
        }
        Ok(())
    }

    /// Slow work, at every tick; whether it was one.
    #[inline]
    fn tick(&mut self, now: u64) -> bool {
        if now < self.next_tick {
            return false;
        }
        self.next_tick = now + TICK;
        self.publish(now);
        let timeout = self.common.config.timeout.as_nanos() as u64;
        self.young.note(now, self.counts.sent, timeout);
        self.window.give_up_before(now.saturating_sub(timeout));
        true
    }

    fn publish(&mut self, now: u64) {
        let on_their_way = self.counts.sent - self.counts.received;
        self.recorder.concurrency(now, if self.common.config.discard { 0 } else { on_their_way });
        self.recorder.tick(now);
        let progress = &self.common.progress[usize::from(self.bucket)];
        progress.sent.store(self.counts.sent, Ordering::Relaxed);
        progress.received.store(self.counts.received, Ordering::Relaxed);
    }
}
