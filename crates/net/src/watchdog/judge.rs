//! Whether a worker stands still.
//!
//! | What is seen | Verdict |
//! |---|---|
//! | another turn than before, or asleep, or it has ended | it turns |
//! | the same turn for the limit, and the thread is not runnable: it waits in the kernel, or is stopped | it stands |
//! | the same turn for the limit, runnable, and it has used half of the limit of processor time since | it stands: it computes |
//! | the same turn for the limit, runnable, with less processor time | it is starved: others have its processor |
//! | this thread itself was late by half of the limit | nothing is known: the process was stopped, or the machine slept |

use std::time::{Duration, Instant};

use crate::shared::{Place, Seen};

/// What is thought of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All is well.
    Turns,
    /// It has been in this turn for a while, but not for long.
    Unknown,
    /// It has been given too little of a processor. Said once.
    Starved,
    /// It stands still, for so long. Said once.
    Stands(Duration),
    /// It has not moved since that was said.
    StillStands(Duration),
}

/// Whether a watchdog that was to look after `period` and looked after `passed` was held up itself.
pub(super) fn is_late(passed: Duration, period: Duration, limit: Duration) -> bool {
    // Guard: `passed > period + limit / 2` as `false` fails watchdog::judge::tests::a_watchdog_that_was_late
    passed > period + limit / 2
}

/// What is remembered of one worker.
#[derive(Debug)]
pub(super) struct Judge {
    limit: Duration,
    turn: Option<Turn>,
}

#[derive(Debug)]
struct Turn {
    number: u32,
    /// When it was seen first.
    since: Instant,
    /// Processor time of the thread then; `None` if the kernel does not say.
    ran: Option<Duration>,
    told: bool,
    starved: bool,
}

