//! SYNs without connections, at times fixed in advance: [`Mode::Syn`](super::Mode::Syn) and [`Mode::HalfOpen`](super::Mode::HalfOpen).
//!
//! A SYN has no connection on our side, so a million half-open handshakes need little memory: a ring keeps the newest SYNs, the sequence
//! number of each gives its place in the ring, and the first answer to each counts. Further answers count as `repeats`, answers to SYNs
//! that are no longer in the ring as `strays`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use flowlane::{Endpoint, SynAnswer, TcpHalfOpen, Time};

use super::common::BATCH;
use super::lane::Lane;
use super::outcome::TcpCounts;
use crate::report::Sample;
use crate::run::flows::Sources;
use crate::run::outcome::LaneOutcome;
use crate::run::{GRACE, HURRY, NEAR, TICK, clock};

/// Least and largest size of the ring, SYNs.
const REMEMBERED: (u64, u64) = (1 << 10, 1 << 20);

/// A SYN that is remembered.
#[derive(Debug, Clone, Copy, Default)]
struct Syn {
    intended: u64,
    sent: u64,
    /// Nothing came yet.
    open: bool,
}

struct Sender {
    lane: Arc<Lane>,
    syns: TcpHalfOpen,
    flows: Vec<Endpoint>,
    target: Endpoint,
    /// The first sequence number.
    base: u32,
    /// SYNs sent.
    sent: u64,
    /// The youngest, by their number; its length is a power of two.
    ring: Vec<Syn>,
    /// SYNs remembered that nothing answered yet.
    open: u64,
    heard: Vec<SynAnswer>,
}

