//! A queue of L4S as routers have it: DualPI2 (RFC 9332), by the laws of its appendix A.
//!
//! Two queues share a link: one for ECT(1) and packets that are marked, which is to be short, and one for all others. Each packet of the first is
//! marked by how long it waited, or by how the second fares: by twice the likelihood of which the second's packets are dropped, or marked, by the
//! square. So a flow of either kind gets about the same.

use super::*;
use std::collections::VecDeque;

// The RFC's defaults (appendix A.1, for round trips up to 100 ms).
const TARGET_S: f64 = 0.015;
const UPDATE: Duration = Duration::from_millis(16);
const ALPHA_HZ: f64 = 0.16;
const BETA_HZ: f64 = 3.2;
const COUPLING: f64 = 2.0;
/// Beyond which the short queue's packets are marked now and then, and over which range more and more.
const LEAST_S: f64 = 0.0008;
const RANGE_S: f64 = 0.0004;
/// What waits longer than this finds no room.
const MOST: Duration = Duration::from_millis(250);
/// Of ten bytes one is the long queue's, however many wait in the other.
const WEIGHTS: [i64; 2] = [9, 1];

/// One packet that waits, whatever it is.
struct Waits<T> {
    since: Time,
    bytes: u64,
    ecn: u8,
    what: T,
}

/// One of the two queues.
struct Queue<T> {
    packets: VecDeque<Waits<T>>,
    bytes: u64,
    /// Likelihoods summed up: one packet is signalled for each whole one.
    sum: f64,
    /// How long those that left had waited, microseconds.
    waited: Vec<u32>,
    signalled: u64,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { packets: VecDeque::new(), bytes: 0, sum: 0.0, waited: Vec::new(), signalled: 0 }
    }

    fn waits_s(&self, now: Time) -> f64 {
        self.packets.front().map_or(0.0, |first| now.saturating_duration_since(first.since).as_secs_f64())
    }

    fn take(&mut self, packet: Waits<T>) {
        self.bytes += packet.bytes;
        self.packets.push_back(packet);
    }

    fn give(&mut self, now: Time) -> Option<Waits<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes;
        self.waited.push(now.saturating_duration_since(packet.since).as_micros() as u32);
        Some(packet)
    }

    /// Whether this packet is one of those (`recur` of appendix A.1).
    fn signals(&mut self, likelihood: f64) -> bool {
        self.sum += likelihood;
        let does = self.sum > 1.0;
        if does {
            self.sum -= 1.0;
            self.signalled += 1;
        }
        does
    }

    /// How long packets waited since this was asked last, microseconds: the middle one and the one in the hundred.
    fn waited(&mut self) -> (u32, u32) {
        let mut all = core::mem::take(&mut self.waited);
        all.sort_unstable();
        let part = |part: usize| all.get(all.len() * part / 100).copied().unwrap_or(0);
        (part(50), part(99))
    }
}

/// The link with both.
pub(super) struct DualPi2<T> {
    /// Bytes a second.
    rate: u64,
    /// Where queues are short, and the others.
    queues: [Queue<T>; 2],
    free_at: Time,
    /// p', and what it follows from.
    likelihood: f64,
    waited_s: f64,
    update_at: Time,
    /// How far the long queue is behind its weight.
    credit: i64,
}

impl<T> DualPi2<T> {
    /// The two queues, the short one first: how long packets waited that left since this was asked last, microseconds, the middle one and the one in the
    /// hundred, and how many packets were marked or dropped by its likelihood.
    pub(super) fn queues(&mut self) -> [((u32, u32), u64); 2] {
        [0, 1].map(|at| (self.queues[at].waited(), self.queues[at].signalled))
    }

    pub(super) fn new(rate: u64) -> Self {
        Self {
            rate,
            queues: [Queue::new(), Queue::new()],
            free_at: Time::ZERO,
            likelihood: 0.0,
            waited_s: 0.0,
            update_at: Time::ZERO,
            credit: 0,
        }
    }

    /// A packet comes; nothing is said of one that finds no room.
    pub(super) fn take(&mut self, now: Time, ecn: u8, bytes: u64, what: T) {
        let all = self.queues[0].bytes + self.queues[1].bytes;
        if all as f64 / self.rate as f64 > MOST.as_secs_f64() {
            return;
        }
        self.queues[usize::from(ecn & 1 == 0)].take(Waits { since: now, bytes, ecn, what });
    }

    /// When the next packet leaves, which is not before `now`.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        self.queues.iter().any(|queue| !queue.packets.is_empty()).then(|| self.free_at.max(now))
    }

    /// A packet that begins to leave by now: when the last of it has, what it is, and its ECN field.
    pub(super) fn give(&mut self, now: Time) -> Option<(Time, T, u8)> {
        while self.next(now)? <= now {
            self.update(now);
            let both = self.queues.iter().all(|queue| !queue.packets.is_empty());
            let long = if both { self.credit > 0 } else { self.queues[0].packets.is_empty() };
            let waits_s = self.queues[0].waits_s(now);
            let queue = &mut self.queues[usize::from(long)];
            let Some(mut packet) = queue.give(now) else { break };
            if both {
                self.credit += packet.bytes as i64 * if long { -WEIGHTS[0] } else { WEIGHTS[1] };
            }
            let likelihood = if long {
                self.likelihood * self.likelihood
            } else {
                ((waits_s - LEAST_S) / RANGE_S).max(COUPLING * self.likelihood).clamp(0.0, 1.0)
            };
            if queue.signals(likelihood) {
                if packet.ecn == 0 {
                    continue;
                }
                packet.ecn = 3;
            }
            self.free_at = now + Duration::from_nanos(packet.bytes * 1_000_000_000 / self.rate);
            return Some((self.free_at, packet.what, packet.ecn));
        }
        None
    }

    /// The likelihood follows from how long the long queue lets wait, and from how that changes.
    fn update(&mut self, now: Time) {
        while self.update_at <= now {
            let waits_s = self.queues[1].waits_s(now);
            self.likelihood += ALPHA_HZ * (waits_s - TARGET_S) + BETA_HZ * (waits_s - self.waited_s);
            self.likelihood = self.likelihood.clamp(0.0, 1.0 / COUPLING);
            self.waited_s = waits_s;
            self.update_at = if self.update_at == Time::ZERO { now } else { self.update_at } + UPDATE;
        }
    }
}
