//! Changes of a load while it runs: agreed ahead, so that all lanes change at one moment.
//!
//! Who asks is told a moment that is [`LEAD`] away. Lanes look at their ticks whether something new was agreed, which costs them one
//! relaxed load, and bend their schedule at that moment ([`Moments::change`](super::moments::Moments::change)), which is still ahead of
//! them. A lane that was held up for longer than that, within one turn, changes as soon as it looks: what it sent meanwhile is not sent
//! again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{TICK, clock};

/// How far ahead a change is agreed, nanoseconds: lanes look every tick.
pub(crate) const LEAD: u64 = 4 * TICK;

/// Changes of a run, at most.
const MOST: usize = 4096;
/// Connections that may be asked for.
const MOST_CONNECTIONS: u32 = 1_000_000;

/// What is to change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// The nominal rate, per second; phases have their shares of it. Of a load that is paused: once it is resumed.
    Rate(f64),
    /// From then on nothing is due.
    Pause,
    /// From then on there is the rate again.
    Resume,
    /// From then on so many connections: others are opened, or those that have their answer are closed.
    Connections(u32),
}

/// A change that was agreed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Changed {
    /// What.
    pub change: Change,
    /// When it takes effect, from the start of the run on.
    pub at: Duration,
    /// The nominal rate from then on, per second, if it is not paused.
    pub rate: f64,
    /// Whether it is paused from then on.
    pub paused: bool,
}

impl std::fmt::Display for Changed {
    /// The moment, and what is from then on.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {:.3} s: ", self.at.as_secs_f64())?;
        match (self.change, self.paused) {
            (Change::Pause, _) => write!(f, "paused"),
            (Change::Connections(n), _) => write!(f, "{n} connections"),
            (Change::Resume, _) => write!(f, "resumed at {}/s", self.rate),
            (Change::Rate(_), true) => write!(f, "rate {}/s once it is resumed", self.rate),
            (Change::Rate(_), false) => write!(f, "rate {}/s", self.rate),
        }
    }
}

/// Why a load is not changed: one line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unchanged {
    /// Requests follow answers.
    #[error("this load has no rate: it is a closed loop, in which requests follow answers")]
    Closed,
    /// There are several rates.
    #[error("this load has several pools, each with its own rate: it can be paused and resumed, as a whole")]
    SeveralPools,
    /// Times were recorded.
    #[error("this load replays recorded times, which are not changed while it runs")]
    Recorded,
    /// It is of another kind.
    #[error(
        "connections of this load cannot be changed while it runs: it has none that stay or come and go, or several pools"
    )]
    OtherConnections,
    /// Each lane has its share of the schedule.
    #[error("connections: at least {0}, one for each lane that takes part")]
    FewConnections(u32),
    /// Each connection has a flow.
    #[error("connections: at most {0}, since addresses and ports of each were chosen before the run")]
    FewFlows(u64),
    /// No such number.
    #[error("connections: from 1 to a million")]
    BadConnections,
    /// Others make the rest of it.
    #[error("this load is a part of a run of several agents, which is not changed while it runs")]
    Part,
    /// It has not begun.
    #[error("the load has not begun: it still opens connections")]
    NotBegun,
    /// It ends before the change would take effect.
    #[error("the load is ending: a change takes {} ms", LEAD / 1_000_000)]
    Ending,
    /// Nothing to do.
    #[error("the load is paused already")]
    PausedAlready,
    /// Nothing to do.
    #[error("the load is not paused")]
    NotPaused,
    /// No such rate.
    #[error("rate: above 0, and at most a thousand million a second; 'pause' is how nothing is sent")]
    BadRate,
    /// Somebody does not stop.
    #[error("the load was changed {} times already", MOST)]
    TooMany,
}

/// What lanes do at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bend {
    /// When, nanoseconds on the runtime's clock.
    pub(crate) at: u64,
    /// By what the rates of the plan are multiplied from then on; 0 for a pause.
    pub(crate) factor: f64,
}

