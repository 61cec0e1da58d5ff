//! When datagrams are sent: by a schedule (open loop), or by a window (closed loop).

use flowlane::impair::{Slots, common_clock};

use super::Lane;
use crate::run::moments::Moments;
use crate::run::{GRACE, NEAR, clock};

/// Datagrams sent before the worker does its other work.
const BATCH: usize = 64;

/// What to do after sending.
enum Next {
    /// More is due, or was held up.
    More,
    /// Nothing before this time.
    At(u64),
    /// Nothing before an answer or a timeout.
    Answer,
    /// Nothing more.
    Done,
}

/// For a datagram that is due: when it could be sent and what time it is, by the common clock; and by the lane's clock what time it is, and
/// when the slot opened that is open. An error is when the next one opens, by the lane's clock.
fn in_slot(slots: &Slots, due: u64) -> Result<((u64, u64), u64, u64), u64> {
    let (common, here) = (common_clock(), clock());
    let opens = slots.window(common).opens;
    if opens > common {
        return Err(here + (opens - common));
    }
    let ready = common.saturating_sub(here.saturating_sub(due));
    Ok(((ready, common), here, here.saturating_sub(common - opens)))
}

impl Lane {
    /// Sends by the schedule. Returns the time at which it stopped.
    pub(super) async fn open_loop(
        &mut self,
        start: u64,
        end: u64,
        rate: u64,
        poisson: bool,
    ) -> Result<u64, String> {
        let near = if self.common.config.exact || self.common.config.slots.is_some() { NEAR } else { 0 };
        let mut schedule = self.schedule(start, rate, poisson);
        loop {
            self.receive_now()?;
            let now = clock();
            if self.tick(now) {
                schedule.follow(&self.common.gate, now);
            }
            if now >= end + GRACE || self.common.stopped() {
                return Ok(self.give_up_schedule(schedule, now.min(end), now));
            }
            let next = self.send_due(&mut schedule, now, end)?;
            self.left_in_slots().await;
            match next {
                Next::Done if now >= end => return Ok(end),
                // An empty schedule still lasts until the end of the run, and may have something again.
                Next::Done => self.sleep_or_receive(end.min(self.next_tick)).await?,
                Next::At(moment) if moment > now + 2 * near => {
                    self.sleep_or_receive((moment - near).min(self.next_tick)).await?;
                }
                Next::At(_) | Next::More | Next::Answer => flowlane::yield_now().await,
            }
        }
    }

    /// This lane's schedule; lanes are staggered so that they do not send at the same time.
    fn schedule(&self, start: u64, rate: u64, poisson: bool) -> Moments {
        let config = &self.common.config;
        let (rate, seed) = (rate as f64 / f64::from(config.burst), poisson.then_some(config.seed));
        self.common.turns.moments(self.bucket, &config.phases, (start, rate), seed)
    }

    /// Sends what is due, at most a batch.
    fn send_due(&mut self, schedule: &mut Moments, now: u64, end: u64) -> Result<Next, String> {
        let mut moments = [(0, 0); BATCH];
        let mut sent = 0;
        if !self.flush()? {
            self.held_up(now);
            return Ok(Next::More);
        }
        let next = loop {
            let Some(due) = schedule.peek().filter(|due| *due < end) else { break Next::Done };
            if due > now {
                break Next::At(due);
            }
            if sent == BATCH {
                break Next::More;
            }
            let (intended, at) = match self.common.config.slots {
                None => (due, now),
                Some(slots) => match in_slot(&slots, due) {
                    Ok((turn, here, opened)) => {
                        self.slotted.push(turn);
                        (due.max(opened), here)
                    }
                    Err(opens) => break Next::At(opens),
                },
            };
            // The datagram carries its lateness, which the answer returns.
            let late = u32::try_from(at.saturating_sub(intended)).unwrap_or(u32::MAX);
            let Some(size) = self.send(late, intended)? else {
                self.held_up(now);
                if self.common.config.slots.is_some() {
                    self.slotted.pop();
                }
                break Next::More;
            };
            self.burst -= 1;
            if self.burst == 0 {
                self.burst = self.common.config.burst;
                schedule.advance();
            }
            moments[sent] = (intended, size);
            sent += 1;
        };
        let all = self.flush()?;
        if sent > 0 {
            // Read after the batch, so that the slip is over- rather than underestimated.
            let after = clock();
            for (moment, size) in &moments[..sent] {
                self.recorder.sent(*moment, after, *size);
            }
        }
        Ok(if all { next } else { Next::More })
    }

    /// Counts the datagrams of this turn by their slot, once the worker has handed them to its link.
    async fn left_in_slots(&mut self) {
        let Some(slots) = self.common.config.slots.filter(|_| !self.slotted.is_empty()) else { return };
        flowlane::yield_now().await;
        let done = common_clock();
        for (ready, begun) in self.slotted.drain(..) {
            self.edges.sent(&slots, ready, begun, done);
        }
    }

    /// Counts datagrams that were due and will not be sent, with their lateness so far.
    fn give_up_schedule(&mut self, mut schedule: Moments, end: u64, now: u64) -> u64 {
        let (recorder, burst) = (&mut self.recorder, u64::from(self.common.config.burst));
        // Of the burst that was begun, some have been sent.
        let mut begun = burst - u64::from(self.burst);
        let mut unsent = 0;
        schedule.pass(end, u64::MAX, |due, n| {
            let left = n * burst - std::mem::take(&mut begun);
            recorder.unsent(due, now, left);
            unsent += left;
        });
        self.counts.unsent += unsent;
        end
    }

    fn held_up(&mut self, now: u64) {
        self.counts.held_up += 1;
        self.recorder.tally(now).held_up += 1;
    }

    /// Keeps the window full. Returns the time at which it stopped.
    pub(super) async fn closed_loop(&mut self, end: u64) -> Result<u64, String> {
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
        let next = self.send_window(now)?;
        Ok(if self.flush()? { next } else { Next::More })
    }

    fn send_window(&mut self, now: u64) -> Result<Next, String> {
        for _ in 0..BATCH {
            let Some(slot) = self.window.peek() else { return Ok(Next::Answer) };
            let flow = self.turn;
            let sequence = self.flows[flow].order.next();
            let Some(size) = self.send(slot, now)? else {
                self.held_up(now);
                return Ok(Next::More);
            };
            self.recorder.sent(now, now, size);
            self.window.take(flow as u32, sequence, now);
        }
        Ok(Next::More)
    }
}
