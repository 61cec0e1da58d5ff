//! Sends bursts, and looks how much of each comes back, for the back-to-back benchmark (RFC 9004 §5).
//!
//! Between two bursts nothing is on its way: all of the last has come back, or nothing has for [`QUIET`]. Answers are told by their numbers, so a late one
//! of an earlier burst stands for none of this.

use std::time::Duration;

use super::Lane;
use crate::find::burst::{BurstSearch, Trial};
use crate::run::clock;
use crate::udp::bursts::Bursts;
use crate::udp::order::Arrival;
use crate::udp::payload::{Header, Parsed};

/// Datagrams sent before the worker does its other work.
const BATCH: u64 = 64;
/// Without an answer for so long, nothing more of a burst comes back, nanoseconds; less if `timeout` is.
const QUIET: u64 = Duration::from_millis(100).as_nanos() as u64;
/// Share of the asked rate, or of that of the bursts before, that a burst has to have, and what is overlooked of its time, nanoseconds.
const ASKED: f64 = 0.98;
const BEFORE: f64 = 0.8;
const OVERLOOKED: f64 = 100_000.0;
/// How often a burst is sent again that was too slow.
const MOST_SLOW: u32 = 50;

/// What came of a burst.
struct Burst {
    sent: u64,
    heard: u64,
    /// From before the first datagram to behind the last, nanoseconds.
    took: f64,
}

/// The rates of bursts.
#[derive(Default)]
struct Rates {
    /// Datagrams and time of all.
    sent: u64,
    took: f64,
    /// The same of this trial.
    of_trial: (u64, f64),
}

impl Rates {
    /// Whether a burst was sent more slowly than it was meant to be.
    fn is_slow(&self, burst: &Burst, asked: Option<f64>) -> bool {
        let before = (self.took > 0.0).then(|| BEFORE * self.sent as f64 / self.took * 1e9);
        let Some(least) = asked.map(|rate| ASKED * rate).or(before) else { return false };
        burst.took > burst.sent as f64 / least * 1e9 + OVERLOOKED
    }

    fn add(&mut self, burst: &Burst) {
        self.sent += burst.sent;
        self.took += burst.took;
        self.of_trial.0 += burst.sent;
        self.of_trial.1 += burst.took;
    }

    /// That of a trial, which is over.
    fn take(&mut self) -> f64 {
        let (sent, took) = std::mem::take(&mut self.of_trial);
        if took > 0.0 { (sent as f64 / took * 1e9).round() } else { 0.0 }
    }
}

impl Lane {
    /// Makes all trials, until `end` at the latest. Returns the time at which it stopped.
    pub(super) async fn bursts(&mut self, plan: &Bursts, end: u64) -> Result<u64, String> {
        let (mut rates, mut start) = (Rates::default(), None);
        for _ in 0..plan.trials {
            let Some(trial) = self.trial(plan, start, &mut rates, end).await? else { break };
            start = trial.longest;
            // Nobody wants to know any more.
            if plan.to.send(Some(trial)).is_err() || trial.too_slow {
                break;
            }
        }
        Ok(clock())
    }

    /// Makes a trial; `None` if it was ended before its own end.
    async fn trial(
        &mut self,
        plan: &Bursts,
        start: Option<u64>,
        rates: &mut Rates,
        end: u64,
    ) -> Result<Option<Trial>, String> {
        let mut search = BurstSearch::new(plan.between, plan.within, start);
        let (mut trial, mut slow) = (Trial::default(), 0);
        while let Some(length) = search.length() {
            let burst = self.burst(length, plan.rate).await?;
            let now = clock();
            self.tick(now);
            if now >= end || self.common.stopped() {
                return Ok(None);
            }
            trial.bursts += 1;
            if rates.is_slow(&burst, plan.rate) {
                trial.slow += 1;
                slow += 1;
                trial.too_slow = slow > MOST_SLOW && plan.rate.is_some();
                if trial.too_slow {
                    break;
                }
                // By what this machine does now, there may be no faster one.
                if slow <= MOST_SLOW {
                    continue;
                }
            }
            slow = 0;
            rates.add(&burst);
            search.tell(length, burst.heard == length);
        }
        (trial.longest, trial.fails_at) = search.bounds();
        trial.rate = rates.take();
        Ok(Some(trial))
    }

    /// Sends a burst, and waits for what comes back of it.
    async fn burst(&mut self, length: u64, rate: Option<f64>) -> Result<Burst, String> {
        let first = self.flows[0].order.next();
        let begun = clock();
        let (mut sent, mut heard) = (0, 0);
        while !self.common.stopped() {
            let now = clock();
            let due = rate.map_or(length, |rate| ((now - begun) as f64 * rate / 1e9) as u64 + 1);
            let most = due.min(length).min(sent + BATCH);
            while sent < most {
                let intended = rate.map_or(now, |rate| begun + (sent as f64 / rate * 1e9) as u64);
                if self.send(0, intended)?.is_none() {
                    break;
                }
                sent += 1;
            }
            let gone = self.flush()?;
            if gone && sent == length {
                break;
            }
            self.receive_bursts()?;
            heard += self.hear(first);
            flowlane::yield_now().await;
        }
        // Once the worker has handed them to its link.
        flowlane::yield_now().await;
        let took = (clock() - begun) as f64;
        let quiet = QUIET.min(self.common.config.timeout.as_nanos() as u64);
        self.receive_bursts()?;
        heard += self.hear(first);
        let mut until = clock() + quiet;
        while heard < sent && clock() < until && !self.common.stopped() {
            self.sleep_or_receive(until).await?;
            let more = self.hear(first);
            if more > 0 {
                heard += more;
                until = clock() + quiet;
            }
        }
        self.counts.lost += sent - heard;
        Ok(Burst { sent, heard, took })
    }

    /// Receives what there is, without waiting.
    fn receive_bursts(&mut self) -> Result<(), String> {
        if self.came.is_empty() {
            let heard = self.ports.receive(&mut self.came);
            self.heard(heard)?;
        }
        Ok(())
    }

    /// Counts the received datagrams that belong to the burst that began with number `first`.
    fn hear(&mut self, first: u64) -> u64 {
        let mut came = std::mem::take(&mut self.came);
        let mut heard = 0;
        for datagram in came.drain(..) {
            let (long, sizes) = (datagram.len(), &self.common.config.sizes);
            let read = Header::read(datagram.payload(), long, self.common.run, |flow, number| {
                sizes.of(flow, number)
            });
            let Parsed::Ours(header) = read else { continue };
            if header.flow != 0 || self.common.config.target != datagram.source {
                continue;
            }
            let arrival = self.flows[0].order.came(header.sequence);
            let new = matches!(arrival, Arrival::InOrder | Arrival::OutOfOrder);
            // Guard: `header.sequence >= first` as `true` fails cli/load_bursts::the_burst_that_a_known_queue
            if new && header.sequence >= first {
                heard += 1;
                self.counts.received += 1;
            }
        }
        self.came = came;
        heard
    }
}
