//! Policies on loads that are made here, with what they did: no clock, no threads.
//!
//! A worker serves what its lanes demand, one processor at most; the loads that a policy sees are what was served, with noise.

use flowlane_rss::Bucket;
use flowlane_stack::rng::Rng;

use super::{Even, LaneLoad, Observation, Pack, Policy};

/// Lanes with what each would take of a processor, and where each is.
struct Machine {
    workers: usize,
    demand: Vec<f64>,
    at: Vec<usize>,
    /// Standard deviation of a period's load, in parts of it.
    noise: f64,
    rng: Rng,
    moves: usize,
    rounds: usize,
    /// The round in which each lane moved last.
    moved: Vec<Option<usize>>,
}

impl Machine {
    /// Lanes are dealt out in turn.
    fn new(workers: usize, demand: Vec<f64>, seed: u64) -> Self {
        let at = (0..demand.len()).map(|lane| lane % workers).collect();
        let (rng, moved) = (Rng::new(seed), vec![None; demand.len()]);
        Self { workers, demand, at, noise: 0.1, rng, moves: 0, rounds: 0, moved }
    }

    /// What each worker is asked for, beyond one processor as well.
    fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.workers];
        for (demand, &at) in self.demand.iter().zip(&self.at) {
            loads[at] += demand;
        }
        loads
    }

    /// Load of the busiest in means.
    fn ratio(&self) -> f64 {
        let loads = self.loads();
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        loads.into_iter().fold(0.0, f64::max) / mean
    }

    fn uniform(&mut self) -> f64 {
        self.rng.next_u32() as f64 / f64::from(u32::MAX)
    }

    fn see(&mut self) -> Observation {
        let demand: Vec<f64> = (0..self.demand.len())
            .map(|lane| {
                // The sum of three uniform values has a variance of a quarter.
                let noise = (self.uniform() + self.uniform() + self.uniform() - 1.5) * 2.0;
                self.demand[lane] * (1.0 + self.noise * noise).max(0.0)
            })
            .collect();
        let mut asked = vec![0.0; self.workers];
        for (demand, &at) in demand.iter().zip(&self.at) {
            asked[at] += demand;
        }
        let lane = |lane: usize| LaneLoad {
            host: 0,
            bucket: Bucket(lane as u16),
            worker: self.at[lane],
            load: demand[lane] / asked[self.at[lane]].max(1.0),
        };
        Observation { workers: self.workers, lanes: (0..demand.len()).map(lane).collect() }
    }

    /// Plays so many rounds, and returns how many lanes moved.
    fn play(&mut self, policy: &mut dyn Policy, rounds: usize) -> usize {
        let before = self.moves;
        for _ in 0..rounds {
            let seen = self.see();
            self.rounds += 1;
            for step in policy.decide(&seen) {
                let last = self.moved[step.lane].replace(self.rounds);
                assert!(last.is_none_or(|last| self.rounds - last >= 4), "lane {} does not rest", step.lane);
                assert_ne!(self.at[step.lane], step.worker, "a lane is sent to where it is");
                self.at[step.lane] = step.worker;
                self.moves += 1;
            }
        }
        self.moves - before
    }
}

/// Loads that fall with rank as Zipf's do, in an order of their own, and come to `total`.
fn zipf(lanes: usize, total: f64, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut loads: Vec<f64> = (1..=lanes).map(|rank| 1.0 / rank as f64).collect();
    for i in (1..lanes).rev() {
        loads.swap(i, rng.next_u32() as usize % (i + 1));
    }
    let sum: f64 = loads.iter().sum();
    loads.into_iter().map(|load| load * total / sum).collect()
}

/// What the best assignment cannot be below: the hottest lane, and the mean.
fn least_ratio(demand: &[f64], workers: usize) -> f64 {
    let mean = demand.iter().sum::<f64>() / workers as f64;
    demand.iter().copied().fold(1.0, |most, load| f64::max(most, load / mean))
}

/// Nineteen of twenty are even after ten rounds, of which three are for watching, and all after thirty; a fifth is watched for long.
#[test]
fn skewed_loads_are_even_after_ten_rounds() {
    let mut late = Vec::new();
    for seed in 0..60 {
        for (workers, lanes) in [(2, 16), (2, 128), (4, 64), (4, 128), (8, 128)] {
            let demand = zipf(lanes, 0.8 * workers as f64, seed);
            let least = least_ratio(&demand, workers);
            let mut machine = Machine::new(workers, demand, seed);
            let mut policy = Even::default();
            machine.play(&mut policy, 10);
            if machine.ratio() / least > 1.1 {
                late.push((workers, lanes, seed, machine.ratio() / least));
            }
            machine.play(&mut policy, 20);
            assert!(machine.ratio() / least <= 1.1, "{workers} workers, seed {seed}: {}", machine.ratio());
            if seed % 5 == 0 {
                let moved = machine.play(&mut policy, 1000);
                assert!(
                    machine.ratio() / least <= 1.1,
                    "{workers} workers, seed {seed}: {}",
                    machine.ratio()
                );
                assert!(moved <= lanes / 4, "{workers} workers, seed {seed}: {moved} moves of the same load");
            }
        }
    }
    assert!(late.len() <= 15, "of 300 are above 1.1 after ten rounds: {late:?}");
}