impl Judge {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, turn: None }
    }

    /// Nothing is known of the time until now. What stands still goes on to stand still.
    pub(super) fn forget(&mut self) {
        self.turn = self.turn.take().filter(|turn| turn.told);
    }

    /// Looks at a worker. `ran` reads its thread's processor time, `letter` its state.
    pub(super) fn look(
        &mut self,
        now: Instant,
        seen: &Seen,
        ran: impl Fn() -> Option<Duration>,
        letter: impl Fn() -> Option<char>,
    ) -> Verdict {
        // Guard: `matches!(seen.place, Place::Away | Place::Asleep)` as `matches!(seen.place, Place::Away)`
        // fails watchdog::judge::tests::sleep_turns_and
        if matches!(seen.place, Place::Away | Place::Asleep) {
            self.turn = None;
            return Verdict::Turns;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.number == seen.turn) else {
            let turn = Turn { number: seen.turn, since: now, ran: ran(), told: false, starved: false };
            self.turn = Some(turn);
            return Verdict::Turns;
        };
        let lasted = now.saturating_duration_since(turn.since);
        if turn.told {
            return Verdict::StillStands(lasted);
        }
        if lasted < self.limit {
            return Verdict::Unknown;
        }
        let used = ran().zip(turn.ran).map(|(now, then)| now.saturating_sub(then));
        // Guard: `used.is_some_and(|used| used < self.limit / 2)` as `false` fails
        // watchdog::judge::tests::sleep_turns_and
        if letter() == Some('R') && used.is_some_and(|used| used < self.limit / 2) {
            let told = std::mem::replace(&mut turn.starved, true);
            return if told { Verdict::Unknown } else { Verdict::Starved };
        }
        turn.told = true;
        Verdict::Stands(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(turn: u32, place: Place) -> Seen {
        Seen { turn, place, lane: None, task: None, thread: 1 }
    }

    /// Looks every 250 ms: the turn, the place, the processor time used until then, the state.
    fn looks(judge: &mut Judge, looks: &[(u32, Place, u64, char)]) -> Vec<Verdict> {
        let began = Instant::now();
        let look = |(i, (turn, place, used, letter)): (usize, &(u32, Place, u64, char))| {
            let now = began + ms(250) * i as u32;
            judge.look(now, &at(*turn, *place), || Some(ms(*used)), || Some(*letter))
        };
        looks.iter().enumerate().map(look).collect()
    }

    #[test]
    fn a_worker_that_computes_or_waits_stands() {
        use Verdict::{Stands, StillStands, Turns, Unknown};
        let computes: Vec<_> = (0..6).map(|i| (7, Place::Tasks, i * 250, 'R')).collect();
        let waits: Vec<_> = (0..6).map(|_| (7, Place::Receive, 0, 'S')).collect();
        let stopped: Vec<_> = (0..6).map(|_| (7, Place::Stack, 0, 't')).collect();
        for seen in [computes, waits, stopped] {
            let expected = [Turns, Unknown, Unknown, Unknown, Stands(ms(1000)), StillStands(ms(1250))];
            assert_eq!(looks(&mut Judge::new(LIMIT), &seen), expected, "{seen:?}");
        }
        // It goes on, and stands again.
        let mut judge = Judge::new(LIMIT);
        let seen: Vec<_> = (0..15).map(|i| (i / 5, Place::Tasks, u64::from(i) * 250, 'R')).collect();
        let verdicts = looks(&mut judge, &seen);
        assert_eq!(verdicts.iter().filter(|v| matches!(v, Stands(_))).count(), 3, "{verdicts:?}");
        assert_eq!(verdicts[5], Turns);
    }

    #[test]
    fn sleep_turns_and_a_lack_of_processors_are_no_stall() {
        let asleep = [(7, Place::Asleep, 0, 'S'); 20];
        let turns: Vec<_> = (0..20).map(|turn| (turn, Place::Tasks, 0, 'R')).collect();
        let away = [(7, Place::Away, 0, 'S'); 20];
        for seen in [&asleep[..], &turns, &away] {
            assert!(looks(&mut Judge::new(LIMIT), seen).iter().all(|v| *v == Verdict::Turns));
        }
        // A tenth of a processor: starved, said once; and after half of the limit of processor time it stands.
        let starved: Vec<_> = (0..24).map(|i| (7, Place::Tasks, i * 25, 'R')).collect();
        let verdicts = looks(&mut Judge::new(LIMIT), &starved);
        assert_eq!(verdicts.iter().filter(|v| **v == Verdict::Starved).count(), 1, "{verdicts:?}");
        assert_eq!(verdicts.iter().position(|v| matches!(v, Verdict::Stands(_))), Some(20), "{verdicts:?}");
    }

    #[test]
    fn a_watchdog_that_was_late_knows_nothing() {
        assert!(!is_late(ms(260), ms(250), LIMIT) && is_late(ms(751), ms(250), LIMIT));
        let mut judge = Judge::new(LIMIT);
        let began = Instant::now();
        let look = |judge: &mut Judge, after: u64| {
            judge.look(began + ms(after), &at(7, Place::Tasks), || Some(ms(0)), || Some('S'))
        };
        look(&mut judge, 0);
        // The process was stopped for an hour.
        judge.forget();
        assert_eq!(look(&mut judge, 3_600_000), Verdict::Turns);
        assert_eq!(look(&mut judge, 3_600_900), Verdict::Unknown);
        assert_eq!(look(&mut judge, 3_601_000), Verdict::Stands(ms(1000)));
        judge.forget();
        assert_eq!(look(&mut judge, 3_602_000), Verdict::StillStands(ms(2000)), "it is told once");
    }

    #[test]
    fn a_kernel_that_does_not_say_is_believed_to_run_it() {
        let mut judge = Judge::new(LIMIT);
        let began = Instant::now();
        judge.look(began, &at(7, Place::Tasks), || None, || Some('R'));
        let verdict = judge.look(began + LIMIT, &at(7, Place::Tasks), || None, || None);
        assert_eq!(verdict, Verdict::Stands(LIMIT));
    }
}
