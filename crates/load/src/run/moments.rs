//! The schedule of an open loop: send times fixed in advance by the phases, the rate and a seed.
//!
//! The rate is a piecewise linear function of time, so the number of requests due by time t, its integral, can be
//! inverted piece by piece: request number u is due at the t where the integral reaches u. Evenly spaced requests have
//! u = 1, 2, 3, ...; in a Poisson process u is a sum of exponential gaps. The schedule does not drift, and a ramp is exact.

use std::sync::Arc;

use flowlane_stack::rng::Rng;

use super::changes::{Bend, Changes};
use super::gate::Gate;
use super::shares::Dealt;
use super::timeline::Phase;

/// Groups in which the send times of a phase are passed over, if there are more of them.
const GROUPS: f64 = 16_384.0;

/// A piece of the schedule with a rate that changes linearly.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Start and length, seconds.
    begin: f64,
    length: f64,
    /// Rates at start and end, per second.
    from: f64,
    to: f64,
    /// The same as planned, if the load was not changed.
    planned: (f64, f64),
    /// Number of requests due before it.
    before: f64,
}

impl Piece {
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length
    }

    /// Its parts before and after a moment within it, seconds; of the latter, `before` is not known.
    fn cut(self, then: f64) -> (Self, Self) {
        let share = (then - self.begin) / self.length;
        let at = |(from, to): (f64, f64)| from + (to - from) * share;
        let (rate, planned) = (at((self.from, self.to)), at(self.planned));
        let head = Self { length: then - self.begin, to: rate, planned: (self.planned.0, planned), ..self };
        let length = self.begin + self.length - then;
        (head, Self { begin: then, length, from: rate, planned: (planned, self.planned.1), ..self })
    }

    /// When request `u` is due, seconds.
    fn moment(&self, u: f64) -> f64 {
        let n = u - self.before;
        let slope = (self.to - self.from) / self.length;
        // The root of slope/2 t^2 + from t = n, in the form that stays exact when the slope is next to nothing.
        let root = (self.from * self.from + 2.0 * slope * n).max(0.0).sqrt();
        let t = if n == 0.0 { 0.0 } else { 2.0 * n / (self.from + root) };
        self.begin + t.min(self.length)
    }
}

/// The send times of one lane in nanoseconds, in non-decreasing order.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    pieces: Vec<Piece>,
    piece: usize,
    start: u64,
    /// The value of the integral at the next request.
    u: f64,
    /// Requests of this lane so far, its share of all, and its offset among the lanes.
    n: u64,
    part: f64,
    offset: f64,
    /// From where they are counted, and the share at the beginning: the share grows when other generators are gone.
    base: f64,
    whole: f64,
    law: Law,
    /// Changes of the rate that were followed.
    bent: usize,
    next: Option<u64>,
}

/// What decides when requests are due.
#[derive(Debug, Clone)]
enum Law {
    Even,
    Poisson(Rng),
    /// Recorded times from the start on, of which the lane has some.
    Recorded(Arc<[u64]>, Dealt),
}

impl Moments {
    /// The schedule of a lane with the share `part` (0 to 1) of `rate` per second; `offset` (0 to 1) staggers the lanes.
    pub(crate) fn new(
        phases: &[Phase],
        start: u64,
        rate: f64,
        part: f64,
        offset: f64,
        poisson: Option<Rng>,
    ) -> Self {
        let (mut begin, mut before) = (0.0, 0.0);
        let mut pieces = Vec::with_capacity(phases.len());
        for phase in phases.iter().filter(|p| !p.duration.is_zero()) {
            let length = phase.duration.as_secs_f64();
            let (from, to) = (rate * phase.from, rate * phase.to);
            let piece = Piece { begin, length, from, to, planned: (from, to), before };
            begin += length;
            before += piece.requests();
            pieces.push(piece);
        }
        let (base, whole) = (0.0, part);
        let law = poisson.map_or(Law::Even, Law::Poisson);
        let mut moments = Self {
            pieces,
            piece: 0,
            start,
            u: 0.0,
            n: 0,
            part,
            offset,
            base,
            whole,
            law,
            bent: 0,
            next: None,
        };
        if part > 0.0 {
            moments.step();
        }
        moments
    }

    /// The schedule of a lane that has these of recorded times, nanoseconds from the start on, in non-decreasing order.
    pub(crate) fn recorded(due: Arc<[u64]>, dealt: Dealt, start: u64) -> Self {
        let law = Law::Recorded(due, dealt);
        let mut moments = Self {
            pieces: Vec::new(),
            piece: 0,
            start,
            u: 0.0,
            n: 0,
            part: 1.0,
            offset: 0.0,
            base: 0.0,
            whole: 1.0,
            law,
            bent: 0,
            next: None,
        };
        moments.step();
        moments
    }

