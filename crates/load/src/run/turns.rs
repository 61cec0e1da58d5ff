//! What each lane of a generator has of a run, and whose turn is when: of a run that it makes alone, or of its part of one.
//!
//! Connections and flows are divided, and lanes that have any take turns by their numbers in the whole run. With ports chosen as connections are opened
//! that depends on the numbers alone. Where flows were chosen in advance, the lanes that have any differ from machine to machine: a part then has the turns
//! that its lanes would have, and the lanes that have flows share these.

use std::ops::Range;

use flowlane_stack::rng::Rng;

use super::changes::Unchanged;
use super::flows::Sources;
use super::gone::{Gone, dealt_anew};
use super::moments::Moments;
use super::part::{Part, even};
use super::timeline::Phase;

/// The lanes of a generator that have anything to do.
#[derive(Debug)]
pub(crate) struct Turns {
    part: Part,
    /// Connections or flows of each lane, by bucket; a lane without any does not take part.
    here: Vec<u64>,
    /// Flows of each lane, if they were chosen in advance.
    flows: Option<Vec<u64>>,
    /// Those of all generators.
    all: u64,
    /// Turns of all generators, those before this one's, and this one's.
    turns: [u64; 3],
}

impl Turns {
    /// Divides `amount` connections or flows of a run. `one_a_flow`: each flow that was chosen is one of them. `part`: what this generator makes, if
    /// others make the rest; flows were chosen for this part alone.
    pub(crate) fn new(sources: &Sources, amount: usize, one_a_flow: bool, part: Option<Part>) -> Self {
        let (lanes, amount) = (sources.lanes(), amount as u64);
        let of = part.unwrap_or(Part::whole(lanes));
        let here: Vec<u64> = match sources {
            Sources::Flows(flows) if one_a_flow => flows.iter().map(|f| f.len() as u64).collect(),
            Sources::Flows(_) => {
                let able: Vec<usize> = (0..lanes).filter(|lane| sources.serves(*lane)).collect();
                let (mine, mut here) = (of.share(amount, lanes), vec![0; lanes]);
                for (i, lane) in able.iter().enumerate() {
                    here[*lane] = even(mine, i, able.len());
                }
                here
            }
            Sources::Addresses { .. } => {
                (of.first..of.first + lanes).map(|lane| even(amount, lane, of.of)).collect()
            }
        };
        let all = if part.is_some() { amount } else { here.iter().sum() };
        // Guard: `all >= of.of as u64` as `true` fails run::turns::tests::parts_together
        let before = |lane: usize| if all >= of.of as u64 { lane as u64 } else { of.before(all, lane) };
        let (first, end) = (before(of.first), before(of.first + lanes));
        let flows = match sources {
            Sources::Flows(flows) => Some(flows.iter().map(|f| f.len() as u64).collect()),
            Sources::Addresses { .. } => None,
        };
        Self { part: of, here, flows, all, turns: [before(of.of), first, end - first] }
    }

    /// Lanes that take part.
    pub(crate) fn active(&self) -> usize {
        self.here.iter().filter(|n| **n > 0).count()
    }

    /// Whether a lane has anything to do.
    pub(crate) fn takes_part(&self, bucket: u16) -> bool {
        self.here.get(usize::from(bucket)).is_some_and(|n| *n > 0)
    }

    /// Connections or flows of a lane.
    pub(crate) fn of(&self, bucket: u16) -> u64 {
        self.here[usize::from(bucket)]
    }

    /// Those of all lanes, of this generator and the others.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Those of the lanes before one, of this generator and the others.
    pub(crate) fn before(&self, bucket: u16) -> u64 {
        // Guard: `self.part.before(self.all, self.part.first)` as `0` fails run::turns::tests::parts_together
        self.part.before(self.all, self.part.first) + self.before_here(bucket)
    }

    /// Those of the lanes before one, of this generator.
    pub(crate) fn before_here(&self, bucket: u16) -> u64 {
        self.here[..usize::from(bucket)].iter().sum()
    }

    /// The share of a lane in `n` connections of this generator, as numbers of them: lanes that take part have as many each, or, if each connection has a
    /// flow, as they have flows.
    pub(crate) fn among(&self, n: u64, bucket: u16, one_a_flow: bool) -> Range<u64> {
        let weights = self.weights(one_a_flow);
        let all = weights.iter().sum::<u64>().max(1);
        let at = |lane: usize| {
            (u128::from(weights[..lane].iter().sum::<u64>()) * u128::from(n) / u128::from(all)) as u64
        };
        at(usize::from(bucket))..at(usize::from(bucket) + 1)
    }