#[test]
fn an_even_load_moves_nothing() {
    for seed in 0..20 {
        for noise in [0.05, 0.2, 0.5] {
            for (workers, lanes, total) in [(2, 16, 1.6), (4, 64, 2.0), (2, 2, 0.5)] {
                let demand = vec![total / lanes as f64; lanes];
                let mut machine = Machine::new(workers, demand, seed);
                machine.noise = noise;
                let moved = machine.play(&mut Even::default(), 600);
                assert!(moved == 0, "noise {noise}, {workers} workers, seed {seed}: {moved} moves");
            }
        }
    }
}

/// One lane is more than a worker's share: it gets a worker to itself, and then all is quiet.
#[test]
fn a_lane_too_hot_to_share_has_a_worker_to_itself() {
    for seed in 0..50 {
        for workers in [2, 4] {
            let mut demand = vec![0.02; 32];
            demand[9] = 0.9;
            let mut machine = Machine::new(workers, demand, seed);
            let mut policy = Even::default();
            machine.play(&mut policy, 40);
            let alone = (0..32).filter(|&lane| machine.at[lane] == machine.at[9]).count();
            assert_eq!(alone, 1, "{workers} workers, seed {seed}");
            assert_eq!(machine.play(&mut policy, 500), 0, "{workers} workers, seed {seed}");
        }
    }
}

/// The hot spot is elsewhere every sixty rounds.
#[test]
fn a_hot_spot_that_moves_is_followed() {
    for seed in 0..20 {
        let mut machine = Machine::new(4, vec![0.02; 64], seed);
        let mut policy = Even::default();
        for turn in 0..10 {
            machine.demand.fill(0.02);
            // All on one worker, whichever that is by now.
            let hot: Vec<usize> = (0..64).filter(|&lane| machine.at[lane] == turn % 4).take(8).collect();
            hot.iter().for_each(|&lane| machine.demand[lane] = 0.2);
            let before = machine.ratio();
            machine.play(&mut policy, 20);
            let after = machine.ratio();
            assert!(before > 1.5 && after <= 1.1, "seed {seed}, turn {turn}: {before:.2}, then {after:.2}");
            let moved = machine.play(&mut policy, 40);
            assert!(moved <= 8, "seed {seed}, turn {turn}: {moved} moves after it was even");
        }
    }
}

/// Few lanes, each a good part of a worker: exchanges are what helps.
#[test]
fn exchanges_help_where_single_steps_do_not() {
    let demand = vec![0.5, 0.3, 0.4, 0.2, 0.0, 0.0];
    let mut machine = Machine::new(2, demand, 1);
    machine.noise = 0.02;
    assert!(machine.ratio() > 1.25);
    assert_eq!(machine.play(&mut Even::default(), 10), 2);
    assert!(machine.ratio() < 1.01, "{:?}", machine.loads());
}

/// A worker that is asked for more than it can do shows no more than that. Steps uncover it.
#[test]
fn overload_is_uncovered_step_by_step() {
    for seed in 0..20 {
        let mut demand = vec![0.01; 64];
        for lane in 0..16 {
            demand[lane * 4] = 0.19;
        }
        let mut machine = Machine::new(4, demand, seed);
        assert!(machine.loads()[0] > 3.0);
        machine.play(&mut Even::default(), 30);
        assert!(machine.ratio() < 1.1, "seed {seed}: {:?}", machine.loads());
    }
}

#[test]
fn an_idle_machine_moves_nothing() {
    let mut machine = Machine::new(4, zipf(64, 0.1, 3), 3);
    assert_eq!(machine.play(&mut Even::default(), 1000), 0);
}

/// Few workers for a small load, all for a large one, and few again; a load in between does not make them come and go.
#[test]
fn pack_wakes_and_rests_workers() {
    for seed in 0..20 {
        let mut machine = Machine::new(4, vec![0.4 / 64.0; 64], seed);
        let mut policy = Pack::default();
        machine.play(&mut policy, 300);
        assert_eq!((policy.awake(), machine.loads()[1..].iter().sum::<f64>()), (1, 0.0), "seed {seed}");
        machine.demand.fill(2.2 / 64.0);
        machine.play(&mut policy, 30);
        assert_eq!(policy.awake(), 4, "seed {seed}");
        assert!(machine.ratio() < 1.2, "seed {seed}: {:?}", machine.loads());
        machine.demand.fill(0.4 / 64.0);
        machine.play(&mut policy, 15);
        assert_eq!(policy.awake(), 4, "seed {seed}: a worker sleeps at the first calm");
        machine.play(&mut policy, 285);
        assert_eq!(policy.awake(), 1, "seed {seed}");
        machine.demand.fill(0.9 / 64.0);
        machine.play(&mut policy, 100);
        let awake = policy.awake();
        assert_eq!(awake, 2, "seed {seed}");
        assert_eq!(machine.play(&mut policy, 500), 0, "seed {seed}: workers come and go");
        assert_eq!(policy.awake(), awake);
    }
}

/// A lane that comes, as one that was on its way does, and one that goes.
#[test]
fn lanes_may_come_and_go() {
    let mut policy = Even::default();
    let lane = |bucket, worker, load| LaneLoad { host: 0, bucket: Bucket(bucket), worker, load };
    assert!(policy.decide(&Observation::default()).is_empty());
    for round in 0..20 {
        let mut lanes = vec![lane(0, 0, 0.3), lane(1, 0, 0.3)];
        if round % 3 == 0 {
            lanes.remove(0);
        }
        let steps = policy.decide(&Observation { workers: 2, lanes: lanes.clone() });
        assert!(steps.iter().all(|step| step.lane < lanes.len() && step.worker == 1));
    }
}