    /// Whether the times were recorded, so that they stay as they are.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.law, Law::Recorded(..))
    }

    /// The number among all recorded times of the one before the next: the one that was taken last.
    pub(crate) fn taken(&self) -> u64 {
        match &self.law {
            Law::Recorded(_, dealt) => dealt.nth(self.n.saturating_sub(1)),
            Law::Even | Law::Poisson(_) => 0,
        }
    }

    /// The next send time; `None` when there are no more.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u64> {
        self.next
    }

    /// Advances to the following send time.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.n += 1;
        self.step();
    }

    /// After the next send time, the lane has its share `of` times for each `left`, if that is said.
    pub(crate) fn raise(&mut self, raised: Option<(u32, u32)>) {
        let Some((of, left)) = raised else { return };
        // Guard: `self.whole` as `self.part` fails moments::tests::a_lane_takes_the_share
        let part = self.whole * f64::from(of) / f64::from(left.max(1));
        if part != self.part {
            (self.base, self.n, self.offset, self.part) = (self.u, 0, 0.0, part);
        }
    }

    /// What lanes look at from time to time, and before they wait for longer than a [`TICK`](super::TICK): whether this part has another share of
    /// the rate, and whether the rate was changed.
    pub(crate) fn follow(&mut self, gate: &Gate, now: u64) {
        self.raise(gate.raised());
        // Guard: no `self.bend(&gate.changes, now);` fails cli/load_set::a_rate_is_changed
        self.bend(&gate.changes, now);
    }

    /// Changes the rate as was agreed since this was last asked.
    #[inline]
    pub(crate) fn bend(&mut self, changes: &Changes, now: u64) {
        if changes.count() == self.bent {
            return;
        }
        for Bend { at, factor } in changes.after(self.bent) {
            self.bent += 1;
            self.change(at, factor, now);
        }
    }

    /// From `at` on the planned rate is multiplied by `factor`: 0 is a pause. The lane has taken no time after `now`. If it took times after
    /// `at`, the change is as early as it can be without taking any twice.
    ///
    /// The value of the integral at the next request stays, so what has passed of a gap has passed, and none is lost or doubled. A
    /// recorded schedule stays as it is.
    pub(crate) fn change(&mut self, at: u64, factor: f64, now: u64) {
        if self.is_recorded() {
            return;
        }
        // Guard: `at.max(self.next.map_or(now, |next| now.min(next)))` as `at` fails run::changes
        let at = at.max(self.next.map_or(now, |next| now.min(next)));
        let then = at.saturating_sub(self.start) as f64 / 1e9;
        let mut pieces = Vec::with_capacity(self.pieces.len() + 1);
        let mut before = 0.0;
        for mut piece in self.pieces.drain(..) {
            piece.before = before;
            if piece.begin < then && then < piece.begin + piece.length {
                let (head, rest) = piece.cut(then);
                before += head.requests();
                pieces.push(head);
                piece = Piece { before, ..rest };
            }
            if piece.begin >= then {
                (piece.from, piece.to) = (piece.planned.0 * factor, piece.planned.1 * factor);
            }
            before += piece.requests();
            pieces.push(piece);
        }
        (self.pieces, self.piece) = (pieces, 0);
        if self.part > 0.0 {
            self.find();
        }
    }

    /// Passes over all send times before `limit`, at most `most` of them: `each` is given a time, and how many it stands for. Returns how
    /// many there were.
    ///
    /// Its time is bounded whatever the rate: what is many is passed in groups of neighbours, which lie in one phase and have the time of
    /// their middle. A Poisson process has its mean number of times within a group.
    pub(crate) fn pass(&mut self, limit: u64, most: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        let mut passed = 0;
        while let Some(moment) = self.next.filter(|m| *m < limit && passed < most) {
            let group = self.group(limit).min(most - passed);
            let middle = self.later((group - 1) / 2).unwrap_or(moment);
            each(middle, group);
            passed += group;
            self.u += (group - 1) as f64 / self.part;
            self.n += group;
            self.step();
        }
        passed
    }

    /// The size of the next group: a share of all in this phase, or fewer near its end or `limit`.
    fn group(&self, limit: u64) -> u64 {
        let all = self.pieces.get(self.piece).map_or(0.0, Piece::requests) * self.part;
        // Guard: `((all / GROUPS) as u64).max(1)` as `1` fails run::moments
        let mut group = ((all / GROUPS) as u64).max(1);
        // Guard: `self.later(group - 1).is_none_or(|last| last >= limit)` as `false` fails run::moments
        while group > 1 && self.later(group - 1).is_none_or(|last| last >= limit) {
            group /= 2;
        }
        group
    }

    /// The time that comes `n` after the next, if it is in the same phase.
    fn later(&self, n: u64) -> Option<u64> {
        let piece = self.pieces.get(self.piece)?;
        let u = self.u + n as f64 / self.part;
        (u < piece.before + piece.requests()).then(|| self.time(piece, u))
    }

    fn time(&self, piece: &Piece, u: f64) -> u64 {
        self.start + (piece.moment(u) * 1e9) as u64
    }

    fn step(&mut self) {
        match &mut self.law {
            Law::Even => self.u = self.base + (self.n as f64 + self.offset) / self.part,
            Law::Poisson(rng) => self.u += exponential(rng) / self.part,
            Law::Recorded(due, dealt) => {
                let number = usize::try_from(dealt.nth(self.n)).ok().filter(|_| dealt.has_any());
                self.next = number.and_then(|n| due.get(n)).map(|due| self.start + due);
                return;
            }
        }
        self.find();
    }

    /// The time of the next, in the piece where it was last or a later one.
    fn find(&mut self) {
        self.next = loop {
            let Some(piece) = self.pieces.get(self.piece) else { break None };
            if self.u < piece.before + piece.requests() {
                break Some(self.time(piece, self.u));
            }
            self.piece += 1;
        };
    }
}