    /// The numbers of connections that a lane has of generators that are gone. Where each connection has a flow, it has no other.
    pub(crate) fn taken(&self, bucket: u16, gone: &[Gone], one_a_flow: bool) -> Vec<Range<u64>> {
        if !self.takes_over(one_a_flow) || !self.takes_part(bucket) {
            return Vec::new();
        }
        dealt_anew(self.all, self.part.of, self.part.lane(bucket), gone)
    }

    /// Whether lanes can have connections of others.
    pub(crate) fn takes_over(&self, one_a_flow: bool) -> bool {
        self.flows.is_none() || !one_a_flow
    }

    fn weights(&self, one_a_flow: bool) -> Vec<u64> {
        let flows = self.flows.as_ref().filter(|_| one_a_flow);
        let weight = |(lane, here): (usize, &u64)| match flows {
            _ if *here == 0 => 0,
            Some(flows) => flows[lane],
            None => 1,
        };
        self.here.iter().enumerate().map(weight).collect()
    }

    /// Whether there may be so many connections: each lane that takes part needs one, since it has a share of the schedule.
    pub(crate) fn may_have(&self, n: u32, one_a_flow: bool) -> Result<(), Unchanged> {
        let weights = self.weights(one_a_flow);
        let all: u64 = weights.iter().sum();
        if one_a_flow && self.flows.is_some() && u64::from(n) > all {
            return Err(Unchanged::FewFlows(all));
        }
        let least = weights.iter().filter(|weight| **weight > 0).min().copied().unwrap_or(1);
        let needed = u32::try_from(all.div_ceil(least)).unwrap_or(u32::MAX);
        // Guard: `n < needed` as `false` fails run::turns::tests::connections_are_dealt_out
        if n < needed { Err(Unchanged::FewConnections(needed)) } else { Ok(()) }
    }

    /// The number of a lane in the run.
    pub(crate) fn number(&self, bucket: u16) -> u16 {
        self.part.number(bucket)
    }

    /// Lanes of this generator before one that take part.
    fn nth(&self, bucket: u16) -> u64 {
        self.here[..usize::from(bucket)].iter().filter(|n| **n > 0).count() as u64
    }

    /// The share of `amount` that a lane has, as a range of it.
    pub(crate) fn slice(&self, amount: u64, bucket: u16) -> Range<u64> {
        let ([all, first, mine], active) = (self.turns, self.active().max(1) as u128);
        // In parts of a turn: lanes that take part share this generator's turns.
        let at = |nth: u64| {
            let turn = u128::from(first) * active + u128::from(nth) * u128::from(mine);
            (u128::from(amount) * turn / (u128::from(all.max(1)) * active)) as u64
        };
        at(self.nth(bucket))..at(self.nth(bucket) + 1)
    }

    /// The share of the load that a lane has, 0 to 1, and its place among the others, in shares of all.
    fn share(&self, bucket: u16) -> (f64, f64) {
        let ([all, first, mine], active) = (self.turns.map(|n| n as f64), self.active().max(1) as f64);
        let share = mine / (all.max(1.0) * active);
        let place = first * active / mine.max(1.0) + self.nth(bucket) as f64;
        (share, place * share)
    }