/// The whole run of one lane.
pub(super) async fn lane(lane: Arc<Lane>, bucket: u16) -> LaneOutcome<TcpCounts> {
    let config = &lane.common.config;
    let syns = match TcpHalfOpen::open(config.mode == super::Mode::HalfOpen) {
        Ok(syns) => syns,
        Err(e) => {
            lane.common.gate.stop();
            return LaneOutcome::none(Some(e.to_string()));
        }
    };
    let Sources::Flows(flows) = &config.sources else { return LaneOutcome::none(None) };
    let (rate, number) = (config.rate.unwrap_or(1), u64::from(lane.common.turns.number(bucket)));
    // What is sent until the timeout, twice over.
    let wanted = (rate as f64 * config.timeout.as_secs_f64() * 2.0) as u64;
    let remembered = wanted.clamp(REMEMBERED.0, REMEMBERED.1).next_power_of_two();
    let mut sender = Sender {
        flows: flows[usize::from(bucket)].clone(),
        target: config.target,
        base: (config.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u32,
        syns,
        sent: 0,
        ring: vec![Syn::default(); remembered as usize],
        open: 0,
        heard: Vec::new(),
        lane: lane.clone(),
    };
    match sender.run(bucket, rate).await {
        Ok(stopped) => {
            lane.publish(bucket);
            lane.outcome(stopped)
        }
        Err(failure) => {
            lane.common.gate.stop();
            LaneOutcome { failure: Some(failure), ..lane.outcome(clock()) }
        }
    }
}

impl Sender {
    async fn run(&mut self, bucket: u16, rate: u64) -> Result<u64, String> {
        let lane = self.lane.clone();
        let mut schedule = lane.common.moments(bucket, lane.start, rate);
        let mut told = 0;
        loop {
            let now = clock();
            if lane.common.gate.stopped() || now >= lane.end + GRACE {
                break;
            }
            if now >= told + TICK {
                told = now;
                lane.publish(bucket);
                schedule.follow(&lane.common.gate, now);
            }
            let due = match schedule.peek() {
                Some(due) => due,
                None if now >= lane.end => break,
                None => lane.end,
            };
            if due > now + 2 * NEAR {
                self.listen((due - NEAR).min(now + TICK)).await?;
                continue;
            }
            if due <= now {
                for _ in 0..BATCH {
                    let Some(due) = schedule.peek().filter(|due| *due <= now) else { break };
                    if !self.send_syn(due)? {
                        lane.inner().held_up(now);
                        break;
                    }
                    schedule.advance();
                }
            }
            flowlane::yield_now().await;
            self.listen(0).await?;
        }
        let stopped = clock().min(lane.end);
        schedule.pass(stopped + 1, u64::MAX, |due, n| lane.inner().unsent(due, stopped, n));
        // The rest of the time belongs to the run.
        while clock() < lane.end && !lane.common.gate.stopped() {
            self.listen(lane.end.min(clock() + TICK)).await?;
            lane.publish(bucket);
        }
        let stopped = clock().min(lane.end);
        let mut patience = clock() + lane.common.timeout;
        let mut hurries = false;
        while self.open > 0 && clock() < patience {
            if lane.common.gate.stopped() && !std::mem::replace(&mut hurries, true) {
                patience = patience.min(clock() + HURRY);
            }
            self.listen(patience.min(clock() + TICK)).await?;
        }
        for place in 0..self.ring.len() {
            if hurries && self.ring[place].open {
                self.ring[place].open = false;
                self.open -= 1;
                lane.inner().counts.unfinished += 1;
            }
            self.give_up(place);
        }
        Ok(stopped)
    }

    /// Sends the next SYN, which was due then; `false` when there is no room.
    fn send_syn(&mut self, due: u64) -> Result<bool, String> {
        let n = self.sent;
        let from = self.flows[(n % self.flows.len() as u64) as usize];
        let sequence = self.base.wrapping_add(n as u32);
        match self.syns.try_send_syn(from, self.target, sequence) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => return Err(e.to_string()),
        }
        let place = n as usize & (self.ring.len() - 1);
        self.give_up(place);
        let sent = clock();
        self.ring[place] = Syn { intended: due, sent, open: true };
        (self.sent, self.open) = (n + 1, self.open + 1);
        let mut inner = self.lane.inner();
        inner.counts.begun += 1;
        inner.sent(due, sent);
        Ok(true)
    }

    /// What stood at a place and was not answered is not waited for any more.
    fn give_up(&mut self, place: usize) {
        let syn = std::mem::take(&mut self.ring[place]);
        if syn.open {
            self.open -= 1;
            self.lane.inner().syn_unanswered(syn.intended, clock());
        }
    }

    /// Takes what was heard, and waits for more until then; with 0 it does not wait.
    async fn listen(&mut self, until: u64) -> Result<(), String> {
        let mut tick = pin!(flowlane::sleep_until(Time::from_nanos(until)));
        let (syns, heard) = (&self.syns, &mut self.heard);
        let missed = poll_fn(|cx| match syns.poll_heard(cx, heard) {
            Poll::Ready(missed) => Poll::Ready(missed),
            Poll::Pending if until == 0 => Poll::Ready(Ok(0)),
            Poll::Pending => tick.as_mut().poll(cx).map(|()| Ok(0)),
        })
        .await
        .map_err(|e| e.to_string())?;
        let now = clock();
        if missed > 0 {
            self.lane.inner().named(now, "missed", missed);
        }
        let mut heard = std::mem::take(&mut self.heard);
        for answer in heard.drain(..) {
            self.answer(&answer, now);
        }
        self.heard = heard;
        Ok(())
    }

    fn answer(&mut self, heard: &SynAnswer, now: u64) {
        // How many SYNs ago it was sent; the number wraps around every 4 thousand million.
        let after = u64::from(self.base.wrapping_add(self.sent as u32).wrapping_sub(heard.ack));
        let mut inner = self.lane.inner();
        if after >= self.sent.min(self.ring.len() as u64) {
            return inner.named(now, "strays", 1);
        }
        let n = self.sent - 1 - after;
        let from = self.flows[(n % self.flows.len() as u64) as usize];
        if heard.remote != self.target.into() || heard.local != from.into() {
            return inner.named(now, "strays", 1);
        }
        let place = n as usize & (self.ring.len() - 1);
        let syn = &mut self.ring[place];
        if !std::mem::replace(&mut syn.open, false) {
            return inner.named(now, "repeats", 1);
        }
        self.open -= 1;
        let sample = Sample { intended: syn.intended, sent: syn.sent, first_byte: now, done: now, code: 0 };
        inner.syn_answered(&sample, heard.refused);
    }
}