/// A random number from the exponential distribution with mean 1.
pub(crate) fn exponential(rng: &mut Rng) -> f64 {
    // From (0, 1]: 53 bits, shifted by one so that zero cannot happen.
    -uniform(rng).ln()
}

/// A random number from (0, 1].
pub(crate) fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn phase(seconds: u64, from: f64, to: f64) -> Phase {
        Phase { name: String::new(), duration: Duration::from_secs(seconds), from, to, measured: true }
    }

    fn all(mut moments: Moments) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(moment) = moments.peek() {
            out.push(moment);
            moments.advance();
        }
        out
    }

    #[test]
    fn constant_is_even_and_exact() {
        let moments = all(Moments::new(&[phase(2, 1.0, 1.0)], 500, 1000.0, 1.0, 0.0, None));
        assert_eq!(moments.len(), 2000);
        for (n, moment) in moments.iter().enumerate() {
            assert!(moment.abs_diff(500 + n as u64 * 1_000_000) <= 1, "{n}: {moment}");
        }
    }

    #[test]
    fn lanes_together_are_even() {
        let mut moments = Vec::new();
        for lane in 0..4 {
            moments.extend(all(Moments::new(
                &[phase(1, 1.0, 1.0)],
                0,
                1000.0,
                0.25,
                f64::from(lane) / 4.0,
                None,
            )));
        }
        moments.sort_unstable();
        assert_eq!(moments.len(), 1000);
        assert!(moments.windows(2).all(|w| (w[1] - w[0]).abs_diff(1_000_000) <= 1));
    }

    /// From the next moment on the lane sends more, with the offset that it had, and once for each time that it is said.
    #[test]
    fn a_lane_takes_the_share_of_others() {
        let phases = [phase(1, 1.0, 1.0), phase(1, 0.5, 0.5)];
        let mut moments = Moments::new(&phases, 7, 1000.0, 0.1, 0.5, None);
        let mut sent = Vec::new();
        while let Some(moment) = moments.peek() {
            sent.push(moment);
            assert!(sent.len() < 1000, "said again, it is not done again");
            moments.raise((moment > 500_000_000).then_some((6, 3)));
            moments.raise((moment > 1_500_000_000).then_some((6, 1)));
            moments.advance();
        }
        let between = |from: u64, to: u64| sent.iter().filter(|m| (from..to).contains(*m)).count();
        // 100 a second, then 200, then at half the rate 100, then 300.
        let all = [
            between(0, 505_000_007),
            between(505_000_007, 1_000_000_007),
            between(1_000_000_007, 1_505_000_007),
        ];
        assert_eq!((all[0], all[1]), (50, 100), "{all:?}");
        assert!(all[2].abs_diff(50) <= 1 && between(1_505_000_007, u64::MAX).abs_diff(148) <= 2, "{sent:?}");
        assert!(sent.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn a_ramp_grows_evenly() {
        // From nothing to 1000 a second in 10 s: 5000 requests, a quarter of them in the first half.
        let moments = all(Moments::new(&[phase(10, 0.0, 1.0)], 0, 1000.0, 1.0, 0.0, None));
        assert_eq!(moments.len(), 5000);
        let half = moments.iter().filter(|m| **m < 5_000_000_000).count();
        assert!((1249..=1251).contains(&half), "{half}");
        assert!(moments.is_sorted());
        // Down to nothing again, by the mirror image.
        let down = all(Moments::new(&[phase(10, 1.0, 0.0)], 0, 1000.0, 1.0, 0.0, None));
        assert_eq!(down.len(), 5000);
        assert!(down.is_sorted());
        let half = down.iter().filter(|m| **m < 5_000_000_000).count();
        assert!((3749..=3751).contains(&half), "{half}");
    }

    #[test]
    fn phases_follow_each_other() {
        let phases = [phase(1, 0.5, 0.5), phase(0, 1.0, 1.0), phase(1, 0.0, 0.0), phase(1, 2.0, 2.0)];
        let moments = all(Moments::new(&phases, 0, 100.0, 1.0, 0.0, None));
        assert_eq!(moments.len(), 250);
        assert_eq!(moments.iter().filter(|m| (1_000_000_000..2_000_000_000).contains(*m)).count(), 0);
    }

    #[test]
    fn what_is_passed_over_is_what_would_have_come() {
        let phases = [phase(1, 0.0, 1.0), phase(1, 0.5, 0.5), phase(1, 1.0, 0.0)];
        for poisson in [None, Some(Rng::new(3))] {
            let mut moments = Moments::new(&phases, 7, 1000.0, 0.5, 0.5, poisson);
            let mut expected = all(moments.clone());
            let mut passed = Vec::new();
            let limit = 2_400_000_000;
            assert_eq!(moments.pass(limit, 10, |moment, n| passed.push((moment, n))), 10);
            assert_eq!(moments.peek(), Some(expected[10]));
            let n = moments.pass(limit, u64::MAX, |moment, n| passed.push((moment, n)));
            assert_eq!(all(moments), expected.split_off(10 + n as usize));
            assert!(expected.iter().all(|m| *m < limit));
            assert_eq!(passed, expected.into_iter().map(|m| (m, 1)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_thousand_million_a_second_are_passed_over_in_groups_of_one_phase() {
        let phases = [phase(20, 0.0, 1.0), phase(3600, 1.0, 1.0)];
        for poisson in [None, Some(Rng::new(3))] {
            let mut moments = Moments::new(&phases, 7, 1e9, 0.25, 0.0, poisson);
            let (mut groups, mut in_ramp, mut last) = (0, 0, 0);
            let n = moments.pass(2_020_000_000_007, u64::MAX, |moment, n| {
                assert!(moment >= last);
                (groups, last) = (groups + 1, moment);
                in_ramp += if moment < 20_000_000_007 { n } else { 0 };
                assert!(groups <= 3 * GROUPS as u64, "{groups}");
            });
            // A quarter of them all: ten thousand million in the ramp, and two million million after it.
            assert!(in_ramp.abs_diff(2_500_000_000) < 100_000, "{in_ramp}");
            assert!(n.abs_diff(502_500_000_000) < 100_000, "{n}");
        }
    }

    #[test]
    fn recorded_times_are_dealt_to_lanes_each_to_one() {
        let due: Arc<[u64]> = [0, 5, 5, 7, 100, 1000, 1001].into();
        let lane = |before, count| Moments::recorded(due.clone(), Dealt { before, count, all: 3 }, 10);
        let numbers = |mut moments: Moments| {
            let mut found = Vec::new();
            while let Some(moment) = moments.peek() {
                moments.advance();
                found.push((moments.taken(), moment));
            }
            found
        };
        assert_eq!(numbers(lane(0, 1)), [(0, 10), (3, 17), (6, 1011)]);
        assert_eq!(numbers(lane(1, 2)), [(1, 15), (2, 15), (4, 110), (5, 1010)]);
        assert_eq!(numbers(lane(0, 0)), []);
        let (mut left, mut passed) = (lane(1, 2), Vec::new());
        assert_eq!(left.pass(111, u64::MAX, |moment, n| passed.push((moment, n))), 3);
        assert_eq!((passed, left.peek()), (vec![(15, 1), (15, 1), (110, 1)], Some(1010)));
    }

    #[test]
    fn poisson_has_its_mean_and_variance_and_repeats() {
        let run =
            |seed| all(Moments::new(&[phase(10, 1.0, 1.0)], 0, 10_000.0, 0.5, 0.0, Some(Rng::new(seed))));
        let moments = run(1);
        let gaps: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((195_000.0..205_000.0).contains(&mean), "{mean}");
        assert!((0.97..1.03).contains(&(deviation / mean)), "{deviation}");
        assert_eq!(moments, run(1));
        assert_ne!(moments, run(2));
    }
}