/// All that was agreed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// How many bends there are.
    count: AtomicUsize,
    /// How often the number of connections was changed.
    resized: AtomicUsize,
    agreed: Mutex<Agreed>,
    /// The time on both clocks, of a lane that has both.
    clocks: OnceLock<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Agreed {
    bends: Vec<Bend>,
    /// Numbers of connections, and from when on, nanoseconds on the runtime's clock.
    sizes: Vec<(u64, u32)>,
    told: Vec<Changed>,
}

/// The span of a run on the runtime's clock, nanoseconds, and the rate of its plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Per second; 0 if pools have different ones.
    pub(crate) rate: f64,
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane that begins tells which time it is.
    pub(crate) fn begin(&self) {
        self.clocks.get_or_init(|| (Instant::now(), clock()));
    }

    /// The time on the runtime's clock, for a thread that has it not; `None` before a lane has begun.
    pub(crate) fn now(&self) -> Option<u64> {
        self.clocks.get().map(|(there, here)| here + there.elapsed().as_nanos() as u64)
    }

    /// Agrees on a change that is asked for at `now`.
    pub(crate) fn agree(&self, change: Change, now: u64, course: Course) -> Result<Changed, Unchanged> {
        let mut agreed = self.lock();
        let last = agreed.told.last().copied();
        let (mut rate, mut paused) = last.map_or((course.rate, false), |last| (last.rate, last.paused));
        match change {
            Change::Rate(wanted) if wanted > 0.0 && wanted <= 1e9 => rate = wanted,
            Change::Rate(_) => return Err(Unchanged::BadRate),
            Change::Pause if paused => return Err(Unchanged::PausedAlready),
            Change::Resume if !paused => return Err(Unchanged::NotPaused),
            Change::Pause => paused = true,
            Change::Resume => paused = false,
            Change::Connections(1..=MOST_CONNECTIONS) => {}
            Change::Connections(_) => return Err(Unchanged::BadConnections),
        }
        // A change never comes before one that was asked for earlier, nor before the start.
        let earliest = last.map_or(course.start, |last| course.start + last.at.as_nanos() as u64);
        let at = (now + LEAD).max(earliest);
        // Guard: `at >= course.end` as `false` fails run::changes
        if at >= course.end {
            return Err(Unchanged::Ending);
        }
        if agreed.told.len() >= MOST {
            return Err(Unchanged::TooMany);
        }
        let told = Changed { change, at: Duration::from_nanos(at - course.start), rate, paused };
        agreed.told.push(told);
        if let Change::Connections(n) = change {
            agreed.sizes.push((at, n));
            self.resized.store(agreed.sizes.len(), Ordering::Release);
            return Ok(told);
        }
        let factor = match paused {
            true => 0.0,
            false if course.rate > 0.0 => rate / course.rate,
            false => 1.0,
        };
        agreed.bends.push(Bend { at, factor });
        self.count.store(agreed.bends.len(), Ordering::Release);
        Ok(told)
    }

    /// How many bends there are; a lane that has seen as many has nothing to do.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The bends after the first `seen`.
    pub(crate) fn after(&self, seen: usize) -> Vec<Bend> {
        self.lock().bends.get(seen..).unwrap_or_default().to_vec()
    }

    /// How many connections there are to be at `now`, if that was changed after the first `seen` times, and how often it was.
    pub(crate) fn size(&self, seen: usize, now: u64) -> Option<(usize, u32)> {
        let sizes = self.sizes_after(seen);
        let came = sizes.iter().take_while(|(at, _)| *at <= now).count();
        (came > 0).then(|| (seen + came, sizes[came - 1].1))
    }

    /// The numbers of connections that were agreed after the first `seen`, and from when on, which may be still to come.
    pub(crate) fn sizes_after(&self, seen: usize) -> Vec<(u64, u32)> {
        if self.resized.load(Ordering::Relaxed) == seen {
            return Vec::new();
        }
        self.lock().sizes.get(seen..).unwrap_or_default().to_vec()
    }

    /// What took effect in the first `elapsed` of the run.
    pub(crate) fn within(&self, elapsed: Duration) -> Vec<Changed> {
        self.lock().told.iter().filter(|told| told.at <= elapsed).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::moments::Moments;
    use crate::run::timeline::Phase;
    use flowlane_stack::rng::Rng;

    const S: u64 = 1_000_000_000;
    const START: u64 = 7;
    const COURSE: Course = Course { start: START, end: START + 10 * S, rate: 1000.0 };

    fn lanes(phases: &[Phase], poisson: bool) -> Vec<Moments> {
        let lane = |n: u64| {
            let rng = poisson.then(|| Rng::new(n));
            Moments::new(phases, START, 1000.0, 0.25, n as f64 / 4.0, rng)
        };
        (0..4).map(lane).collect()
    }

    /// Lanes that look every 50 ms, each at moments of its own, and take what is due; changes are asked for at these moments.
    fn play(mut lanes: Vec<Moments>, asked: &[(u64, Change)]) -> (Vec<u64>, Vec<Changed>) {
        let (changes, mut sent, mut told) = (Changes::default(), Vec::new(), Vec::new());
        let (mut seen, mut asked) = (vec![0; lanes.len()], asked.iter().peekable());
        for now in (START..=COURSE.end).step_by(1_000_000) {
            while let Some((_, change)) = asked.next_if(|(at, _)| START + at <= now) {
                told.push(changes.agree(*change, now, COURSE).unwrap());
            }
            for (n, lane) in lanes.iter_mut().enumerate() {
                if (now / 1_000_000 + 13 * n as u64).is_multiple_of(50) {
                    for bend in changes.after(seen[n]) {
                        lane.change(bend.at, bend.factor, now);
                        seen[n] += 1;
                    }
                }
                while let Some(due) = lane.peek().filter(|due| *due <= now) {
                    sent.push(due);
                    lane.advance();
                }
            }
        }
        sent.sort_unstable();
        (sent, told)
    }

    fn between(sent: &[u64], from: u64, to: u64) -> usize {
        sent.iter().filter(|due| (START + from..START + to).contains(*due)).count()
    }

    fn hold() -> [Phase; 1] {
        [Phase::hold(Duration::from_secs(10))]
    }

    #[test]
    fn the_rate_changes_in_all_lanes_at_one_moment_and_no_request_is_lost_or_doubled() {
        let (sent, told) =
            play(lanes(&hold(), false), &[(2 * S, Change::Rate(4000.0)), (5 * S, Change::Rate(500.0))]);
        let (one, two) = (2 * S + LEAD, 5 * S + LEAD);
        assert_eq!(told.iter().map(|t| t.at.as_nanos() as u64).collect::<Vec<_>>(), [one, two]);
        let counts = [between(&sent, 0, one), between(&sent, one, two), between(&sent, two, 10 * S)];
        assert_eq!(counts, [2200, 12_000, 2400]);
        // Evenly spaced all along, over all lanes: what is left of a gap has its length at the new rate.
        for pair in sent.windows(2) {
            let gap = match pair[1] {
                due if due <= START + one => 1_000_000,
                due if due <= START + two => 250_000,
                _ => 2_000_000,
            };
            assert!((pair[1] - pair[0]).abs_diff(gap) <= 2, "{pair:?}");
        }
    }

    #[test]
    fn nothing_is_due_in_a_pause_and_the_schedule_goes_on_after_it() {
        let asked = [(S, Change::Pause), (2 * S, Change::Rate(2000.0)), (3 * S, Change::Resume)];
        let (sent, told) = play(lanes(&hold(), false), &asked);
        let (one, two) = (S + LEAD, 3 * S + LEAD);
        assert_eq!(
            told.iter().map(|t| (t.rate, t.paused)).collect::<Vec<_>>(),
            [(1000.0, true), (2000.0, true), (2000.0, false)]
        );
        let counts = [between(&sent, 0, one), between(&sent, one, two), between(&sent, two, 10 * S)];
        assert_eq!(counts, [1200, 0, 13_600]);
        assert!(sent.windows(2).all(|pair| pair[0] < pair[1]));
        let words: Vec<String> = told.iter().map(Changed::to_string).collect();
        assert_eq!(
            words,
            [
                "at 1.200 s: paused",
                "at 2.200 s: rate 2000/s once it is resumed",
                "at 3.200 s: resumed at 2000/s"
            ]
        );
    }

    /// A load that is paused as its schedule ends has no more; a change within a ramp keeps the ramp's form.
    #[test]
    fn ramps_are_multiplied_and_cut_by_pauses() {
        let ramp = Phase { from: 0.0, ..hold()[0].clone() };
        let (sent, _) = play(
            lanes(std::slice::from_ref(&ramp), false),
            &[(5 * S - LEAD, Change::Rate(3000.0)), (8 * S - LEAD, Change::Pause)],
        );
        // 50 t^2 until 5 s, then three times as much, until 8 s.
        let counts = [between(&sent, 0, 5 * S), between(&sent, 5 * S, 8 * S), between(&sent, 8 * S, 10 * S)];
        assert!(counts[0].abs_diff(1250) <= 1 && counts[1].abs_diff(3 * (3200 - 1250)) <= 1, "{counts:?}");
        assert_eq!(counts[2], 0);
    }

    /// Random moments are the same ones, bent: the process of a Poisson schedule goes on with its own random numbers.
    #[test]
    fn poisson_goes_on_bent() {
        let (plain, _) = play(lanes(&hold(), true), &[]);
        let (sent, _) = play(lanes(&hold(), true), &[(2 * S - LEAD, Change::Rate(2000.0))]);
        let bent = |due: &u64| match due - START {
            t if t <= 2 * S => START + t,
            t => START + 2 * S + (t - 2 * S) / 2,
        };
        assert!(sent.len() > plain.len());
        for (due, plain) in sent.iter().zip(&plain) {
            assert!(due.abs_diff(bent(plain)) <= 2, "{due} {plain}");
        }
    }

    /// A lane that looks after the moment: what it took stays taken, and it changes then.
    #[test]
    fn a_lane_that_was_held_up_changes_late_and_sends_nothing_twice() {
        let mut lane = Moments::new(&hold(), 0, 1000.0, 1.0, 0.0, None);
        let mut taken = Vec::new();
        while let Some(due) = lane.peek().filter(|due| *due <= 3 * S) {
            taken.push(due);
            lane.advance();
        }
        lane.change(2 * S, 0.0, 3 * S);
        assert_eq!((taken.len(), lane.peek()), (3001, None));
        lane.change(9 * S, 1.0, 3 * S);
        assert!(lane.peek().unwrap().abs_diff(9_001_000_000) <= 2, "{:?}", lane.peek());
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        let changes = Changes::default();
        let ask = |change, now| changes.agree(change, now, COURSE).map(|_| ());
        assert_eq!(ask(Change::Resume, START), Err(Unchanged::NotPaused));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            assert_eq!(ask(Change::Rate(rate), START), Err(Unchanged::BadRate), "{rate}");
        }
        assert_eq!(ask(Change::Pause, COURSE.end - LEAD), Err(Unchanged::Ending));
        assert_eq!(changes.count(), 0);
        assert_eq!(ask(Change::Pause, START), Ok(()));
        assert_eq!(ask(Change::Pause, START), Err(Unchanged::PausedAlready));
        for _ in 1..MOST {
            assert_eq!(ask(Change::Rate(5.0), START), Ok(()));
        }
        assert_eq!(ask(Change::Resume, START), Err(Unchanged::TooMany));
        assert_eq!(changes.within(Duration::from_nanos(LEAD - 1)).len(), 0);
        assert_eq!(changes.within(Duration::from_nanos(LEAD)).len(), MOST);
    }
}