    /// The moments of a lane at `rate` a second over all lanes, by a Poisson process if there is a seed for it.
    pub(crate) fn moments(
        &self,
        bucket: u16,
        phases: &[Phase],
        (start, rate): (u64, f64),
        seed: Option<u64>,
    ) -> Moments {
        let (share, place) = self.share(bucket);
        // Guard: `self.number(bucket)` as `bucket` fails run::turns::tests::parts_together
        let rng = seed.map(|seed| Rng::new(seed ^ u64::from(self.number(bucket)) << 48));
        Moments::new(phases, start, rate, share, place, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::Endpoint;
    use std::time::Duration;

    fn addresses(lanes: usize) -> Sources {
        Sources::Addresses { clients: Vec::new(), lanes }
    }

    /// So many flows in each lane.
    fn flows(lanes: &[usize]) -> Sources {
        let flow = Endpoint::new("10.0.0.1".parse().unwrap(), 1);
        Sources::Flows(lanes.iter().map(|n| vec![flow; *n]).collect())
    }

    /// The moments of all lanes of a generator, in the first second.
    fn moments(turns: &Turns, lanes: usize, rate: f64, seed: Option<u64>) -> Vec<u64> {
        let phases = [Phase::hold(Duration::from_secs(1))];
        let mut all = Vec::new();
        for bucket in (0..lanes as u16).filter(|bucket| turns.takes_part(*bucket)) {
            let mut moments = turns.moments(bucket, &phases, (0, rate), seed);
            while let Some(moment) = moments.peek() {
                all.push(moment);
                moments.advance();
            }
        }
        all.sort_unstable();
        all
    }

    /// Generators of 2, 4 and 1 lanes.
    const PARTS: [(usize, usize); 3] = [(0, 2), (2, 4), (6, 1)];

    fn part(first: usize) -> Option<Part> {
        Some(Part { first, of: 7 })
    }

    /// Whatever is asked for, also of fewer connections than there are lanes, parts together are the whole, moment by moment.
    #[test]
    fn parts_together_are_the_whole_run() {
        for (amount, rate) in [(7, 700.0), (64, 1000.0), (1000, 333.0), (3, 100.0), (1, 50.0), (5, 997.0)] {
            for seed in [None, Some(9)] {
                let whole = Turns::new(&addresses(7), amount, false, None);
                assert_eq!(whole.all(), amount as u64);
                let (mut together, mut here, mut slices) = (Vec::new(), Vec::new(), Vec::new());
                for (first, lanes) in PARTS {
                    let turns = Turns::new(&addresses(lanes), amount, false, part(first));
                    together.extend(moments(&turns, lanes, rate, seed));
                    for bucket in 0..lanes as u16 {
                        let lane = first as u16 + bucket;
                        assert_eq!(turns.number(bucket), lane);
                        assert_eq!(turns.before(bucket), whole.before(lane), "{amount}, {lane}");
                        here.push(turns.of(bucket));
                        slices.extend(turns.takes_part(bucket).then(|| turns.slice(10_007, bucket)));
                    }
                }
                assert_eq!(here, whole.here, "{amount}");
                let whole = moments(&whole, 7, rate, seed);
                together.sort_unstable();
                assert_eq!(together.len(), whole.len(), "{amount} at {rate}");
                assert!(together.iter().zip(&whole).all(|(a, b)| a.abs_diff(*b) <= 1), "{amount} at {rate}");
                if seed.is_none() {
                    assert_eq!(whole.len(), rate as usize);
                }
                // Every item once.
                let ends = slices.windows(2).all(|two| two[0].end == two[1].start);
                assert!(ends && slices[0].start == 0 && slices.last().unwrap().end == 10_007, "{slices:?}");
            }
        }
    }

    /// Every lane that takes part has a connection, and those with flows no more than these.
    #[test]
    fn connections_are_dealt_out_anew() {
        let shares = |turns: &Turns, lanes: u16, n: u64, one_a_flow: bool| -> Vec<u64> {
            (0..lanes).map(|lane| turns.among(n, lane, one_a_flow)).map(|r| r.end - r.start).collect()
        };
        let turns = Turns::new(&addresses(4), 3, false, None);
        assert_eq!(shares(&turns, 4, 10, true), [0, 3, 3, 4]);
        assert_eq!(
            (turns.may_have(3, true), turns.may_have(2, true)),
            (Ok(()), Err(Unchanged::FewConnections(3)))
        );
        assert_eq!(turns.may_have(1_000_000, true), Ok(()));
        let turns = Turns::new(&flows(&[4, 0, 2, 2]), 8, true, None);
        for n in 4..=8 {
            let shares = shares(&turns, 4, n, true);
            assert_eq!(shares.iter().sum::<u64>(), n);
            let fit = shares
                .iter()
                .zip([4, 0, 2, 2])
                .all(|(share, flows)| *share <= flows && (*share > 0) == (flows > 0));
            assert!(fit && turns.may_have(n as u32, true).is_ok(), "{shares:?}");
        }
        assert_eq!(turns.may_have(9, true), Err(Unchanged::FewFlows(8)));
        assert_eq!(turns.may_have(3, true), Err(Unchanged::FewConnections(4)));
        // Flows that connections use in turn.
        assert_eq!((shares(&turns, 4, 30, false), turns.may_have(30, false)), (vec![10, 0, 10, 10], Ok(())));
    }

    /// On links of their own, lanes without flows leave their turns to the others of their generator.
    #[test]
    fn a_part_whose_lanes_have_no_flows_has_its_share_all_the_same() {
        let whole = Turns::new(&flows(&[3, 0, 2, 0]), 5, true, None);
        assert_eq!((whole.active(), whole.all(), moments(&whole, 4, 999.0, None).len()), (2, 5, 999));
        let one = Turns::new(&flows(&[0, 20]), 70, true, part(0));
        let other = Turns::new(&flows(&[10, 0, 30, 0]), 70, true, part(2));
        assert_eq!((one.before(1), other.before(0), other.before(2), other.all()), (0, 20, 30, 70));
        let sent = [moments(&one, 2, 7000.0, None).len(), moments(&other, 4, 7000.0, None).len()];
        assert_eq!(sent, [2000, 4000]);
        assert_eq!(
            (one.slice(700, 1), other.slice(700, 0), other.slice(700, 2)),
            (0..200, 200..400, 400..600)
        );
        // Connections of flows that are used in turn are divided among the lanes that have any.
        let turns = Turns::new(&flows(&[9, 0, 9, 9]), 70, false, part(2));
        assert_eq!(turns.here, [13, 0, 13, 14]);
    }
}
